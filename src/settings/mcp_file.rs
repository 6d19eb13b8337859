//! Reads the servers file in mcpo's format, which Claude Desktop, Cursor and VS Code use too.
//!
//! Other programs add their own keys to such files, so an unknown key is only a warning. Three keys mean different
//! things in different programs. [`timeout`], [`transport_without_type`] and [`transport_of_type`] each decide the
//! meaning of one.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use indexmap::IndexMap;
use secrecy::SecretString;
use serde_json::{Map, Value};
use url::Url;

use crate::domain::access::tool_facts;
use crate::domain::catalog::naming::RESERVED_SERVER_NAMES;
use crate::domain::catalog::tool::ServerName;
use crate::domain::text::similar::nearest;
use crate::settings::calls::{CallSettings, Validation};
use crate::settings::connect::ConnectSettings;
use crate::settings::entry::{Entry, File};
use crate::settings::finding::{Findings, Location};
use crate::settings::forwarding::HeaderForwarding;
use crate::settings::interpolate::Environment;
use crate::settings::json_text::{JsonText, child, item};
use crate::settings::mcpo::McpoSettings;
use crate::settings::oauth::OAuthSettings;
use crate::settings::per_user::PerUserSettings;
use crate::settings::sandbox::SandboxSettings;
use crate::settings::servers::{RemoteSettings, ServerSettings, TransportSettings};

/// The keys of a server's entry that the service reads.
const SERVER_KEYS: [&str; 30] = [
    "args",
    "auth",
    "client_header_forwarding",
    "command",
    "compactResults",
    "compact_results",
    "cwd",
    "disabled",
    "disabledTools",
    "disabled_tools",
    "enabled",
    "env",
    "headers",
    "listWith",
    "list_with",
    "maxResultBytes",
    "max_result_bytes",
    "maxTextBytes",
    "max_text_bytes",
    "oauth",
    "sandbox",
    "startTimeout",
    "start_timeout",
    "tags",
    "timeout",
    "transport",
    "type",
    "url",
    "description",
    "validation",
];
const EXAMPLE: &str = r#"{"mcpServers": {"time": {"command": "uvx", "args": ["mcp-server-time"]}}}"#;
/// A `timeout` above this number is in milliseconds.
const LONGEST_IN_SECONDS: f64 = 3600.0;

/// What is needed to read a servers file.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) environment: &'a Environment,
    pub(super) calls: &'a CallSettings,
    /// Set if the file is read in mcpo mode.
    pub(super) mcpo: Option<&'a McpoSettings>,
}

/// Reads the enabled servers, in the order of the file.
pub(super) fn read(path: &Path, text: &str, context: Context<'_>, findings: &mut Findings) -> Vec<ServerSettings> {
    let source = path.display().to_string();
    let json = match JsonText::parse(text) {
        Ok(json) => json,
        Err(error) => {
            let place = Location { source, line: Some(error.line), column: Some(error.column), key: None };
            findings.problem(place, error.message, "correct the JSON there; comments and trailing commas are allowed");
            return Vec::new();
        }
    };
    let is_below_prefix = context.mcpo.is_some_and(|mcpo| !mcpo.path_prefix.is_empty());
    let mut file = File { source, json: &json, environment: context.environment, findings, is_below_prefix };
    for (key, line) in json.outer_duplicates() {
        let place = Location { line: Some(line), ..file.place(key) };
        file.findings.problem(place, "duplicate key", "rename or remove one of the two");
    }
    let Some((key, servers)) = file.servers() else { return Vec::new() };
    let found: Vec<ServerSettings> =
        servers.iter().filter_map(|(name, entry)| server(&mut file, &child(key, name), name, entry, context)).collect();
    for server in found.iter().filter(|server| !servers.contains_key(server.name.as_str())) {
        if found.iter().filter(|other| other.name == server.name).count() > 1 {
            file.problem(key, format!("two servers would be named {}", server.name), "rename one of them");
        }
    }
    if servers.is_empty() {
        // All servers may come from the API.
        file.warning(key, "contains no server", format!("add one, such as {EXAMPLE}, or add servers over the API"));
    } else if found.is_empty() && file.findings.problems.is_empty() {
        file.warning(key, "every server is disabled", "enable one");
    }
    found
}

impl<'a> File<'a> {
    /// Finds the map of servers, and the key that contains it.
    fn servers(&mut self) -> Option<(&'static str, &'a Map<String, Value>)> {
        let Some(top) = self.json.value.as_object() else {
            let place = Location { source: self.source.clone(), line: Some(1), ..Location::default() };
            self.findings.problem(place, "not a JSON object", format!("write it as {EXAMPLE}"));
            return None;
        };
        let (key, value) = match (top.get("mcpServers"), top.get("servers")) {
            (Some(_), Some(_)) => {
                self.problem("servers", "both `mcpServers` and `servers`", "put all servers under `mcpServers`");
                return None;
            }
            (Some(value), None) => ("mcpServers", value),
            (None, Some(value)) => ("servers", value),
            (None, None) => {
                let place = Location { source: self.source.clone(), ..Location::default() };
                let keys: Vec<&str> = top.keys().map(String::as_str).collect();
                // VS Code's older settings.json.
                let is_nested = top.get("mcp").and_then(|mcp| mcp.get("servers")).is_some_and(Value::is_object);
                let remedy = match nearest("mcpServers", keys.iter().copied()) {
                    _ if is_nested => format!("write the `servers` of its key `mcp` as `mcpServers`: {EXAMPLE}"),
                    // Zed.
                    _ if top.get("context_servers").is_some_and(Value::is_object) => "rename `context_servers` to `mcpServers`".to_owned(),
                    Some(key) => format!("rename `{key}` to `mcpServers`"),
                    None => format!("write it as {EXAMPLE}"),
                };
                self.findings.problem(place, "has no key `mcpServers`", remedy);
                return None;
            }
        };
        for (other, value) in top.iter().filter(|(other, _)| *other != key) {
            match other.as_str() {
                "$schema" => {}
                "inputs" if value.as_array().is_some_and(Vec::is_empty) => {}
                "inputs" => self.warning(other, "prompting for values is not supported", "use environment variables: ${VAR}"),
                _ => self.warning(other, "unknown key, ignored", "remove it if no other program needs it"),
            }
        }
        let servers = value.as_object();
        if servers.is_none() {
            self.problem(key, "not an object of servers by name", format!("write it as {EXAMPLE}"));
        }
        Some((key, servers?))
    }
}

fn server(file: &mut File<'_>, path: &str, name: &str, entry: &Value, context: Context<'_>) -> Option<ServerSettings> {
    let calls = context.calls;
    let Some(keys) = entry.as_object() else {
        file.problem(path, "not an object", "write it as {\"command\": …} or {\"url\": …}");
        return None;
    };
    let mut entry = Entry { file, path, keys };
    if entry.switch("disabled") == Some(true) || entry.switch("enabled") == Some(false) {
        return None;
    }
    let before = entry.file.findings.problems.len();
    entry.check_keys();
    let mut transport = entry.transport();
    let remote = entry.remote_settings(name, transport.as_ref());
    let per_user = transport.as_mut().map(|transport| PerUserSettings::read(&mut entry, transport, &remote)).unwrap_or_default();
    let sandbox = SandboxSettings::read(&mut entry, matches!(transport, Some(TransportSettings::Stdio { .. })));
    let name = &*entry.published_name(name, context.mcpo);
    entry.check_name(name);
    let call_timeout = entry.first_of(["timeout", "timeout"], timeout).unwrap_or(calls.timeout);
    let start_timeout = entry.first_of(["startTimeout", "start_timeout"], timeout).unwrap_or(calls.start_timeout);
    let max_result_bytes = entry.first_of(["maxResultBytes", "max_result_bytes"], bytes).unwrap_or(calls.max_result_bytes);
    let max_text_bytes = entry.first_of(["maxTextBytes", "max_text_bytes"], text_bytes);
    let max_text_bytes = max_text_bytes.map_or(calls.max_text_bytes, |bytes| (bytes > 0).then_some(bytes));
    let compact_results = entry.first_of(["compactResults", "compact_results"], Entry::switch);
    let exception = calls.validation_exceptions.get(name).copied();
    let validation = entry.first_of(["validation", "validation"], validation).or(exception).unwrap_or(calls.validation);
    let disabled_tools = entry.first_of(["disabledTools", "disabled_tools"], Entry::texts).unwrap_or_default();
    let tags = entry.first_of(["tags", "tags"], tags).unwrap_or_default();
    (entry.file.findings.problems.len() == before).then_some(ServerSettings {
        name: ServerName::new(name),
        transport: transport?,
        call_timeout,
        start_timeout,
        disabled_tools,
        tags,
        max_result_bytes,
        max_text_bytes,
        compact_results: compact_results.unwrap_or(calls.compact_results),
        validation,
        remote,
        per_user,
        sandbox,
    })
}

/// Why a server can't have this name, and what to do. `is_below_prefix`: names of the service's own routes are possible.
pub(super) fn name_problem(name: &str, is_below_prefix: bool) -> Option<(&'static str, String)> {
    const IMPOSSIBLE: &str = "a server name is part of a URL; this one is not possible there";
    if !is_below_prefix && RESERVED_SERVER_NAMES.contains(&name) {
        Some(("this name is reserved for a route of the service", format!("rename the server, for example to {name}-server")))
    } else if name.is_empty() || name == "." || name == ".." {
        Some((IMPOSSIBLE, "give it a name".to_owned()))
    } else if name.contains(|character: char| matches!(character, '/' | '\\') || character.is_control()) {
        Some((IMPOSSIBLE, "rename it without slashes and control characters".to_owned()))
    } else {
        None
    }
}

impl Entry<'_, '_> {
    /// The server's public name. Servers with reserved names are renamed in mcpo mode, because mcpo reserves no names.
    fn published_name(&mut self, name: &str, mcpo: Option<&McpoSettings>) -> String {
        let clashes = mcpo.is_some_and(|mcpo| mcpo.path_prefix.is_empty()) && RESERVED_SERVER_NAMES.contains(&name);
        if !clashes {
            return name.to_owned();
        }
        let other = format!("{name}-server");
        let remedy = format!("use /{other}/ where you used /{name}/, or start with --path-prefix");
        self.warning(self.path, format!("this name is reserved for a route of the service: the server is renamed to {other}"), remedy);
        other
    }

    fn check_name(&mut self, name: &str) {
        if let Some((message, remedy)) = name_problem(name, self.file.is_below_prefix) {
            self.file.problem(self.path, message, remedy);
        }
    }

    fn check_keys(&mut self) {
        for key in self.keys.keys() {
            let path = child(self.path, key);
            match key.as_str() {
                "envFile" | "env_file" => {
                    let remedy = "load that file before the start, and pass its variables in `env`: {\"KEY\": \"${KEY}\"}";
                    self.file.warning(&path, "not supported: the variables of that file are missing", remedy);
                }
                // Gemini CLI and Windsurf. Without the lists, more tools are published than the user expects.
                "excludeTools" | "includeTools" if self.get(key).is_none_or(|list| list.as_array().is_some_and(Vec::is_empty)) => {}
                "excludeTools" => {
                    self.file.warning(&path, "not supported: these tools are published", "rename it to `disabledTools`");
                }
                "httpUrl" | "serverUrl" => self.file.warning(&path, "unknown key, ignored", "write its address as `url`"),
                "includeTools" => {
                    let remedy = "list the other tools in `disabledTools`, or allow only these tools with rules ([[policy]])";
                    self.file.warning(&path, "not supported: all tools of the server are published", remedy);
                }
                key if !SERVER_KEYS.contains(&key) => {
                    let remedy = match nearest(key, SERVER_KEYS.into_iter()) {
                        Some(key) => format!("did you mean `{key}`?"),
                        None => "remove it if no other program needs it".to_owned(),
                    };
                    self.file.warning(&path, "unknown key, ignored", remedy);
                }
                _ => {}
            }
        }
    }

    fn remote_settings(&mut self, name: &str, transport: Option<&TransportSettings>) -> RemoteSettings {
        let connect = ConnectSettings::read(self, transport);
        let remote = RemoteSettings { forwarding: HeaderForwarding::read(self), oauth: OAuthSettings::read(self, name), connect };
        if matches!(transport, Some(TransportSettings::Stdio { .. })) && remote != RemoteSettings::default() {
            let remedy = "remove `oauth` and `client_header_forwarding` here";
            self.warning(self.path, "a local program receives no headers and no tokens", remedy);
            return RemoteSettings::default();
        }
        remote
    }

    /// Reads how to connect to the server. Returns `None` if it reported a problem.
    fn transport(&mut self) -> Option<TransportSettings> {
        let path = self.path;
        let (has_command, has_url) = (self.get("command").is_some(), self.get("url").is_some());
        let kind = match ["type", "transport"].into_iter().find(|key| self.get(key).is_some()) {
            Some(key) => {
                let kind = self.text(key)?;
                let Some(kind) = transport_of_type(&kind) else {
                    let remedy = "write stdio, streamable-http or sse";
                    self.file.problem(&child(path, key), "unknown transport", remedy);
                    return None;
                };
                kind
            }
            None => match (has_command, has_url) {
                (true, true) => {
                    let remedy = "remove one of them, or choose with \"type\": \"stdio\" or \"streamable-http\"";
                    self.file.problem(path, "both `command` and `url`", remedy);
                    return None;
                }
                (false, false) => {
                    // Gemini CLI and Windsurf.
                    let remedy = match ["httpUrl", "serverUrl"].into_iter().find(|key| self.get(key).is_some()) {
                        Some("httpUrl") => "rename `httpUrl` to `url`, and add \"type\": \"streamable-http\"".to_owned(),
                        Some(key) => format!("rename `{key}` to `url`"),
                        None => "add \"command\" for a local program, or \"url\" for a remote server".to_owned(),
                    };
                    self.file.problem(path, "neither `command` nor `url`", remedy);
                    return None;
                }
                (true, false) => Transport::Stdio,
                (false, true) => transport_without_type(),
            },
        };
        match kind {
            Transport::Stdio => self.stdio(),
            Transport::StreamableHttp => self.remote().map(|(url, headers)| TransportSettings::StreamableHttp { url, headers }),
            Transport::Sse => self.remote().map(|(url, headers)| TransportSettings::Sse { url, headers }),
        }
    }

    fn stdio(&mut self) -> Option<TransportSettings> {
        let command = self.required("command", "a program, such as npx or uvx");
        let args = self.texts("args");
        let directory = self.text("cwd").map(PathBuf::from);
        let env = self.text_map("env");
        for name in env.keys().filter(|name| name.is_empty() || name.contains(['=', '\0'])) {
            let path = child(&child(self.path, "env"), name);
            self.file.problem(&path, "not a valid name of an environment variable", "rename it");
        }
        Some(TransportSettings::Stdio { command: command?, args: args.unwrap_or_default(), env, directory })
    }

    fn remote(&mut self) -> Option<(Url, IndexMap<String, SecretString>)> {
        let url = self.required("url", "the server's address").and_then(|url| self.url(&url));
        let headers = self.text_map("headers");
        for (name, value) in &headers {
            let path = child(&child(self.path, "headers"), name);
            if HeaderName::from_bytes(name.as_bytes()).is_err() {
                self.file.problem(&path, "not a valid header name", "use letters, digits and hyphens");
            } else if HeaderValue::from_str(secrecy::ExposeSecret::expose_secret(value)).is_err() {
                self.file.problem(&path, "contains characters that a header can't carry", "remove line breaks and control characters");
            }
        }
        Some((url?, headers))
    }

    fn url(&mut self, text: &str) -> Option<Url> {
        let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        if url.is_none() {
            let remedy = "write it as https://host/path";
            self.file.problem(&child(self.path, "url"), "not an http or https address", remedy);
        }
        url
    }
}

enum Transport {
    Stdio,
    StreamableHttp,
    Sse,
}

/// The transport for a `url` without `type`. As in mcpo, this is SSE. Editors mean streamable HTTP, so the service
/// tries that next if the server doesn't support SSE.
fn transport_without_type() -> Transport {
    Transport::Sse
}

/// The transport that a `type` means. Programs spell this value in different ways.
fn transport_of_type(text: &str) -> Option<Transport> {
    let plain: String = text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
    match plain.as_str() {
        "stdio" => Some(Transport::Stdio),
        "http" | "streamablehttp" => Some(Transport::StreamableHttp),
        "sse" => Some(Transport::Sse),
        _ => None,
    }
}

/// Reads a timeout in seconds. Some programs write milliseconds under the same key. So numbers above one hour in
/// seconds are read as milliseconds.
fn timeout(entry: &mut Entry<'_, '_>, key: &str) -> Option<Duration> {
    let path = child(entry.path, key);
    let number = entry.value(key)?.as_f64().filter(|number| (0.001..=86_400_000.0).contains(number));
    let Some(number) = number else {
        return entry.wrong_kind(&path, "a number of seconds above 0");
    };
    if number <= LONGEST_IN_SECONDS {
        return Some(Duration::from_secs_f64(number));
    }
    let seconds = number / 1000.0;
    let remedy = format!("write {seconds}: the unit here is the second");
    entry.file.warning(&path, "read as milliseconds, because it is more than an hour", remedy);
    Some(Duration::from_secs_f64(seconds))
}

fn bytes(entry: &mut Entry<'_, '_>, key: &str) -> Option<usize> {
    whole(entry, key, |number| (1024..=1 << 30).contains(&number), "a whole number of bytes from 1024 to 1073741824")
}

/// Reads the maximum length of text; 0 means no limit.
fn text_bytes(entry: &mut Entry<'_, '_>, key: &str) -> Option<usize> {
    let expected = "a whole number of bytes from 256 to 1073741824, or 0 for no truncation";
    whole(entry, key, |number| number == 0 || (256..=1 << 30).contains(&number), expected)
}

fn whole(entry: &mut Entry<'_, '_>, key: &str, is_allowed: impl Fn(usize) -> bool, expected: &str) -> Option<usize> {
    let number = entry.value(key)?.as_u64().and_then(|number| usize::try_from(number).ok());
    number.filter(|number| is_allowed(*number)).or_else(|| entry.wrong_kind(&child(entry.path, key), expected))
}

fn tags(entry: &mut Entry<'_, '_>, key: &str) -> Option<Vec<String>> {
    let path = child(entry.path, key);
    let texts = entry.texts(key)?;
    if texts.len() > tool_facts::MOST_TAGS {
        return entry.wrong_kind(&path, &format!("at most {} tags", tool_facts::MOST_TAGS));
    }
    let mut tags = Vec::new();
    for (position, text) in texts.iter().enumerate() {
        match tool_facts::tag(text) {
            Ok(tag) if !tags.contains(&tag) => tags.push(tag),
            Ok(_) => {}
            Err(problem) => {
                let remedy = format!("write a text of 1 to {} characters", tool_facts::TAG_CHARACTERS);
                entry.problem(&item(&path, position), problem.to_string(), remedy);
            }
        }
    }
    Some(tags)
}

fn validation(entry: &mut Entry<'_, '_>, key: &str) -> Option<Validation> {
    let path = child(entry.path, key);
    match entry.value(key)?.as_str().and_then(Validation::of_name) {
        Some(validation) => Some(validation),
        None => entry.wrong_kind(&path, "\"off\", \"warn\" or \"strict\""),
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::{Context, Environment, read};
    use crate::settings::Settings;
    use crate::settings::finding::Findings;
    use crate::settings::servers::TransportSettings;

    #[test]
    fn inserted_values_arrive_and_are_never_printed() {
        let text =
            r#"{"mcpServers": {"a": {"command": "${C}", "args": ["--key=${S}"], "env": {"T": "x${S}", "N": 5}}, "b": {"url": "${S}"}}}"#;
        let environment: Environment =
            [("C", "run"), ("S", "hush\u{7}hush")].map(|(name, value)| (name.to_owned(), value.to_owned())).into_iter().collect();
        let mut findings = Findings::default();
        let calls = Settings::defaults().unwrap().live.calls;
        let servers = read("f.json".as_ref(), text, Context { environment: &environment, calls: &calls, mcpo: None }, &mut findings);
        let TransportSettings::Stdio { command, args, env, .. } = &servers[0].transport else { panic!() };
        assert_eq!((command.as_str(), args[0].as_str()), ("run", "--key=hush\u{7}hush"));
        assert_eq!(env["T"].expose_secret(), "xhush\u{7}hush");
        assert_eq!(env["N"].expose_secret(), "5");
        assert_eq!(findings.problems.len(), 1);
        assert!(!format!("{findings:?}{env:?}").contains("hush"));
    }

    #[test]
    fn every_value_may_come_from_a_variable_or_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("timeout");
        std::fs::write(&file, "7\n").unwrap();
        let text = format!(
            r#"{{"mcpServers": {{
                "a": {{"url": "http://localhost", "timeout": "${{file:{}}}", "compactResults": "${{ON}}", "validation": "${{MODE}}",
                      "maxTextBytes": "${{BYTES:-300}}", "client_header_forwarding": {{"enabled": "${{ON}}", "whitelist": ["X-${{NAME}}"]}}}},
                "b": {{"command": "b", "disabled": "${{ON}}"}},
                "c": {{"command": "c", "sandbox": "${{ON}}"}},
                "d": {{"command": "d", "timeout": "${{NAME}}", "disabled": "${{file:/nowhere/switch}}"}}
            }}}}"#,
            file.display()
        );
        let variables = [("ON", "true"), ("MODE", "warn"), ("NAME", "Team")];
        let environment: Environment = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into_iter().collect();
        let mut findings = Findings::default();
        let calls = Settings::defaults().unwrap().live.calls;
        let context = Context { environment: &environment, calls: &calls, mcpo: None };
        let servers = read("f.json".as_ref(), &text, context, &mut findings);
        let problems: Vec<&str> = findings.problems.iter().filter_map(|problem| problem.place.key.as_deref()).collect();
        assert_eq!(problems, ["mcpServers.d.disabled", "mcpServers.d.timeout"]);
        let names: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
        assert_eq!(names, ["a", "c"]);
        assert_eq!((servers[0].call_timeout.as_secs(), servers[0].compact_results, servers[0].max_text_bytes), (7, true, Some(300)));
        assert_eq!(servers[0].validation.name(), "warn");
        assert_eq!(servers[0].remote.forwarding.as_ref().unwrap().whitelist, ["x-team"]);
        assert!(servers[1].sandbox.is_some());
        let files: Vec<_> = findings.files.into_iter().collect();
        assert_eq!(files, [std::path::PathBuf::from("/nowhere/switch"), file]);
    }
}
