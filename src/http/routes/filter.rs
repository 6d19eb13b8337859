//! Selects tools for a message. The Open WebUI filter sends this request before every model call.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use actix_web::{HttpMessage, HttpRequest, HttpResponse, post, web};
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::domain::access::principal::{Principal, PrincipalKind};
use crate::domain::catalog::tool::ServerName;
use crate::domain::publishing::address::{AddressPrefix, ConnectionPath};
use crate::domain::selection::explanation::Explanation;
use crate::domain::selection::relevance::Role;
use crate::domain::selection::selection::Disclosed;
use crate::domain::selection::selection::{Selection, Shadow};
use crate::domain::text::json;
use crate::domain::toolsets::session::Session;
use crate::http::admission::Ungrouped;
use crate::http::body::Body;
use crate::http::caller::Caller;
use crate::http::llm_keys;
use crate::http::person::{self, MAX_BYTES};
use crate::http::problem::{Answer, Code, Problem, limit, plain, read_json};
use crate::http::query::Query;
use crate::http::routes::context::context;
use crate::http::state::State;
use crate::service::access::policies::CheckPrincipal;
use crate::service::selection::request::{Offered, SelectRequest, Turn};
use crate::settings::{Rerank, SelectionSettings};

/// Maximum number of newly selected tools per request.
pub(in crate::http) const MAX_LIMIT: usize = 128;
/// Maximum number of tool ids and connections per request.
pub(in crate::http) const MAX_IDS: usize = 1_000;
/// Maximum number of definitions in a request, if foreign functions are selected too and must be embedded.
const MAX_JUDGED: usize = 1_000;

#[derive(Deserialize, ToSchema)]
struct FilterBody {
    /// The last turns of the chat, oldest first. Six turns are sufficient.
    #[schema(value_type = Vec<MessageBody>)]
    messages: Vec<Message>,
    /// The ids of Toolsieve's connections, each with the path of its document or its MCP address (`/mcp`). All other
    /// ids are foreign and stay.
    #[serde(default)]
    #[schema(value_type = Option<HashMap<String, String>>)]
    connections: Option<IndexMap<String, String>>,
    /// The tool ids that are switched on in the chat.
    tool_ids: Option<Vec<String>>,
    /// The functions that the model would get, as names or as definitions.
    #[serde(default)]
    #[schema(value_type = Option<Vec<OfferedBody>>)]
    tools: Option<Vec<OfferedTool>>,
    /// `sha256:` and the hexadecimal SHA-256 of the names in `tools`, in order, separated by line feeds. In the first
    /// request, send it together with the names. In later requests, send it instead of the names. Definitions are not
    /// cached, so send them in every request.
    offer: Option<String>,
    /// Names that the model found with the meta-tools. These tools join the chat's tools. The response then also
    /// contains definitions of these tools and of the chat's earlier tools, unless the request already offers them.
    disclose: Option<Vec<String>>,
    /// Names in `tools` that must stay if the caller may use them: tools that the chat called before the first turn in
    /// `messages`, and tools that an administrator always keeps.
    keep: Option<Vec<String>>,
    /// What the model searched for in this turn. Open WebUI's own tools that match a search stay.
    searched: Option<Vec<String>>,
    /// Whether to select among foreign functions too, if `tools` contains their definitions. Open WebUI's own tools stay or
    /// go in families, such as all tools for notes.
    narrow_foreign: Option<bool>,
    /// The user on whose behalf the request is made. Only trusted callers may name a user. Invalid data is an error. With
    /// `access.user_jwt_secret`, the header `X-OpenWebUI-User-Jwt` must name the user, and only the user's groups are read here.
    #[serde(default)]
    #[schema(value_type = Option<PersonBody>)]
    user: Option<Value>,
    chat_id: Option<String>,
    /// The message's id. For an MCP connection, `/mcp?mode=message` then lists the tools that were selected for this
    /// message.
    message_id: Option<String>,
    model: Option<String>,
    /// Maximum number of newly selected tools; by default `selection.limit`. Pinned tools, the chat's earlier tools and
    /// the search tool don't count.
    #[serde(default, deserialize_with = "json::whole_number")]
    limit: Option<usize>,
    /// Maximum number of tokens in the definitions of newly selected tools. The best tool is always sent, even if it has more. The
    /// budget also replaces a larger `selection.narrow_above_tokens`.
    #[serde(default, deserialize_with = "json::whole_number")]
    token_budget: Option<usize>,
    /// Whether a language model chooses among the best tools: `auto` (only for ambiguous rankings), `off` or `always`.
    /// By default, the service's setting applies.
    rerank: Option<String>,
}

/// What to explain, in addition to the request (`?explain=true`).
#[derive(Deserialize, ToSchema)]
struct ExplainBody {
    /// The caller for whom to select. By default, it is the caller of the request.
    r#as: Option<AsBody>,
    /// Settings to try instead of those in force.
    settings: Option<TriedSettings>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct AsBody {
    /// `key:NAME`, `user:ID`, `service-key`, `admin` or `anyone`.
    principal: String,
    email: Option<String>,
    #[serde(default)]
    groups: Vec<String>,
    model: Option<String>,
}

/// Settings in the section `[selection]`, with the same names and limits.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct TriedSettings {
    limit: Option<usize>,
    candidates: Option<usize>,
    chat_budget: Option<usize>,
    dense_weight: Option<f32>,
    gate: Option<bool>,
    strictness: Option<f32>,
    narrow_above_tokens: Option<usize>,
    token_budget: Option<usize>,
    per_server: Option<usize>,
    fold_duplicates: Option<bool>,
    rerank: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilterQuery {
    #[serde(default)]
    explain: bool,
}

/// A turn of the chat, in the format of chat completions. Other members are ignored.
#[derive(ToSchema)]
#[expect(dead_code, reason = "for the description alone: `Message` reads it, with any value as content and as calls")]
struct MessageBody {
    /// `user`, `assistant`, or any other role, such as `system` and `tool`.
    role: String,
    content: Option<ContentBody>,
    /// The tool calls of the assistant.
    tool_calls: Option<Vec<ToolCallBody>>,
}

/// A text, or a list of parts. Only the text parts are used.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "for the description alone")]
enum ContentBody {
    Text(String),
    Parts(Vec<ContentPartBody>),
}

#[derive(ToSchema)]
#[expect(dead_code, reason = "for the description alone")]
struct ContentPartBody {
    r#type: Option<String>,
    text: Option<String>,
}

/// A tool call. It may contain `name` directly, without `function`.
#[derive(ToSchema)]
#[expect(dead_code, reason = "for the description alone")]
struct ToolCallBody {
    function: Option<CalledBody>,
    name: Option<String>,
}

#[derive(ToSchema)]
#[expect(dead_code, reason = "for the description alone")]
struct CalledBody {
    /// The function's public name.
    name: String,
}

/// A function's name or its definition. The definition may be the value of `function`, as in chat completions.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "for the description alone: `OfferedTool` reads it")]
enum OfferedBody {
    Name(String),
    Function(FunctionBody),
    Wrapped { function: FunctionBody },
}

#[derive(ToSchema)]
#[expect(dead_code, reason = "for the description alone")]
struct FunctionBody {
    name: String,
    description: Option<String>,
    /// The JSON Schema of the parameters.
    #[schema(value_type = Option<Object>)]
    parameters: Option<Value>,
}

/// A user. All length limits are in bytes.
#[derive(ToSchema)]
#[expect(dead_code, reason = "for the description alone: it is read where headers are")]
struct PersonBody {
    id: String,
    email: Option<String>,
    role: Option<String>,
    groups: Option<Vec<String>>,
}

/// Content and tool calls stay JSON text, of which only some members are read. Trees of large values take many times the memory.
#[derive(Deserialize)]
struct Message {
    role: String,
    content: Option<Box<RawValue>>,
    tool_calls: Option<Vec<Box<RawValue>>>,
}

/// A function's name or its definition, as JSON text.
#[derive(Deserialize)]
struct OfferedTool(Box<RawValue>);

/// The selection for a message.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct FilterAnswer {
    selection_id: String,
    /// The tool ids that stay, in their original order; absent if the request contained none.
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_ids: Option<Vec<String>>,
    /// The functions that stay.
    tools: Vec<SelectedBody>,
    /// Definitions of selected functions that the request did not offer; see `disclose`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    definitions: Vec<DefinitionBody>,
    pub(in crate::http) tokens: TokensBody,
    /// False if the message needs no tool. Always true if all of Toolsieve's tools stay because they are small, and in shadow mode.
    needs_tool: bool,
    /// In shadow mode (`selection.mode`), what would have been selected. All functions stay nevertheless.
    #[serde(skip_serializing_if = "Option::is_none")]
    shadow: Option<ShadowBody>,
    warnings: Vec<String>,
    /// The offer that the service has cached, so that the next request may omit the names.
    #[serde(skip_serializing_if = "Option::is_none")]
    offer: Option<String>,
    took_ms: f64,
    /// What decided, if the request asked for it: the searched texts, the gate's signals, and for each candidate its scores and the
    /// reason why it was cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(in crate::http) explain: Option<Explanation>,
}

#[derive(Serialize, ToSchema)]
struct ShadowBody {
    /// The functions that would have stayed.
    tools: Vec<String>,
    /// Tokens (cl100k) of Toolsieve's definitions among them.
    tokens_after: u64,
}

#[derive(Serialize, ToSchema)]
struct SelectedBody {
    name: String,
    /// Absent for foreign functions and meta-tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<String>,
    /// How well the tool matches the message, from 0 to 1; null if the function stays for another reason.
    score: Option<f32>,
    reason: String,
    /// `ready`, or `sign_in` if the user must sign in to the server before the first call. Present only for servers that
    /// people sign in to.
    #[serde(skip_serializing_if = "Option::is_none")]
    connection: Option<&'static str>,
}

/// A function that the connection's `run_tool` can run.
#[derive(Serialize, ToSchema)]
struct DefinitionBody {
    /// The id of the connection; absent if the request contained none.
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_id: Option<String>,
    /// `name`, `description` and `parameters` (a JSON Schema).
    #[schema(value_type = Object)]
    function: Value,
}

/// cl100k tokens of Toolsieve's permitted definitions, before and after the selection.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct TokensBody {
    pub(in crate::http) before: u64,
    pub(in crate::http) after: u64,
}

/// Selects the functions that a message needs, from those that are offered.
#[utoipa::path(
    tag = "filter",
    request_body = FilterBody,
    params(
        ("explain" = Option<bool>, Query, description = "Whether to explain the selection. Only administrators may ask for it. The request then records nothing and changes no chat, and its body may contain `as` and `settings`."),
        ("X-Session-Id" = Option<String>, Header, description = "The id of the chat, as an alternative to `chat_id`"),
        ("X-LLM-Api-Key" = Option<String>, Header, description = "The user's own key for Gemini, OpenAI or Anthropic, which `rerank` uses. The service doesn't store the key.")
    ),
    responses(
        (status = 200, description = "The selection", body = FilterAnswer),
        (status = 403, description = "Only administrators get explanations"),
        (status = 409, description = "The names of this offer are unknown; send the names too"),
        (status = 422, description = "There are no messages, or a value is invalid"),
        (status = 429, description = "The caller exceeds limits.selections_per_minute")
    )
)]
#[post("/v1/filter")]
pub async fn filter(state: web::Data<State>, caller: Caller, request: HttpRequest, query: Query<FilterQuery>, body: Body) -> Answer {
    let explaining = if query.0.explain { Some(Explaining::read(&state, &caller.0, &body.0)?) } else { None };
    Ok(HttpResponse::Ok().json(answer(&state, &caller, &request, explaining, &body.0).await?))
}

/// The answer with an explanation, for an administrator.
pub(in crate::http) async fn explained(
    state: &State,
    caller: &Caller,
    request: &HttpRequest,
    body: &[u8],
) -> Result<FilterAnswer, Problem> {
    let explaining = Explaining::read(state, &caller.0, body)?;
    answer(state, caller, request, Some(explaining), body).await
}

async fn answer(
    state: &State,
    caller: &Caller,
    request: &HttpRequest,
    explaining: Option<Explaining>,
    body: &[u8],
) -> Result<FilterAnswer, Problem> {
    let mut body: FilterBody = read_json(body)?;
    let offer = body.offer.take();
    let (advisors, warnings) = llm_keys::advisors(request);
    // If the request names functions, the client has already listed its tools.
    let lists_over_mcp =
        body.tools.is_none() && offer.is_none() && body.connections.iter().flatten().any(|(_, path)| above_mcp(path).is_some());
    let user = body.user.as_ref().map(person::of_body).transpose()?;
    let ungrouped = request.extensions().get::<Ungrouped>().cloned();
    let mut selecting = SelectRequest { advisors, ..body.into_request()? };
    if selecting.chat.is_none() {
        selecting.chat = context(caller, request).chat;
    }
    let mut request = selecting;
    let principal = match &explaining {
        Some(Explaining { principal: Some(principal), .. }) => {
            let model = principal.model.clone().or_else(|| request.model.clone());
            principal.clone().with_model(model)
        }
        _ => state.admission.for_user_in_body(&caller.0, ungrouped.as_ref(), user)?.with_model(request.model.clone()),
    };
    // An explanation counts for the administrator who asks, not for the user in whose place they ask.
    state.limits.selection(if explaining.is_some() { &caller.0 } else { &principal }).await?;
    let mut remembered = None;
    if let Some(offer) = offer {
        let names = request.offered.take().unwrap_or_default();
        let known = match &explaining {
            None => state.offers.of(&caller.0, &offer, names)?,
            Some(_) => state.offers.peek(&caller.0, &offer, names)?,
        };
        remembered = known.is_remembered.then_some(offer);
        request.offered = Some(known.offered);
    }
    let request = SelectRequest { sessions: sessions(state, &request, &principal).await?, ..request };
    let message = request.message.clone().filter(|_| lists_over_mcp && explaining.is_none());
    let (mut selection, explain) = match explaining {
        None => (state.select.select(request, &principal).await, None),
        Some(explaining) => {
            let (selection, explanation) = state.select.explain(request, &principal, |settings| explaining.change(settings)).await;
            (selection, Some(explanation))
        }
    };
    // If all our tools stay, nothing is stored, because without a stored selection the list contains all tools.
    if let Some(message) = message.filter(|_| !selection.keeps_all) {
        state.message_selections.remember(&principal, &message, selection.tools.iter().map(|tool| tool.name.clone()));
    }
    selection.warnings.extend(warnings);
    let mut answer = FilterAnswer { offer: remembered, explain, ..FilterAnswer::from(selection) };
    let connections = state.connections.known_states(&principal).await;
    for tool in &mut answer.tools {
        tool.connection = tool.server.as_deref().and_then(|server| connections.get(&ServerName::new(server))).map(|known| known.name());
    }
    Ok(answer)
}

/// A request for an explanation.
struct Explaining {
    principal: Option<Principal>,
    settings: Option<TriedSettings>,
    rerank: Option<Rerank>,
}

impl Explaining {
    fn read(state: &State, caller: &Principal, body: &[u8]) -> Result<Self, Problem> {
        if !caller.administers {
            return Err(Problem::new(Code::AdminNeeded, "Send the admin key to get explanations, or leave out `explain`."));
        }
        let ExplainBody { r#as, settings } = read_json(body)?;
        let given = r#as.map(|AsBody { principal, email, groups, model }| CheckPrincipal { principal, email, groups, model });
        let principal = given.map(|given| state.policies.principal_of(&given)).transpose()?;
        let principal = principal.map(|principal| with_its_key(state, principal));
        let within = |name: &'static str, value: Option<usize>, range: RangeInclusive<usize>| match value {
            Some(value) if !range.contains(&value) => {
                Err(Problem::invalid(name, format!("{name} is a number from {} to {}.", range.start(), range.end())))
            }
            _ => Ok(()),
        };
        let mut rerank = None;
        if let Some(tried) = &settings {
            within("settings.limit", tried.limit, 1..=MAX_LIMIT)?;
            within("settings.candidates", tried.candidates, 1..=1_000)?;
            within("settings.chat_budget", tried.chat_budget, 1..=512)?;
            within("settings.narrow_above_tokens", tried.narrow_above_tokens, 0..=10_000_000)?;
            within("settings.token_budget", tried.token_budget, 0..=10_000_000)?;
            within("settings.per_server", tried.per_server, 0..=128)?;
            if tried.dense_weight.is_some_and(|weight| !(0.0..=1.0).contains(&weight)) {
                return Err(Problem::invalid("settings.dense_weight", "settings.dense_weight is a number from 0 to 1."));
            }
            if tried.strictness.is_some_and(|strictness| !(-2.0..=2.0).contains(&strictness)) {
                return Err(Problem::invalid("settings.strictness", "settings.strictness is a number from -2 to 2."));
            }
            rerank = tried.rerank.as_deref().map(|name| rerank_of(name, "settings.rerank")).transpose()?;
        }
        Ok(Self { principal, settings, rerank })
    }

    fn change(self, settings: &mut SelectionSettings) {
        let Some(tried) = self.settings else { return };
        let or_none = |value: usize| Some(value).filter(|value| *value > 0);
        settings.limit = tried.limit.unwrap_or(settings.limit);
        settings.candidates = tried.candidates.unwrap_or(settings.candidates);
        settings.chat_budget = tried.chat_budget.unwrap_or(settings.chat_budget);
        settings.dense_weight = tried.dense_weight.unwrap_or(settings.dense_weight);
        settings.gate = tried.gate.unwrap_or(settings.gate);
        settings.strictness = tried.strictness.unwrap_or(settings.strictness);
        settings.narrow_above = tried.narrow_above_tokens.map_or(settings.narrow_above, or_none);
        settings.token_budget = tried.token_budget.map_or(settings.token_budget, or_none);
        settings.per_server = tried.per_server.map_or(settings.per_server, or_none);
        settings.fold_duplicates = tried.fold_duplicates.unwrap_or(settings.fold_duplicates);
        settings.rerank = self.rerank.unwrap_or(settings.rerank);
    }
}

/// A user in whose place an administrator asks, with the only named key with which the user taught something. What use has taught belongs
/// to a key and a user, and a chat's tools do too. The limits of the key don't apply, as for `policy check`.
fn with_its_key(state: &State, principal: Principal) -> Principal {
    if principal.kind != PrincipalKind::User {
        return principal;
    }
    let id = state.learning.only_key_of(&principal.id);
    let key = id.and_then(|id| state.keys.active().into_iter().find(|key| *key.id.as_str() == *id));
    match key {
        Some(key) => Principal { key: Principal::api_key(&key).key, ..principal },
        None => principal,
    }
}

fn rerank_of(name: &str, parameter: &'static str) -> Result<Rerank, Problem> {
    Rerank::of_name(name).ok_or_else(|| Problem::invalid(parameter, format!("{parameter} is `auto`, `off` or `always`.")))
}

/// Reads the body, without its user, who needs authentication.
pub(in crate::http) fn filter_request(body: &[u8]) -> Result<SelectRequest, Problem> {
    read_json::<FilterBody>(body)?.into_request()
}

/// The part of an MCP endpoint's path before `/mcp`; `None` for any other path.
fn above_mcp(path: &str) -> Option<&str> {
    let path = path.trim().split('?').next()?.trim_end_matches('/');
    let address = path.strip_suffix("mcp")?;
    let is_address = address.ends_with('/') && AddressPrefix::split(address).is_some();
    (is_address || matches!(address, "" | "/")).then_some(address)
}

/// The path of the document with the same tools as this MCP address. Other paths stay unchanged.
fn document_path(path: String) -> String {
    match above_mcp(&path) {
        Some("") => "/".to_owned(),
        Some(address) => address.to_owned(),
        None => path,
    }
}

/// The sessions to which connections in the request belong, by path.
async fn sessions(state: &State, request: &SelectRequest, principal: &Principal) -> Result<HashMap<String, Arc<Session>>, Problem> {
    let mut sessions = HashMap::new();
    for path in request.connections.values() {
        if let Some(ConnectionPath::Below(AddressPrefix::Session(id))) = ConnectionPath::of(path)
            && let Some(session) = state.sessions.find(id, principal).await?
        {
            sessions.insert(path.clone(), state.loading.extended(session).await?);
        }
    }
    Ok(sessions)
}

impl FilterBody {
    fn into_request(self) -> Result<SelectRequest, Problem> {
        if self.messages.is_empty() {
            return Err(Problem::invalid("messages", "messages is empty: send at least the user's message."));
        }
        let judged = self.tools.as_ref().filter(|_| self.narrow_foreign == Some(true));
        let definitions = judged.map(|tools| tools.iter().filter(|tool| !tool.is_name()).count());
        for (parameter, count, most, what) in [
            ("tool_ids", self.tool_ids.as_ref().map(Vec::len), MAX_IDS, "tool_ids and connections"),
            ("connections", self.connections.as_ref().map(IndexMap::len), MAX_IDS, "tool_ids and connections"),
            ("disclose", self.disclose.as_ref().map(Vec::len), MAX_IDS, "names to disclose"),
            ("searched", self.searched.as_ref().map(Vec::len), MAX_IDS, "searches"),
            ("keep", self.keep.as_ref().map(Vec::len), MAX_IDS, "names to keep"),
            ("tools", definitions, MAX_JUDGED, "tools when foreign ones are narrowed too"),
        ] {
            if count.is_some_and(|count| count > most) {
                return Err(Problem::invalid(parameter, format!("at most {most} {what}.")));
            }
        }
        for (parameter, id) in [("chat_id", &self.chat_id), ("message_id", &self.message_id), ("model", &self.model)] {
            if id.as_ref().is_some_and(|id| id.len() > MAX_BYTES) {
                return Err(Problem::invalid(parameter, format!("chat_id, message_id and model have at most {MAX_BYTES} bytes.")));
            }
            if let Some(id) = id {
                plain(parameter, id)?;
            }
        }
        limit(self.limit, 1, 1..=MAX_LIMIT)?;
        let rerank = self.rerank.as_deref().map(|name| rerank_of(name, "rerank")).transpose()?;
        let not_empty = |text: Option<String>| text.filter(|text| !text.is_empty());
        Ok(SelectRequest {
            turns: self.messages.into_iter().map(Message::into_turn).collect(),
            connections: self.connections.into_iter().flatten().map(|(id, path)| (id, document_path(path))).collect(),
            tool_ids: self.tool_ids,
            offered: self.tools.map(|tools| tools.into_iter().filter_map(OfferedTool::into_offered).collect()),
            disclose: self.disclose,
            keep: self.keep.unwrap_or_default(),
            searched: self.searched.unwrap_or_default(),
            narrow_foreign: self.narrow_foreign.unwrap_or(false),
            chat: not_empty(self.chat_id),
            message: not_empty(self.message_id),
            model: not_empty(self.model),
            limit: self.limit,
            token_budget: self.token_budget,
            rerank,
            advisors: Vec::new(),
            sessions: HashMap::new(),
        })
    }
}

impl Message {
    fn into_turn(self) -> Turn {
        let role = match self.role.as_str() {
            "user" => Role::User,
            "assistant" => Role::Assistant,
            _ => Role::Other,
        };
        let called = self.tool_calls.iter().flatten().filter_map(|call| called_name(call.get())).collect();
        Turn { role, text: self.content.as_deref().map(|content| text_of(content.get())).unwrap_or_default(), called }
    }
}

/// The name of the function that a tool call names, directly or in `function`.
fn called_name(call: &str) -> Option<String> {
    let function = json::member(call, "function").and_then(|function| json::member(function.get(), "name"));
    json::text(function.or_else(|| json::member(call, "name"))?.get())
}

/// The text of a message's content: a text, or a list of parts. Only the text parts are used.
fn text_of(content: &str) -> String {
    if content.starts_with('"') {
        return json::text(content).unwrap_or_default();
    }
    let parts = if content.starts_with('[') { json::items(content).unwrap_or_default() } else { Vec::new() };
    let texts = parts.into_iter().map(RawValue::get).filter_map(|part| match part.as_bytes().first() {
        Some(b'"') => json::text(part),
        Some(b'{') => json::text(json::member(part, "text")?.get()),
        _ => None,
    });
    texts.collect::<Vec<String>>().join("\n")
}

impl OfferedTool {
    fn is_name(&self) -> bool {
        self.0.get().starts_with('"')
    }

    /// Reads a name, a bare definition, or one of the form `{"type": "function", "function": {…}}`.
    fn into_offered(self) -> Option<Offered> {
        let offered = self.0.get();
        if self.is_name() {
            return Some(Offered { name: json::text(offered)?, description: None });
        }
        let function = json::member(offered, "function").map_or(offered, RawValue::get);
        let text = |key: &str| json::text(json::member(function, key)?.get());
        Some(Offered { name: text("name")?, description: Some(text("description").unwrap_or_default()) })
    }
}

impl From<Selection> for FilterAnswer {
    fn from(selection: Selection) -> Self {
        let tools = selection.tools.into_iter().map(|selected| SelectedBody {
            name: selected.name,
            server: selected.id.as_ref().map(|id| id.server.to_string()),
            tool: selected.id.as_ref().map(|id| id.label().into_owned()),
            score: selected.score,
            reason: selected.reason.to_string(),
            connection: None,
        });
        let definitions = selection.disclosed.into_iter().map(|Disclosed { tool_id, function }| DefinitionBody { tool_id, function });
        Self {
            tools: tools.collect(),
            definitions: definitions.collect(),
            selection_id: selection.id,
            tool_ids: selection.tool_ids,
            needs_tool: selection.needs_tool,
            tokens: TokensBody { before: selection.tokens_before, after: selection.tokens_after },
            warnings: selection.warnings,
            shadow: selection.shadow.map(|Shadow { tools, tokens_after }| ShadowBody {
                tools: tools.into_iter().map(|selected| selected.name).collect(),
                tokens_after,
            }),
            offer: None,
            explain: None,
            took_ms: (selection.took.as_secs_f64() * 1e6).round() / 1e3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FilterBody, document_path, filter_request};
    use crate::http::problem::read_json;

    #[test]
    fn addresses_of_mcp_stand_for_the_documents_beside_them() {
        for (address, document) in [
            ("/mcp", "/"),
            ("mcp", "/"),
            ("/mcp/?mode=message", "/"),
            ("/toolsets/mail/mcp?mode=message", "/toolsets/mail/"),
            ("/s/abc/mcp", "/s/abc/"),
            ("/toolsets/mcp", "/toolsets/mcp"),
            ("/tcmcp", "/tcmcp"),
            ("/time", "/time"),
            ("/", "/"),
        ] {
            assert_eq!(document_path(address.to_owned()), document, "{address}");
        }
    }
    /// Parts of a kind that nobody knows are ignored, however deep they are.
    #[test]
    fn content_and_calls_are_read_from_all_their_forms() {
        let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
        for (content, text) in [
            (r#""a \u00e4\n\"b\"""#, "a ä\n\"b\""),
            (
                r#"["a", {"type": "text", "text": "b"}, {"type": "image_url", "image_url": {"text": "c"}}, {"text": 5}, 7, null, [["d"]]]"#,
                "a\nb",
            ),
            ("null", ""),
            (r#"{"text": "a"}"#, ""),
            ("[]", ""),
            ("12", ""),
            (r#"[{"text": "a", "text": "b"}]"#, "b"),
            (deep.as_str(), ""),
        ] {
            let body = format!(r#"{{"messages": [{{"role": "user", "content": {content}}}]}}"#);
            let read = filter_request(body.as_bytes()).unwrap();
            assert_eq!(read.turns[0].text, text, "{content}");
        }
        let calls =
            r#"[{"function": {"name": "a"}}, {"name": "b"}, {"function": {}, "name": "c"}, {"function": {"name": 1}, "name": "d"}, 7, {}]"#;
        let body = format!(r#"{{"messages": [{{"role": "assistant", "tool_calls": {calls}}}]}}"#);
        assert_eq!(filter_request(body.as_bytes()).unwrap().turns[0].called, ["a", "b", "c"]);
    }

    #[test]
    fn functions_are_offered_by_name_or_definition() {
        let tools = r#"["a", {"name": "b", "parameters": [[0]]}, {"type": "function", "function": {"name": "c", "description": "d"}},
            {"function": 1, "name": "e"}, {}, [[0]], 5, null]"#;
        let body = format!(r#"{{"messages": [{{"role": "user"}}], "tools": {tools}}}"#);
        let offered = filter_request(body.as_bytes()).unwrap().offered.unwrap();
        let read: Vec<_> = offered.iter().map(|offered| (offered.name.as_str(), offered.description.as_deref())).collect();
        assert_eq!(read, [("a", None), ("b", Some("")), ("c", Some("d"))]);
    }

    #[test]
    fn an_error_names_the_member_that_does_not_fit() {
        for (body, parameter) in [
            (r#"{"messages": [{"role": 1, "content": [[0]]}], "tools": [[0]]}"#, "messages[0].role"),
            (r#"{"messages": [{"role": "user", "tool_calls": 1}]}"#, "messages[0].tool_calls"),
            (r#"{"messages": [], "tools": "a"}"#, "tools"),
        ] {
            let error = read_json::<FilterBody>(body.as_bytes()).err().unwrap();
            assert_eq!(error.parameter.as_deref(), Some(parameter), "{body}");
        }
    }
}
