//! Lifetimes and limits of sessions.

use std::time::Duration;

use crate::settings::values::Reader;

/// Section `[sessions]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionSettings {
    /// Default lifetime.
    pub ttl: Duration,
    /// Longest lifetime that a request may ask for.
    pub longest_ttl: Duration,
    /// Sessions of one caller at a time.
    pub per_caller: usize,
    /// Sessions of all callers at a time.
    pub total: usize,
}

const LONGEST_SECONDS: usize = 365 * 24 * 60 * 60;

impl SessionSettings {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        let settings = Self {
            ttl: reader.seconds("sessions.ttl_seconds", 1..=LONGEST_SECONDS),
            longest_ttl: reader.seconds("sessions.longest_ttl_seconds", 1..=LONGEST_SECONDS),
            per_caller: reader.whole("sessions.per_caller", 1..=1_000_000),
            total: reader.whole("sessions.total", 1..=1_000_000),
        };
        if settings.ttl > settings.longest_ttl {
            let remedy = "write at most sessions.longest_ttl_seconds, or raise that";
            reader.problem("sessions.ttl_seconds", "longer than sessions.longest_ttl_seconds", remedy);
        }
        settings
    }
}
