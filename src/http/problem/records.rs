//! The errors of feedback.

use super::{Code, Problem};
use crate::service::records::feedback::FeedbackError;

impl From<FeedbackError> for Problem {
    fn from(error: FeedbackError) -> Self {
        match error {
            FeedbackError::NoSelection => {
                Self::new(Code::NotFound, "You have no such selection: send the selection_id of a /v1/filter response.")
            }
            FeedbackError::NoTool { did_you_mean } => match did_you_mean {
                Some(name) => Self::new(Code::NotFound, format!("There is no such tool. Did you mean `{name}`?")),
                None => Self::new(Code::NotFound, "There is no such tool. Send its published name."),
            },
            FeedbackError::Store(error) => Self::from(error),
        }
    }
}
