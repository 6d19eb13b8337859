//! Sends a test message to Toolsieve as the filter in Open WebUI would, and reports which functions the model would get.
//!
//! The request goes from this machine to Toolsieve. It involves neither Open WebUI nor a language model, and runs no tool.

use std::collections::HashSet;
use std::time::Duration;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use reqwest::{Client, RequestBuilder, StatusCode, redirect};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use thiserror::Error;
use url::Url;

use crate::adapters::openwebui::{CONNECTION_ID, DOCUMENT, MCP_PATH, TOOL_PREFIX, detail, is_mcp, tool_id};
use crate::adapters::proxies;
use crate::domain::selection::selection::Reason;

/// Time limit of a request. The first message after a start may wait for the index.
const TIMEOUT: Duration = Duration::from_secs(15);
/// The filter's default for the valve `limit`, and the service's maximum.
const LIMIT: u64 = 10;
const MOST: u64 = 128;
/// How many words a sentence needs to look like a message, and how many characters it may have.
const FEWEST_WORDS: usize = 3;
const MOST_CHARACTERS: usize = 100;
/// The message if the tools are unknown.
const OF_UNKNOWN_TOOLS: &str = "List the newest entries";
/// A part of the names of tools. The names of meta-tools don't contain it.
const SEPARATOR: &str = "__";
/// The id of a user who is in no group.
const NOBODY: &str = "toolsieve-test";

/// How the filter asks Toolsieve about a message in a chat with the connection to all tools.
#[derive(Clone)]
pub(crate) struct Setup {
    /// Toolsieve's base URL in the connection, and in the filter's valves.
    pub connection_url: String,
    pub filter_url: String,
    /// The path of the document with the offered functions, relative to the connection's base URL.
    document: String,
    connection_key: String,
    filter_key: String,
    tool_id: String,
    /// The paths of Toolsieve's connections, by their tool ids.
    connections: Map<String, Value>,
    /// Whether the filter can't read the list of connections in its valves. It then narrows nothing.
    pub(super) has_bad_connections: bool,
    functions: FunctionList,
    limit: u64,
    token_budget: Option<u64>,
    always_keep: GlobSet,
}

/// The result of a test message.
pub(crate) struct Trial {
    pub message: String,
    /// The function from whose description the message was taken. `None` if the caller chose the message, or if the document
    /// offers only functions that find others.
    pub expected: Option<String>,
    /// The number of functions that Open WebUI would offer without the filter.
    pub offered: usize,
    /// Whether the document offers only functions that find and run all others.
    pub is_indirect: bool,
    /// What the model would get if the message came from a user with all rights of the key.
    pub view: TrialView,
    /// What it would get for a user without groups. `None` if that is the same.
    pub without_groups: Option<TrialView>,
    /// Warnings of the service, such as tools without vectors.
    pub warnings: Vec<String>,
}

/// The functions that the model would get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TrialView {
    pub functions: Vec<String>,
    pub tokens_before: u64,
    pub tokens_after: u64,
    pub needs_tool: bool,
    /// Whether all tools stay because their definitions are small.
    pub is_small: bool,
}

#[derive(Debug, Error)]
pub(crate) enum TrialError {
    #[error("this machine can't reach Toolsieve at {url}: {}", cause(.source))]
    Unreachable {
        url: String,
        #[source]
        source: reqwest::Error,
    },
    #[error("Toolsieve at {url} rejected the key")]
    WrongKey { url: String },
    #[error("Toolsieve at {url} returned {status}: {detail}")]
    Refused { url: String, status: StatusCode, detail: String },
    #[error("{url} does not respond like Toolsieve")]
    NotToolsieve { url: String },
    #[error("Toolsieve at {url} publishes no tools")]
    NoTools { url: String },
}

/// Sends the message, or one made from a tool's description.
///
/// # Errors
/// See [`TrialError`].
pub(crate) async fn run(setup: &Setup, message: Option<&str>) -> Result<Trial, TrialError> {
    let unreachable = |source| TrialError::Unreachable { url: setup.filter_url.clone(), source };
    let client = proxies::client_builder().timeout(TIMEOUT).redirect(redirect::Policy::none()).build().map_err(unreachable)?;

    let offered = offered(&setup.document(&client, &setup.document).await?, &setup.functions);
    if offered.is_empty() {
        return Err(TrialError::NoTools { url: setup.connection_url.clone() });
    }
    let is_indirect = !offered.iter().any(OfferedFunction::is_tool);
    let (message, expected) = match message {
        Some(message) => (message.to_owned(), None),
        // A document with only meta-tools has no tool for which the message could ask.
        None if is_indirect => {
            let message = match setup.document(&client, DOCUMENT).await {
                Ok(document) => chosen(&self::offered(&document, &FunctionList::default())).map(|(message, _)| message),
                // A service with very many tools refuses the document of all of them.
                Err(TrialError::Refused { status: StatusCode::UNPROCESSABLE_ENTITY, .. }) => Some(OF_UNKNOWN_TOOLS.to_owned()),
                Err(error) => return Err(error),
            };
            (message.ok_or_else(|| TrialError::NoTools { url: setup.connection_url.clone() })?, None)
        }
        None => {
            let (message, name) = chosen(&offered).ok_or_else(|| TrialError::NoTools { url: setup.connection_url.clone() })?;
            (message, Some(name))
        }
    };

    let names: Vec<&str> = offered.iter().map(|function| function.name.as_str()).collect();
    let mut question = setup.question(&message, &names);
    let (view, warnings) = setup.view(&client, &question, &names).await?;
    question["user"] = json!({ "id": NOBODY, "role": "user", "groups": [] });
    let (without_groups, _) = setup.view(&client, &question, &names).await?;
    let without_groups = Some(without_groups).filter(|other| *other != view);
    Ok(Trial { message, expected, offered: offered.len(), is_indirect, view, without_groups, warnings })
}

impl Setup {
    /// The setup of a new installation, for a service that may not be installed in Open WebUI.
    pub(crate) fn new(toolsieve_url: &str, key: Option<&str>) -> Self {
        let url = toolsieve_url.trim().trim_end_matches('/');
        let key = key.unwrap_or_default();
        let connection = json!({ "url": url, "key": key, "info": { "id": CONNECTION_ID } });
        let valves = json!({ "url": url, "key": key });
        Self::of(&connection, valves.as_object().unwrap_or(&Map::new()))
    }

    /// The setup with this connection to all tools and these valves.
    pub(super) fn of(connection: &Value, valves: &Map<String, Value>) -> Self {
        let of_connection = |name: &str| connection.get(name).and_then(Value::as_str).unwrap_or_default();
        let of_valves = |name: &str| valves.get(name).and_then(Value::as_str).unwrap_or_default();
        let path = Some(of_connection("path")).filter(|path| path.starts_with(DOCUMENT) && !is_mcp(connection));
        let listed = of_valves("connections").trim();
        let known: Option<Map<String, Value>> = serde_json::from_str(listed).ok();
        let tool_id = if connection.is_null() { format!("{TOOL_PREFIX}{CONNECTION_ID}") } else { tool_id(connection) };
        Self {
            connection_url: connection_base(connection).to_owned(),
            filter_url: of_valves("url").trim().trim_end_matches('/').to_owned(),
            document: path.unwrap_or(DOCUMENT).to_owned(),
            connection_key: of_connection("key").to_owned(),
            filter_key: of_valves("key").trim().to_owned(),
            has_bad_connections: known.is_none() && !listed.is_empty(),
            connections: known.unwrap_or_else(|| Map::from_iter([(tool_id.clone(), json!("/"))])),
            tool_id,
            functions: FunctionList::of(&connection["config"]["function_name_filter_list"]),
            limit: valves.get("limit").and_then(Value::as_u64).unwrap_or(LIMIT).clamp(1, MOST),
            token_budget: valves.get("token_budget").and_then(Value::as_u64).filter(|budget| *budget > 0),
            always_keep: patterns(of_valves("always_keep")),
        }
    }

    /// The same setup, with the address at which this machine reaches Toolsieve.
    pub(crate) fn at(self, toolsieve_url: &str) -> Self {
        let url = toolsieve_url.trim().trim_end_matches('/').to_owned();
        Self { connection_url: url.clone(), filter_url: url, ..self }
    }

    /// Whether the connection and the filter use the same key.
    pub(super) fn has_one_key(&self) -> bool {
        self.connection_key == self.filter_key
    }

    /// Whether the filter knows this connection, from its valves or by the address.
    pub(super) fn knows(&self, connection: &Value) -> bool {
        self.connections.contains_key(&tool_id(connection)) || is_below(connection, &self.filter_url)
    }

    async fn document(&self, client: &Client, path: &str) -> Result<Value, TrialError> {
        let request = client.get(format!("{}/{path}", self.connection_url));
        send(with_key(request, &self.connection_key), &self.connection_url).await
    }

    /// The body of `POST /v1/filter` for a chat's first message.
    fn question(&self, message: &str, names: &[&str]) -> Value {
        let keep: Vec<&&str> = names.iter().filter(|name| self.always_keep.is_match(name)).collect();
        let mut question = json!({
            "messages": [{ "role": "user", "content": message }],
            "connections": self.connections,
            "tool_ids": [self.tool_id],
            "tools": names,
            "keep": keep,
            "limit": self.limit,
        });
        if let Some(budget) = self.token_budget {
            question["token_budget"] = json!(budget);
        }
        question
    }

    async fn view(&self, client: &Client, question: &Value, names: &[&str]) -> Result<(TrialView, Vec<String>), TrialError> {
        let request = client.post(format!("{}/v1/filter", self.filter_url)).json(question);
        let answer: FilterAnswer = send(with_key(request, &self.filter_key), &self.filter_url).await?;
        let offered: HashSet<&str> = names.iter().copied().collect();
        let small = Reason::Small.to_string();
        let view = TrialView {
            is_small: answer.tools.iter().any(|tool| tool.reason == small),
            functions: answer.tools.into_iter().map(|tool| tool.name).filter(|name| offered.contains(name.as_str())).collect(),
            tokens_before: answer.tokens.before,
            tokens_after: answer.tokens.after,
            needs_tool: answer.needs_tool,
        };
        Ok((view, answer.warnings))
    }
}

impl TrialError {
    /// Whether the service did not respond. It may still be reachable from another machine.
    pub(crate) fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }

    /// What to do. `flag` names the option with the address at which this machine reaches Toolsieve.
    pub(crate) fn remedy(&self, flag: &str) -> String {
        match self {
            Self::Unreachable { .. } => {
                format!("start Toolsieve; if it runs, name an address at which this machine reaches it: {flag} http://127.0.0.1:8000")
            }
            Self::WrongKey { .. } => {
                "give Toolsieve's key with --key or TOOLSIEVE_API_KEY; if Open WebUI has another key, install again".into()
            }
            Self::Refused { .. } => "look for the reason in Toolsieve's log".into(),
            Self::NotToolsieve { .. } => "give the address of Toolsieve itself, without a path such as /docs".into(),
            Self::NoTools { .. } => {
                "open /readyz, which names the servers that have not listed their tools; `toolsieve doctor --config FILE` says why".into()
            }
        }
    }
}

/// The base URL of the service in our connection to all tools.
pub(super) fn connection_base(connection: &Value) -> &str {
    let url = connection.get("url").and_then(Value::as_str).unwrap_or_default();
    let url = if is_mcp(connection) { url.strip_suffix(MCP_PATH).unwrap_or(url) } else { url };
    url.trim_end_matches('/')
}

/// Whether the connection leads to the service at this address, as far as the filter can tell (`path_below` in its source).
pub(super) fn is_below(connection: &Value, service: &str) -> bool {
    let (Ok(service), Ok(url)) = (Url::parse(service), Url::parse(connection_base(connection))) else { return false };
    let is_loopback = |url: &Url| url.host_str().is_some_and(|host| matches!(host, "localhost" | "127.0.0.1" | "[::1]"));
    let is_same_host = service.host() == url.host() || (is_loopback(&service) && is_loopback(&url));
    let (above, path) = (service.path().trim_end_matches('/'), url.path().trim_end_matches('/'));
    service.scheme() == url.scheme()
        && is_same_host
        && service.port_or_known_default() == url.port_or_known_default()
        && path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[derive(Deserialize)]
struct FilterAnswer {
    tools: Vec<SelectedFunction>,
    tokens: Tokens,
    #[serde(default = "yes")]
    needs_tool: bool,
    #[serde(default)]
    warnings: Vec<String>,
}

#[derive(Deserialize)]
struct SelectedFunction {
    name: String,
    #[serde(default)]
    reason: String,
}

#[derive(Deserialize)]
struct Tokens {
    before: u64,
    after: u64,
}

fn yes() -> bool {
    true
}

/// A function in a document.
#[derive(Debug)]
struct OfferedFunction {
    name: String,
    summary: String,
    description: String,
}

impl OfferedFunction {
    fn is_tool(&self) -> bool {
        self.name.contains(SEPARATOR)
    }
}

/// The functions that Open WebUI would offer from this document, in its order.
fn offered(document: &Value, list: &FunctionList) -> Vec<OfferedFunction> {
    let paths = document.get("paths").and_then(Value::as_object).into_iter().flatten();
    let operations = paths.flat_map(|(_, methods)| methods.as_object().into_iter().flatten()).filter_map(|(_, operation)| {
        let text = |name: &str| operation.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let name = operation.get("operationId")?.as_str()?.to_owned();
        Some(OfferedFunction { name, summary: text("summary"), description: text("description") })
    });
    operations.filter(|function| list.allows(&function.name)).collect()
}

/// A message that asks for a tool, and the tool's name. The first description that reads like a request is best.
fn chosen(offered: &[OfferedFunction]) -> Option<(String, String)> {
    let tools = || offered.iter().filter(|function| function.is_tool());
    let sentences = || tools().filter_map(|tool| Some((first_sentence(&tool.description)?, tool)));
    let described = sentences().find(|(sentence, tool)| is_request(sentence, tool)).or_else(|| sentences().next());
    let titled = || tools().find(|tool| !tool.summary.is_empty()).map(|tool| (tool.summary.clone(), tool));
    described.or_else(titled).map(|(message, tool)| (message, tool.name.clone()))
}

/// The first sentence of a description, if it is neither too short nor too long for a message.
fn first_sentence(description: &str) -> Option<String> {
    let line = description.lines().map(str::trim).find(|line| !line.is_empty())?;
    let end = line.match_indices(". ").map(|(at, _)| at).next().unwrap_or(line.len());
    let sentence = line[..end].trim_end_matches(['.', ':', '!']).trim_end();
    let is_message = sentence.split_whitespace().count() >= FEWEST_WORDS && sentence.chars().count() <= MOST_CHARACTERS;
    is_message.then(|| sentence.to_owned())
}

/// Whether a sentence begins with the same word as the tool's name, which is then usually a verb, as in `create_issue`.
fn is_request(sentence: &str, tool: &OfferedFunction) -> bool {
    let name = tool.name.rsplit_once(SEPARATOR).map_or("", |(_, name)| name).to_lowercase();
    sentence.split_whitespace().next().is_some_and(|word| name.starts_with(&word.to_lowercase()))
}

/// A connection's list of allowed and blocked functions. As in Open WebUI, the ends of names are compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct FunctionList {
    allowed: Vec<String>,
    blocked: Vec<String>,
}

impl FunctionList {
    /// Reads a comma-separated text or a JSON list.
    fn of(value: &Value) -> Self {
        let entries: Vec<&str> = match value {
            Value::String(text) => text.split(',').collect(),
            Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        let mut list = Self::default();
        for entry in entries.into_iter().map(str::trim).filter(|entry| !entry.is_empty()) {
            match entry.strip_prefix('!') {
                Some(blocked) => list.blocked.push(blocked.trim().to_owned()),
                None => list.allowed.push(entry.to_owned()),
            }
        }
        list
    }

    fn allows(&self, name: &str) -> bool {
        let ends = |list: &[String]| list.iter().any(|end| name.ends_with(end.as_str()));
        (self.allowed.is_empty() || ends(&self.allowed)) && !ends(&self.blocked)
    }
}

/// The patterns in the valve `always_keep`. Invalid patterns match nothing.
fn patterns(text: &str) -> GlobSet {
    let mut set = GlobSetBuilder::new();
    for pattern in text.split([',', '\n']).map(str::trim).filter(|pattern| !pattern.is_empty()) {
        if let Ok(glob) = GlobBuilder::new(pattern).literal_separator(false).build() {
            set.add(glob);
        }
    }
    set.build().unwrap_or_default()
}

fn with_key(request: RequestBuilder, key: &str) -> RequestBuilder {
    if key.is_empty() { request } else { request.bearer_auth(key) }
}

async fn send<T: for<'de> Deserialize<'de>>(request: RequestBuilder, url: &str) -> Result<T, TrialError> {
    let unreachable = |source| TrialError::Unreachable { url: url.to_owned(), source };
    let response = request.send().await.map_err(unreachable)?;
    let status = response.status();
    let body = response.bytes().await.map_err(unreachable)?;
    match status {
        StatusCode::UNAUTHORIZED => Err(TrialError::WrongKey { url: url.to_owned() }),
        StatusCode::NOT_FOUND => Err(TrialError::NotToolsieve { url: url.to_owned() }),
        _ if status.is_success() => serde_json::from_slice(&body).map_err(|_| TrialError::NotToolsieve { url: url.to_owned() }),
        _ => Err(TrialError::Refused { url: url.to_owned(), status, detail: detail(&body) }),
    }
}

/// The innermost cause of an error, such as a refused connection or an unknown host.
fn cause(error: &reqwest::Error) -> String {
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(name: &str, description: &str) -> OfferedFunction {
        OfferedFunction { name: name.to_owned(), summary: "Title".to_owned(), description: description.to_owned() }
    }

    #[test]
    fn the_message_is_a_description_that_reads_like_one() {
        let offered = [
            function("find_tools", "Search for tools that can do something."),
            function("one__echo", "Echo."),
            function("one__long", &"word ".repeat(40)),
            function("git__git_log", "Shows the commit log of a repository"),
            function("time__get_current_time", "\n Get the current time. Pass a timezone.\nMore."),
        ];
        let expected = ("Get the current time".to_owned(), "time__get_current_time".to_owned());
        assert_eq!(chosen(&offered), Some(expected));
        let described = ("Shows the commit log of a repository".to_owned(), "git__git_log".to_owned());
        assert_eq!(chosen(&offered[..4]), Some(described), "none reads like a request");
        assert_eq!(chosen(&offered[..2]), Some(("Title".to_owned(), "one__echo".to_owned())), "otherwise, the title");
        assert_eq!(chosen(&offered[..1]), None, "a meta-tool is not what a message asks for");
    }

    #[test]
    fn a_document_offers_what_the_connections_list_allows() {
        let operation = |id: &str| json!({"post": {"operationId": id, "summary": "s", "description": "d"}});
        let document = json!({"paths": {"/a": operation("mail__send"), "/b": operation("mail__read"), "/c": {"parameters": []}}});
        let names = |list: Value| -> Vec<String> {
            offered(&document, &FunctionList::of(&list)).into_iter().map(|function| function.name).collect()
        };
        assert_eq!(names(json!("")), ["mail__send", "mail__read"]);
        assert_eq!(names(Value::Null), ["mail__send", "mail__read"]);
        assert_eq!(names(json!("!send, ")), ["mail__read"]);
        assert_eq!(names(json!(["send"])), ["mail__send"]);
        assert_eq!(names(json!("send, !mail__send")), [""; 0]);
    }

    #[test]
    fn the_question_is_the_filters() {
        let connection = json!({
            "type": "openapi", "url": "http://t:8000/", "path": "openapi.json?mode=meta", "key": "k", "info": {"id": CONNECTION_ID},
        });
        let valves = json!({
            "url": "http://t:8000/", "key": "k", "limit": 500, "token_budget": 900, "always_keep": "search_web, mail__*",
            "connections": "{\"server:toolsieve\": \"/\", \"server:toolsieve-x\": \"/toolsets/x\"}",
        });
        let setup = Setup::of(&connection, valves.as_object().unwrap());
        assert_eq!((setup.connection_url.as_str(), setup.filter_url.as_str()), ("http://t:8000", "http://t:8000"));
        assert_eq!(setup.document, "openapi.json?mode=meta");
        assert!(setup.has_one_key() && setup.knows(&json!({"url": "http://other", "info": {"id": "toolsieve-x"}})));
        let knows = |url: &str| setup.knows(&json!({"url": url, "info": {"id": "mine"}}));
        assert!(
            knows("http://T:8000/toolsets/x/") && !knows("https://t:8000/") && !knows("http://t:80/") && !knows("http://t.example:8000")
        );
        let expected = json!({
            "messages": [{"role": "user", "content": "hello"}],
            "connections": {"server:toolsieve": "/", "server:toolsieve-x": "/toolsets/x"},
            "tool_ids": ["server:toolsieve"],
            "tools": ["mail__send", "time__now"],
            "keep": ["mail__send"],
            "limit": 128,
            "token_budget": 900,
        });
        assert_eq!(setup.question("hello", &["mail__send", "time__now"]), expected);
        let moved = setup.at("http://127.0.0.1:8000/");
        assert_eq!((moved.connection_url.as_str(), moved.filter_url.as_str()), ("http://127.0.0.1:8000", "http://127.0.0.1:8000"));
    }

    #[test]
    fn a_new_setup_has_the_filters_defaults() {
        let setup = Setup::new(" http://t:8000/ ", Some("k"));
        let question = setup.question("hello", &["time__now"]);
        assert_eq!((&question["limit"], question.get("token_budget"), &question["keep"]), (&json!(10), None, &json!([])));
        assert_eq!((&question["connections"], &question["tool_ids"]), (&json!({"server:toolsieve": "/"}), &json!(["server:toolsieve"])));
        assert_eq!((setup.document.as_str(), setup.connection_url.as_str()), (DOCUMENT, "http://t:8000"));
    }

    #[test]
    fn an_mcp_connection_has_the_functions_of_the_whole_document() {
        let connection = json!({"type": "mcp", "url": "http://t:8000/mcp?mode=message", "path": "", "info": {"id": CONNECTION_ID}});
        let valves = json!({"url": "http://t:8000", "connections": "{\"server:mcp:toolsieve\": \"/mcp?mode=message\"}"});
        let setup = Setup::of(&connection, valves.as_object().unwrap());
        assert_eq!((setup.connection_url.as_str(), setup.document.as_str()), ("http://t:8000", DOCUMENT));
        assert!(setup.tool_id == "server:mcp:toolsieve" && setup.knows(&connection) && !setup.has_bad_connections);
        let bad = json!({"url": "http://t:8000", "connections": "{'server:mcp:toolsieve': '/mcp'}"});
        assert!(Setup::of(&connection, bad.as_object().unwrap()).has_bad_connections);
    }
}
