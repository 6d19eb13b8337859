//! The errors of offers.

use super::{Code, Problem, sentence};
use crate::service::selection::offers::OfferError;

impl From<OfferError> for Problem {
    fn from(error: OfferError) -> Self {
        let detail = sentence(&error.to_string());
        match error {
            OfferError::Unknown => Self::new(Code::OfferUnknown, format!("{detail} Send the names in `tools` too.")),
            OfferError::LineBreak => Self::invalid("tools", detail),
            OfferError::Malformed | OfferError::Different => Self::invalid("offer", detail),
        }
    }
}
