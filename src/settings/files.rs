//! Section `[files]`: lifetime and disk space of files that tools have returned.

use std::time::Duration;

use crate::settings::values::section;

section! {
    /// The settings in section `[files]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct FileSettings = read(reader) {
        /// How long a link to a file works.
        pub lifetime: Duration = reader.seconds("files.lifetime_seconds", 60..=604_800),
        /// Maximum size of a file in a database.
        pub max_file_bytes: u64 = reader.whole("files.max_file_bytes", 1 << 10..=1 << 29) as u64,
        /// Maximum size of all files together.
        pub max_total_bytes: u64 = reader.whole("files.max_total_bytes", 1 << 20..=1 << 40) as u64,
    }
}
