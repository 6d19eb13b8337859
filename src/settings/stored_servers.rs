//! Servers that the API manages, beside those of the servers file: reads their entries as the file's, and merges both.
//!
//! The file takes precedence. The API can add servers, and switch servers of the file off. Stored entries can't refer to variables or
//! files of the service, and can't start programs unless `access.allow_commands` is set.

use std::path::Path;

use serde_json::{Map, Value};

use crate::domain::access::management::ManagedBy;
use crate::domain::catalog::server_entry::pointers_to;
use crate::domain::catalog::tool::ServerName;
use crate::domain::text::json::pointer::escaped;
use crate::settings::calls::CallSettings;
use crate::settings::connect::ConnectSettings;
use crate::settings::finding::{Finding, Findings};
use crate::settings::interpolate::Environment;
use crate::settings::json_text::{JsonText, child};
use crate::settings::mcp_file::{self, Context};
use crate::settings::servers::{ServerSettings, TransportSettings};
use crate::settings::{LiveSettings, StartSettings};

const SERVERS: &str = "mcpServers";
/// What problems name as the source of an entry.
const SOURCE: &str = "the entry";
/// Maximum length of a stored server's name, in bytes.
const MAX_NAME: usize = 200;
const VARIABLE: &str = "${";

/// What the API has set for a server. It has no `Debug`, because the entry contains secret values.
#[derive(Clone)]
pub struct ServerOverride {
    pub name: ServerName,
    /// The entry, or the reason why it can't be read. `None` if the servers file defines the server.
    pub entry: Option<Result<Value, String>>,
    /// The reason why the stored entry can't be read, if `entry` is the one that was known before.
    pub fault: Option<String>,
    pub enabled: bool,
}

/// A server of the file or of the API, switched on or off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownServer {
    pub name: ServerName,
    pub managed_by: ManagedBy,
    pub enabled: bool,
    /// The reason why the server isn't used although it is switched on, or why its stored entry isn't.
    pub error: Option<String>,
}

/// The servers to use, and all that are known.
#[derive(Clone, Debug, Default)]
pub struct MergedServers {
    pub servers: Vec<ServerSettings>,
    pub known: Vec<KnownServer>,
}

/// A part of an entry that is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryProblem {
    /// JSON Pointer (RFC 6901) to the part; empty for the entry as a whole.
    pub pointer: String,
    /// What is wrong, and what to do.
    pub message: String,
}

/// The reason why an entry is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryError {
    /// The text is not JSON.
    Syntax(String),
    /// It starts a program, which the settings don't allow.
    Commands,
    /// A server can't have this name.
    Name(String),
    Invalid(Vec<EntryProblem>),
}

/// The settings by which stored entries are read.
#[derive(Clone, Copy)]
pub struct EntryRules<'a> {
    pub start: &'a StartSettings,
    pub calls: &'a CallSettings,
}

/// Parses the text of an entry, in which comments and trailing commas are allowed, as in the servers file.
///
/// # Errors
/// The text is no JSON object, or a key occurs twice.
pub fn parse_entry(text: &str) -> Result<Map<String, Value>, EntryError> {
    let invalid = |pointer: String, message: String| Err(EntryError::Invalid(vec![EntryProblem { pointer, message }]));
    let whole = |message: String| invalid(String::new(), message);
    let json = JsonText::parse(text)
        .map_err(|error| EntryError::Syntax(format!("line {}, column {}: {}", error.line, error.column, error.message)))?;
    if let Some((path, line)) = json.outer_duplicates().next() {
        return invalid(pointer(path), format!("duplicate key in line {line}: rename or remove one of the two"));
    }
    match json.value {
        Value::Object(entry) if entry.contains_key(SERVERS) => {
            whole(format!("a whole servers file: write only the entry of this server, without `{SERVERS}` and the server's name"))
        }
        Value::Object(entry) => Ok(entry),
        _ => whole("not an object: write it as {\"url\": …}".to_owned()),
    }
}

impl EntryRules<'_> {
    /// Reads an entry as the servers file's are read. Returns the warnings too.
    ///
    /// # Errors
    /// All problems.
    pub fn read(&self, name: &ServerName, entry: &Value) -> Result<(ServerSettings, Vec<EntryProblem>), EntryError> {
        let too_long = || (name.as_str().len() > MAX_NAME).then(|| ("the name is too long", format!("use at most {MAX_NAME} bytes")));
        if let Some((message, remedy)) = mcp_file::name_problem(name.as_str(), false).or_else(too_long) {
            return Err(EntryError::Name(format!("{message}: {remedy}")));
        }
        if starts_program(entry) && !self.start.access.allow_commands {
            return Err(EntryError::Commands);
        }
        let variables = pointers_to(entry, VARIABLE);
        if !variables.is_empty() {
            let message = "contains `${`: entries of the API can't use variables and files; write the value itself".to_owned();
            let problem = |pointer| EntryProblem { pointer, message: message.clone() };
            return Err(EntryError::Invalid(variables.into_iter().map(problem).collect()));
        }
        let mut findings = Findings::default();
        let text = Value::from_iter([(SERVERS, Value::from_iter([(name.as_str(), entry.clone())]))]).to_string();
        // Without variables, so that no entry reads any. In mcpo mode too, names of our routes are problems.
        let context = Context { environment: &Environment::default(), calls: self.calls, mcpo: None };
        let mut servers = mcp_file::read(Path::new(SOURCE), &text, context, &mut findings);
        ConnectSettings::check_added(&servers, &self.start.http, &self.start.secrets, &mut findings);
        let base = child(SERVERS, name.as_str());
        let (problems, warnings) = findings.in_order();
        match servers.pop() {
            Some(server) if problems.is_empty() => match server.transport {
                TransportSettings::Stdio { .. } if !self.start.access.allow_commands => Err(EntryError::Commands),
                _ => Ok((server, warnings.iter().map(|warning| EntryProblem::of(warning, &base)).collect())),
            },
            _ => Err(EntryError::Invalid(problems.iter().map(|problem| EntryProblem::of(problem, &base)).collect())),
        }
    }

    /// Merges the servers of the file with what the API has set.
    pub fn merge(&self, of_file: &[ServerSettings], overrides: &[ServerOverride]) -> MergedServers {
        let mut merged = MergedServers::default();
        for server in of_file {
            let set = overrides.iter().find(|set| set.name == server.name);
            let enabled = set.is_none_or(|set| set.enabled);
            let hides = set.is_some_and(|set| set.entry.is_some());
            let error = hides.then(|| "the servers file defines it too and takes precedence over the stored entry".to_owned());
            merged.known.push(KnownServer { name: server.name.clone(), managed_by: ManagedBy::File, enabled, error });
            merged.servers.extend(enabled.then(|| server.clone()));
        }
        let is_free = |set: &&ServerOverride| of_file.iter().all(|server| server.name != set.name);
        for set in overrides.iter().filter(is_free) {
            let Some(entry) = &set.entry else { continue };
            let read = match entry {
                Ok(entry) => self.read(&set.name, entry).map_err(|error| error.to_string()),
                Err(reason) => Err(reason.clone()),
            };
            let (server, error) = match read {
                Ok((server, _)) => (Some(server), set.fault.clone()),
                Err(reason) => (None, Some(reason)),
            };
            merged.known.push(KnownServer { name: set.name.clone(), managed_by: ManagedBy::Api, enabled: set.enabled, error });
            merged.servers.extend(server.filter(|_| set.enabled));
        }
        merged
    }
}

impl MergedServers {
    /// The settings with these servers.
    pub fn within(&self, live: &LiveSettings) -> LiveSettings {
        LiveSettings { servers: self.servers.clone(), ..live.clone() }
    }
}

impl EntryProblem {
    fn of(finding: &Finding, base: &str) -> Self {
        let path = finding.place.key.as_deref().unwrap_or_default();
        let message = format!("{}: {}", finding.message, finding.remedy);
        Self { pointer: path.strip_prefix(base).map(pointer).unwrap_or_default(), message }
    }
}

impl std::fmt::Display for EntryError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Syntax(error) | Self::Name(error) => formatter.write_str(error),
            Self::Commands => formatter.write_str("it starts a program, and access.allow_commands is not set"),
            Self::Invalid(problems) => {
                let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
                formatter.write_str(&texts.join("; "))
            }
        }
    }
}

impl std::fmt::Display for EntryProblem {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.pointer.as_str() {
            "" => formatter.write_str(&self.message),
            pointer => write!(formatter, "{pointer}: {}", self.message),
        }
    }
}

/// Whether an entry asks for a program, even if it is otherwise invalid.
fn starts_program(entry: &Value) -> bool {
    entry.get("command").is_some_and(|command| !command.is_null())
}

/// The JSON Pointer for a path such as `.headers["X-A.b"]` or `.args[2]`.
fn pointer(path: &str) -> String {
    let (mut pointer, mut rest) = (String::new(), path);
    while !rest.is_empty() {
        if let Some(quoted) = rest.strip_prefix('[').filter(|inside| inside.starts_with('"')) {
            let mut names = serde_json::Deserializer::from_str(quoted).into_iter::<String>();
            let Some(Ok(name)) = names.next() else { break };
            pointer = format!("{pointer}/{}", escaped(&name));
            rest = quoted[names.byte_offset()..].strip_prefix(']').unwrap_or_default();
        } else {
            let inside = rest.trim_start_matches(['.', '[']);
            let end = inside.find(['.', '[', ']']).unwrap_or(inside.len());
            pointer = format!("{pointer}/{}", &inside[..end]);
            rest = inside[end..].trim_start_matches(']');
        }
    }
    pointer
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{EntryError, EntryRules, ManagedBy, ServerOverride, parse_entry, pointer};
    use crate::settings::Settings;

    fn settings(allow_commands: bool) -> Settings {
        let mut settings = Settings::defaults().unwrap();
        settings.start.access.allow_commands = allow_commands;
        settings
    }

    fn rules(settings: &Settings) -> EntryRules<'_> {
        EntryRules { start: &settings.start, calls: &settings.live.calls }
    }

    fn pointers(entry: &Value) -> Vec<String> {
        match rules(&settings(true)).read(&"a".into(), entry) {
            Err(EntryError::Invalid(problems)) => problems.into_iter().map(|problem| problem.pointer).collect(),
            Ok(_) | Err(_) => panic!("{entry}"),
        }
    }

    #[test]
    fn problems_name_their_place() {
        assert_eq!(pointer(".headers[\"X-A.b/c\"]"), "/headers/X-A.b~1c");
        assert_eq!(pointer(".args[2]"), "/args/2");
        assert_eq!(pointer("[\"a b\"].c"), "/a b/c");
        assert_eq!(pointers(&json!({"url": "https://example.org", "headers": {"a b": "c"}, "timeout": -1})), ["/headers/a b", "/timeout"]);
        assert_eq!(pointers(&json!({"command": "x", "args": ["a", "${B}"]})), ["/args/1"]);
        assert_eq!(pointers(&json!({"tags": ["a"]})), [""]);
        assert_eq!(pointers(&json!({"url": "https://example.org", "auth": "oauth"})), ["/auth", "/auth"]);
        let settings = settings(false);
        for name in ["mcp", "v1", "", "a/b", &"x".repeat(201)] {
            let refused = rules(&settings).read(&name.into(), &json!({"url": "https://example.org"})).unwrap_err();
            assert!(matches!(refused, EntryError::Name(_)), "{name}: {refused}");
        }
        let (_, warnings) = rules(&settings).read(&"a".into(), &json!({"url": "https://example.org", "hedaers": {}})).unwrap();
        assert_eq!(warnings[0].to_string(), "/hedaers: unknown key, ignored: did you mean `headers`?");
    }

    #[test]
    fn programs_need_a_setting() {
        let off = settings(false);
        for entry in
            [json!({"command": "x"}), json!({"type": "stdio", "command": "x"}), json!({"command": "x", "url": "https://a.example"})]
        {
            assert_eq!(rules(&off).read(&"a".into(), &entry).unwrap_err(), EntryError::Commands, "{entry}");
        }
        let on = settings(true);
        assert!(rules(&on).read(&"a".into(), &json!({"command": "x"})).is_ok());
    }

    #[test]
    fn texts_are_read_as_in_the_file() {
        assert_eq!(parse_entry("{\"url\": \"https://a.example\", // here\n}").unwrap()["url"], "https://a.example");
        for (text, part) in [
            ("{\"url\": 1, \"url\": 2}", "duplicate key"),
            ("{", "line 1"),
            ("[]", "not an object"),
            ("{\"mcpServers\": {}}", "only the entry"),
        ] {
            let problem = parse_entry(text).unwrap_err();
            assert!(problem.to_string().contains(part), "{text}: {problem}");
        }
    }

    #[test]
    fn the_file_takes_precedence_and_can_be_switched_off() {
        let settings = settings(false);
        let rules = rules(&settings);
        let read = |name: &str| rules.read(&name.into(), &json!({"url": "https://file.example"})).unwrap().0;
        let set =
            |name: &str, entry: Option<Result<Value, String>>, enabled| ServerOverride { name: name.into(), entry, fault: None, enabled };
        let entry = || Some(Ok(json!({"url": "https://api.example"})));
        let overrides = [
            set("a", entry(), true),
            set("b", None, false),
            set("c", entry(), true),
            set("d", entry(), false),
            set("e", Some(Err("unreadable".to_owned())), true),
            set("f", Some(Ok(json!({"command": "x"}))), true),
            set("gone", None, false),
            ServerOverride { fault: Some("sealed anew".to_owned()), ..set("known", entry(), true) },
        ];
        let merged = rules.merge(&[read("a"), read("b")], &overrides);
        let names: Vec<&str> = merged.servers.iter().map(|server| server.name.as_str()).collect();
        assert_eq!(names, ["a", "c", "known"]);
        assert_eq!(merged.servers[0].differences(&read("a")), Vec::<&str>::new());
        let known: Vec<_> =
            merged.known.iter().map(|known| (known.name.as_str(), known.managed_by, known.enabled, known.error.is_some())).collect();
        let (file, api) = (ManagedBy::File, ManagedBy::Api);
        let expected = [
            ("a", file, true, true),
            ("b", file, false, false),
            ("c", api, true, false),
            ("d", api, false, false),
            ("e", api, true, true),
            ("f", api, true, true),
            ("known", api, true, true),
        ];
        assert_eq!(known, expected);
    }
}
