//! Lifetime and disk space of files that tools returned.

use std::time::Duration;

use crate::settings::values::section;

section! {
    /// Section `[files]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct FileSettings = read(reader) {
        /// Lifetime of a link.
        pub lifetime: Duration = reader.seconds("files.lifetime_seconds", 60..=604_800),
        /// Of all files together.
        pub max_total_bytes: u64 = reader.whole("files.max_total_bytes", 1 << 20..=1 << 40) as u64,
    }
}
