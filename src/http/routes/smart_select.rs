//! Selects the best tools for a whole task: the plain route, and the request of `smart_select_tools`.

use actix_web::{HttpRequest, post, web};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::domain::publishing::meta_tools::{DEFAULT_SELECTED, MAX_SELECTED, MIN_SELECTED, MetaTool};
use crate::http::body::Body;
use crate::http::caller::Caller;
use crate::http::described::described;
use crate::http::meta_tools::respond;
use crate::http::place::RequestAddress;
use crate::http::problem::{Answer, Problem, limit, read_json};
use crate::http::state::State;
use crate::service::meta_tools::smart_select::{SmartSelectRequest, SmartSelection, SmartTool};
use crate::service::ports::Advisor;

#[derive(Deserialize, ToSchema)]
struct SmartSelectBody {
    /// The task with all its steps.
    task: String,
    /// Maximum number of tools to return.
    limit: Option<usize>,
}

described! {
    /// The chosen tools.
    struct SmartSelectionBody of SmartSelection {
        /// Best first.
        tools: Vec<SmartToolBody>,
        /// The chooser: `gemini`, `openai`, `anthropic`, `configured` or `heuristic`.
        provider: String,
        warnings: Vec<String>,
    }

    struct SmartToolBody of SmartTool {
        /// The published name.
        name: String,
        server: String,
        tool: String,
        reason: String,
    }
}

/// Lets a language model choose the best tools for a task, with reasons; without a model, retrieval chooses.
#[utoipa::path(
    tag = "tools",
    request_body = SmartSelectBody,
    params(
        ("X-Gemini-Api-Key" = Option<String>, Header, description = "The caller's own key, used first. No key is stored."),
        ("X-OpenAI-Api-Key" = Option<String>, Header, description = "The caller's own key, used second"),
        ("X-Anthropic-Api-Key" = Option<String>, Header, description = "The caller's own key, used third"),
        ("X-LLM-Api-Key" = Option<String>, Header, description = "A key of one of the three providers, recognised by its form")
    ),
    responses(
        (status = 200, description = "The chosen tools", body = SmartSelectionBody),
        (status = 422, description = "No task, or an invalid value"),
        (status = 429, description = "Over limits.selections_per_minute")
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
