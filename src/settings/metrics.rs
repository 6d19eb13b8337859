//! Section `[metrics]`: whether metrics are published, and who may read them.

use crate::settings::values::{Reader, section};

section! {
    /// The settings in section `[metrics]`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MetricsSettings = values(reader) {
        pub enabled: bool = reader.switch("metrics.enabled"),
        /// Whether to publish metrics without a key.
        pub public: bool = reader.switch("metrics.public"),
        /// Whether each tool has its own time series.
        pub per_tool: bool = reader.switch("metrics.per_tool"),
    }
}

impl MetricsSettings {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        let settings = Self::values(reader);
        if settings.public && !settings.enabled {
            reader.warning("metrics.public", "has no effect: metrics are off", "set metrics.enabled too, or remove this");
        }
        settings
    }
}
