//! Kinds of failures of calls to Qdrant, by gRPC status code. The client's error texts are never passed on, because they contain
//! headers.

use qdrant_client::QdrantError;

use crate::service::ports::IndexError;

/// Status codes of the gRPC specification. The client's type for them is in another crate.
mod code {
    pub(super) const INVALID_ARGUMENT: i32 = 3;
    pub(super) const DEADLINE_EXCEEDED: i32 = 4;
    pub(super) const NOT_FOUND: i32 = 5;
    pub(super) const ALREADY_EXISTS: i32 = 6;
    pub(super) const PERMISSION_DENIED: i32 = 7;
    pub(super) const RESOURCE_EXHAUSTED: i32 = 8;
    pub(super) const FAILED_PRECONDITION: i32 = 9;
    pub(super) const OUT_OF_RANGE: i32 = 11;
    pub(super) const UNIMPLEMENTED: i32 = 12;
    pub(super) const UNAUTHENTICATED: i32 = 16;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The node can't be reached, or has failed.
    Unreachable,
    /// The node did not respond in time.
    Slow,
    KeyRefused,
    /// The node is overloaded or has no space left.
    Exhausted,
    /// The collection does not exist.
    NotFound,
    /// The node rejects the request; a retry would not help.
    Refused,
}

impl Fault {
    pub(super) fn of(error: &QdrantError) -> Self {
        let status = match error {
            QdrantError::ResponseError { status } => status,
            QdrantError::ResourceExhaustedError { .. } => return Self::Exhausted,
            QdrantError::Io(_) => return Self::Unreachable,
            _ => return Self::Refused,
        };
        match i32::from(status.code()) {
            code::DEADLINE_EXCEEDED => Self::Slow,
            code::NOT_FOUND => Self::NotFound,
            code::PERMISSION_DENIED | code::UNAUTHENTICATED => Self::KeyRefused,
            code::RESOURCE_EXHAUSTED => Self::Exhausted,
            code::INVALID_ARGUMENT | code::ALREADY_EXISTS | code::FAILED_PRECONDITION | code::OUT_OF_RANGE | code::UNIMPLEMENTED => {
                // The status message contains the node's own text about the request, without headers and thus without a key.
                // Keys that don't fit into a header were rejected with the settings.
                tracing::debug!(code = ?status.code(), message = status.message(), "Qdrant rejected a request");
                Self::Refused
            }
            _ => Self::Unreachable,
        }
    }

    /// Whether to skip the node for a while. A node without space still responds at once and can be searched.
    pub(super) const fn is_of_node(self) -> bool {
        matches!(self, Self::Unreachable | Self::Slow | Self::KeyRefused)
    }

    /// A phrase that completes "a Qdrant node …" and "Qdrant …".
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Unreachable => "does not answer",
            Self::Slow => "does not answer in time",
            Self::KeyRefused => "rejects the API key",
            Self::Exhausted => "has no space left or is overloaded",
            Self::NotFound => "does not have the collection",
            Self::Refused => "rejects the request",
        }
    }

    pub(super) const fn during(self, action: &'static str) -> IndexError {
        IndexError::Qdrant { action, reason: self.reason() }
    }

    /// The reason in an error message, after a colon.
    const fn reason(self) -> &'static str {
        match self {
            Self::Unreachable => "no node answers",
            Self::Slow => "no node answers in time",
            Self::KeyRefused => "it rejects the API key; set index.qdrant_api_key or QDRANT_API_KEY",
            Self::Exhausted => "it has no space left or is overloaded",
            Self::NotFound => "it does not have the collection",
            Self::Refused => "it rejects the request; see the log at level debug",
        }
    }

    /// The warning in search answers.
    pub(super) const fn warning(self) -> &'static str {
        match self {
            Self::Unreachable => "ranked by words alone: Qdrant does not answer",
            Self::Slow => "ranked by words alone: Qdrant does not answer in time",
            Self::KeyRefused => "ranked by words alone: Qdrant rejects the API key",
            Self::Exhausted => "ranked by words alone: Qdrant is overloaded",
            Self::NotFound => "ranked by words alone: Qdrant has lost the index, which is being rebuilt",
            Self::Refused => "ranked by words alone: Qdrant rejects the search",
        }
    }
}
