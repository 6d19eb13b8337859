//! Finds tools and runs them by published name: plain routes, and the requests of `find_tools`, `describe_tools` and `run_tool`.

use actix_web::{HttpRequest, post, web};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::domain::publishing::meta_tools::{DEFAULT_FOUND, MAX_DESCRIBED, MAX_FOUND, MAX_QUERIES, MetaTool};
use crate::http::body::Body;
use crate::http::caller::Caller;
use crate::http::described::{Content, described};
use crate::http::meta_tools::respond;
use crate::http::place::RequestAddress;
use crate::http::problem::{Answer, Problem, limit, read_json};
use crate::http::routes::toolsets::chat;
use crate::http::state::State;
use crate::service::meta_tools::describe::{Described, DescribedTool, UnknownTool};
use crate::service::meta_tools::find::{Detail, FindTools, Found, FoundTool, ProposedToolset};

#[derive(Deserialize, ToSchema)]
struct SearchBody {
    /// What the tools should do, one phrase per need. A single string is accepted too.
    #[serde(default, alias = "query")]
    #[schema(value_type = Vec<String>)]
    queries: OneOrMany,
    /// Maximum number of tools to return.
    limit: Option<usize>,
    /// `names` (or `compact`), `summary` (default) or `full`.
    detail: Option<String>,
    /// The kind of tools, in a few words. Tools with a matching tag, toolset or server rank first (`read-only` and `destructive` match
    /// the tools' annotations). Without a match it counts as one more query.
    intent: Option<String>,
    /// Maximum number of tools of one server to rank before those of others. Default: `selection.per_server`.
    per_server: Option<usize>,
    /// The chat for the loaded state, if no header names it.
    chat_id: Option<String>,
}

/// Models send one string for a list.
#[derive(Deserialize, Default)]
#[serde(untagged)]
pub(super) enum OneOrMany {
    #[default]
    None,
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    pub(super) fn many(self) -> Vec<String> {
        match self {
            Self::None => Vec::new(),
            Self::One(one) => vec![one],
            Self::Many(many) => many,
        }
    }
}

#[derive(Deserialize, ToSchema)]
struct DescribeBody {
    /// Published names. A single string is accepted too.
    #[serde(default, alias = "name")]
    #[schema(value_type = Vec<String>)]
    names: OneOrMany,
}

#[derive(Deserialize, ToSchema)]
struct CallBody {
    /// The published name of the tool.
    name: String,
    /// The tool's arguments.
    #[serde(default)]
    #[schema(value_type = Object)]
    arguments: Option<Box<RawValue>>,
}

described! {
    /// The result of a search.
    struct FoundBody of Found {
        /// Best first: `limit` of them if there are that many.
        tools: Vec<FoundToolBody>,
        /// With a session or a chat: toolsets to load for tools that are not loaded, best first.
        toolsets unless "Vec::is_empty": Vec<ProposedToolsetBody>,
        /// The next step, for the model.
        next: String,
        warnings unless "Vec::is_empty": Vec<String>,
    }

    struct FoundToolBody of FoundTool {
        /// The published name.
        name: String,
        server: String,
        tool: String,
        /// 0 to 1.
        score: f32,
        /// With `detail` `summary`.
        summary unless "Option::is_none": Option<String>,
        /// With `detail` `full`.
        description unless "Option::is_none": Option<String>,
        /// With `detail` `full`: a JSON Schema.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<Object>)]
        parameters: Option<Value>,
        /// With a session or a chat: whether it is loaded.
        already_loaded unless "Option::is_none": Option<bool>,
        /// Published names of near duplicates on other servers.
        same_as unless "Vec::is_empty": Vec<String>,
    }

    struct ProposedToolsetBody of ProposedToolset {
        name: String,
        /// Number of its tools.
        tools: usize,
        /// The found tools in it.
        has: Vec<String>,
    }

    /// Definitions of tools.
    struct DescribedBody of Described {
        /// In the order of the names.
        tools: Vec<DescribedToolBody>,
        unknown unless "Vec::is_empty": Vec<UnknownToolBody>,
        /// The next step, for the model.
        next: String,
    }

    struct DescribedToolBody of DescribedTool {
        /// The published name.
        name: String,
        server: String,
        tool: String,
        title unless "Option::is_none": Option<String>,
        description: String,
        /// JSON Schema of the arguments.
        #[schema(value_type = Object)]
        parameters: Value,
        /// JSON Schema of the result, if the server declares one.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<Object>)]
        returns: Option<Value>,
    }

    /// A name without a tool.
    struct UnknownToolBody of UnknownTool {
        name: String,
        did_you_mean unless "Option::is_none": Option<String>,
    }
}

/// Finds the best tools for the described needs, best first.
#[utoipa::path(
    tag = "tools",
    request_body = SearchBody,
    responses(
        (status = 200, description = "The best tools", body = FoundBody),
        (status = 422, description = "No query, or an invalid value"),
        (status = 429, description = "Over limits.selections_per_minute")
    )
)]
#[post("/v1/tools/search")]
pub async fn search(state: web::Data<State>, caller: Caller, at: RequestAddress, request: HttpRequest, body: Body) -> Answer {
    respond(MetaTool::FindTools, &state, &caller, &at, &request, &body.0).await
}

/// Runs any tool by its published name.
#[utoipa::path(
    tag = "tools",
    request_body = CallBody,
    responses(
        (status = 200, description = "The tool's result", body = Content),
        (status = 404, description = "Unknown tool"),
        (status = 422, description = "The arguments do not match the tool's schema"),
        (status = 429, description = "Over a limit of the caller or of the server"),
        (status = 502, description = "The tool reported an error"),
        (status = 503, description = "The server is down"),
        (status = 504, description = "The server did not answer in time")
    )
)]
#[post("/v1/tools/call")]
pub async fn call(state: web::Data<State>, caller: Caller, at: RequestAddress, request: HttpRequest, body: Body) -> Answer {
    respond(MetaTool::RunTool, &state, &caller, &at, &request, &body.0).await
}

/// Returns the whole definitions of tools, by their published names.
#[utoipa::path(
    tag = "tools",
    request_body = DescribeBody,
    responses(
        (status = 200, description = "The definitions", body = DescribedBody),
        (status = 422, description = "No name, or too many")
    )
)]
#[post("/v1/tools/describe")]
pub async fn describe(state: web::Data<State>, caller: Caller, at: RequestAddress, request: HttpRequest, body: Body) -> Answer {
    respond(MetaTool::DescribeTools, &state, &caller, &at, &request, &body.0).await
}

pub(in crate::http) fn described_names(body: &[u8]) -> Result<Vec<String>, Problem> {
    let body: DescribeBody = read_json(body)?;
    let names = body.names.many();
    if names.is_empty() || names.len() > MAX_DESCRIBED {
        return Err(Problem::invalid("names", format!("Give 1 to {MAX_DESCRIBED} names, e.g. {{\"names\": [\"github__create_issue\"]}}.")));
    }
    Ok(names)
}

/// The search, and the chat named in the body.
pub(in crate::http) fn search_request(body: &[u8]) -> Result<(FindTools, Option<String>), Problem> {
    let body: SearchBody = read_json(body)?;
    let intent = body.intent.filter(|intent| !intent.trim().is_empty());
    let mut queries = body.queries.many();
    queries.retain(|query| !query.trim().is_empty());
    if queries.is_empty() {
        queries.extend(intent.clone());
    }
    if queries.is_empty() || queries.len() > MAX_QUERIES {
        return Err(Problem::invalid("queries", format!("Give 1 to {MAX_QUERIES} queries, e.g. {{\"queries\": [\"send an email\"]}}.")));
    }
    let limit = limit(body.limit, DEFAULT_FOUND, 1..=MAX_FOUND)?;
    if body.per_server.is_some_and(|most| most == 0 || most > MAX_FOUND) {
        return Err(Problem::invalid("per_server", format!("per_server is 1 to {MAX_FOUND}.")));
    }
    let detail = match body.detail.as_deref() {
        None => Detail::default(),
        Some(name) => Detail::of_name(name).ok_or_else(|| Problem::invalid("detail", format!("detail is {}.", Detail::NAMES)))?,
    };
    let wanted = FindTools { queries, limit, detail, intent, per_server: body.per_server };
    Ok((wanted, chat(body.chat_id)?))
}

/// The tool to run, and its arguments as JSON text.
pub(in crate::http) fn call_request(body: &[u8]) -> Result<(String, String), Problem> {
    let body: CallBody = read_json(body)?;
    Ok((body.name, body.arguments.map(Box::<str>::from).map(String::from).unwrap_or_default()))
}
