//! Who administers, and whose word on users is believed.

use secrecy::{ExposeSecret, SecretString};

use crate::settings::http::{HttpSettings, header_key};
use crate::settings::values::Reader;
use crate::settings::weak_key::weakness;

/// HS256 wants a key as long as its hash (RFC 7518, section 3.2); half of it is where guessing ends.
const SHORTEST_SECRET: usize = 16;

/// Section `[access]`.
#[derive(Clone, Debug)]
pub struct AccessSettings {
    /// `None`: nobody administers, or without any key at all this machine.
    pub admin_key: Option<SecretString>,
    /// Whether callers with the service key are believed on which user they call for.
    pub trust_users: bool,
    /// `None`: users come in plain headers.
    pub user_jwt_secret: Option<SecretString>,
}

impl AccessSettings {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        Self {
            admin_key: header_key("access.admin_key", reader),
            trust_users: reader.switch("access.trust_users"),
            user_jwt_secret: user_jwt_secret(reader),
        }
    }

    pub(super) fn check(&self, http: &HttpSettings, reader: &mut Reader<'_>) {
        http.check_exposure(self.admin_key.is_some(), reader);
        let text = |key: &Option<SecretString>| key.as_ref().map(|key| key.expose_secret().to_owned());
        if self.admin_key.is_some() && text(&self.admin_key) == text(&http.api_key) {
            reader.problem("access.admin_key", "the same as http.api_key", "take another one: whoever runs tools would administer them");
        }
        for (name, key) in [("http.api_key", &http.api_key), ("access.admin_key", &self.admin_key)] {
            if let Some(reason) = key.as_ref().and_then(|key| weakness(key.expose_secret())) {
                reader.warning(name, reason, "take one that nobody thinks of: openssl rand -hex 32");
            }
        }
        if self.trust_users && http.api_key.is_none() {
            reader.warning(
                "access.trust_users",
                "without effect: there is no http.api_key",
                "set that key, or create a named key that is trusted",
            );
        }
    }
}

fn user_jwt_secret(reader: &mut Reader<'_>) -> Option<SecretString> {
    let secret = reader.optional_text("access.user_jwt_secret")?;
    if secret.len() < SHORTEST_SECRET {
        reader.problem(
            "access.user_jwt_secret",
            "so short that it can be guessed",
            format!("take {SHORTEST_SECRET} characters or more, the same in Open WebUI"),
        );
    }
    Some(SecretString::from(secret))
}
