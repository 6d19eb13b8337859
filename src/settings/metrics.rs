//! Whether and to whom the service tells its metrics.

use crate::settings::values::Reader;

/// Section `[metrics]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricsSettings {
    pub enabled: bool,
    /// Without a key.
    pub public: bool,
    /// Whether there are series of single tools.
    pub per_tool: bool,
}

impl MetricsSettings {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        let settings = Self {
            enabled: reader.switch("metrics.enabled"),
            public: reader.switch("metrics.public"),
            per_tool: reader.switch("metrics.per_tool"),
        };
        if settings.public && !settings.enabled {
            reader.warning("metrics.public", "without effect: there are no metrics", "set metrics.enabled too, or leave this out");
        }
        settings
    }
}
