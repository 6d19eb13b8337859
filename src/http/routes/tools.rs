//! Finds, describes and runs tools by their public names, for these routes and for the meta-tools.

use actix_web::{HttpRequest, post, web};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::domain::publishing::meta_tools::{DEFAULT_FOUND, MAX_DESCRIBED, MAX_FOUND, MAX_QUERIES, MAX_SERVERS, MetaTool};
use crate::domain::text::json::{self, quoted};
use crate::http::body::Body;
use crate::http::caller::Caller;
use crate::http::described::{Content, described};
use crate::http::meta_tools::respond;
use crate::http::place::RequestAddress;
use crate::http::problem::{Answer, Problem, limit, read_json};
use crate::http::routes::context::chat;
use crate::http::state::State;
use crate::service::meta_tools::describe::{Described, DescribedTool, UnknownName};
use crate::service::meta_tools::find::{Detail, FindTools, Found, FoundTool};
use crate::service::meta_tools::proposed::ProposedToolset;

#[derive(Deserialize, ToSchema)]
struct SearchBody {
    /// What the tools should do, with one phrase per need. A single string is also accepted.
    #[serde(default, alias = "query")]
    #[schema(value_type = Vec<String>)]
    queries: OneOrMany,
    /// Names of the servers to search; by default, all servers are searched. Case does not matter, and a single string is also
    /// accepted.
    #[serde(default, alias = "server")]
    #[schema(value_type = Vec<String>)]
    servers: OneOrMany,
    /// Maximum number of tools to return.
    #[serde(default, deserialize_with = "json::whole_number")]
    limit: Option<usize>,
    /// The level of detail: `names` (or `compact`), `summary` (default) or `full`.
    detail: Option<String>,
    /// The kind of tools, in a few words. Tools rank first if their tag, toolset or server matches; `read-only` and
    /// `destructive` match the tools' annotations. If nothing matches, the intent is used as an additional query.
    intent: Option<String>,
    /// Maximum number of one server's tools that rank before other servers' tools; by default `selection.per_server`.
    #[serde(default, deserialize_with = "json::whole_number")]
    per_server: Option<usize>,
    /// The chat for which to report loaded tools, if no header names it.
    chat_id: Option<String>,
}

/// A list of strings. Models often send a single string instead, which is also accepted.
#[derive(Deserialize, Default)]
#[serde(untagged, expecting = "expected a text or a list of texts")]
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
    /// Public names of the tools. A single string is also accepted.
    #[serde(default, alias = "name")]
    #[schema(value_type = Vec<String>)]
    names: OneOrMany,
}

#[derive(Deserialize, ToSchema)]
struct CallBody {
    /// The public name of the tool.
    name: String,
    /// The arguments for the tool.
    #[serde(default)]
    #[schema(value_type = Object)]
    arguments: Option<Box<RawValue>>,
}

described! {
    /// The result of a search.
    struct FoundBody of Found {
        /// The best tools, best first. There are `limit` tools, or all tools if there are fewer. There are none if all tools are
        /// weak and none shares a word with the queries.
        tools: Vec<FoundToolBody>,
        /// Toolsets with tools that are not loaded yet, best first. Present only in a session or a chat.
        toolsets unless "Vec::is_empty": Vec<ProposedToolsetBody>,
        /// The requested servers of which the caller sees no tool.
        unknown_servers unless "Vec::is_empty": Vec<UnknownNameBody>,
        /// A suggestion for the model's next step.
        next: String,
        warnings unless "Vec::is_empty": Vec<String>,
    }

    struct FoundToolBody of FoundTool {
        /// The tool's public name.
        name: String,
        server: String,
        tool: String,
        /// How well the tool matches, from 0 to 1.
        score: f32,
        /// Present and true if the tool hardly matches any query. Weak tools only fill the list.
        weak unless "std::ops::Not::not": bool,
        /// Present if `detail` is `summary`.
        summary unless "Option::is_none": Option<String>,
        /// Present if `detail` is `full`.
        description unless "Option::is_none": Option<String>,
        /// The JSON Schema of the parameters. Present if `detail` is `full`.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<Object>)]
        parameters: Option<Value>,
        /// `ready`, or `sign_in` if the user must sign in to the server before the first call. Present only for servers
        /// that people sign in to.
        connection unless "Option::is_none": Option<&'static str>,
        /// Whether the tool is loaded. Present only in a session or a chat.
        already_loaded unless "Option::is_none": Option<bool>,
        /// Public names of nearly identical tools on other servers.
        same_as unless "Vec::is_empty": Vec<String>,
    }

    /// A toolset to load, with some of the chosen tools.
    struct ProposedToolsetBody of ProposedToolset {
        name: String,
        /// Number of tools in the toolset.
        tools: usize,
        /// The chosen tools that the toolset contains.
        has: Vec<String>,
    }

    /// The definitions of several tools.
    struct DescribedBody of Described {
        /// The tools, in the order of the requested names.
        tools: Vec<DescribedToolBody>,
        unknown unless "Vec::is_empty": Vec<UnknownNameBody>,
        /// A suggestion for the model's next step.
        next: String,
    }

    struct DescribedToolBody of DescribedTool {
        /// The tool's public name.
        name: String,
        server: String,
        tool: String,
        title unless "Option::is_none": Option<String>,
        description: String,
        /// The JSON Schema of the arguments.
        #[schema(value_type = Object)]
        parameters: Value,
        /// The JSON Schema of the result, if the server declares one.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<Object>)]
        returns: Option<Value>,
    }

    /// A requested name that belongs to no tool or server.
    struct UnknownNameBody of UnknownName {
        name: String,
        did_you_mean unless "Option::is_none": Option<String>,
    }
}

/// Finds the tools that best match the described needs. The best tools come first.
#[utoipa::path(
    tag = "tools",
    request_body = SearchBody,
    responses(
        (status = 200, description = "The best tools", body = FoundBody),
        (status = 422, description = "There is no query, or a value is invalid"),
        (status = 429, description = "The caller exceeds limits.selections_per_minute")
    )
)]
#[post("/v1/tools/search")]
pub async fn search(state: web::Data<State>, caller: Caller, at: RequestAddress, request: HttpRequest, body: Body) -> Answer {
    respond(MetaTool::FindTools, &state, &caller, &at, &request, &body.0).await
}

/// Runs any tool by its public name.
#[utoipa::path(
    tag = "tools",
    request_body = CallBody,
    responses(
        (status = 200, description = "The tool's result", body = Content),
        (status = 404, description = "The tool is unknown"),
        (status = 422, description = "The arguments do not match the tool's schema"),
        (status = 429, description = "The call exceeds a limit for the caller or the server"),
        (status = 502, description = "The tool reported an error"),
        (status = 503, description = "The server is unavailable"),
        (status = 504, description = "The server did not answer in time")
    )
)]
#[post("/v1/tools/call")]
pub async fn call(state: web::Data<State>, caller: Caller, at: RequestAddress, request: HttpRequest, body: Body) -> Answer {
    respond(MetaTool::RunTool, &state, &caller, &at, &request, &body.0).await
}

/// Returns the complete definitions of the tools with these public names.
#[utoipa::path(
    tag = "tools",
    request_body = DescribeBody,
    responses(
        (status = 200, description = "The definitions", body = DescribedBody),
        (status = 422, description = "There are no names, or too many")
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

/// Reads a search from a request body, with the chat that it may name.
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
    let mut servers = body.servers.many();
    servers.retain(|server| !server.trim().is_empty());
    if servers.len() > MAX_SERVERS {
        return Err(Problem::invalid("servers", format!("Name at most {MAX_SERVERS} servers, or none to search all.")));
    }
    let limit = limit(body.limit, DEFAULT_FOUND, 1..=MAX_FOUND)?;
    if body.per_server.is_some_and(|most| most == 0 || most > MAX_FOUND) {
        return Err(Problem::invalid("per_server", format!("per_server is 1 to {MAX_FOUND}.")));
    }
    let detail = match body.detail.as_deref() {
        None => Detail::default(),
        Some(name) => Detail::of_name(name).ok_or_else(|| Problem::invalid("detail", format!("detail is {}.", Detail::NAMES)))?,
    };
    let wanted = FindTools { queries, servers, limit, detail, intent, per_server: body.per_server };
    Ok((wanted, chat(body.chat_id)?))
}

/// Reads the name of the tool to run, and its arguments as JSON text.
pub(in crate::http) fn call_request(body: &[u8]) -> Result<(String, String), Problem> {
    let CallBody { name, arguments } = read_json(body)?;
    if let (None, Some(misplaced)) = (&arguments, misplaced(body)) {
        let example = format!("{{\"name\": {}, \"arguments\": {{{}: …}}}}", quoted(&name), quoted(&misplaced));
        return Err(Problem::invalid(misplaced.clone(), format!("The tool's arguments belong in `arguments`, e.g. {example}.")));
    }
    Ok((name, arguments.map(Box::<str>::from).map(String::from).unwrap_or_default()))
}

/// A member beside those of [`CallBody`]. Models may write a tool's arguments there.
fn misplaced(body: &[u8]) -> Option<String> {
    let members = json::members(std::str::from_utf8(body).ok()?)?;
    members.keys().find(|name| !["name", "arguments", "chat_id"].contains(&name.as_ref())).map(|name| name.clone().into_owned())
}
