//! Section `[store]`: the data folder, and how long data is kept.

use std::path::PathBuf;
use std::time::Duration;

use crate::settings::values::{Reader, section};

section! {
    /// The settings in section `[store]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct StoreSettings = read(reader) {
        pub data_dir: PathBuf = data_dir(reader),
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
