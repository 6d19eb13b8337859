//! How long things may take.

use std::time::Duration;

/// The timing of supervision. The default is for production; tests use shorter times.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// The pause after a first failure. It doubles with each further one.
    pub first_retry: Duration,
    pub longest_retry: Duration,
    /// After a connection of this length, the next attempt is immediate and the pauses start over.
    pub stable_after: Duration,
    /// How long changes are collected before tools are listed again. It grows while changes continue.
    pub debounce: Duration,
    /// How often a remote server is listed without a notification: nothing else may reveal that it is gone or has changed.
    pub refresh: Duration,
    /// Time limit for listing again. The first list belongs to the start.
    pub list_timeout: Duration,
    /// How long a call waits for a server that may be back soon.
    pub patience: Duration,
    /// How long a call waits for a server's first start.
    pub start_patience: Duration,
    /// How long running calls may continue after their server was removed or reconfigured.
    pub drain: Duration,
    /// Interval of pings to a stdio server; `None`: no pings.
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
