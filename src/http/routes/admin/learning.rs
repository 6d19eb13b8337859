//! Shows administrators what was learned from use, and forgets it.

use std::collections::{BTreeMap, HashSet};
use std::time::SystemTime;

use actix_web::{HttpResponse, delete, get, post, web};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{principal, time};
use crate::domain::access::principal::Principal;
use crate::domain::catalog::hidden_text::visible;
use crate::domain::catalog::tool::ToolId;
use crate::domain::learning::arguments::{FilledParameters, UnusedParameters};
use crate::domain::learning::replay::Replay;
use crate::domain::learning::scope::Scope;
use crate::domain::learning::votes::Vote;
use crate::http::caller::Administrator;
use crate::http::problem::{Answer, Code, Problem};
use crate::http::query::Query;
use crate::http::state::State;
use crate::service::learning::learn::{LearnedEvidence, ReplayedScope};
use crate::service::ports::{AuditAction, AuditEntry, Forgotten};

/// Maximum number of tools with unused parameters.
const MOST_PARAMETERS: usize = 50;
const SECONDS_PER_DAY: f64 = 86_400.0;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct LearningQuery {
    /// The public name of a tool, or `SERVER/TOOL` for a tool that no longer exists: shows the evidence on it.
    tool: Option<String>,
    /// The text of a message: shows which tools would rank higher or lower for it. Requires `principal`.
    message: Option<String>,
    /// The caller of the message, such as `user:ID`, with all keys. What its groups learned isn't shown.
    principal: Option<String>,
}

#[derive(Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct ForgetQuery {
    /// Forgets what this caller's messages taught, whatever the key with which they came: `user:ID` or `key:NAME`.
    pub(in crate::http) principal: Option<String>,
    /// Forgets all evidence on a tool: its public name, or `SERVER/TOOL` for a tool that no longer exists.
    pub(in crate::http) tool: Option<String>,
    /// Forgets what counts for a scope, as GET lists it. What its messages taught in other scopes stays.
    pub(in crate::http) scope: Option<String>,
    /// `true` forgets everything.
    pub(in crate::http) all: Option<bool>,
}

/// A tool that learning moves for a message.
pub(in crate::http) struct MovedTool {
    pub(in crate::http) tool: ToolId,
    /// The public name, or server and name of a tool that no longer exists.
    pub(in crate::http) name: String,
    /// The change of the tool's score, in standard deviations of the candidates.
    pub(in crate::http) delta: f32,
    pub(in crate::http) evidence: Vec<LearnedEvidence>,
}

/// What is learned.
#[derive(Serialize, ToSchema)]
struct LearningBody {
    /// `auto`, `always` or `off`.
    mode: &'static str,
    /// The embedding model. Only messages that it embedded are compared.
    model: String,
    scopes: Vec<ScopeBody>,
}

#[derive(Serialize, ToSchema)]
struct ScopeBody {
    /// For whom the evidence counts: the id of the key (`-` without a named key), then `caller=ID`, `group=NAME` or `all`.
    scope: String,
    /// Number of remembered messages.
    messages: usize,
    /// Number of pieces of their evidence.
    uses: usize,
    /// Number of chats and sessions with calls. They teach which tools are called together.
    chats: usize,
    /// Number of stored messages. If learning is off or the embedding model has changed, they aren't remembered, but can be forgotten.
    stored: usize,
    /// Whether these uses count. With `auto`, one caller's uses count if the last replay was clearly better with learning. Without a clear
    /// result, they count if learning from them predicts the next uses better than no learning. What only chats taught always counts,
    /// unless learning is off.
    on: bool,
    /// The last replay since the start of the service, if any.
    last_replay: Option<LastReplayBody>,
}

#[derive(Serialize, ToSchema)]
struct LastReplayBody {
    at: String,
    /// The mean nDCG@5 of the newer messages without learning.
    before: f64,
    /// The same, after learning from the older messages.
    after: f64,
    /// Both means for each eighth of the newer messages, oldest first.
    curve: Vec<CurvePointBody>,
}

#[derive(Serialize, ToSchema)]
struct CurvePointBody {
    before: f64,
    after: f64,
}

#[derive(Serialize, ToSchema)]
struct ReplayBody {
    /// `auto`, `always` or `off`. If it is `off`, nothing is replayed.
    mode: &'static str,
    scopes: Vec<ReplayedScopeBody>,
}

#[derive(Serialize, ToSchema)]
struct ReplayedScopeBody {
    scope: String,
    /// Number of remembered messages with a use that a replay can measure.
    uses: usize,
    /// Number of such messages that a replay needs.
    needed: usize,
    /// The mean nDCG@5 of the newer half without learning; `null` if there are too few uses.
    before: Option<f64>,
    /// The same, after learning from the older half; `null` if there are too few uses.
    after: Option<f64>,
    /// Whether these uses count.
    on: bool,
}

#[derive(Serialize, ToSchema)]
struct LearnedToolsBody {
    tools: Vec<LearnedToolBody>,
}

#[derive(Serialize, ToSchema)]
struct LearnedToolBody {
    name: String,
    /// The change of the tool's score for the message, in standard deviations of the candidates. Absent without a message.
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<f32>,
    evidence: Vec<EvidenceBody>,
}

#[derive(Serialize, ToSchema)]
struct EvidenceBody {
    /// `called`, `found`, `invalid`, `failed`, `helpful`, `missing`, `wrong` or `passed_over`.
    kind: &'static str,
    count: usize,
    /// The age of the newest piece, in days.
    age_days: f64,
    scope: String,
}

#[derive(Serialize, ToSchema)]
struct ForgottenBody {
    /// Number of pieces of evidence: of messages, of tools that chats called, and of tools whose arguments were counted. For a scope, the
    /// number of messages and chats that counted for it.
    removed: u64,
}

#[derive(Serialize, ToSchema)]
struct ProposalsBody {
    /// Tools that are mostly called in the same chats, the most frequent first. Toolsets that exist are left out. To accept one, send its
    /// `tools` to `PUT /v1/admin/toolsets/NAME`.
    toolsets: Vec<NewToolsetBody>,
    /// The tools that most people call. Pinned ones are left out. To accept one, send `{"pinned": true}` to
    /// `PUT /v1/admin/tools/SERVER/TOOL`.
    pins: Vec<ProposedPinBody>,
    /// The toolsets, servers and tags that chats and sessions load, the most frequent first.
    loaded: Vec<LoadedGroupBody>,
    /// Optional parameters that no call with success filled, of tools with at least 20 such calls, those that cost most first. To hide one,
    /// send `{"shape": {"parameters": {"NAME": {"hidden": true}}}}` to `PUT /v1/admin/tools/SERVER/TOOL`.
    parameters: Vec<UnusedParametersBody>,
}

#[derive(Serialize, ToSchema)]
struct UnusedParametersBody {
    /// The public name of the tool.
    name: String,
    server: String,
    tool: String,
    /// Number of calls with success.
    calls: u64,
    /// Number of callers.
    people: u64,
    /// The parameters that no call filled.
    parameters: Vec<String>,
    /// About how many tokens (cl100k) these parameters cost in each definition of the tool.
    tokens: u32,
}

#[derive(Serialize, ToSchema)]
struct NewToolsetBody {
    /// Public names.
    tools: Vec<String>,
    /// Number of chats that called at least two of the tools.
    chats: usize,
    /// Number of people in these chats.
    people: usize,
}

#[derive(Serialize, ToSchema)]
struct ProposedPinBody {
    /// The public name.
    name: String,
    server: String,
    tool: String,
    /// Number of chats that called the tool.
    chats: usize,
    people: usize,
}

#[derive(Serialize, ToSchema)]
struct LoadedGroupBody {
    name: String,
    /// Number of chats and sessions that loaded it.
    chats: usize,
    people: usize,
}

/// Proposes toolsets, and tools to pin, by what chats called together, and parameters to hide, by what calls filled. Changes nothing.
/// Proposals are made from three chats on, and from 20 calls on.
#[utoipa::path(responses((status = 200, description = "The proposals", body = ProposalsBody)))]
#[get("/v1/admin/learning/proposals")]
pub async fn show_proposals(state: web::Data<State>, caller: Administrator) -> Answer {
    let view = state.current.view(&caller.0);
    let catalog = &view.catalog;
    let found = state.learning.proposals(|tool| catalog.tool(tool).is_some());
    let name = |tool: &ToolId| catalog.tool(tool).map(|tool| tool.operation_id.to_string());
    let known: Vec<HashSet<String>> = state.toolsets.list().into_iter().map(|toolset| toolset.members.into_iter().collect()).collect();
    let toolsets = found.toolsets.iter().map(|proposed| NewToolsetBody {
        tools: proposed.tools.iter().filter_map(name).collect(),
        chats: proposed.chats,
        people: proposed.people,
    });
    let is_new = |proposed: &NewToolsetBody| !known.iter().any(|members| proposed.tools.iter().all(|tool| members.contains(tool)));
    let is_pinned = |tool: &ToolId| {
        let of_admin = catalog.position(tool).is_some_and(|position| catalog.pinned().contains(&position));
        of_admin || name(tool).is_some_and(|name| view.settings.pinned.contains(&name))
    };
    let pins = found.pins.iter().filter(|pin| !is_pinned(&pin.tool)).filter_map(|pin| {
        let (server, tool) = (pin.tool.server.to_string(), pin.tool.name.to_string());
        Some(ProposedPinBody { name: name(&pin.tool)?, server, tool, chats: pin.chats, people: pin.people })
    });
    let loaded =
        found.loaded.iter().map(|group| LoadedGroupBody { name: group.tool.name.to_string(), chats: group.chats, people: group.people });
    let filled = state.learning.filled(None).await?;
    let unused = |used: &FilledParameters| {
        let tool = catalog.tool(&used.tool)?;
        let UnusedParameters { names, tokens } = used.unused(tool)?;
        let (server, id) = (used.tool.server.to_string(), used.tool.name.to_string());
        let (name, parameters) = (tool.operation_id.to_string(), names.iter().map(|name| visible(name)).collect());
        Some(UnusedParametersBody { name, server, tool: id, calls: used.calls, people: used.people, parameters, tokens })
    };
    let mut parameters: Vec<UnusedParametersBody> = filled.iter().filter_map(unused).collect();
    parameters.sort_by(|one, other| other.tokens.cmp(&one.tokens).then_with(|| one.name.cmp(&other.name)));
    parameters.truncate(MOST_PARAMETERS);
    let body = ProposalsBody { toolsets: toolsets.filter(is_new).collect(), pins: pins.collect(), loaded: loaded.collect(), parameters };
    Ok(HttpResponse::Ok().json(body))
}

/// Shows what was learned from use. Without parameters, lists all scopes. With `tool`, shows the evidence on a tool. With `message` and
/// `principal`, shows how learning changes the ranking for a message.
#[utoipa::path(
    params(LearningQuery),
    responses(
        (status = 200, description = "All scopes, or the tools with their evidence (`LearnedToolsBody`)", body = LearningBody),
        (status = 404, description = "The tool is unknown"),
        (status = 422, description = "A parameter is invalid or missing")
    )
)]
#[get("/v1/admin/learning")]
pub async fn show_learning(state: web::Data<State>, _: Administrator, Query(query): Query<LearningQuery>) -> Answer {
    let learning = &state.learning;
    match query {
        LearningQuery { tool: Some(name), message: None, principal: None } => {
            let tool = tool(&state, &name)?;
            let evidence = learning.evidence(&tool, None).iter().map(EvidenceBody::of).collect();
            Ok(HttpResponse::Ok().json(LearnedToolsBody { tools: vec![LearnedToolBody { name, delta: None, evidence }] }))
        }
        LearningQuery { tool: None, message: Some(message), principal: Some(name) } => {
            let shown = |moved: MovedTool| LearnedToolBody {
                name: moved.name,
                delta: Some(moved.delta),
                evidence: moved.evidence.iter().map(EvidenceBody::of).collect(),
            };
            let tools = moved_by(&state, &message, &name).await?.into_iter().map(shown).collect();
            Ok(HttpResponse::Ok().json(LearnedToolsBody { tools }))
        }
        LearningQuery { tool: None, message: None, principal: None } => {
            let scopes = learning.scopes().await?.into_iter().map(|known| ScopeBody {
                scope: known.scope.to_string(),
                messages: known.messages,
                uses: known.uses,
                chats: known.chats,
                stored: known.stored,
                on: known.on,
                last_replay: known.last_replay.map(|(at, replayed)| LastReplayBody {
                    at: time(at),
                    before: replayed.before,
                    after: replayed.after,
                    curve: replayed.curve.iter().map(|&(before, after)| CurvePointBody { before, after }).collect(),
                }),
            });
            let body = LearningBody { mode: learning.mode().name(), model: learning.model().to_owned(), scopes: scopes.collect() };
            Ok(HttpResponse::Ok().json(body))
        }
        _ => Err(Problem::invalid("message", "give tool, or both message and principal, or nothing.")),
    }
}

/// Forgets what was learned from use: of a caller, on a tool, in a scope, or everything. Messages in the log of events stay.
#[utoipa::path(
    params(ForgetQuery),
    responses(
        (status = 200, description = "The number of deleted pieces of evidence", body = ForgottenBody),
        (status = 404, description = "The tool is unknown"),
        (status = 422, description = "Not exactly one parameter is given, or it is invalid")
    )
)]
#[delete("/v1/admin/learning")]
pub async fn forget_learning(state: web::Data<State>, caller: Administrator, Query(query): Query<ForgetQuery>) -> Answer {
    let removed = forget(&state, &caller.0, query).await?;
    Ok(HttpResponse::Ok().json(ForgottenBody { removed }))
}

/// The tools that learning moves for a caller's message, the most raised one first.
///
/// # Errors
/// The principal is invalid, or the embedder fails.
pub(in crate::http) async fn moved_by(state: &State, message: &str, principal_name: &str) -> Result<Vec<MovedTool>, Problem> {
    let caller = principal(principal_name)?;
    let vector = state.find.retrieve.message_vector(message).await;
    let vector = vector.map_err(|_| Problem::new(Code::Internal, "The embedder does not answer; try again later."))?;
    let votes: BTreeMap<ToolId, Vote> =
        vector.map(|vector| state.learning.votes_for(caller.as_str(), &vector)).unwrap_or_default().into_iter().collect();
    let catalog = state.current.snapshot();
    let moved = |(tool, vote): (ToolId, Vote)| MovedTool {
        name: catalog.tool(&tool).map_or_else(|| tool.to_string(), |tool| tool.operation_id.to_string()),
        delta: vote.delta,
        evidence: state.learning.evidence(&tool, Some(caller.as_str())),
        tool,
    };
    let mut tools: Vec<MovedTool> = votes.into_iter().map(moved).collect();
    tools.sort_by(|one, other| other.delta.total_cmp(&one.delta));
    Ok(tools)
}

/// What a request asks to forget, and how the audit log names it.
///
/// # Errors
/// Not exactly one part is given, or it is invalid or unknown.
pub(in crate::http) fn to_forget(state: &State, query: ForgetQuery) -> Result<(Forgotten, String), Problem> {
    match query {
        ForgetQuery { principal: Some(name), tool: None, scope: None, all: None } => Ok((Forgotten::Caller(principal(&name)?), name)),
        ForgetQuery { principal: None, tool: Some(name), scope: None, all: None } => Ok((Forgotten::Tool(tool(state, &name)?), name)),
        ForgetQuery { principal: None, tool: None, scope: Some(name), all: None } => {
            let scope = Scope::read(&name).ok_or_else(|| Problem::invalid("scope", "write a scope as GET /v1/admin/learning lists it."))?;
            Ok((Forgotten::Scope(scope), name))
        }
        ForgetQuery { principal: None, tool: None, scope: None, all: Some(true) } => Ok((Forgotten::All, "all".to_owned())),
        _ => Err(Problem::invalid("principal", "give exactly one of principal, tool, scope and all=true.")),
    }
}

/// Forgets what was learned. Returns the number of stored pieces of evidence.
///
/// # Errors
/// Those of [`to_forget`], or the store fails.
pub(in crate::http) async fn forget(state: &State, caller: &Principal, query: ForgetQuery) -> Result<u64, Problem> {
    let (forgotten, named) = to_forget(state, query)?;
    let removed = state.learning.forget(&forgotten).await?;
    tracing::info!(named, removed, "what was learned was forgotten");
    state.audit.record(AuditEntry::of_change(caller, AuditAction::LearningForget, named));
    Ok(removed)
}

/// Replays what is remembered of each caller.
pub(in crate::http) async fn replay(state: &State, caller: &Principal) -> Vec<ReplayedScope> {
    let scopes = state.learning.replay().await;
    state.audit.record(AuditEntry::of_change(caller, AuditAction::LearningReplay, "all".to_owned()));
    scopes
}

/// Replays what is remembered of each caller: learns from the older half of the messages, and measures the newer half. With
/// `mode = "auto"`, a scope that got worse is switched off, and one that got clearly better is switched on. A scope with too few uses stays
/// as it is. Scopes of several people aren't replayed. The service does the same every night.
#[utoipa::path(
    responses((status = 200, description = "The replayed scopes, including those with too few uses", body = ReplayBody))
)]
#[post("/v1/admin/learning/replay")]
pub async fn replay_learning(state: web::Data<State>, caller: Administrator) -> Answer {
    let scopes = replay(&state, &caller.0).await.into_iter().map(|known| {
        let Replay { uses, needed, replayed } = known.replay;
        let (before, after) = (replayed.map(|replayed| replayed.before), replayed.map(|replayed| replayed.after));
        ReplayedScopeBody { scope: known.scope.to_string(), uses, needed, before, after, on: known.on }
    });
    Ok(HttpResponse::Ok().json(ReplayBody { mode: state.learning.mode().name(), scopes: scopes.collect() }))
}

/// The age of evidence, in days.
pub(in crate::http) fn age_days(at: SystemTime) -> f64 {
    SystemTime::now().duration_since(at).unwrap_or_default().as_secs_f64() / SECONDS_PER_DAY
}

/// A tool by its published name, or by its server and its own name.
pub(in crate::http) fn tool(state: &State, name: &str) -> Result<ToolId, Problem> {
    let known = state.current.snapshot().operation(name).map(|tool| tool.id.clone());
    let former = || name.split_once('/').map(|(server, tool)| ToolId::new(server, tool));
    let detail = || format!("There is no tool `{name}`. For a tool that no longer exists, write SERVER/TOOL.");
    known.or_else(former).ok_or_else(|| Problem::new(Code::NotFound, detail()))
}

impl EvidenceBody {
    fn of(evidence: &LearnedEvidence) -> Self {
        let age_days = (age_days(evidence.newest) * 10.0).round() / 10.0;
        Self { kind: evidence.kind.name(), count: evidence.count, age_days, scope: evidence.scope.to_string() }
    }
}
