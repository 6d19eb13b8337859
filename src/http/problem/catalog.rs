//! The errors of the tools' administration.

use super::{Code, Problem};
use crate::domain::access::tool_facts::OverrideProblem;
use crate::domain::catalog::shape::ShapeProblem;
use crate::domain::execution::arguments::ArgumentProblem;
use crate::service::catalog::definitions::ApproveError;
use crate::service::catalog::enrich::admin::EnrichmentError;
use crate::service::catalog::tool_facts::OverrideError;

impl From<OverrideError> for Problem {
    fn from(error: OverrideError) -> Self {
        match error {
            OverrideError::NotFound => Self::new(Code::NotFound, "There is no such tool, and no metadata of one."),
            OverrideError::Invalid(problem) => {
                let parameter = match &problem {
                    OverrideProblem::Shape(problems) => {
                        let of_one = |problem: &ShapeProblem| ArgumentProblem {
                            pointer: problem.pointer(),
                            message: problem.message.clone(),
                            expected: None,
                            did_you_mean: None,
                        };
                        let errors = problems.iter().map(of_one).collect();
                        return Self { errors, ..Self::invalid("shape", format!("{problem}.")) };
                    }
                    OverrideProblem::TooMany(member, ..)
                    | OverrideProblem::Length(member, ..)
                    | OverrideProblem::Hidden(member, _)
                    | OverrideProblem::Lines(member) => member,
                    OverrideProblem::NoWord(_) => &"synonyms",
                    OverrideProblem::NoDescription => &"description",
                };
                Self::invalid(*parameter, format!("{problem}."))
            }
            OverrideError::OfFile(error) => Self::from(error),
            OverrideError::Changed(_) => Self::new(Code::PreconditionFailed, format!("{error}. Read the current version and change that.")),
            OverrideError::Store(error) => Self::from(error),
        }
    }
}

impl From<EnrichmentError> for Problem {
    fn from(error: EnrichmentError) -> Self {
        match error {
            EnrichmentError::OfFile(error) => Self::from(error),
            EnrichmentError::Store(error) => Self::from(error),
        }
    }
}

impl From<ApproveError> for Problem {
    fn from(error: ApproveError) -> Self {
        match error {
            ApproveError::NotFound => Self::new(Code::NotFound, "No server lists such a tool. GET /v1/admin/tools lists the tools."),
            ApproveError::Off => Self::new(Code::Conflict, format!("{error}. There is nothing to approve.")),
            ApproveError::OfFile(error) => Self::from(error),
            ApproveError::Changed(_) => Self::new(Code::PreconditionFailed, format!("{error}. Review it before you approve it.")),
            ApproveError::WrongFingerprint(_) => Self::new(Code::PreconditionFailed, format!("{error}.")),
            ApproveError::Store(error) => Self::from(error),
        }
    }
}
