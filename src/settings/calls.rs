//! Limits of tool calls, for servers that have none of their own.

use std::time::Duration;

use crate::settings::values::Reader;

/// Section `[calls]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallSettings {
    pub timeout: Duration,
    /// For connecting to a server and its first listing.
    pub start_timeout: Duration,
    pub max_result_bytes: usize,
    /// Whether arguments are checked against the tool's input schema before the call.
    pub validate_arguments: bool,
}

impl CallSettings {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        Self {
            timeout: reader.seconds("calls.timeout_seconds", 1..=86_400),
            start_timeout: reader.seconds("calls.start_timeout_seconds", 1..=3600),
            max_result_bytes: reader.whole("calls.max_result_bytes", 1024..=1 << 30),
            validate_arguments: reader.switch("calls.validate_arguments"),
        }
    }
}
