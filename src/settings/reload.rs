//! Section `[reload]`: how a changed configuration is applied while the service runs.

use std::time::Duration;

use crate::settings::values::Reader;

/// The settings in section `[reload]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReloadSettings {
    /// Whether to watch the files. `SIGHUP` always reloads them.
    pub watch: bool,
    /// How long running calls to a changed or removed server may continue.
    pub drain: Duration,
}

impl ReloadSettings {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        Self { watch: reader.switch("reload.watch"), drain: reader.seconds("reload.drain_seconds", 0..=3600) }
    }
}
