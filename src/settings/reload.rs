//! How a changed configuration is taken over while the service runs.

use std::time::Duration;

use crate::settings::values::Reader;

/// Section `[reload]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReloadSettings {
    /// Whether the files are watched; a `SIGHUP` is always heard.
    pub watch: bool,
    /// How long calls under way may go on on a server that was changed or removed.
    pub drain: Duration,
}

impl ReloadSettings {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        Self { watch: reader.switch("reload.watch"), drain: reader.seconds("reload.drain_seconds", 0..=3600) }
    }
}
