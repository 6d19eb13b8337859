//! The errors of toolsets, loading and sessions.

use std::borrow::Cow;

use super::ports::STORE_RETRY_SECONDS;
use super::{Code, Problem, sentence};
use crate::service::toolsets::loading::LoadError;
use crate::service::toolsets::sessions::SessionError;
use crate::service::toolsets::toolsets::ToolsetError;

/// `Retry-After` if no further session can be created, in seconds.
const SESSIONS_RETRY_SECONDS: u64 = 60;

impl From<ToolsetError> for Problem {
    fn from(error: ToolsetError) -> Self {
        match error {
            ToolsetError::NotFound(_) => Self::new(Code::NotFound, format!("{error}.")),
            ToolsetError::OfFile(error) => Self::from(error),
            ToolsetError::Invalid { parameter, reason } => {
                Self { parameter: parameter.map(Cow::from), ..Self::new(Code::InvalidRequest, format!("{reason}.")) }
            }
            ToolsetError::Changed(_) => Self::new(Code::PreconditionFailed, format!("{error}. Read the current version and change that.")),
            ToolsetError::Store(error) => Self::from(error),
        }
    }
}

impl From<LoadError> for Problem {
    fn from(error: LoadError) -> Self {
        let code = match &error {
            LoadError::Unknown(_) => Code::NotFound,
            LoadError::Nowhere => Code::NothingToLoadInto,
            LoadError::Initial(_) => Code::InitialToolset,
            LoadError::NotLoaded(..) => Code::NotLoaded,
            LoadError::Unavailable | LoadError::Store(_) => Code::StoreUnavailable,
        };
        match error {
            LoadError::Store(error) => Self::from(error),
            LoadError::Unavailable => Self { retry_after: Some(STORE_RETRY_SECONDS), ..Self::new(code, sentence(&error.to_string())) },
            error => Self::new(code, sentence(&error.to_string())),
        }
    }
}

impl From<SessionError> for Problem {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::Invalid { parameter, reason } => {
                Self { parameter: parameter.map(Cow::from), ..Self::new(Code::InvalidRequest, format!("{reason}.")) }
            }
            SessionError::Full => Self {
                retry_after: Some(SESSIONS_RETRY_SECONDS),
                ..Self::new(Code::RateLimited, format!("{error}. End one of yours, or try again later."))
            },
            SessionError::Store(error) => Self::from(error),
        }
    }
}
