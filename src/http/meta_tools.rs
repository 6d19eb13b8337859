//! Runs the meta-tools, with the same requests and responses over HTTP and MCP.

use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;

use crate::domain::publishing::address::Address;
use crate::domain::publishing::meta_tools::MetaTool;
use crate::http::caller::Caller;
use crate::http::llm_keys::{self, OwnModels};
use crate::http::place::RequestAddress;
use crate::http::problem::{Code, Problem};
use crate::http::routes::context::context;
use crate::http::routes::{execute, smart_select, tools, toolsets};
use crate::http::state::State;
use crate::service::caller;
use crate::service::execution::execute::ExecuteError;
use crate::service::meta_tools::describe::Described;
use crate::service::meta_tools::find::Found;
use crate::service::meta_tools::smart_select::SmartSelection;
use crate::service::toolsets::loading::{Available, CallerAt, LoadAnswer, UnloadAnswer};

pub(super) enum Ran {
    Answered(MetaToolAnswer),
    /// The name and the JSON arguments of a tool to call. HTTP and MCP call tools in different ways.
    Call(String, String),
}

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum MetaToolAnswer {
    Found(Found),
    Described(Described),
    Loaded(LoadAnswer),
    Unloaded(UnloadAnswer),
    Available(Available),
    Selected(SmartSelection),
}

/// Where a meta-tool is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Through {
    /// The bodies of HTTP requests may also name a chat.
    Http,
    Mcp,
}

/// Runs a meta-tool. `own_models` finds the caller's own language models in the headers of the request.
pub(super) async fn run(
    tool: MetaTool,
    state: &State,
    here: CallerAt<'_>,
    through: Through,
    own_models: impl FnOnce() -> OwnModels,
    body: &[u8],
) -> Result<Ran, Problem> {
    let is_http = through == Through::Http;
    // A chat in the body takes precedence over a chat in the headers.
    let chat = |in_body: Option<String>| in_body.filter(|_| is_http).or_else(|| here.caller.chat.clone());
    let in_chat = |in_body: Option<String>| caller::CallerContext { chat: chat(in_body), ..here.caller.clone() };
    let answer = match tool {
        MetaTool::FindTools => {
            let (wanted, chat) = tools::search_request(body)?;
            MetaToolAnswer::Found(state.find.find(&wanted, CallerAt { caller: &in_chat(chat), ..here }).await?)
        }
        MetaTool::DescribeTools => {
            MetaToolAnswer::Described(state.describe.describe(&tools::described_names(body)?, &here.caller.principal))
        }
        MetaTool::LoadToolset | MetaTool::EnableToolGroup => {
            let with_tags = tool == MetaTool::EnableToolGroup;
            let wanted = if with_tags { toolsets::enable_request(body) } else { toolsets::load_request(body) }?;
            MetaToolAnswer::Loaded(state.loading.load(&wanted.names, with_tags, CallerAt { caller: &in_chat(wanted.chat), ..here }).await?)
        }
        MetaTool::UnloadToolset => {
            let wanted = toolsets::unload_request(body)?;
            MetaToolAnswer::Unloaded(state.loading.unload(&wanted.names[0], CallerAt { caller: &in_chat(wanted.chat), ..here }).await?)
        }
        MetaTool::ListAvailableToolsets => {
            let chat = if is_http { toolsets::available_request(body)? } else { None };
            MetaToolAnswer::Available(state.loading.available(CallerAt { caller: &in_chat(chat), ..here }).await)
        }
        MetaTool::RunTool => {
            let (name, arguments) = tools::call_request(body)?;
            return Ok(Ran::Call(name, arguments));
        }
        MetaTool::SmartSelectTools => {
            let (advisors, warnings) = own_models();
            let wanted = smart_select::task(body, advisors)?;
            let mut selection = state.smart_select.select(&wanted, here).await?;
            selection.warnings.splice(0..0, warnings);
            MetaToolAnswer::Selected(selection)
        }
    };
    Ok(Ran::Answered(answer))
}

/// Runs a meta-tool for an HTTP request.
pub(super) async fn respond(
    tool: MetaTool,
    state: &State,
    caller: &Caller,
    at: &RequestAddress,
    request: &HttpRequest,
    body: &[u8],
) -> Result<HttpResponse, Problem> {
    let context = context(caller, request);
    match run(tool, state, CallerAt::new(&context, &at.0), Through::Http, || llm_keys::advisors(request), body).await? {
        Ran::Answered(answer) => {
            // Notifies MCP clients of this session that their lists have changed.
            if !tool.reads_only() && matches!(*at.0, Address::Session(_)) {
                state.mcp_sessions.notify_address(&at.0);
                state.subscriptions.notify_address(&at.0).await;
            }
            Ok(HttpResponse::Ok().json(answer))
        }
        Ran::Call(name, arguments) => {
            let found = state.execute.find_by_name(&name, &caller.0, || execute::headers(caller, request)).await;
            let tool = found.map_err(|error| not_run(&name, error))?;
            Ok(execute::call(state, &tool, &arguments, context, caller, request).await)
        }
    }
}

/// The error of a call of a tool that was not found, or can't be called now.
fn not_run(name: &str, error: ExecuteError) -> Problem {
    match (error, MetaTool::of_name(name)) {
        (ExecuteError::NotFound { .. }, Some(tool)) => Problem::new(Code::NotFound, tool.call_directly()),
        (error, _) => Problem::from(error),
    }
}
