//! A client of Open WebUI's admin API. Installs Toolsieve, examines an installation, and uninstalls exactly what it installed.
//!
//! An installation consists of one tool server connection, one more per requested toolset, and the filter function with its
//! valves. All have fixed ids, so installing twice changes nothing. All other entries are written back unchanged. This module
//! prints nothing; it returns reports and errors.

pub(crate) mod trial;
pub(crate) mod inspection;

use std::fmt;
use std::time::Duration;

use reqwest::{Client, Method, RequestBuilder, StatusCode, Url, redirect};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use thiserror::Error;

use crate::adapters::proxies;
use crate::domain::access::toolset_name::ToolsetName;
use crate::domain::publishing::address::AddressPrefix;
use crate::domain::toolsets::mode::Mode;

use self::trial::Setup;

/// The id of our tool server connection. Chats refer to it as `server:toolsieve`.
const CONNECTION_ID: &str = "toolsieve";
/// Prefix of the ids of toolset connections.
const TOOLSET_PREFIX: &str = "toolsieve-";
/// Prefixes of the ids by which chats and filters refer to OpenAPI and MCP connections.
const TOOL_PREFIX: &str = "server:";
const MCP_TOOL_PREFIX: &str = "server:mcp:";
/// The names of the filter's switches.
const STATUS: &str = "status";
const AUTO_ENABLE: &str = "auto_enable";
/// The id of our filter function.
const FUNCTION_ID: &str = "toolsieve";
/// The title in the filter's front matter. It proves that a function with our id is ours.
const FUNCTION_TITLE: &str = "Toolsieve";
const DESCRIPTION: &str = "All MCP servers behind one connection, narrowed to what a message needs";
const FILTER_SOURCE: &str = include_str!("../../webui-filter/filter.py");

/// The first version that calls a filter's `request` hook, without which the filter can't narrow single functions.
const REQUEST_HOOK_SINCE: [u64; 3] = [0, 11, 2];
/// The first version that fills in placeholders in a connection's headers. MCP connections need them to select tools for a
/// message.
const PLACEHOLDERS_SINCE: [u64; 3] = [0, 9, 6];
/// Toolsieve's base URL in a new installation.
const NEW_URL: &str = "http://127.0.0.1:8000";
/// The path of the document, relative to a base path of the service.
const DOCUMENT: &str = "openapi.json";
/// The path of the MCP endpoint with a list per message, relative to a base path of the service.
const MCP_PATH: &str = "/mcp?mode=message";
/// Time limit of a request. Before it responds, Open WebUI fetches the documents of all tool servers, for up to ten seconds each.
const TIMEOUT: Duration = Duration::from_secs(30);
const TOOLSIEVE_URL: &str = "Toolsieve's URL";
/// Maximum length of an excerpt from Open WebUI's error message, in characters.
const DETAIL_CHARACTERS: usize = 300;

/// Headers with the user and the chat of a tool call; Open WebUI fills in the placeholders.
const IDENTITY_HEADERS: [(&str, &str); 8] = [
    ("X-OpenWebUI-Chat-Id", "{{CHAT_ID}}"),
    ("X-OpenWebUI-Message-Id", "{{MESSAGE_ID}}"),
    ("X-OpenWebUI-User-Id", "{{USER_ID}}"),
    ("X-OpenWebUI-User-Email", "{{USER_EMAIL}}"),
    ("X-OpenWebUI-User-Name", "{{USER_NAME}}"),
    ("X-OpenWebUI-User-Role", "{{USER_ROLE}}"),
    ("X-OpenWebUI-User-Groups", "{{USER_GROUPS}}"),
    ("X-OpenWebUI-Model-Id", "{{MODEL_ID}}"),
];

/// The address of Open WebUI and the credentials for it.
#[derive(Clone)]
pub(crate) struct OpenWebUiAccess {
    /// The base URL, such as `http://localhost:3000`.
    pub url: String,
    /// An administrator's API key or session token.
    pub token: String,
}

/// What to install.
#[derive(Clone)]
pub(crate) struct InstallOptions {
    pub open_webui: OpenWebUiAccess,
    /// The base URL of Toolsieve as seen from Open WebUI, which may differ from the listening address. `None` keeps the installed one;
    /// a new installation gets the address of a service on the same machine.
    pub toolsieve_url: Option<String>,
    /// An API key of Toolsieve, if it needs one. `None` keeps the installed key, and an empty text removes it.
    pub key: Option<String>,
    /// Toolsets that get their own connections, in addition to the connection for all tools and to installed connections.
    pub toolsets: Vec<String>,
    /// Whether to install MCP connections, whose tools are selected when they are listed, instead of OpenAPI tool servers.
    pub mcp: bool,
    /// The mode of the document for all tools. `None` keeps the current mode; a new connection shows all tools.
    pub mode: Option<Mode>,
    /// The users who may use the connections. `None` keeps the current setting; a new connection is open to everybody.
    pub audience: Option<Audience>,
    /// Whether a line above each answer shows how many tools were selected.
    pub status: Switch,
    /// Whether the filter switches on relevant connections in chats without tools.
    pub auto_enable: Switch,
}

/// What an installation does with a switch among the filter's valves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Switch {
    /// Leaves it as it is.
    Keep,
    /// Sets it, unless an administrator or an earlier installation has set it.
    Initially(bool),
    Set(bool),
}

/// The switches among the filter's valves; `None` if nobody has set them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Switches {
    pub status: Option<bool>,
    pub auto_enable: Option<bool>,
}

/// The users who may use the connections in Open WebUI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    Everybody,
    Administrators,
}

/// The result of an installation.
pub(crate) struct InstallReport {
    /// Open WebUI's version.
    pub version: String,
    pub connection: Change,
    pub filter: Change,
    /// The switches before and after the installation.
    pub before: Switches,
    pub switches: Switches,
    pub warnings: Vec<InstallWarning>,
    /// How the installed filter asks Toolsieve about a message.
    pub setup: Setup,
    /// Whether Open WebUI could read the document with all tools. `None` for MCP connections, because it doesn't say.
    pub is_read: Option<bool>,
}

/// The result of an uninstallation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UninstallReport {
    /// The tool ids of the removed connections.
    pub connections: Vec<String>,
    /// Whether the filter was installed.
    pub filter: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Created,
    Updated,
    Unchanged,
}

/// A problem that prevents a complete installation from working properly.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum InstallWarning {
    #[error(
        "Open WebUI {version} is older than 0.11.2 and does not run filters before a model call, so only whole connections are narrowed: \
         update it, or install with --mcp, which narrows single tools from 0.9.6 on"
    )]
    NoRequestHook { version: String },
    #[error(
        "Open WebUI {version} is older than 0.9.6 and does not state the message when it lists tools, so all tools are shown; update it"
    )]
    NoMessageInHeaders { version: String },
    #[error(
        "Open WebUI {version} runs filters before every model call: without --mcp, more is narrowed, including calls over its API, and found \
         tools are bound at once"
    )]
    McpNotNeeded { version: String },
    #[error("Open WebUI could not read {document}: is Toolsieve running, can Open WebUI reach it at this address, and is the key right?")]
    DocumentUnreadable { document: String },
    #[error(
        "Open WebUI could not read {document}: does the toolset exist, and may the key use tools in it? `toolsieve toolsets list` shows all \
         toolsets"
    )]
    ToolsetUnreadable { document: String },
}

#[derive(Debug, Error)]
pub(crate) enum OpenWebUiError {
    #[error("{what} `{value}` is not a URL: it must begin with http:// or https://, as in http://localhost:3000")]
    Address { what: &'static str, value: String },
    #[error("Open WebUI is not reachable at {url}")]
    Unreachable {
        url: String,
        #[source]
        source: reqwest::Error,
    },
    #[error("{url} does not respond like Open WebUI; give the URL that opens it in a browser")]
    NotOpenWebUi { url: String },
    #[error("Open WebUI rejected the token: it must be the API key or session token of an administrator")]
    Unauthorized,
    #[error("Open WebUI returned {status} for the request to {action}: {detail}")]
    Refused { action: &'static str, status: StatusCode, detail: String },
    #[error("`{0}` is not a valid toolset name: use 1 to 64 letters, digits, - and _")]
    Toolset(String),
    #[error("Open WebUI has another function with the id `{FUNCTION_ID}`; remove or rename it first")]
    FunctionIdTaken,
}

/// Installs or updates the tool server connections and the filter.
///
/// Keeps the valves, headers and connection settings that an admin changed, except those with Toolsieve's address. Enables
/// the filter and the connections.
///
/// # Errors
/// See [`OpenWebUiError`]. After an error, the connections may exist without the filter; a repeated call completes the
/// installation.
pub(crate) async fn install(options: &InstallOptions) -> Result<InstallReport, OpenWebUiError> {
    if let Some(url) = &options.toolsieve_url {
        base_url(TOOLSIEVE_URL, url)?;
    }
    if let Some(name) = options.toolsets.iter().find(|name| ToolsetName::check(name).is_err()) {
        return Err(OpenWebUiError::Toolset(name.clone()));
    }
    let administration = Administration::open(&options.open_webui)?;
    let version = administration.version().await?;

    let installed = administration.function().await?;
    let connections = administration.connections().await?;
    let valves = match &installed {
        Some(_) => administration.valves().await?,
        None => Map::new(),
    };
    let options = &completed(options, &connections, &valves);
    let toolsieve_url = base_url(TOOLSIEVE_URL, options.toolsieve_url.as_deref().unwrap_or(NEW_URL))?;
    let (connections, connection) = with_ours(connections, options, &toolsieve_url);
    if connection != Change::Unchanged {
        administration.replace_connections(&connections).await?;
    }
    let installed = administration.install_filter(installed, options, &toolsieve_url).await?;

    let mut warnings = Vec::new();
    warnings.extend(InstallWarning::of_version(&version, options.mcp));
    let offered = administration.offered_tools().await?;
    let mut is_read = None;
    for wanted in wanted(options, &toolsieve_url) {
        // MCP servers don't appear in the list of tools.
        if wanted.is_mcp {
            continue;
        }
        let is_offered = offered.contains(&wanted.tool_id());
        if wanted.id == CONNECTION_ID {
            is_read = Some(is_offered);
        }
        if !is_offered {
            warnings.push(InstallWarning::of_unreadable(&wanted, is_read));
        }
    }
    let to_all_tools = connections.iter().find(|connection| is_to_all_tools(connection));
    Ok(InstallReport {
        version,
        connection,
        filter: installed.change,
        before: installed.before,
        switches: Switches::of(&installed.valves),
        warnings,
        setup: Setup::of(to_all_tools.unwrap_or(&Value::Null), &installed.valves),
        is_read,
    })
}

/// The filter's switches as they are set now. All are unset if the filter is not installed.
///
/// # Errors
/// See [`OpenWebUiError`].
pub(crate) async fn switches(open_webui: &OpenWebUiAccess) -> Result<Switches, OpenWebUiError> {
    let administration = Administration::open(open_webui)?;
    administration.version().await?;
    match administration.function().await? {
        Some(_) => Ok(Switches::of(&administration.valves().await?)),
        None => Ok(Switches::default()),
    }
}

/// Removes the tool server connections and the filter, and nothing else.
///
/// # Errors
/// See [`OpenWebUiError`].
pub(crate) async fn uninstall(open_webui: &OpenWebUiAccess) -> Result<UninstallReport, OpenWebUiError> {
    let administration = Administration::open(open_webui)?;
    administration.version().await?;

    let (ours, others): (Vec<Value>, Vec<Value>) = administration.connections().await?.into_iter().partition(is_ours);
    if !ours.is_empty() {
        administration.replace_connections(&others).await?;
    }
    let filter = match administration.function().await {
        Ok(Some(_)) => {
            administration.delete_function().await?;
            true
        }
        Ok(None) | Err(OpenWebUiError::FunctionIdTaken) => false,
        Err(error) => return Err(error),
    };
    Ok(UninstallReport { connections: ours.iter().map(tool_id).collect(), filter })
}

impl fmt::Debug for OpenWebUiAccess {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("OpenWebUiAccess").field("url", &self.url).finish_non_exhaustive()
    }
}

impl fmt::Debug for InstallOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("InstallOptions")
            .field("open_webui", &self.open_webui)
            .field("toolsieve_url", &self.toolsieve_url)
            .field("toolsets", &self.toolsets)
            .field("mcp", &self.mcp)
            .field("audience", &self.audience)
            .field("status", &self.status)
            .field("auto_enable", &self.auto_enable)
            .finish_non_exhaustive()
    }
}

/// A client of Open WebUI's admin API.
struct Administration {
    client: Client,
    url: String,
    token: String,
}

#[derive(Deserialize)]
struct Version {
    version: String,
}

#[derive(Deserialize)]
struct ToolServers {
    #[serde(rename = "TOOL_SERVER_CONNECTIONS")]
    connections: Option<Vec<Value>>,
}

#[derive(Deserialize)]
struct Listed {
    id: String,
}

#[derive(Deserialize)]
struct Function {
    #[serde(rename = "type")]
    kind: String,
    content: String,
    meta: Value,
    is_active: bool,
    is_global: bool,
}

/// The filter after an installation.
struct InstalledFilter {
    change: Change,
    /// The switches before the installation.
    before: Switches,
    valves: Map<String, Value>,
}

impl Administration {
    fn open(access: &OpenWebUiAccess) -> Result<Self, OpenWebUiError> {
        let url = base_url("Open WebUI's URL", &access.url)?;
        let client = proxies::client_builder()
            .timeout(TIMEOUT)
            // A redirect would turn a POST into a GET and could send the token to another host.
            .redirect(redirect::Policy::none())
            .build()
            .map_err(|source| OpenWebUiError::Unreachable { url: url.clone(), source })?;
        Ok(Self { client, url, token: access.token.trim().to_owned() })
    }

    async fn version(&self) -> Result<String, OpenWebUiError> {
        let request = self.client.get(format!("{}/api/version", self.url));
        let version: Version = self.send("tell its version", request).await.map_err(|error| match error {
            OpenWebUiError::Refused { .. } | OpenWebUiError::Unauthorized => OpenWebUiError::NotOpenWebUi { url: self.url.clone() },
            other => other,
        })?;
        Ok(version.version)
    }

    async fn connections(&self) -> Result<Vec<Value>, OpenWebUiError> {
        let request = self.request(Method::GET, "configs/tool_servers");
        let servers: ToolServers = self.send("list the tool servers", request).await?;
        Ok(servers.connections.unwrap_or_default())
    }

    /// Replaces the whole list, because Open WebUI can't write single entries.
    async fn replace_connections(&self, connections: &[Value]) -> Result<(), OpenWebUiError> {
        let body = json!({ "TOOL_SERVER_CONNECTIONS": connections });
        let request = self.request(Method::POST, "configs/tool_servers").json(&body);
        self.send::<Value>("save the tool servers", request).await.map(drop)
    }

    /// The ids of Open WebUI's tools, including connections with readable documents.
    async fn offered_tools(&self) -> Result<Vec<String>, OpenWebUiError> {
        let request = self.request(Method::GET, "tools/");
        let tools: Vec<Listed> = self.send("list the tools", request).await?;
        Ok(tools.into_iter().map(|tool| tool.id).collect())
    }

    async fn install_filter(
        &self,
        installed: Option<Function>,
        options: &InstallOptions,
        toolsieve_url: &str,
    ) -> Result<InstalledFilter, OpenWebUiError> {
        let form = json!({
            "id": FUNCTION_ID,
            "name": FUNCTION_TITLE,
            "content": FILTER_SOURCE,
            "meta": { "description": DESCRIPTION, "manifest": {} },
        });
        let mut change = Change::Unchanged;
        match &installed {
            None => {
                let request = self.request(Method::POST, "functions/create").json(&form);
                self.send::<Value>("create the filter", request).await?;
                change = Change::Created;
            }
            Some(function) if function.content != FILTER_SOURCE => {
                let request = self.function_request(Method::POST, "update").json(&form);
                self.send::<Value>("update the filter", request).await?;
                change = Change::Updated;
            }
            Some(_) => {}
        }

        // Set the valves first, because a filter runs as soon as it is active.
        let present = self.valves().await?;
        let before = Switches::of(&present);
        let valves = with_our_valves(present.clone(), options, toolsieve_url);
        if valves != present {
            let request = self.function_request(Method::POST, "valves/update").json(&valves);
            self.send::<Value>("set the filter's valves", request).await?;
            change = change.or(Change::Updated);
        }
        // Open WebUI supports only toggling.
        let (active, global) = installed.map_or((false, false), |function| (function.is_active, function.is_global));
        for (already, path) in [(global, "toggle/global"), (active, "toggle")] {
            if !already {
                let request = self.function_request(Method::POST, path);
                self.send::<Value>("switch the filter on", request).await?;
                change = change.or(Change::Updated);
            }
        }
        Ok(InstalledFilter { change, before, valves })
    }

    /// The filter's valves, without those that nobody has set.
    async fn valves(&self) -> Result<Map<String, Value>, OpenWebUiError> {
        let request = self.function_request(Method::GET, "valves");
        let valves: Option<Map<String, Value>> = self.send("read the filter's valves", request).await?;
        Ok(valves.unwrap_or_default())
    }

    /// Our filter; `None` if there is no function with our id.
    async fn function(&self) -> Result<Option<Function>, OpenWebUiError> {
        // Look it up in the list: for an unknown function, Open WebUI returns 401, as for a wrong token.
        let request = self.request(Method::GET, "functions/");
        let functions: Vec<Listed> = self.send("list the functions", request).await?;
        if !functions.iter().any(|function| function.id == FUNCTION_ID) {
            return Ok(None);
        }
        let request = self.request(Method::GET, &format!("functions/id/{FUNCTION_ID}"));
        let function: Function = self.send("read the filter", request).await?;
        let title = function.meta.pointer("/manifest/title").and_then(Value::as_str);
        if function.kind == "filter" && title == Some(FUNCTION_TITLE) { Ok(Some(function)) } else { Err(OpenWebUiError::FunctionIdTaken) }
    }

    async fn delete_function(&self) -> Result<(), OpenWebUiError> {
        let request = self.function_request(Method::DELETE, "delete");
        self.send::<Value>("delete the filter", request).await.map(drop)
    }

    fn function_request(&self, method: Method, action: &str) -> RequestBuilder {
        self.request(method, &format!("functions/id/{FUNCTION_ID}/{action}"))
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}/api/v1/{path}", self.url)).bearer_auth(&self.token)
    }

    async fn send<T: for<'de> Deserialize<'de>>(&self, action: &'static str, request: RequestBuilder) -> Result<T, OpenWebUiError> {
        let unreachable = |source| OpenWebUiError::Unreachable { url: self.url.clone(), source };
        let response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        let body = response.bytes().await.map_err(unreachable)?;
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(OpenWebUiError::Unauthorized),
            _ if status.is_success() => serde_json::from_slice(&body).map_err(|_| OpenWebUiError::NotOpenWebUi { url: self.url.clone() }),
            _ => Err(OpenWebUiError::Refused { action, status, detail: detail(&body) }),
        }
    }
}

impl Switch {
    fn apply(self, valves: &mut Map<String, Value>, name: &str) {
        match self {
            Self::Keep => {}
            Self::Initially(value) => drop(valves.entry(name).or_insert_with(|| json!(value))),
            Self::Set(value) => drop(valves.insert(name.to_owned(), json!(value))),
        }
    }
}

impl Switches {
    fn of(valves: &Map<String, Value>) -> Self {
        let switch = |name| valves.get(name).and_then(Value::as_bool);
        Self { status: switch(STATUS), auto_enable: switch(AUTO_ENABLE) }
    }
}

impl Change {
    fn or(self, other: Self) -> Self {
        if self == Self::Unchanged { other } else { self }
    }
}

/// A connection to install.
struct Wanted {
    id: String,
    title: String,
    description: String,
    url: String,
    /// The base path of the service's part that the connection uses.
    path: String,
    is_mcp: bool,
}

impl Wanted {
    /// The id by which chats and filters refer to the connection.
    fn tool_id(&self) -> String {
        format!("{}{}", if self.is_mcp { MCP_TOOL_PREFIX } else { TOOL_PREFIX }, self.id)
    }
}

fn wanted(options: &InstallOptions, toolsieve_url: &str) -> Vec<Wanted> {
    let place = |path: &str| if options.mcp { format!("{path}{MCP_PATH}") } else { path.to_owned() };
    let is_mcp = options.mcp;
    let mut wanted = vec![Wanted {
        id: CONNECTION_ID.to_owned(),
        title: FUNCTION_TITLE.to_owned(),
        description: DESCRIPTION.to_owned(),
        url: format!("{toolsieve_url}{}", place("")),
        path: if is_mcp { place("") } else { "/".to_owned() },
        is_mcp,
    }];
    wanted.extend(options.toolsets.iter().map(|name| {
        let path = place(&AddressPrefix::Toolset(name.as_str()).to_string());
        Wanted {
            id: format!("{TOOLSET_PREFIX}{name}"),
            title: format!("{FUNCTION_TITLE}: {name}"),
            description: format!("The toolset {name}, narrowed to what a message needs"),
            url: format!("{toolsieve_url}{path}"),
            path,
            is_mcp,
        }
    }));
    wanted
}

/// The options with everything that the command omits and an earlier installation has set: the address, the key and the toolsets.
fn completed(options: &InstallOptions, connections: &[Value], valves: &Map<String, Value>) -> InstallOptions {
    let mut ours: Vec<&Value> = connections.iter().filter(|connection| is_ours(connection)).collect();
    let mut completed = options.clone();
    for name in ours.iter().filter_map(|connection| toolset_of(connection)) {
        if !completed.toolsets.iter().any(|known| known == name) {
            completed.toolsets.push(name.to_owned());
        }
    }
    // The connection to all tools decides, then the filter, then the toolsets.
    ours.sort_by_key(|connection| !is_to_all_tools(connection));
    let (whole, toolsets) = ours.split_at(ours.iter().take_while(|connection| is_to_all_tools(connection)).count());
    let first = |of_connection: fn(&Value) -> &str, name: &str| {
        let of_valves = valves.get(name).and_then(Value::as_str).map(str::trim);
        let mut all = whole.iter().map(|one| of_connection(one)).chain(of_valves).chain(toolsets.iter().map(|one| of_connection(one)));
        all.find(|value| !value.is_empty()).map(str::to_owned)
    };
    completed.toolsieve_url = completed.toolsieve_url.or_else(|| first(service_of, "url"));
    completed.key = completed.key.or_else(|| first(key_of, "key"));
    completed
}

/// The toolset of one of our connections. `None` for the connection to all tools.
fn toolset_of(connection: &Value) -> Option<&str> {
    connection.pointer("/info/id").and_then(Value::as_str)?.strip_prefix(TOOLSET_PREFIX)
}

/// Toolsieve's base URL in one of our connections.
fn service_of(connection: &Value) -> &str {
    let url = trial::connection_base(connection);
    toolset_of(connection).and_then(|name| url.strip_suffix(&AddressPrefix::Toolset(name).to_string())).unwrap_or(url)
}

/// The key of a connection; empty if there is none.
fn key_of(connection: &Value) -> &str {
    connection.get("key").and_then(Value::as_str).unwrap_or_default()
}

fn base_url(what: &'static str, value: &str) -> Result<String, OpenWebUiError> {
    let trimmed = value.trim().trim_end_matches('/');
    match Url::parse(trimmed) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => Ok(trimmed.to_owned()),
        _ => Err(OpenWebUiError::Address { what, value: value.to_owned() }),
    }
}

/// A shortened excerpt of Open WebUI's error message.
fn detail(body: &[u8]) -> String {
    let text = match serde_json::from_slice::<Value>(body) {
        Ok(value) => match value.get("detail") {
            Some(Value::String(detail)) => detail.clone(),
            Some(detail) => detail.to_string(),
            None => value.to_string(),
        },
        Err(_) => String::from_utf8_lossy(body).into_owned(),
    };
    text.chars().take(DETAIL_CHARACTERS).collect()
}

impl InstallWarning {
    /// The warning for an outdated version of Open WebUI, if any.
    fn of_version(version: &str, mcp: bool) -> Option<Self> {
        // Treat a pre-release such as `0.12.0-dev` as its release.
        let mut numbers = version.split(['.', '-', '+']).map(|part| part.parse::<u64>().unwrap_or(0));
        let number: [u64; 3] = std::array::from_fn(|_| numbers.next().unwrap_or(0));
        let version = version.to_owned();
        match mcp {
            false if number < REQUEST_HOOK_SINCE => Some(Self::NoRequestHook { version }),
            true if number < PLACEHOLDERS_SINCE => Some(Self::NoMessageInHeaders { version }),
            true if number >= REQUEST_HOOK_SINCE => Some(Self::McpNotNeeded { version }),
            _ => None,
        }
    }

    /// The warning for a document that Open WebUI could not read. `is_all_read`: whether it could read the one with all tools, so that
    /// the address and the key are right.
    fn of_unreadable(wanted: &Wanted, is_all_read: Option<bool>) -> Self {
        let document = format!("{}/openapi.json", wanted.url);
        if wanted.id != CONNECTION_ID && is_all_read == Some(true) {
            Self::ToolsetUnreadable { document }
        } else {
            Self::DocumentUnreadable { document }
        }
    }
}

fn is_ours(connection: &Value) -> bool {
    let kind = connection.get("type").and_then(Value::as_str).unwrap_or("openapi");
    let id = connection.pointer("/info/id").and_then(Value::as_str).unwrap_or_default();
    let is_toolset = || {
        let url = connection.get("url").and_then(Value::as_str).unwrap_or_default();
        let url = url.strip_suffix(MCP_PATH).unwrap_or(url);
        id.strip_prefix(TOOLSET_PREFIX).is_some_and(|name| url.ends_with(&AddressPrefix::Toolset(name).to_string()))
    };
    let is_known = match kind {
        "openapi" => true,
        "mcp" => connection.get("url").and_then(Value::as_str).is_some_and(|url| url.ends_with(MCP_PATH)),
        _ => false,
    };
    is_known && (id == CONNECTION_ID || is_toolset())
}

/// Whether this is our connection to all tools.
fn is_to_all_tools(connection: &Value) -> bool {
    is_ours(connection) && connection["info"]["id"] == CONNECTION_ID
}

fn is_mcp(connection: &Value) -> bool {
    connection.get("type").and_then(Value::as_str) == Some("mcp")
}

/// The id by which chats and filters refer to a connection.
fn tool_id(connection: &Value) -> String {
    let id = connection.pointer("/info/id").and_then(Value::as_str).unwrap_or_default();
    format!("{}{id}", if is_mcp(connection) { MCP_TOOL_PREFIX } else { TOOL_PREFIX })
}

/// Updates our entries in the list in place, or appends them.
fn with_ours(mut connections: Vec<Value>, options: &InstallOptions, toolsieve_url: &str) -> (Vec<Value>, Change) {
    let mut change = Change::Unchanged;
    for wanted in wanted(options, toolsieve_url) {
        let is_it = |connection: &&mut Value| is_ours(connection) && connection["info"]["id"] == wanted.id;
        if let Some(entry) = connections.iter_mut().find(is_it) {
            let updated = our_connection(entry, &wanted, options);
            if *entry != updated {
                change = change.or(Change::Updated);
                *entry = updated;
            }
        } else {
            connections.push(our_connection(&Value::Null, &wanted, options));
            change = if wanted.id == CONNECTION_ID { Change::Created } else { change.or(Change::Updated) };
        }
    }
    (connections, change)
}

/// Our entry, with all other members of the installed one.
fn our_connection(installed: &Value, wanted: &Wanted, options: &InstallOptions) -> Value {
    let mut entry = object(installed);
    let path = if wanted.is_mcp { String::new() } else { document_path(installed, wanted, options.mode) };
    let key = options.key.as_deref().unwrap_or_default();
    for (name, value) in [
        ("url", json!(wanted.url)),
        ("path", json!(path)),
        ("type", json!(if wanted.is_mcp { "mcp" } else { "openapi" })),
        ("auth_type", json!(if key.is_empty() { "none" } else { "bearer" })),
        ("key", json!(key)),
        ("spec_type", json!("url")),
        ("spec", json!("")),
    ] {
        entry.insert(name.to_owned(), value);
    }

    let mut headers = object(&entry.remove("headers").unwrap_or_default());
    headers.extend(IDENTITY_HEADERS.map(|(name, template)| (name.to_owned(), json!(template))));
    entry.insert("headers".to_owned(), Value::Object(headers));

    let mut info = object(&entry.remove("info").unwrap_or_default());
    info.insert("id".to_owned(), json!(wanted.id));
    info.entry("name").or_insert_with(|| json!(wanted.title));
    info.entry("description").or_insert_with(|| json!(wanted.description));
    entry.insert("info".to_owned(), Value::Object(info));

    let mut config = object(&entry.remove("config").unwrap_or_default());
    config.insert("enable".to_owned(), json!(true));
    config.entry("function_name_filter_list").or_insert_with(|| json!(""));
    let grants = match options.audience.unwrap_or(Audience::Everybody) {
        Audience::Everybody => json!([{ "principal_type": "user", "principal_id": "*", "permission": "read" }]),
        // Without a grant, only admins see a connection.
        Audience::Administrators => json!([]),
    };
    if options.audience.is_some() || !config.contains_key("access_grants") {
        config.insert("access_grants".to_owned(), grants);
    }
    entry.insert("config".to_owned(), Value::Object(config));
    Value::Object(entry)
}

/// The path of a connection's document, relative to its URL.
fn document_path(installed: &Value, wanted: &Wanted, mode: Option<Mode>) -> String {
    let known = installed.get("path").and_then(Value::as_str).filter(|path| path.starts_with(DOCUMENT));
    match (mode.filter(|_| wanted.id == CONNECTION_ID), known) {
        (None, Some(known)) => known.to_owned(),
        (None | Some(Mode::Full), _) => DOCUMENT.to_owned(),
        (Some(mode), _) => format!("{DOCUMENT}?mode={}", mode.name()),
    }
}

/// Sets Toolsieve's address, the ids of our connections and the switches in the filter's valves.
fn with_our_valves(mut valves: Map<String, Value>, options: &InstallOptions, toolsieve_url: &str) -> Map<String, Value> {
    let known = valves.get("connections").and_then(Value::as_str).unwrap_or_default();
    let mut connections: Map<String, Value> = serde_json::from_str(known).unwrap_or_default();
    let mut is_changed = false;
    for wanted in wanted(options, toolsieve_url) {
        let path = json!(wanted.path);
        is_changed |= connections.insert(wanted.tool_id(), path.clone()) != Some(path);
    }
    if is_changed {
        valves.insert("connections".to_owned(), json!(Value::Object(connections).to_string()));
    }
    valves.insert("url".to_owned(), json!(toolsieve_url));
    valves.insert("key".to_owned(), json!(options.key.as_deref().unwrap_or_default()));
    options.status.apply(&mut valves, STATUS);
    options.auto_enable.apply(&mut valves, AUTO_ENABLE);
    valves
}

/// The object in `value`; empty if it is something else.
fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests;
