//! Errors in HTTP responses (RFC 9457).
//!
//! `code` has the table of all codes. Each area of the service has a module that turns its errors into problems.

mod code;
mod reading;
mod ports;
mod catalog;
mod records;
mod access;
mod servers;
mod execution;
mod selection;
mod toolsets;
mod mcp;

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderValue};
use actix_web::{HttpResponse, HttpResponseBuilder, ResponseError};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

pub(crate) use self::code::{Code, Fault};
pub(in crate::http) use self::reading::{limit, plain};
pub(crate) use self::reading::{read_definition, read_json};
use crate::domain::execution::arguments::ArgumentProblem;
use crate::domain::text::short::short;
use crate::http::described::described;

/// The response of a route, or its error.
pub(crate) type Answer = Result<HttpResponse, Problem>;

/// Maximum length of a name that an error repeats from a request, in characters.
const MAX_NAME: usize = 200;
/// Maximum length of an error's text, in characters.
const MAX_DETAIL: usize = 4_000;

/// An error to be sent to the caller.
#[derive(Debug)]
pub(crate) struct Problem {
    pub code: Code,
    /// A sentence that says what happened or what to do next.
    pub detail: String,
    /// The invalid parameter, header or body member, such as `limit` or `messages[0].role`.
    pub parameter: Option<Cow<'static, str>>,
    pub errors: Vec<ArgumentProblem>,
    /// The value of `Retry-After`, in seconds.
    pub retry_after: Option<u64>,
    /// The page on which the caller can sign in.
    pub sign_in_url: Option<String>,
}

/// The body of an error response (RFC 9457).
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct ProblemBody<'a> {
    /// What happened and what to do next. This member comes first, because chats pass the body to a model as one line.
    detail: &'a str,
    r#type: String,
    title: &'a str,
    status: u16,
    /// Stable name of the error, for programs.
    code: &'a str,
    /// The id of this request. The access log contains the same id.
    request_id: String,
    /// The invalid parameter, header or body member, such as `limit` or `messages[0].role`, if `code` is
    /// `invalid_request`. Absent if no single one caused the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    parameter: Option<Cow<'a, str>>,
    /// The invalid arguments of a tool, if `code` is `invalid_arguments`; the invalid parts of a server's entry or of a tool's
    /// shape, if `code` is `invalid_request`.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    #[schema(value_type = Vec<ArgumentProblemBody>, required = false)]
    errors: &'a [ArgumentProblem],
    /// The page on which the user can sign in, if `code` is `sign_in_needed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    sign_in_url: Option<&'a str>,
}

described! {
    /// An invalid argument of a tool, or an invalid part of a server's entry or of a tool's shape.
    struct ArgumentProblemBody of ArgumentProblem {
        /// JSON Pointer (RFC 6901) to the argument; empty for the whole.
        pointer: String,
        message: String,
        /// Description of the expected value.
        expected unless "Option::is_none": Option<String>,
        /// The name or value that the caller most likely meant.
        did_you_mean unless "Option::is_none": Option<String>,
    }
}

impl Problem {
    /// Shortens long names of the request in the text, which are in backticks, and ends a question without a full stop. A tool's own
    /// text stays as it is.
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Self {
        let mut detail = detail.into();
        if code.fault() == Fault::Caller && detail.ends_with("?.") {
            detail.pop();
        }
        if code.fault() == Fault::Caller && detail.len() > MAX_NAME {
            detail = with_short_names(&detail);
        }
        Self { code, detail, parameter: None, errors: Vec::new(), retry_after: None, sign_in_url: None }
    }

    /// The error for an invalid parameter, header or body member.
    pub(crate) fn invalid(parameter: impl Into<Cow<'static, str>>, detail: impl Into<String>) -> Self {
        Self { parameter: Some(parameter.into()), ..Self::new(Code::InvalidRequest, detail) }
    }

    /// Adds the name of the invalid parameter or member, if the error has none yet.
    #[must_use]
    pub(crate) fn naming(mut self, parameter: Option<String>) -> Self {
        if self.code == Code::InvalidRequest && self.parameter.is_none() {
            self.parameter = parameter.map(Cow::from);
        }
        self
    }

    /// The error for both unknown and denied resources.
    #[must_use]
    pub(crate) fn not_found() -> Self {
        Self::new(Code::NotFound, "See /openapi.json for the available tools.")
    }
}

/// A text with its parts in backticks shortened, and then the whole.
fn with_short_names(text: &str) -> String {
    let mut shortened = String::with_capacity(text.len().min(2 * MAX_DETAIL));
    for (number, part) in text.split('`').enumerate() {
        if number > 0 {
            shortened.push('`');
        }
        let is_name = number % 2 == 1;
        shortened.push_str(&short(part, if is_name { MAX_NAME } else { MAX_DETAIL }));
    }
    short(&shortened, MAX_DETAIL).into_owned()
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.code.name(), self.detail)
    }
}

impl ResponseError for Problem {
    fn status_code(&self) -> StatusCode {
        self.code.status()
    }

    fn error_response(&self) -> HttpResponse {
        let request_id = Uuid::now_v7().to_string();
        // What passes by itself is logged where it happens.
        if self.code.fault() == Fault::Us && self.retry_after.is_none() {
            tracing::error!(request_id, detail = self.detail, "internal error");
        }
        let mut response = HttpResponseBuilder::new(self.code.status());
        response.insert_header((header::CONTENT_TYPE, "application/problem+json"));
        response.insert_header(("x-request-id", request_id.clone()));
        if let Some(seconds) = self.retry_after {
            response.insert_header((header::RETRY_AFTER, seconds));
        }
        if self.code == Code::Unauthorized {
            response.append_header((header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"toolsieve\"")));
            response.append_header((header::WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"toolsieve\"")));
        }
        let mut response = response.json(ProblemBody {
            detail: &self.detail,
            parameter: self.parameter.as_deref().map(|parameter| short(parameter, MAX_NAME)),
            r#type: format!("urn:toolsieve:problem:{}", self.code.name()),
            title: self.code.title(),
            status: self.code.status().as_u16(),
            code: self.code.name(),
            request_id,
            errors: &self.errors,
            sign_in_url: self.sign_in_url.as_deref(),
        });
        // For the access log and the request's trace.
        response.extensions_mut().insert(self.code);
        response
    }
}

/// Turns a fragment into a sentence, with a capital letter and a full stop.
fn sentence(fragment: &str) -> String {
    let mut letters = fragment.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

/// Rounds up to whole seconds, because an earlier retry would fail.
pub(super) fn whole_seconds(time: Duration) -> u64 {
    (time.as_secs() + u64::from(time.subsec_nanos() > 0)).max(1)
}

/// The response for every path that has no route.
pub(crate) async fn no_route() -> HttpResponse {
    Problem::not_found().error_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::execution::execute::ExecuteError;
    use crate::service::toolsets::loading::LoadError;

    /// Regression test: errors repeated names of several megabytes.
    #[test]
    fn long_names_are_repeated_in_part() {
        let long = "ä".repeat(1 << 20);
        let expected = format!("There is no toolset `{}…`.", "ä".repeat(MAX_NAME));
        let unknown = Problem::from(LoadError::Unknown(format!("there is no toolset `{long}`")));
        assert_eq!((unknown.code, unknown.detail), (Code::NotFound, expected));
        let quoted = Problem::new(Code::NotFound, format!("There is no toolset `{long}`, but `b`. Load `c`."));
        assert!(quoted.detail.ends_with("…`, but `b`. Load `c`."), "{}", quoted.detail);
        // Names may contain backticks, and errors of parsers use other quotes.
        for text in [long.replace("ää", "`"), format!("invalid type: string \"{long}\", expected usize")] {
            assert!(Problem::new(Code::NotFound, text).detail.chars().count() <= MAX_DETAIL + 1);
        }
        let pointer = format!("/{long}");
        let error = ArgumentProblem { pointer, message: "is unknown".to_owned(), expected: None, did_you_mean: None };
        let invalid = Problem::from(ExecuteError::Invalid(vec![error]));
        assert!(invalid.errors[0].pointer.len() < 1_000 && invalid.detail.len() < 2_000, "{}", invalid.detail);
        let text = format!("`{long}`");
        assert_eq!(Problem::from(ExecuteError::Tool(text.clone())).detail, text, "a tool's own text");
    }

    #[test]
    fn a_question_ends_without_a_full_stop() {
        let unknown = Problem::from(LoadError::Unknown("there is no toolset `tim`; did you mean `time`?".to_owned()));
        assert_eq!(unknown.detail, "There is no toolset `tim`; did you mean `time`?");
        let text = "why?.";
        assert_eq!(Problem::from(ExecuteError::Tool(text.to_owned())).detail, text, "a tool's own text");
    }
}
