//! Selects the best tools for a whole task, for this route and for the meta-tool `smart_select_tools`.

use actix_web::{HttpRequest, post, web};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::domain::publishing::meta_tools::{DEFAULT_SELECTED, MAX_SELECTED, MIN_SELECTED, MetaTool};
use crate::domain::text::json;
use crate::http::body::Body;
use crate::http::caller::Caller;
use crate::http::described::described;
use crate::http::meta_tools::respond;
use crate::http::place::RequestAddress;
use crate::http::problem::{Answer, Problem, limit, read_json};
use crate::http::routes::tools::ProposedToolsetBody;
use crate::http::state::State;
use crate::service::meta_tools::smart_select::{SmartSelectRequest, SmartSelection, SmartTool};
use crate::service::ports::Advisor;

#[derive(Deserialize, ToSchema)]
struct SmartSelectBody {
    /// The task, with all its steps.
    task: String,
    /// Maximum number of tools to return.
    #[serde(default, deserialize_with = "json::whole_number")]
    limit: Option<usize>,
}

described! {
    /// The tools that were selected for the task.
    struct SmartSelectionBody of SmartSelection {
        /// The tools, best first.
        tools: Vec<SmartToolBody>,
        /// Toolsets to load, best first. They contain the selected tools that are not loaded in the session or chat of the request.
        toolsets unless "Vec::is_empty": Vec<ProposedToolsetBody>,
        /// What selected the tools: `gemini`, `openai`, `anthropic`, `configured` (the model in the settings) or
        /// `heuristic` (search).
        provider: String,
        warnings: Vec<String>,
    }

    struct SmartToolBody of SmartTool {
        /// The tool's public name.
        name: String,
        server: String,
        tool: String,
        reason: String,
    }
}

/// Lets a language model select the best tools for a task, with reasons. If no model is available, search selects the
/// tools.
#[utoipa::path(
    tag = "tools",
    request_body = SmartSelectBody,
    params(
        ("X-Gemini-Api-Key" = Option<String>, Header, description = "The caller's own Gemini key. Gemini is tried first. The service stores no keys."),
        ("X-OpenAI-Api-Key" = Option<String>, Header, description = "The caller's own OpenAI key. OpenAI is tried second."),
        ("X-Anthropic-Api-Key" = Option<String>, Header, description = "The caller's own Anthropic key. Anthropic is tried third."),
        ("X-LLM-Api-Key" = Option<String>, Header, description = "A key for any of the three providers. The service recognises the provider by the key's prefix. `sk-` counts as OpenAI's, except `sk-ant-` and `sk-or-`.")
    ),
    responses(
        (status = 200, description = "The selected tools", body = SmartSelectionBody),
        (status = 422, description = "The task is missing, or a value is invalid"),
        (status = 429, description = "The caller exceeds limits.selections_per_minute")
    )
)]
#[post("/v1/tools/smart_select")]
pub async fn smart_select(state: web::Data<State>, caller: Caller, at: RequestAddress, request: HttpRequest, body: Body) -> Answer {
    respond(MetaTool::SmartSelectTools, &state, &caller, &at, &request, &body.0).await
}

pub(in crate::http) fn task(body: &[u8], advisors: Vec<Advisor>) -> Result<SmartSelectRequest, Problem> {
    let body: SmartSelectBody = read_json(body)?;
    if body.task.trim().is_empty() {
        return Err(Problem::invalid("task", "task is empty: say what is to be done."));
    }
    let limit = limit(body.limit, DEFAULT_SELECTED, MIN_SELECTED..=MAX_SELECTED)?;
    Ok(SmartSelectRequest { task: body.task, limit, advisors })
}
