//! The errors of servers that the API manages.

use super::{Code, Problem, sentence};
use crate::domain::execution::arguments::ArgumentProblem;
use crate::service::servers::ServerError;
use crate::settings::EntryProblem;

impl From<ServerError> for Problem {
    fn from(error: ServerError) -> Self {
        let detail = sentence(&error.to_string());
        match error {
            ServerError::NotFound(_) => Self::new(Code::NotFound, detail),
            ServerError::OfFile(error) => Self::from(error),
            ServerError::Commands => Self::new(Code::CommandsOff, detail),
            ServerError::Name(message) => {
                let error = ArgumentProblem { pointer: String::new(), message, expected: None, did_you_mean: None };
                Self { errors: vec![error], ..Self::invalid("server", detail) }
            }
            ServerError::Invalid(problems) => {
                let error = |EntryProblem { pointer, message }| ArgumentProblem { pointer, message, expected: None, did_you_mean: None };
                Self { errors: problems.into_iter().map(error).collect(), ..Self::invalid("entry", detail) }
            }
            ServerError::Syntax(_) => Self { parameter: Some("entry".into()), ..Self::new(Code::NotJson, detail) },
            ServerError::NoKey(_) => Self { parameter: Some("entry".into()), ..Self::new(Code::SecretsOff, detail) },
            ServerError::Changed(_) => Self::new(Code::PreconditionFailed, format!("{detail} Read the current version and change that.")),
            ServerError::Off(_) | ServerError::TooMany => Self::new(Code::Conflict, detail),
            ServerError::Seal(error) => Self::new(Code::Internal, error.to_string()),
            ServerError::Store(error) => Self::from(error),
        }
    }
}
