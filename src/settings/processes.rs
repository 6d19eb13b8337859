//! The processes of MCP servers: what is kept from them, and how it is found out that one hangs.

use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;

use crate::settings::values::Reader;

/// Section `[processes]`, and what all sections together and the command line say.
#[derive(Clone, Debug, Default)]
pub struct ProcessSettings {
    /// This program itself, through which servers are started; `None` where it is another one (tests), and they are started directly.
    pub launcher: Option<PathBuf>,
    /// Our own keys: no server is handed a variable that holds one.
    pub secrets: Vec<SecretString>,
    /// Files that a server in a sandbox can't read, beside the data folder.
    pub files: Vec<PathBuf>,
    /// How often each is asked whether it is still there; `None`: never.
    pub ping: Option<Duration>,
}

impl ProcessSettings {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        let ping = reader.seconds("processes.ping_seconds", 0..=86_400);
        Self { ping: (!ping.is_zero()).then_some(ping), ..Self::default() }
    }
}

/// Whether the value of a setting is secret, by its name.
pub(super) fn is_secret(key: &str) -> bool {
    let name = key.rsplit('.').next().unwrap_or(key);
    !is_file(key) && ["key", "keys", "secret", "password"].iter().any(|word| name == *word || name.ends_with(&format!("_{word}")))
}

/// Whether the value is the path of a file that holds something secret.
pub(super) fn is_file(key: &str) -> bool {
    key == "http.tls_key" || key.ends_with("_file")
}

#[cfg(test)]
mod tests {
    use super::{is_file, is_secret};
    use crate::settings::Settings;

    #[test]
    fn every_key_among_the_settings_is_known_by_its_name() {
        let settings = Settings::defaults().unwrap();
        let named = |test: fn(&str) -> bool| settings.keys.keys().map(String::as_str).filter(|key| test(key)).collect::<Vec<_>>();
        for key in
            ["access.admin_key", "access.user_jwt_secret", "http.api_key", "index.qdrant_api_key", "llm.api_key", "secrets.former_keys"]
        {
            assert!(named(is_secret).contains(&key), "{key}");
        }
        for key in ["http.tls_key", "secrets.key_file"] {
            assert!(named(is_file).contains(&key) && !named(is_secret).contains(&key), "{key}");
        }
        assert!(!named(is_secret).contains(&"http.port"));
    }
}
