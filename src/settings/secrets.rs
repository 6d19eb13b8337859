//! Sections `[secrets]` and `[user_connections]`: users' secrets, and connections for single users.

use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};

use crate::domain::access::secret::{SecretKey, SecretKeys};
use crate::settings::servers::ServerSettings;
use crate::settings::values::{Reader, section};

const REMEDY: &str = "create one with `toolsieve secrets new-key`: 32 bytes in base64";

/// The settings in section `[secrets]`.
#[derive(Clone, Debug, Default)]
pub struct SecretSettings {
    /// The encryption keys; `None` if users can't store secrets.
    pub keys: Option<SecretKeys>,
}

impl SecretSettings {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        let (key, former) = (reader.optional_text("secrets.key"), reader.list("secrets.former_keys"));
        let is_given = key.is_some();
        let present = key.and_then(|key| parsed(&SecretString::from(key), "secrets.key", reader));
        let former: Vec<SecretKey> = former
            .into_iter()
            .filter(|key| !key.is_empty())
            .filter_map(|key| parsed(&SecretString::from(key), "secrets.former_keys", reader))
            .collect();
        if !former.is_empty() && !is_given {
            reader.problem(
                "secrets.former_keys",
                "has no effect without secrets.key",
                "set secrets.key: former keys only decrypt older secrets",
            );
        }
        Self { keys: present.map(|present| SecretKeys { present, former }) }
    }

    pub(super) fn check(&self, servers: &[ServerSettings], reader: &mut Reader<'_>) {
        let taking: Vec<&str> =
            servers.iter().filter(|server| server.per_user.takes_secrets()).map(|server| server.name.as_str()).collect();
        if self.keys.is_none() && !taking.is_empty() {
            reader.warning(
                "secrets.key",
                format!("not set, but these servers use secrets of their users: {}", taking.join(", ")),
                "set it, so that users can store them; `toolsieve secrets new-key` prints one",
            );
        }
    }
}

fn parsed(text: &SecretString, key: &str, reader: &mut Reader<'_>) -> Option<SecretKey> {
    let parsed = SecretKey::parse(text.expose_secret());
    if parsed.is_none() {
        reader.problem(key, "not a valid key", REMEDY);
    }
    parsed
}

section! {
    /// Section `[user_connections]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct UserConnectionSettings = read(reader) {
        /// Idle time after which one is closed.
        pub idle: Duration = reader.seconds("user_connections.idle_seconds", 1..=86_400),
        pub per_server: usize = reader.whole("user_connections.per_server", 1..=100_000),
        pub total: usize = reader.whole("user_connections.total", 1..=100_000),
    }
}

impl Default for UserConnectionSettings {
    /// For code that runs without settings, such as tests. A test compares these values with `defaults.toml`.
    fn default() -> Self {
        Self { idle: Duration::from_mins(10), per_server: 100, total: 500 }
    }
}

#[cfg(test)]
mod tests {
    use super::UserConnectionSettings;
    use crate::settings::Settings;

    #[test]
    fn the_defaults_are_those_of_the_reference() {
        assert_eq!(Settings::defaults().unwrap().start.user_connections, UserConnectionSettings::default());
    }
}
