//! The table of all errors, and their form in HTTP responses (RFC 9457).

use std::borrow::Cow;
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderValue};
use actix_web::{HttpResponse, HttpResponseBuilder, ResponseError};
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::domain::access::management::ManagedInFile;
use crate::domain::access::policy::RuleSource;
use crate::domain::access::tool_facts::OverrideProblem;
use crate::domain::catalog::shape::ShapeProblem;
use crate::domain::execution::arguments::ArgumentProblem;
use crate::domain::text::json;
use crate::domain::text::short::short;
use crate::http::described::described;
use crate::http::member::misfit;
use crate::service::access::connections::ConnectionError;
use crate::service::access::keys::KeyError;
use crate::service::access::limits::Limited;
use crate::service::access::policies::{CheckError, PolicyError};
use crate::service::access::secrets::{CredentialError, SecretError};
use crate::service::catalog::definitions::ApproveError;
use crate::service::catalog::enrich::admin::EnrichmentError;
use crate::service::catalog::tool_facts::OverrideError;
use crate::service::execution::execute::ExecuteError;
use crate::service::mcp::waiting_calls::WaitError;
use crate::service::ports::{CallError, StoreError};
use crate::service::selection::offers::OfferError;
use crate::service::servers::ServerError;
use crate::service::toolsets::loading::LoadError;
use crate::service::toolsets::sessions::SessionError;
use crate::service::toolsets::toolsets::ToolsetError;
use crate::settings::EntryProblem;

/// Whose fault an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Caller,
    Remote,
    Us,
}

/// The response of a route, or its error.
pub(crate) type Answer = Result<HttpResponse, Problem>;

/// Maximum length of a name that an error repeats from a request, in characters.
const MAX_NAME: usize = 200;
/// Maximum length of an error's text, in characters.
const MAX_DETAIL: usize = 4_000;

/// `Retry-After` if no further session can be created, in seconds.
const SESSIONS_RETRY_SECONDS: u64 = 60;
/// `Retry-After` if an authorization server failed, in seconds.
const SIGN_IN_RETRY_SECONDS: u64 = 5;
/// `Retry-After` while the store is not available, in seconds. The service uses it 2.5 seconds after it is back.
const STORE_RETRY_SECONDS: u64 = 3;

macro_rules! codes {
    ($($code:ident $name:literal $status:ident $fault:ident $title:literal,)*) => {
        /// All errors that a response can contain.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Code { $($code,)* }

        impl Code {
            #[cfg(test)]
            const ALL: &[Code] = &[$(Code::$code,)*];

            /// The error's `code` in responses, which stays stable for programs.
            pub(crate) fn name(self) -> &'static str { match self { $(Self::$code => $name,)* } }

            pub(crate) fn status(self) -> StatusCode { match self { $(Self::$code => StatusCode::$status,)* } }

            pub(crate) fn title(self) -> &'static str { match self { $(Self::$code => $title,)* } }

            pub(crate) fn fault(self) -> Fault { match self { $(Self::$code => Fault::$fault,)* } }
        }
    };
}

codes! {
    NotJson            "not_json"            BAD_REQUEST            Caller "The body is not JSON",
    Unauthorized       "unauthorized"        UNAUTHORIZED           Caller "The key is missing or wrong",
    WrongKey           "wrong_key"           FORBIDDEN              Caller "The key is wrong",
    ForeignOrigin      "foreign_origin"      FORBIDDEN              Caller "The request comes from another site's page",
    AdminNeeded        "admin_needed"        FORBIDDEN              Caller "Only administrators may do this",
    ReadOnlyKey        "read_only_key"       FORBIDDEN              Caller "The key may only read",
    CommandsOff        "commands_off"        FORBIDDEN              Caller "The API may not add programs",
    UserNeeded         "user_needed"         FORBIDDEN              Caller "The request needs a user or a named key",
    CredentialsMissing "credentials_missing" FORBIDDEN              Caller "The MCP server needs the caller's credentials",
    SignInNeeded       "sign_in_needed"      FORBIDDEN              Caller "The MCP server needs the user to sign in",
    SecretsOff         "secrets_off"         NOT_IMPLEMENTED        Caller "The service is not set up to store secrets",
    NotFound           "not_found"           NOT_FOUND              Caller "The requested resource does not exist",
    MethodNotAllowed   "method_not_allowed"  METHOD_NOT_ALLOWED     Caller "This address does not support the method",
    Conflict           "conflict"           CONFLICT               Caller "The request conflicts with the current state",
    ManagedByFile      "managed_by_file"    CONFLICT               Caller "A file manages this entry, so the API can't change it",
    NothingToLoadInto  "nothing_to_load_into" CONFLICT              Caller "There is no session or chat to load tools into",
    NotLoaded          "not_loaded"          CONFLICT               Caller "The toolset is not loaded",
    OfferUnknown       "offer_unknown"       CONFLICT               Caller "The offer is unknown",
    InitialToolset     "initial_toolset"     CONFLICT               Caller "The session started with this toolset, so it stays loaded",
    PreconditionFailed "precondition_failed" PRECONDITION_FAILED   Caller "The resource has changed in the meantime",
    NoUpgrade          "no_upgrade"          BAD_REQUEST            Caller "This address supports only HTTP",
    BodyTooSlow        "body_too_slow"       REQUEST_TIMEOUT        Caller "The body did not arrive in time",
    BodyTooLarge       "body_too_large"      PAYLOAD_TOO_LARGE      Caller "The body is too large",
    EncodedBody        "encoded_body"        UNSUPPORTED_MEDIA_TYPE Caller "The body is encoded",
    Overloaded         "overloaded"          SERVICE_UNAVAILABLE    Caller "The service is receiving too much data at once",
    InvalidArguments   "invalid_arguments"   UNPROCESSABLE_ENTITY   Caller "The arguments do not fit the tool's schema",
    InvalidRequest     "invalid_request"     UNPROCESSABLE_ENTITY   Caller "The request is invalid",
    RateLimited        "rate_limited"        TOO_MANY_REQUESTS      Caller "Too many requests",
    ToolError          "tool_error"          BAD_GATEWAY            Remote "The tool reported an error",
    ServerError        "server_error"        BAD_GATEWAY            Remote "The MCP server returned an error",
    ResultTooLarge     "result_too_large"    BAD_GATEWAY            Remote "The tool's result is too large",
    ServerUnavailable  "server_unavailable"  SERVICE_UNAVAILABLE    Remote "The MCP server is not available",
    Timeout            "timeout"             GATEWAY_TIMEOUT        Remote "The MCP server did not respond in time",
    StoreUnavailable   "store_unavailable"   SERVICE_UNAVAILABLE    Us     "The store is not available at the moment",
    Internal           "internal"            INTERNAL_SERVER_ERROR  Us     "An internal error occurred",
}

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
    /// Shortens long names of the request in the text, which are in backticks. A tool's own text stays as it is.
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Self {
        let mut detail = detail.into();
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

/// The `limit` of a request.
///
/// # Errors
/// It is out of range.
pub(in crate::http) fn limit(given: Option<usize>, default: usize, range: RangeInclusive<usize>) -> Result<usize, Problem> {
    let limit = given.unwrap_or(default);
    let (least, most) = (range.start(), range.end());
    if range.contains(&limit) { Ok(limit) } else { Err(Problem::invalid("limit", format!("limit is {least} to {most}."))) }
}

/// Checks a name or an id that is stored or looked up. Databases store NUL differently, and no client sends control characters.
///
/// # Errors
/// It contains a control character.
pub(in crate::http) fn plain(parameter: &'static str, text: &str) -> Result<(), Problem> {
    let is_plain = !text.contains(char::is_control);
    if is_plain { Ok(()) } else { Err(Problem::invalid(parameter, format!("{parameter} contains a control character."))) }
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

impl From<CredentialError> for Problem {
    fn from(error: CredentialError) -> Self {
        match error {
            CredentialError::NoUser(_) | CredentialError::Nobody(_) => Self::new(Code::UserNeeded, format!("{error}.")),
            CredentialError::NoKey(_) => Self::new(Code::SecretsOff, format!("{error}.")),
            CredentialError::Unfilled { .. } => Self::new(Code::CredentialsMissing, format!("{error}.")),
            CredentialError::Connection(error) => Self::from(error),
            CredentialError::Store(error) => Self::from(error),
        }
    }
}

impl From<ConnectionError> for Problem {
    fn from(error: ConnectionError) -> Self {
        let detail = sentence(&error.to_string());
        match error {
            ConnectionError::SignInNeeded { link, .. } => Self { sign_in_url: link, ..Self::new(Code::SignInNeeded, detail) },
            ConnectionError::Nobody(_) => Self::new(Code::UserNeeded, detail),
            ConnectionError::NotSetUp(_) => Self::new(Code::SecretsOff, detail),
            ConnectionError::NoUserToken { .. } | ConnectionError::TokenRejected { .. } => Self::new(Code::CredentialsMissing, detail),
            ConnectionError::NotIssued { .. } => Self::new(Code::ServerUnavailable, detail),
            ConnectionError::Unavailable { .. } => {
                Self { retry_after: Some(SIGN_IN_RETRY_SECONDS), ..Self::new(Code::ServerUnavailable, format!("{detail} Try again.")) }
            }
            ConnectionError::Seal(error) => Self::new(Code::Internal, error.to_string()),
            ConnectionError::Store(error) => Self::from(error),
        }
    }
}

impl From<SecretError> for Problem {
    fn from(error: SecretError) -> Self {
        match error {
            SecretError::NoKey => Self::new(Code::SecretsOff, format!("{error}.")),
            SecretError::Nobody => Self::new(Code::UserNeeded, format!("{error}.")),
            SecretError::NotFound => Self::not_found(),
            SecretError::Invalid { parameter, reason } => Self::invalid(parameter, format!("{reason}.")),
            SecretError::Seal(error) => Self::new(Code::Internal, error.to_string()),
            SecretError::Store(error) => Self::from(error),
        }
    }
}

impl From<Limited> for Problem {
    fn from(limited: Limited) -> Self {
        let seconds = whole_seconds(limited.retry_after);
        Self { retry_after: Some(seconds), ..Self::new(Code::RateLimited, format!("{limited}. Try again in {seconds} s.")) }
    }
}

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

impl From<ManagedInFile> for Problem {
    fn from(error: ManagedInFile) -> Self {
        Self::new(Code::ManagedByFile, sentence(&error.to_string()))
    }
}

impl From<KeyError> for Problem {
    fn from(error: KeyError) -> Self {
        match error {
            KeyError::NotFound => Self::new(Code::NotFound, "There is no such key."),
            KeyError::Invalid { parameter, reason } => Self::invalid(parameter, format!("{reason}.")),
            KeyError::NameTaken => Self::new(Code::Conflict, format!("{error}.")),
            KeyError::OfFile(error) => Self::from(error),
            KeyError::Store(error) => Self::from(error),
        }
    }
}

impl From<PolicyError> for Problem {
    fn from(error: PolicyError) -> Self {
        match error {
            PolicyError::Invalid(ref rules) => {
                let given = rules.iter().find(|rule| rule.place.source == RuleSource::Api);
                let parameter = given.map(|rule| format!("rules[{}]", rule.place.number - 1).into());
                Self { parameter, ..Self::new(Code::InvalidRequest, format!("{error}.")) }
            }
            PolicyError::Malformed(_) => Self::new(Code::InvalidRequest, format!("{error}.")),
            PolicyError::TooManyRules => Self::invalid("rules", format!("{error}.")),
            PolicyError::OfFile(error) => Self { parameter: Some("default".into()), ..Self::from(error) },
            PolicyError::Changed(_) => Self::new(Code::PreconditionFailed, format!("{error}. Read the current version and change that.")),
            PolicyError::Store(error) => Self::from(error),
            PolicyError::Unreadable(_) => Self::new(Code::Internal, error.to_string()),
        }
    }
}

impl From<CheckError> for Problem {
    fn from(error: CheckError) -> Self {
        let detail = format!("{error}.");
        match error {
            CheckError::UnknownTool(_) | CheckError::FormerTool(_) => Self::invalid("tool", detail),
            CheckError::UnknownPrincipal(_) => Self::invalid("principal", detail),
            CheckError::Nothing => Self::new(Code::InvalidRequest, detail),
            CheckError::Draft(error) => Self::from(error),
        }
    }
}

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

/// Turns a fragment into a sentence, with a capital letter and a full stop.
fn sentence(fragment: &str) -> String {
    let mut letters = fragment.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

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

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let source = std::error::Error::source(&error).map(ToString::to_string);
        let (is_away, changed) = match error {
            StoreError::Failed { .. } => (false, "nothing was changed."),
            StoreError::Away { is_unsure: false, .. } => (true, "nothing was changed. Try again."),
            StoreError::Away { is_unsure: true, .. } => {
                (true, "the change may have been made. Read the current state before you try again.")
            }
        };
        let detail = format!("{error}; {changed}");
        if is_away {
            tracing::warn!(%error, source, "the store is not available for an operation");
            return Self { retry_after: Some(STORE_RETRY_SECONDS), ..Self::new(Code::StoreUnavailable, detail) };
        }
        tracing::error!(%error, source, "the store rejected an operation");
        Self::new(Code::Internal, detail)
    }
}

impl From<serde_json::Error> for Problem {
    fn from(error: serde_json::Error) -> Self {
        let code = if error.is_data() { Code::InvalidRequest } else { Code::NotJson };
        Self::new(code, in_words_of_json(&error.to_string()))
    }
}

fn place(pointer: &str) -> &str {
    if pointer.is_empty() { "arguments" } else { pointer }
}

impl From<CallError> for Problem {
    fn from(error: CallError) -> Self {
        let detail = error.to_string();
        match error {
            CallError::UnknownServer => Self::not_found(),
            CallError::Unavailable { sent: true, .. } => Self::new(
                Code::ServerUnavailable,
                format!("{detail}. The server may have carried out the call: check this before you repeat it."),
            ),
            CallError::Unavailable { retry_after, .. } => {
                let seconds = whole_seconds(retry_after);
                Self { retry_after: Some(seconds), ..Self::new(Code::ServerUnavailable, format!("{detail}. Try again in {seconds} s.")) }
            }
            CallError::NoCredentials => Self::new(Code::UserNeeded, detail),
            CallError::NotLetIn { retry_after, .. } => Self {
                retry_after: Some(whole_seconds(retry_after)),
                ..Self::new(Code::ServerUnavailable, format!("{detail}. If it rejects a secret, set another one; otherwise try again."))
            },
            CallError::TooManyUsers { retry_after, .. } => Self {
                retry_after: Some(whole_seconds(retry_after)),
                ..Self::new(
                    Code::ServerUnavailable,
                    format!("{detail}. Try again; an administrator can raise it under [user_connections]."),
                )
            },
            CallError::Timeout(_) => Self::new(Code::Timeout, detail),
            CallError::Refused { retry_after: Some(time), .. } => {
                let seconds = whole_seconds(time);
                Self { retry_after: Some(seconds), ..Self::new(Code::ServerError, format!("{detail}. Try again in {seconds} s.")) }
            }
            CallError::Refused { .. } | CallError::Challenged(_) | CallError::Protocol { .. } => Self::new(Code::ServerError, detail),
            CallError::TooLarge { .. } => Self::new(Code::ResultTooLarge, format!("{detail}. Request less from the tool.")),
        }
    }
}

/// Rounds up to whole seconds, because an earlier retry would fail.
pub(super) fn whole_seconds(time: Duration) -> u64 {
    (time.as_secs() + u64::from(time.subsec_nanos() > 0)).max(1)
}

/// A parser's error, with JSON's names of types in place of Rust's.
fn in_words_of_json(error: &str) -> String {
    let mut words = error.split(' ');
    let mut said: Vec<&str> = Vec::new();
    while let Some(word) = words.next() {
        let follows_expected = said.last() == Some(&"expected");
        said.push(match word {
            "u8" | "u16" | "u32" | "u64" | "usize" if follows_expected => "a whole number",
            "f32" | "f64" if follows_expected => "a number",
            "struct" if follows_expected => {
                // The name of the type follows.
                words.next();
                "an object"
            }
            word => word,
        });
    }
    said.join(" ")
}

/// Parses a JSON object in a body. Errors contain the position in the body.
///
/// # Errors
/// [`Code::NotJson`] for invalid JSON, and [`Code::InvalidRequest`] for JSON with unexpected contents.
pub(crate) fn read_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    // Derived code would also read the members from an array, in their order.
    if body.trim_ascii_start().first().is_some_and(|first| *first != b'{') {
        serde_json::from_slice::<IgnoredAny>(body)?;
        return Err(Problem::new(Code::InvalidRequest, "The body is not a JSON object."));
    }
    serde_json::from_slice(body).map_err(|error| {
        let parameter = error.is_data().then(|| misfit::<T>(body)).flatten().map(Cow::from);
        Problem { parameter, ..Problem::from(error) }
    })
}

/// Like [`read_json`], for what an administrator defines. A name may occur only once in an object, because the last value would silently
/// replace the others.
///
/// # Errors
/// Those of [`read_json`], and [`Code::InvalidRequest`] for such a name.
pub(crate) fn read_definition<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    let read = read_json(body)?;
    match std::str::from_utf8(body).ok().and_then(json::repeated_name) {
        Some(name) => Err(Problem::new(Code::InvalidRequest, format!("{name} occurs twice in the same object. Remove one of the two."))),
        None => Ok(read),
    }
}

/// The response for every path that has no route.
pub(crate) async fn no_route() -> HttpResponse {
    Problem::not_found().error_response()
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[test]
    fn a_failed_call_has_its_status_and_retry_time() {
        let unavailable = |milliseconds| {
            let retry_after = Duration::from_millis(milliseconds);
            Problem::from(CallError::Unavailable { reason: "its program ended".into(), retry_after, sent: false })
        };
        assert_eq!([0, 1000, 2900, 60_000].map(|time| unavailable(time).retry_after), [1, 1, 3, 60].map(Some));
        // Nobody knows whether it is being connected.
        let detail = unavailable(2900).detail;
        assert!(detail.ends_with("its program ended. Try again in 3 s."), "{detail}");

        // Repeating such a call could carry it out twice.
        let lost = CallError::Unavailable { reason: "its program ended".into(), retry_after: Duration::from_secs(1), sent: true };
        let lost = Problem::from(lost);
        assert_eq!((lost.code, lost.retry_after), (Code::ServerUnavailable, None));
        assert!(lost.detail.ends_with("The server may have carried out the call: check this before you repeat it."), "{}", lost.detail);

        let refused = Problem::from(CallError::Refused { status: 403, retry_after: None });
        assert_eq!((refused.code.status().as_u16(), refused.code.name(), refused.retry_after), (502, "server_error", None));
        assert_eq!(refused.detail, "the MCP server refused the call with HTTP status 403");
        let busy = Problem::from(CallError::Refused { status: 429, retry_after: Some(Duration::from_secs(7)) });
        assert_eq!((busy.code, busy.retry_after), (Code::ServerError, Some(7)));
        assert_eq!(busy.detail, "the MCP server refused the call with HTTP status 429. Try again in 7 s.");

        let timeout = Problem::from(CallError::Timeout(Duration::from_micros(59_998_380)));
        assert_eq!(timeout.detail, "no answer within 60 s");
    }

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
    fn a_store_that_is_away_is_worth_another_attempt() {
        let of = |error: StoreError| {
            let problem = Problem::from(error);
            (problem.code.status().as_u16(), problem.retry_after.is_some(), problem.detail)
        };
        let source = || "no connection".into();
        let failed = of(StoreError::Failed { action: "save a key", source: source() });
        assert_eq!((failed.0, failed.1), (500, false));
        let (status, has_time, detail) = of(StoreError::Away { action: "save a key", is_unsure: false, source: source() });
        assert!(status == 503 && has_time && detail.contains("nothing was changed"), "{detail}");
        let (status, has_time, detail) = of(StoreError::Away { action: "save a key", is_unsure: true, source: source() });
        assert!(status == 503 && has_time && detail.contains("may have been made"), "{detail}");
    }

    #[test]
    fn a_body_is_an_object_and_its_errors_speak_of_json() {
        #[derive(Debug, Deserialize)]
        #[expect(dead_code, reason = "it is only read")]
        struct Given {
            #[serde(default)]
            limit: Option<usize>,
            #[serde(default)]
            inner: Option<Inner>,
        }
        #[derive(Debug, Deserialize)]
        #[expect(dead_code, reason = "it is only read")]
        struct Inner {
            share: f32,
        }
        let refused = |body: &str| {
            let problem = read_json::<Given>(body.as_bytes()).unwrap_err();
            (problem.code.name(), problem.detail)
        };
        assert!(read_json::<Given>(b" {}").is_ok());
        for (body, code, detail) in [
            ("[1, null]", "invalid_request", "The body is not a JSON object."),
            (" null", "invalid_request", "The body is not a JSON object."),
            ("[1", "not_json", "EOF while parsing a list at line 1 column 2"),
            ("", "not_json", "EOF while parsing a value at line 1 column 0"),
            (r#"{"limit": -1}"#, "invalid_request", "invalid value: integer `-1`, expected a whole number at line 1 column 12"),
            (r#"{"inner": 5}"#, "invalid_request", "invalid type: integer `5`, expected an object at line 1 column 11"),
            (r#"{"inner": {"share": "x"}}"#, "invalid_request", "invalid type: string \"x\", expected a number at line 1 column 23"),
        ] {
            assert_eq!(refused(body), (code, detail.to_owned()), "{body}");
        }
    }

    #[test]
    fn a_definition_has_no_name_twice() {
        let read = |body: &str| read_definition::<serde_json::Value>(body.as_bytes()).map_err(|problem| problem.detail);
        assert!(read(r#"{"rules": [{"effect": "block"}, {"effect": "block"}]}"#).is_ok());
        let twice = read(r#"{"rules": [{"effect": "block", "effect": "allow"}]}"#);
        assert_eq!(twice, Err("\"effect\" occurs twice in the same object. Remove one of the two.".to_owned()));
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = Code::ALL.iter().map(|code| code.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Code::ALL.len());
    }
}
