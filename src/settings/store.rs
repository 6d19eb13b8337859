//! The data folder and retention times.

use std::path::PathBuf;
use std::time::Duration;

use crate::settings::values::{Reader, section};

section! {
    /// Section `[store]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct StoreSettings = read(reader) {
        pub data_dir: PathBuf = data_dir(reader),
        /// Since a chat's last message.
        pub chat_retention: Duration = reader.days("store.chat_retention_days", 1..=3650),
        pub event_retention: Duration = reader.days("store.event_retention_days", 1..=3650),
        pub audit_retention: Duration = reader.days("store.audit_retention_days", 1..=3650),
        pub usage_retention: Duration = reader.days("store.usage_retention_days", 1..=3650),
        /// Of vectors and token counts, since the tool was last listed.
        pub unused_retention: Duration = reader.days("store.unused_retention_days", 1..=3650),
        /// Of API keys, since their revocation or expiry.
        pub key_retention: Duration = reader.days("store.key_retention_days", 1..=3650),
        /// Of the baseline of a tool's definition, since a server last listed the tool.
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
