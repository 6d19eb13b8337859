//! How a changed configuration is applied at run time.

use std::time::Duration;

use crate::settings::values::Reader;

/// Section `[reload]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReloadSettings {
    /// Whether the files are watched. `SIGHUP` always works.
    pub watch: bool,
    /// How long running calls may continue on a changed or removed server.
    pub drain: Duration,
}

impl ReloadSettings {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        Self { watch: reader.switch("reload.watch"), drain: reader.seconds("reload.drain_seconds", 0..=3600) }
    }
}
