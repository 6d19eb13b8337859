//! The data folder and retention times.

use std::path::PathBuf;
use std::time::Duration;

use crate::settings::values::Reader;

/// Section `[store]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSettings {
    pub data_dir: PathBuf,
    /// Since a chat's last message.
    pub chat_retention: Duration,
    pub event_retention: Duration,
    pub audit_retention: Duration,
    pub usage_retention: Duration,
    /// Of vectors and token counts, since the tool was last listed.
    pub unused_retention: Duration,
    /// Of API keys, since their revocation or expiry.
    pub key_retention: Duration,
    /// Of the baseline of a tool's definition, since a server last listed the tool.
    pub definition_retention: Duration,
}

impl StoreSettings {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        let data_dir = reader.text("store.data_dir");
        if data_dir.is_empty() {
            reader.problem("store.data_dir", "empty", "write the path of a folder");
        }
        Self {
            data_dir: PathBuf::from(data_dir),
            chat_retention: reader.days("store.chat_retention_days", 1..=3650),
            event_retention: reader.days("store.event_retention_days", 1..=3650),
            audit_retention: reader.days("store.audit_retention_days", 1..=3650),
            usage_retention: reader.days("store.usage_retention_days", 1..=3650),
            unused_retention: reader.days("store.unused_retention_days", 1..=3650),
            key_retention: reader.days("store.key_retention_days", 1..=3650),
            definition_retention: reader.days("store.definition_retention_days", 1..=3650),
        }
    }
}
