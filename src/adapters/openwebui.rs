//! A client of Open WebUI's admin API: installs Toolsieve, and uninstalls exactly what it installed.
//!
//! It installs one tool server connection, one more per requested toolset, and the filter function. All have fixed ids, so
//! installing twice changes nothing, and entries of others are written back unchanged. Nothing is printed here; reports and
//! errors describe what happened.

use std::fmt;
use std::time::Duration;

use reqwest::{Client, Method, RequestBuilder, StatusCode, Url, redirect};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use thiserror::Error;

use crate::domain::access::toolset::ToolsetName;
use crate::domain::publishing::address::AddressPrefix;
use crate::domain::toolsets::mode::Mode;

/// The id of our entry among Open WebUI's tool servers; chats refer to it as `server:toolsieve`.
const CONNECTION_ID: &str = "toolsieve";
/// Prefix of the ids of toolset connections.
const TOOLSET_PREFIX: &str = "toolsieve-";
/// The id of our filter among Open WebUI's functions.
const FUNCTION_ID: &str = "toolsieve";
/// The title in the filter's front matter, which proves that a function with our id is ours.
const FUNCTION_TITLE: &str = "Toolsieve";
const DESCRIPTION: &str = "All MCP servers behind one connection, narrowed to what a message needs";
const FILTER_SOURCE: &str = include_str!("../../webui-filter/filter.py");

/// The first version that runs a filter's `request` hook. Without it, single functions can't be narrowed.
const REQUEST_HOOK_SINCE: [u64; 3] = [0, 11, 2];
/// The first version that fills in placeholders in a connection's headers, which tie a list of MCP tools to a message.
const PLACEHOLDERS_SINCE: [u64; 3] = [0, 9, 6];
/// The document, relative to a base path of the service.
const DOCUMENT: &str = "openapi.json";
/// The MCP endpoint with a list per message, relative to a base path of the service.
const MCP_PATH: &str = "/mcp?mode=message";
/// Before it responds, Open WebUI fetches the documents of all tool servers, with ten seconds for each.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Longest excerpt of Open WebUI's own error message.
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

/// Address and credentials of Open WebUI.
#[derive(Clone)]
pub(crate) struct OpenWebUiAccess {
    /// Base URL, such as `http://localhost:3000`.
    pub url: String,
    /// An administrator's API key or session token.
    pub token: String,
}

/// What to install.
#[derive(Clone)]
pub(crate) struct InstallOptions {
    pub open_webui: OpenWebUiAccess,
    /// Base URL of Toolsieve as seen from Open WebUI, which may differ from its listening address.
    pub toolsieve_url: String,
    /// Toolsieve's API key, if it has one.
    pub key: Option<String>,
    /// Toolsets with a connection of their own, in addition to the one for all tools.
    pub toolsets: Vec<String>,
    /// Whether to use MCP connections, whose tools are selected when they are listed, instead of OpenAPI tool servers.
    pub mcp: bool,
    /// The mode of the document for all tools. `None` keeps that of an installed connection; a new one shows all tools.
    pub mode: Option<Mode>,
    /// Who may use the connections. `None` keeps the setting of an installed connection, and opens a new one to everybody.
    pub audience: Option<Audience>,
}

/// Who may use the tool server connection in Open WebUI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    Everybody,
    Administrators,
}

/// The result of an installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InstallReport {
    /// Open WebUI's version.
    pub version: String,
    pub connection: Change,
    pub filter: Change,
    pub warnings: Vec<InstallWarning>,
}

/// The result of an uninstallation. Both are false if nothing of ours was installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UninstallReport {
    pub connection: bool,
    pub filter: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Created,
    Updated,
    Unchanged,
}

/// The installation is complete but will not work properly.
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
/// Valves, headers and connection settings that an admin changed are kept, except those with Toolsieve's address. Filter
/// and connection are enabled.
///
/// # Errors
/// See [`OpenWebUiError`]. After an error, the connection may exist without the filter; running it again completes the
/// installation.
pub(crate) async fn install(options: &InstallOptions) -> Result<InstallReport, OpenWebUiError> {
    let toolsieve_url = base_url("Toolsieve's URL", &options.toolsieve_url)?;
    if let Some(name) = options.toolsets.iter().find(|name| ToolsetName::check(name).is_err()) {
        return Err(OpenWebUiError::Toolset(name.clone()));
    }
    let administration = Administration::open(&options.open_webui)?;
    let version = administration.version().await?;

    let installed = administration.function().await?;
    let connections = administration.connections().await?;
    let (connections, connection) = with_ours(connections, options, &toolsieve_url);
    if connection != Change::Unchanged {
        administration.replace_connections(&connections).await?;
    }
    let filter = administration.install_filter(installed, options, &toolsieve_url).await?;

    let mut warnings = Vec::new();
    warnings.extend(InstallWarning::of_version(&version, options.mcp));
    let offered = administration.offered_tools().await?;
    for wanted in wanted(options, &toolsieve_url) {
        // MCP servers don't appear in the list of tools.
        if !wanted.is_mcp && !offered.contains(&wanted.tool_id()) {
            warnings.push(InstallWarning::DocumentUnreadable { document: format!("{}/openapi.json", wanted.url) });
        }
    }
    Ok(InstallReport { version, connection, filter, warnings })
}

/// Removes the tool server connections and the filter, and nothing else.
///
/// # Errors
/// See [`OpenWebUiError`].
pub(crate) async fn uninstall(open_webui: &OpenWebUiAccess) -> Result<UninstallReport, OpenWebUiError> {
    let administration = Administration::open(open_webui)?;
    administration.version().await?;

    let mut connections = administration.connections().await?;
    let before = connections.len();
    connections.retain(|connection| !is_ours(connection));
    let connection = connections.len() < before;
    if connection {
        administration.replace_connections(&connections).await?;
    }
    let filter = match administration.function().await {
        Ok(Some(_)) => {
            administration.delete_function().await?;
            true
        }
        Ok(None) | Err(OpenWebUiError::FunctionIdTaken) => false,
        Err(error) => return Err(error),
    };
    Ok(UninstallReport { connection, filter })
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
            .finish_non_exhaustive()
    }
}

/// Open WebUI's admin API, called as an admin.
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

impl Administration {
    fn open(access: &OpenWebUiAccess) -> Result<Self, OpenWebUiError> {
        let url = base_url("Open WebUI's URL", &access.url)?;
        let client = Client::builder()
            .timeout(TIMEOUT)
            // A redirect would turn a POST into a GET, and could carry the token elsewhere.
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

    /// Writes the whole list; Open WebUI can't write single entries.
    async fn replace_connections(&self, connections: &[Value]) -> Result<(), OpenWebUiError> {
        let body = json!({ "TOOL_SERVER_CONNECTIONS": connections });
        let request = self.request(Method::POST, "configs/tool_servers").json(&body);
        self.send::<Value>("save the tool servers", request).await.map(drop)
    }

    /// The ids of Open WebUI's tools, including connections whose documents it could read.
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
    ) -> Result<Change, OpenWebUiError> {
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

        // A filter runs as soon as it is active, so its valves are set first.
        let request = self.function_request(Method::GET, "valves");
        let valves: Option<Map<String, Value>> = self.send("read the filter's valves", request).await?;
        let valves = valves.unwrap_or_default();
        let wanted = with_our_valves(valves.clone(), options, toolsieve_url);
        if wanted != valves {
            let request = self.function_request(Method::POST, "valves/update").json(&wanted);
            self.send::<Value>("set the filter's valves", request).await?;
            change = change.or(Change::Updated);
        }
        // Open WebUI can only toggle.
        let (active, global) = installed.map_or((false, false), |function| (function.is_active, function.is_global));
        for (already, path) in [(global, "toggle/global"), (active, "toggle")] {
            if !already {
                let request = self.function_request(Method::POST, path);
                self.send::<Value>("switch the filter on", request).await?;
                change = change.or(Change::Updated);
            }
        }
        Ok(change)
    }

    /// Our filter; `None` if there is no function with our id.
    async fn function(&self) -> Result<Option<Function>, OpenWebUiError> {
        // For an unknown function, Open WebUI returns 401, as for a wrong token; hence the list.
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
    /// The base path of what it publishes.
    path: String,
    is_mcp: bool,
}

impl Wanted {
    /// The id in chats and filters.
    fn tool_id(&self) -> String {
        format!("{}{}", if self.is_mcp { "server:mcp:" } else { "server:" }, self.id)
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

fn base_url(what: &'static str, value: &str) -> Result<String, OpenWebUiError> {
    let trimmed = value.trim().trim_end_matches('/');
    match Url::parse(trimmed) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => Ok(trimmed.to_owned()),
        _ => Err(OpenWebUiError::Address { what, value: value.to_owned() }),
    }
}

/// Open WebUI's error message, shortened.
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
    /// The warning for an older version of Open WebUI.
    fn of_version(version: &str, mcp: bool) -> Option<Self> {
        // Pre-releases such as `0.12.0-dev` count as their release.
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

/// The list with our entries updated in place, or appended.
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

/// Our entry, with additional members of the installed one.
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
        // Without a grant, a connection is visible only to admins.
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

/// The filter's valves with Toolsieve's address and the ids of our connections.
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
    valves
}

/// The object in `value`, or an empty one.
fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests;
