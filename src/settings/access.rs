//! Section `[access]`: the admin key, and which callers may name the user on whose behalf they call.

use secrecy::{ExposeSecret, SecretString};

use crate::settings::http::{HttpSettings, OWN_KEY};
use crate::settings::values::{Reader, section};
use crate::settings::weak_key::weakness;

/// HS256 should have a key as long as its hash (RFC 7518, section 3.2), but half that length can't be guessed either.
const SHORTEST_SECRET: usize = 16;

section! {
    /// The settings in section `[access]`.
    #[derive(Clone, Debug)]
    pub struct AccessSettings = read(reader) {
        /// Without an admin key, nobody is an administrator. If there is no key at all, callers on this machine are
        /// administrators.
        pub admin_key: Option<SecretString> = reader.header_key("access.admin_key", OWN_KEY),
        /// Whether callers with the service key may name the user on whose behalf they call.
        pub trust_users: bool = reader.switch("access.trust_users"),
        /// Whether the API may add servers that are programs.
        pub allow_commands: bool = reader.switch("access.allow_commands"),
        /// Whether `[[key]]` tables define keys. All callers then need a key.
        pub has_keys_in_file: bool = reader.has_api_keys(),
        /// The secret for signed users; `None` if users are named in plain headers.
        pub user_jwt_secret: Option<SecretString> = user_jwt_secret(reader),
    }
}

impl AccessSettings {
    pub(super) fn checked(http: &HttpSettings, reader: &mut Reader<'_>) -> Self {
        let settings = Self::read(reader);
        settings.check(http, reader);
        http.check_sizes(reader);
        settings
    }

    fn check(&self, http: &HttpSettings, reader: &mut Reader<'_>) {
        let text = |key: &Option<SecretString>| key.as_ref().map(|key| key.expose_secret().to_owned());
        if self.admin_key.is_some() && text(&self.admin_key) == text(&http.api_key) {
            reader.problem("access.admin_key", "the same as http.api_key", "use a different key: every caller would be an admin");
        }
        for (name, key) in [("http.api_key", &http.api_key), ("access.admin_key", &self.admin_key)] {
            if let Some(reason) = key.as_ref().and_then(|key| weakness(key.expose_secret())) {
                reader.warning(name, reason, "generate a random one: openssl rand -hex 32");
            }
        }
        if self.trust_users && http.api_key.is_none() {
            reader.warning("access.trust_users", "has no effect without http.api_key", "set that key, or create a trusted named key");
        }
    }
}

fn user_jwt_secret(reader: &mut Reader<'_>) -> Option<SecretString> {
    let secret = reader.optional_text("access.user_jwt_secret")?;
    if secret.len() < SHORTEST_SECRET {
        reader.problem(
            "access.user_jwt_secret",
            "too short: it can be guessed",
            format!("use {SHORTEST_SECRET} characters or more, and the same secret in Open WebUI"),
        );
    }
    Some(SecretString::from(secret))
}
