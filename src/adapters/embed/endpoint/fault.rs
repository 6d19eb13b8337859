//! Reasons why an endpoint returned no vectors. They contain no part of the request or response, which might include the key.

use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    #[error("the endpoint can't be reached")]
    Unreachable,
    #[error("the endpoint did not answer in time")]
    Timeout,
    #[error("the endpoint rejected the key")]
    Unauthorized,
    #[error("the endpoint's rate limit was exceeded")]
    RateLimited(Option<Duration>),
    #[error("the endpoint failed with HTTP status {0}")]
    Server(u16, Option<Duration>),
    #[error("the endpoint has no such model, or the URL is wrong (HTTP status 404)")]
    NotFound,
    #[error("the endpoint rejected the request with HTTP status {0}")]
    Refused(u16),
    #[error("the endpoint's answer was {0}")]
    Answer(#[from] AnswerFault),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum AnswerFault {
    #[error("not a list of embeddings")]
    NoEmbeddings,
    #[error("too long")]
    TooLong,
    #[error("{found} vectors for {expected} texts")]
    Count { expected: usize, found: usize },
    #[error("inconsistent: the order contradicts the index numbers")]
    Order,
    #[error("vectors of {found} values instead of {expected}; if its model has changed, restart the service")]
    Dimension { expected: usize, found: usize },
    #[error("a vector of zeros or with non-finite values")]
    NoDirection,
}

impl Fault {
    /// Whether a retry may succeed.
    pub(super) fn may_pass(self) -> bool {
        matches!(self, Self::Unreachable | Self::Timeout | Self::RateLimited(_) | Self::Server(..))
    }

    /// Whether other requests would fail for the same reason.
    pub(super) fn is_outage(self) -> bool {
        self.may_pass() || matches!(self, Self::Unauthorized | Self::NotFound)
    }

    /// The `Retry-After` time from the endpoint.
    pub(super) fn retry_after(self) -> Option<Duration> {
        match self {
            Self::RateLimited(wait) | Self::Server(_, wait) => wait,
            _ => None,
        }
    }
}
