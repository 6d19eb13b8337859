//! Time limits and intervals of supervision.

use std::time::Duration;

/// Time limits and intervals. The defaults are for production; tests use shorter ones.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// The pause after the first failure. It doubles with each further failure.
    pub first_retry: Duration,
    pub longest_retry: Duration,
    /// After a connection that lasted at least this long, the next attempt is immediate and the pauses start over.
    pub stable_after: Duration,
    /// How long changes are collected before tools are listed again. It grows while changes continue.
    pub debounce: Duration,
    /// Interval at which a remote server is listed without a notification. Otherwise its loss or its changes might go unnoticed.
    pub refresh: Duration,
    /// Time limit for repeated lists. The first list counts towards the start timeout.
    pub list_timeout: Duration,
    /// How long a call waits for a server that may be back soon.
    pub patience: Duration,
    /// How long a call waits for a server's first start.
    pub start_patience: Duration,
    /// How long running calls may continue after their server is removed or reconfigured.
    pub drain: Duration,
    /// Interval of pings to a stdio server; `None` disables them.
    pub ping: Option<Duration>,
    /// Time limit of a ping.
    pub ping_timeout: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            first_retry: Duration::from_millis(500),
            longest_retry: Duration::from_mins(1),
            stable_after: Duration::from_secs(10),
            debounce: Duration::from_millis(100),
            refresh: Duration::from_mins(1),
            list_timeout: Duration::from_secs(30),
            patience: Duration::from_millis(900),
            start_patience: Duration::from_secs(20),
            drain: Duration::from_secs(30),
            ping: Some(Duration::from_secs(30)),
            ping_timeout: Duration::from_secs(10),
        }
    }
}
