//! The kinds of limits.

/// The limit that rejected a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    Calls,
    Selections,
    ServerCalls,
    ConcurrentCalls,
}

impl Limit {
    /// The value of the label `limit`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Selections => "selections",
            Self::ServerCalls => "server_calls",
            Self::ConcurrentCalls => "concurrent_calls",
        }
    }
}
