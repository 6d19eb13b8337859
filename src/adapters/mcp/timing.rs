//! How long things may take.

use std::time::Duration;

/// The clockwork of supervision. The default is for use, tests are quicker.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// The pause after a first failure. It doubles with each further one.
    pub first_retry: Duration,
    pub longest_retry: Duration,
    /// After a connection of this length the next attempt comes at once and the pauses start over.
    pub stable_after: Duration,
    /// How long changes are collected before the tools are listed again. It grows while there are ever more of them.
    pub debounce: Duration,
    /// How often a server over HTTP is listed unasked: nothing else may tell that it is gone or has changed.
    pub refresh: Duration,
    /// How long listing again may take. The first list belongs to the start.
    pub list_timeout: Duration,
    /// How long a call waits for a server that is about to be back.
    pub patience: Duration,
    /// How long a call waits for a server in its first start.
    pub start_patience: Duration,
    /// How long calls under way may go on after their server was taken out of the configuration or changed in it.
    pub drain: Duration,
    /// How often a server over standard streams is asked whether it is still there; `None`: never.
    pub ping: Option<Duration>,
    /// How long it may take over the answer.
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
