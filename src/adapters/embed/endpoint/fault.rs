//! Why an endpoint brought no vectors. Holds nothing of what was sent or answered: at worst that is the key.

use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    #[error("the endpoint can't be reached")]
    Unreachable,
    #[error("the endpoint did not answer in time")]
    Timeout,
    #[error("the endpoint refused the key")]
    Unauthorized,
    #[error("the endpoint had too many requests")]
    RateLimited(Option<Duration>),
    #[error("the endpoint failed with HTTP status {0}")]
    Server(u16, Option<Duration>),
    #[error("the endpoint has no such model, or it is another kind of address (HTTP status 404)")]
    NotFound,
    #[error("the endpoint refused the request with HTTP status {0}")]
    Refused(u16),
    #[error("the endpoint's answer was {0}")]
    Answer(#[from] AnswerFault),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum AnswerFault {
    #[error("no list of embeddings")]
    NoEmbeddings,
    #[error("longer than vectors are")]
    TooLong,
    #[error("{found} vectors for {expected} texts")]
    Count { expected: usize, found: usize },
    #[error("in an order that its own numbers contradict")]
    Order,
    #[error("vectors of {found} values where {expected} are expected; if its model was changed, restart the service")]
    Dimension { expected: usize, found: usize },
    #[error("a vector without a direction: all zeros, or not finite")]
    NoDirection,
}

impl Fault {
    /// Whether the same request may succeed later.
    pub(super) fn may_pass(self) -> bool {
        matches!(self, Self::Unreachable | Self::Timeout | Self::RateLimited(_) | Self::Server(..))
    }

    /// Whether other requests would fail too.
    pub(super) fn is_outage(self) -> bool {
        self.may_pass() || matches!(self, Self::Unauthorized | Self::NotFound)
    }

    /// How long the endpoint wants to be left alone.
    pub(super) fn retry_after(self) -> Option<Duration> {
        match self {
            Self::RateLimited(wait) | Self::Server(_, wait) => wait,
            _ => None,
        }
    }
}
