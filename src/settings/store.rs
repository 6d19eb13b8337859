//! Section `[store]`: the data folder, the database, and how long data is kept.

use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;
use url::Url;

use crate::settings::values::{Reader, section};

/// A PostgreSQL database in which the state is stored, in place of the file in the data folder.
#[derive(Clone, Debug)]
pub struct PostgresSettings {
    /// The address, which may contain the password.
    pub url: SecretString,
    /// The address for notifications, if a connection pooler at `url` doesn't pass them on.
    pub listen_url: Option<SecretString>,
    /// The schema that contains the tables.
    pub schema: String,
    pub max_connections: u32,
    /// How long an operation waits for a connection.
    pub connect_timeout: Duration,
    pub statement_timeout: Duration,
}

section! {
    /// The settings in section `[store]`.
    #[derive(Clone, Debug)]
    pub struct StoreSettings = read(reader) {
        pub data_dir: PathBuf = data_dir(reader),
        /// `None`: the state is stored in a file in the data folder.
        pub postgres: Option<PostgresSettings> = postgres(reader),
        /// How long a message waits for the database.
        pub message_wait: Duration = reader.milliseconds("store.message_wait_ms", 1..=60_000),
        /// The maximum size of the records that wait on the disk while the database is away.
        pub max_spool_bytes: u64 = reader.whole("store.max_spool_bytes", 1 << 20..=1 << 40) as u64,
        /// How long a chat's set is kept after the chat's last message.
        pub chat_retention: Duration = reader.days("store.chat_retention_days", 1..=3650),
        pub event_retention: Duration = reader.days("store.event_retention_days", 1..=3650),
        pub audit_retention: Duration = reader.days("store.audit_retention_days", 1..=3650),
        pub usage_retention: Duration = reader.days("store.usage_retention_days", 1..=3650),
        /// How long vectors and token counts are kept after their tool was last listed.
        pub unused_retention: Duration = reader.days("store.unused_retention_days", 1..=3650),
        /// How long an API key is kept after it was revoked or has expired.
        pub key_retention: Duration = reader.days("store.key_retention_days", 1..=3650),
        /// How long the baseline of a definition is kept after its tool was last listed.
        pub definition_retention: Duration = reader.days("store.definition_retention_days", 1..=3650),
    }
}

fn data_dir(reader: &mut Reader<'_>) -> PathBuf {
    let folder = reader.text("store.data_dir");
    if folder.is_empty() {
        reader.problem("store.data_dir", "empty", "write the path of a folder");
    }
    PathBuf::from(folder)
}

fn postgres(reader: &mut Reader<'_>) -> Option<PostgresSettings> {
    // Reads all settings, so that mistakes in unused settings are reported too.
    let schema = schema(reader);
    let max_connections = reader.whole("store.max_connections", 2..=1000);
    let connect_timeout = reader.milliseconds("store.connect_timeout_ms", 100..=60_000);
    let statement_timeout = reader.milliseconds("store.statement_timeout_ms", 100..=3_600_000);
    let listen_url = url(reader, "store.listen_url");
    let url = url(reader, "store.url")?;
    let max_connections = u32::try_from(max_connections).unwrap_or(u32::MAX);
    Some(PostgresSettings { url, listen_url, schema, max_connections, connect_timeout, statement_timeout })
}

/// The name of a schema. PostgreSQL would cut a longer one.
fn schema(reader: &mut Reader<'_>) -> String {
    const KEY: &str = "store.schema";
    let name = reader.text(KEY);
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    let is_plain = name.bytes().all(|byte| is_letter(byte) || byte.is_ascii_digit());
    if !is_plain || name.len() > 63 || !name.bytes().next().is_some_and(is_letter) || name.starts_with("pg_") {
        let remedy = "write at most 63 lowercase letters, digits and underscores, beginning with a letter and not with pg_";
        reader.problem(KEY, "not a plain name of a schema", remedy);
    }
    name
}

fn url(reader: &mut Reader<'_>, key: &'static str) -> Option<SecretString> {
    let text = reader.optional_text(key)?;
    let url = Url::parse(&text).ok();
    if !url.as_ref().is_some_and(|url| matches!(url.scheme(), "postgres" | "postgresql")) {
        // The message omits the address, because it may contain a password.
        let remedy = "write it as postgres://USER:PASSWORD@HOST:5432/DATABASE, with special characters in the password percent-encoded; \
                      without it, the state is stored in a file in the data folder";
        reader.problem(key, "not the address of a PostgreSQL database", remedy);
    }
    Some(SecretString::from(text))
}
