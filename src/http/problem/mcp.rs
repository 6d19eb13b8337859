//! The errors of suspended calls.

use super::{Code, Problem};
use crate::service::mcp::waiting_calls::WaitError;

impl From<WaitError> for Problem {
    fn from(error: WaitError) -> Self {
        match error {
            WaitError::Unknown => Self::new(Code::InvalidRequest, format!("{error}.")),
            WaitError::TooMany { .. } => {
                Self::new(Code::RateLimited, format!("{error}. Answer one of them or wait for its timeout, then call again."))
            }
        }
    }
}
