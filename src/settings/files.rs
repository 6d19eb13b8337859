//! Lifetime and disk space of files that tools returned.

use std::time::Duration;

use crate::settings::values::Reader;

/// Section `[files]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSettings {
    /// Lifetime of a link.
    pub lifetime: Duration,
    /// Of all files together.
    pub max_total_bytes: u64,
}

impl FileSettings {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        Self {
            lifetime: reader.seconds("files.lifetime_seconds", 60..=604_800),
            max_total_bytes: reader.whole("files.max_total_bytes", 1 << 20..=1 << 40) as u64,
        }
    }
}
