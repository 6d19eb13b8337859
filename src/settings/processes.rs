//! Section `[processes]`: what the processes of MCP servers may not read, and how often they are pinged.

use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;

use crate::settings::values::Reader;

/// Section `[processes]`, with the secrets and files that other sections and the command line name.
#[derive(Clone, Debug, Default)]
pub struct ProcessSettings {
    /// The service's own binary, which starts the servers. `None` if another program runs, such as a test. Servers are
    /// then started directly.
    pub launcher: Option<PathBuf>,
    /// The service's own keys. Servers don't inherit variables that contain one of them.
    pub secrets: Vec<SecretString>,
    /// Files that sandboxed servers can't read, in addition to the data folder.
    pub files: Vec<PathBuf>,
    /// How often processes are checked; `None` means never.
    pub ping: Option<Duration>,
}

impl ProcessSettings {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        let ping = reader.seconds("processes.ping_seconds", 0..=86_400);
        Self { ping: (!ping.is_zero()).then_some(ping), ..Self::default() }
    }
}

/// Whether the name of a setting shows that its value is secret.
pub(super) fn is_secret(key: &str) -> bool {
    let name = key.rsplit('.').next().unwrap_or(key);
    !is_file(key)
        && ["key", "keys", "secret", "password", "headers"].iter().any(|word| name == *word || name.ends_with(&format!("_{word}")))
}

/// Whether the name of a setting shows that its value is the path of a secret file.
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
        for key in [
            "access.admin_key",
            "access.user_jwt_secret",
            "http.api_key",
            "index.qdrant_api_key",
            "llm.api_key",
            "secrets.former_keys",
            "telemetry.headers",
        ] {
            assert!(named(is_secret).contains(&key), "{key}");
        }
        for key in ["http.tls_key", "secrets.key_file"] {
            assert!(named(is_file).contains(&key) && !named(is_secret).contains(&key), "{key}");
        }
        assert!(!named(is_secret).contains(&"http.port"));
    }
}
