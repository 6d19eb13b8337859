//! Which part of a list a request asks for.

use serde::Deserialize;
use utoipa::IntoParams;

use crate::http::problem::{Code, Problem};
use crate::http::query::Query;

pub(in crate::http) const MAX_LIMIT: usize = 1_000;
pub(in crate::http) const DEFAULT_LIMIT: usize = 100;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Part {
    /// Maximum number of entries to return.
    #[serde(default = "default_limit")]
    pub(super) limit: usize,
    /// Number of entries to skip: the value of `next` in the previous response.
    #[serde(default)]
    #[param(default = 0)]
    pub(super) offset: usize,
}

fn default_limit() -> usize {
    DEFAULT_LIMIT
}

impl Part {
    /// The part of a request's query.
    ///
    /// # Errors
    /// A value is out of range or unreadable.
    pub(super) fn of(query: Result<Query<Self>, Problem>) -> Result<Self, Problem> {
        let detail = format!("limit is 1 to {MAX_LIMIT}, offset a whole number from 0.");
        let invalid = |parameter| Problem { parameter, ..Problem::new(Code::InvalidRequest, detail) };
        match query {
            Ok(Query(part)) if (1..=MAX_LIMIT).contains(&part.limit) => Ok(part),
            Ok(_) => Err(invalid(Some("limit".into()))),
            Err(problem) => Err(invalid(problem.parameter)),
        }
    }
}
