//! Section `[reload]`: how a changed configuration is applied while the service runs.

use std::time::Duration;

use crate::settings::values::section;

section! {
    /// Section `[reload]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ReloadSettings = read(reader) {
        /// Whether the files are watched. `SIGHUP` always works.
        pub watch: bool = reader.switch("reload.watch"),
        /// How long running calls may continue on a changed or removed server.
        pub drain: Duration = reader.seconds("reload.drain_seconds", 0..=3600),
    }
}
