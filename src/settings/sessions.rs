//! Section `[sessions]`: lifetimes and limits of sessions.

use std::time::Duration;

use crate::settings::values::{Reader, section};

section! {
    /// The settings in section `[sessions]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct SessionSettings = values(reader) {
        /// Lifetime of a session if the request names none.
        pub ttl: Duration = reader.seconds("sessions.ttl_seconds", 1..=LONGEST_SECONDS),
        /// Maximum lifetime that a request may name.
        pub longest_ttl: Duration = reader.seconds("sessions.longest_ttl_seconds", 1..=LONGEST_SECONDS),
        /// Maximum number of sessions per caller.
        pub per_caller: usize = reader.whole("sessions.per_caller", 1..=1_000_000),
        /// Maximum number of sessions of all callers together.
        pub total: usize = reader.whole("sessions.total", 1..=1_000_000),
    }
}

const LONGEST_SECONDS: usize = 365 * 24 * 60 * 60;

impl SessionSettings {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        let settings = Self::values(reader);
        if settings.ttl > settings.longest_ttl {
            let remedy = "write at most sessions.longest_ttl_seconds, or raise that";
            reader.problem("sessions.ttl_seconds", "longer than sessions.longest_ttl_seconds", remedy);
        }
        settings
    }
}
