//! The errors of tool calls.

use super::{Code, MAX_NAME, Problem};
use crate::domain::text::short::short;
use crate::service::execution::execute::ExecuteError;

impl From<ExecuteError> for Problem {
    fn from(error: ExecuteError) -> Self {
        match error {
            ExecuteError::NotFound { did_you_mean: None } => Self::not_found(),
            ExecuteError::NotFound { did_you_mean: Some(name) } => {
                Self::new(Code::NotFound, format!("Did you mean `{name}`? See /openapi.json for the available tools."))
            }
            ExecuteError::Invalid(mut errors) => {
                // It contains the names of arguments.
                for error in &mut errors {
                    error.pointer = short(&error.pointer, MAX_NAME).into_owned();
                }
                let detail =
                    errors.iter().map(|error| format!("{} {}", place(&error.pointer), error.message)).collect::<Vec<_>>().join("; ");
                Self { errors, ..Self::new(Code::InvalidArguments, detail) }
            }
            ExecuteError::Tool(text) => Self::new(Code::ToolError, text),
            ExecuteError::Call(error) => Self::from(error),
            ExecuteError::Credentials(error) => Self::from(error),
            ExecuteError::Limited(limited) => Self::from(limited),
        }
    }
}

fn place(pointer: &str) -> &str {
    if pointer.is_empty() { "arguments" } else { pointer }
}
