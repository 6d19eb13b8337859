//! Whether metrics are served, and to whom.

use crate::settings::values::Reader;

/// Section `[metrics]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricsSettings {
    pub enabled: bool,
    /// Without a key.
    pub public: bool,
    /// Whether single tools get their own series.
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
            reader.warning("metrics.public", "has no effect: metrics are off", "set metrics.enabled too, or remove this");
        }
        settings
    }
}
