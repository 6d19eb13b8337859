//! The complete configuration, which is checked once at the start.
//!
//! Each section has its own file. All problems are reported together before anything starts, each with its location and
//! a suggested fix.

mod access;
mod api_keys;
mod calls;
mod connect;
mod definitions;
mod documents;
mod embedder;
mod entry;
mod exchange;
mod files;
mod finding;
mod forwarding;
mod http;
mod index;
mod interpolate;
mod json_text;
mod learning;
mod limits;
pub(crate) mod llm;
mod logging;
mod mcp;
mod mcp_file;
pub(crate) mod mcpo;
mod metrics;
mod oauth;
mod patterns;
mod per_user;
mod policy;
mod processes;
mod reload;
mod sandbox;
mod secret_file;
mod secrets;
mod selection;
pub mod servers;
mod sessions;
mod store;
mod stored_servers;
mod table;
mod tags;
mod telemetry;
mod tls;
mod tools;
mod toolsets;
mod usage;
mod values;
mod weak_key;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use secrecy::{ExposeSecret, SecretString};
use toml::Value;

pub use self::access::AccessSettings;
pub use self::calls::{CallSettings, Validation};
pub use self::connect::{ConnectSettings, TokenFor};
pub use self::definitions::{DefinitionChanges, DefinitionSettings, NewDefinitions};
pub use self::documents::DocumentSettings;
pub use self::embedder::{BUILTIN_MODEL, Dialect, EmbedderProvider, EmbedderSettings, EndpointSettings, FolderSettings, Prefixes};
pub use self::exchange::TokenExchange;
pub use self::files::FileSettings;
pub use self::finding::{Finding, Location, SettingsErrors};
pub use self::forwarding::HeaderForwarding;
pub use self::http::HttpSettings;
pub use self::index::{IndexSettings, QdrantSettings};
pub use self::interpolate::Environment;
pub use self::learning::{LearnedArguments, LearningMode, LearningSettings};
pub use self::limits::LimitSettings;
pub use self::llm::LlmSettings;
pub use self::logging::{AccessLines, LogFormat, LoggingSettings};
pub use self::mcp::{McpSettings, WaitingSettings};
pub use self::mcpo::McpoSettings;
pub use self::metrics::MetricsSettings;
pub use self::oauth::OAuthSettings;
pub use self::per_user::PerUserSettings;
pub use self::policy::PolicySettings;
pub use self::processes::ProcessSettings;
pub use self::reload::ReloadSettings;
pub use self::sandbox::SandboxSettings;
pub use self::secrets::{SecretSettings, UserConnectionSettings};
pub use self::selection::{Rerank, SelectionSettings};
pub use self::servers::{RemoteSettings, ServerSettings, TransportSettings};
pub use self::sessions::SessionSettings;
pub use self::store::{PostgresSettings, StoreSettings};
pub use self::stored_servers::{EntryError, EntryProblem, EntryRules, KnownServer, MergedServers, ServerOverride, parse_entry};
pub use self::telemetry::TelemetrySettings;
pub use self::tls::Tls;
pub use self::tools::ToolSettings;
pub use self::toolsets::{ToolsetFlags, ToolsetSettings};
pub use self::usage::UsageSettings;
pub use self::values::DEFAULTS;

use self::finding::Findings;
use self::values::{Reader, Values, section};
use crate::domain::access::api_key::KeyDefinition;
use crate::domain::access::policy::TagRule;
use crate::domain::access::principal::GroupTable;
use crate::domain::text::canonical::Fingerprint;

/// The complete configuration.
#[derive(Clone)]
pub struct Settings {
    pub start: StartSettings,
    pub live: LiveSettings,
    /// The sources, which a reload reads again.
    pub sources: Sources,
    /// A fingerprint of each value, by key.
    pub keys: BTreeMap<String, Fingerprint>,
    /// All files that the configuration consists of or names, including missing ones.
    pub files: Vec<PathBuf>,
}

/// Omits the sources, which may contain secrets.
#[expect(clippy::missing_fields_in_debug, reason = "omits secrets and fields of no interest")]
impl fmt::Debug for Settings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Settings").field("start", &self.start).field("live", &self.live).finish()
    }
}

section! {
    /// Settings that are read once: a change needs a restart.
    #[derive(Clone, Debug)]
    pub struct StartSettings = read(reader) {
        pub http: HttpSettings = HttpSettings::read(reader),
        pub access: AccessSettings = AccessSettings::checked(&http, reader),
        pub documents: DocumentSettings = DocumentSettings::read(reader),
        pub store: StoreSettings = StoreSettings::read(reader),
        pub sessions: SessionSettings = SessionSettings::read(reader),
        pub mcp: McpSettings = McpSettings::read(reader),
        pub files: FileSettings = FileSettings::read(reader),
        pub embedder: EmbedderSettings = EmbedderSettings::read(reader),
        pub index: IndexSettings = IndexSettings::read(reader),
        pub llm: LlmSettings = LlmSettings::read(reader),
        pub logging: LoggingSettings = LoggingSettings::read(reader),
        pub reload: ReloadSettings = ReloadSettings::read(reader),
        pub secrets: SecretSettings = SecretSettings::read(reader),
        pub user_connections: UserConnectionSettings = UserConnectionSettings::read(reader),
        pub metrics: MetricsSettings = MetricsSettings::read(reader),
        pub telemetry: TelemetrySettings = TelemetrySettings::read(reader),
        pub learning: LearningSettings = LearningSettings::read(reader),
        /// Set only by mcpo's command line.
        pub mcpo: Option<McpoSettings> = None,
        pub processes: ProcessSettings = ProcessSettings::read(reader),
    }
}

/// Settings that can change while the service runs.
#[derive(Clone, Debug)]
pub struct LiveSettings {
    /// The enabled servers, in the order of the file.
    pub servers: Vec<ServerSettings>,
    pub calls: CallSettings,
    pub selection: SelectionSettings,
    /// Section `[groups]`: the members of each group.
    pub groups: GroupTable,
    pub policy: PolicySettings,
    pub toolsets: ToolsetSettings,
    /// `[[tag]]`: rules that give tags to tools.
    pub tags: Vec<TagRule>,
    /// `[[key]]`: API keys.
    pub api_keys: Vec<KeyDefinition>,
    /// `[[tool]]` and `[[approval]]`: data about single tools.
    pub tools: ToolSettings,
    /// The name of the settings file, for messages.
    pub file: Arc<str>,
    /// The settings in section `[definitions]`.
    pub definitions: DefinitionSettings,
    pub limits: LimitSettings,
    /// The settings in section `[usage]`, with `[[price]]`.
    pub usage: UsageSettings,
}

/// The sections that [`LiveSettings`] contains.
const LIVE_SECTIONS: [&str; 14] = [
    "approval",
    "calls",
    "definitions",
    "groups",
    "key",
    "limits",
    "policy",
    "presets",
    "price",
    "selection",
    "tag",
    "tool",
    "toolsets",
    "usage",
];
/// Keys from other sections that [`LiveSettings`] contains.
const LIVE_KEYS: [&str; 1] = ["access.default"];

/// Where the configuration is read from.
#[derive(Clone, Default)]
pub struct Sources {
    pub servers: ServersSource,
    /// The settings file in TOML format.
    pub settings: Option<PathBuf>,
    pub environment: Environment,
    pub overrides: Overrides,
    /// mcpo's command line, with its own defaults, addresses and servers.
    pub mcpo: Option<McpoSettings>,
    /// Whether the program only reads the settings, so that it needs no key to keep others out.
    pub never_listens: bool,
}

/// Where the `mcpServers` map comes from. This type has no `Debug`, because a text may contain secrets.
#[derive(Clone, Default)]
pub enum ServersSource {
    /// There are no servers.
    #[default]
    Nothing,
    File(PathBuf),
    /// A text that the program itself has created. Messages refer to it by `name`.
    Text {
        name: String,
        text: String,
    },
}

/// Values of command-line flags, which override all other sources.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// The value of `--host`.
    pub host: Option<String>,
    /// The value of `--port`.
    pub port: Option<u16>,
    /// The value of `--api-key`.
    pub api_key: Option<SecretString>,
    /// Whether `--insecure` is set. If not, the other sources decide.
    pub insecure: bool,
    /// The value of `--data-dir`.
    pub data_dir: Option<PathBuf>,
    /// The value of `--log-level`.
    pub log_level: Option<String>,
    /// Whether `--hot-reload` is set. If not, the other sources decide.
    pub watch: bool,
    /// The values of `--cors-allow-origins`. If there are none, the other sources decide.
    pub cors_origins: Vec<String>,
    /// The value of `--ssl-certfile`.
    pub tls_certificate: Option<String>,
    /// The value of `--ssl-keyfile`.
    pub tls_key: Option<String>,
    /// The values of `--toolsets`, `--exclude` and `--preset`.
    pub toolsets: ToolsetFlags,
    /// The program that starts MCP servers. `None` starts them directly.
    pub launcher: Option<PathBuf>,
}

impl Sources {
    /// The servers file and the settings file.
    pub fn files(&self) -> Vec<PathBuf> {
        let servers = match &self.servers {
            ServersSource::File(path) => Some(path.clone()),
            ServersSource::Nothing | ServersSource::Text { .. } => None,
        };
        servers.into_iter().chain(self.settings.clone()).collect()
    }
}

impl Sources {
    /// The name of the servers file, for messages.
    pub fn servers_file(&self) -> String {
        match &self.servers {
            ServersSource::File(path) => path.display().to_string(),
            ServersSource::Text { name, .. } => name.clone(),
            ServersSource::Nothing => "the servers file".to_owned(),
        }
    }
}

impl Settings {
    /// Reads all sources and checks the configuration. The second value contains the warnings.
    ///
    /// # Errors
    /// All problems in all sources.
    pub fn load(sources: &Sources) -> Result<(Self, Vec<Finding>), SettingsErrors> {
        let mut findings = Findings::default();
        let mut values = Values::defaults(&mut findings);
        if sources.mcpo.is_some() {
            mcpo::add_defaults(&sources.environment, &mut values, &mut findings);
        }
        if let Some(path) = &sources.settings
            && let Some(text) = read_file(path, &mut findings)
        {
            values.add_file(path, &text, &sources.environment, &mut findings);
        }
        values.add_environment(&sources.environment, sources.mcpo.is_some(), &mut findings);
        sources.overrides.add_to(&mut values, &mut findings);
        values.add_credentials(&sources.environment, &mut findings);
        values.read_files(&mut findings);

        let mut reader = Reader::new(&mut values, &mut findings);
        let mut start = StartSettings::read(&mut reader);
        let (calls, selection) = (CallSettings::read(&mut reader), SelectionSettings::read(&mut reader));
        if let Some(data_dir) = &sources.overrides.data_dir {
            // Bypasses the text values, because a path may contain bytes that are not valid Unicode.
            start.store.data_dir.clone_from(data_dir);
        }
        // Without the files that only servers' own values name, because a server may read these.
        let mut own_files = findings.files.clone();
        let mut servers = sources.servers.read(&sources.environment, &calls, sources.mcpo.as_ref(), &mut findings);
        if let Some(mcpo) = &sources.mcpo {
            mcpo.complete(&mut servers, &start.http, &mut findings);
            start.mcpo = Some(mcpo.clone());
        }
        let mut reader = Reader::new(&mut values, &mut findings);
        let has_other_key = start.access.admin_key.is_some() || start.access.has_keys_in_file;
        start.http.check_exposure(has_other_key, !sources.never_listens, &mut reader);
        calls.check_exceptions(&servers, &mut reader);
        start.secrets.check(&servers, &mut reader);
        ConnectSettings::check(&servers, &start.http, &start.secrets, &mut reader);
        let definitions = DefinitionSettings::read(&mut reader);
        let limits = LimitSettings::read(&mut reader);
        limits.check_exceptions(&servers, &mut reader);
        let tags = tags::read(&values, &mut findings);

        let groups = GroupTable::new(values.groups.clone());
        let policy = PolicySettings::read(&mut values, &mut findings);
        let toolsets = ToolsetSettings::read(&values, &sources.overrides.toolsets, &mut findings);
        patterns::check(&values, &servers, &mut findings);
        let of_servers = std::mem::take(&mut findings.files);
        let api_keys = api_keys::read(&values, &start, &servers, &mut findings);
        own_files.extend(findings.files.iter().cloned());
        findings.files.extend(of_servers);
        let usage = UsageSettings::read(&mut values, &mut findings);
        let tools = ToolSettings::read(&values, &servers, &mut findings);
        let mut keys = values.fingerprints();
        keys.extend(fingerprints_of_tables(&api_keys, &tools));
        values.complete(&mut start.processes, sources, &own_files);
        let mut files = sources.files();
        files.extend(findings.files.iter().chain(&findings.watched).cloned());
        let (problems, warnings) = findings.in_order();
        if problems.is_empty() {
            let file = sources.settings.as_ref().map_or_else(|| "the settings".to_owned(), |path| path.display().to_string()).into();
            let live = LiveSettings {
                servers,
                calls,
                selection,
                groups,
                policy,
                toolsets,
                tags,
                api_keys,
                tools,
                file,
                definitions,
                limits,
                usage,
            };
            Ok((Self { start, live, sources: sources.clone(), keys, files }, warnings))
        } else {
            Err(SettingsErrors { problems, warnings, files })
        }
    }

    /// The compiled-in defaults, without servers.
    ///
    /// # Errors
    /// Never in a build that has passed its tests.
    pub fn defaults() -> Result<Self, SettingsErrors> {
        Self::load(&Sources::default()).map(|(settings, _)| settings)
    }
}

impl Settings {
    /// The keys that require a restart and whose values differ from these fingerprints.
    pub fn needing_restart(&self, started: &BTreeMap<String, Fingerprint>) -> Vec<String> {
        let is_live = |key: &str| {
            let section = key.split_once('.').map_or(key, |(section, _)| section);
            LIVE_SECTIONS.contains(&section) || LIVE_KEYS.contains(&key)
        };
        self.keys.iter().filter(|(key, value)| started.get(*key) != Some(value) && !is_live(key)).map(|(key, _)| key.clone()).collect()
    }
}

impl ServersSource {
    fn read(
        &self,
        environment: &Environment,
        calls: &CallSettings,
        mcpo: Option<&McpoSettings>,
        findings: &mut Findings,
    ) -> Vec<ServerSettings> {
        let context = mcp_file::Context { environment, calls, mcpo };
        match self {
            Self::Nothing => Vec::new(),
            Self::File(path) => match read_file(path, findings) {
                Some(text) => mcp_file::read(path, &text, context, findings),
                None => Vec::new(),
            },
            Self::Text { name, text } => mcp_file::read(Path::new(name), text, context, findings),
        }
    }
}

impl Overrides {
    fn add_to(&self, values: &mut Values, findings: &mut Findings) {
        let flags = [
            ("--host", "http.host", self.host.clone().map(Value::String)),
            ("--port", "http.port", self.port.map(|port| Value::Integer(port.into()))),
            ("--api-key", "http.api_key", self.api_key.as_ref().map(|key| Value::String(key.expose_secret().to_owned()))),
            ("--insecure", "http.insecure", self.insecure.then_some(Value::Boolean(true))),
            ("--data-dir", "store.data_dir", self.data_dir.as_ref().map(|path| Value::String(path.to_string_lossy().into()))),
            ("--log-level", "logging.level", self.log_level.clone().map(Value::String)),
            ("--cors-allow-origins", "http.cors_origins", self.origins()),
            ("--ssl-certfile", "http.tls_certificate", self.tls_certificate.clone().map(Value::String)),
            ("--ssl-keyfile", "http.tls_key", self.tls_key.clone().map(Value::String)),
            ("--hot-reload", "reload.watch", self.watch.then_some(Value::Boolean(true))),
        ];
        for (flag, key, value) in flags {
            if let Some(value) = value {
                values.add_flag(flag, key, value, findings);
            }
        }
    }
}

impl Overrides {
    fn origins(&self) -> Option<Value> {
        let origins = self.cors_origins.iter().cloned().map(Value::String).collect();
        (!self.cors_origins.is_empty()).then_some(Value::Array(origins))
    }
}

/// Fingerprints of the tables whose contents are not texts in the settings file alone: a key's hash comes from its file.
fn fingerprints_of_tables(api_keys: &[KeyDefinition], tools: &ToolSettings) -> [(String, Fingerprint); 3] {
    let hashes: Vec<Fingerprint> = api_keys.iter().map(|key| key.hash).collect();
    [
        (values::KEY, format!("{api_keys:?} {hashes:?}")),
        (values::TOOL, format!("{:?} {:?}", tools.overrides, tools.enrichments)),
        (values::APPROVAL, format!("{:?}", tools.approvals)),
    ]
    .map(|(name, text)| (name.to_owned(), Fingerprint::of_text(&text)))
}

fn read_file(path: &Path, findings: &mut Findings) -> Option<String> {
    fs::read_to_string(path)
        .map_err(|error| {
            let place = Location { source: path.display().to_string(), ..Location::default() };
            if error.kind() == io::ErrorKind::InvalidData {
                findings.problem(place, "is not UTF-8 text", "save the file with the encoding UTF-8");
            } else {
                findings.problem(place, format!("can't be read: {error}"), "check the path and its access rights");
            }
        })
        .ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use secrecy::{ExposeSecret as _, SecretString};

    use super::{
        CallSettings, DEFAULTS, DefinitionSettings, Environment, Findings, LimitSettings, Overrides, PolicySettings, Reader,
        SelectionSettings, Settings, Sources, StartSettings, UsageSettings, Values,
    };

    #[test]
    fn every_default_is_read() {
        let mut findings = Findings::default();
        let mut values = Values::defaults(&mut findings);
        values.read_files(&mut findings);
        let mut reader = Reader::new(&mut values, &mut findings);
        StartSettings::read(&mut reader);
        CallSettings::read(&mut reader);
        SelectionSettings::read(&mut reader);
        DefinitionSettings::read(&mut reader);
        LimitSettings::read(&mut reader);
        PolicySettings::read(&mut values, &mut findings);
        UsageSettings::read(&mut values, &mut findings);
        assert_eq!(values.unread(), Vec::<&str>::new());
        assert_eq!(findings.problems, []);
    }

    #[test]
    fn every_default_is_explained_right_above_it() {
        let lines: Vec<&str> = DEFAULTS.lines().collect();
        for pair in lines.windows(2) {
            let is_key = !pair[1].starts_with(['#', '[']) && pair[1].contains(" = ");
            assert!(!is_key || pair[0].starts_with("# "), "{} has no comment", pair[1]);
        }
    }

    /// Regression: the text `${file:/run/secrets/key}` in a variable became the key, and a rule for a user without `user:` never applied.
    /// Nothing said so.
    #[test]
    fn what_has_no_effect_is_warned_about() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("settings.toml");
        fs::write(&file, "[[policy]]\neffect = \"block\"\nprincipals = [\"bob@example.org\", \"user:*\"]\n").unwrap();
        let environment = Environment::default()
            .with("TOOLSIEVE_API_KEY", "${file:/run/secrets/the-key-of-the-service}")
            .with("TOOLSIEVE_LIMITS__CALL_EXCEPTIONS", "key:ci=5, ci=7");
        let (_, warnings) = Settings::load(&Sources { settings: Some(file), environment, ..Sources::default() }).unwrap();
        let messages: Vec<&str> = warnings.iter().map(|warning| warning.message.as_str()).collect();
        for expected in [
            "contains `${`, which is used as it is",
            "rule 1 of the settings: `bob@example.org` matches no caller: write key:NAME, user:ID, service-key, admin or anyone",
            "`ci` matches no caller",
        ] {
            assert!(messages.contains(&expected), "{expected}: {messages:?}");
        }
    }

    /// Regression: a key in Latin-1 was left out, and the service ran without a key.
    #[test]
    fn a_variable_that_is_not_utf_8_is_a_problem() {
        use std::os::unix::ffi::OsStringExt as _;
        for name in ["TOOLSIEVE_API_KEY", "TOOLSIEVE_ADMIN_KEY_FILE", "QDRANT_API_KEY", "TOOLSIEVE_SETTINGS", "PATH"] {
            let value = std::ffi::OsString::from_vec(b"gr\xfc\xdfe".to_vec());
            let environment = Environment::of([(name.into(), value)]);
            let loaded = Settings::load(&Sources { environment, ..Sources::default() }).map(drop);
            if matches!(name, "TOOLSIEVE_SETTINGS" | "PATH") {
                loaded.unwrap();
            } else {
                assert_eq!(loaded.unwrap_err().to_string().matches(&format!("{name}: is not UTF-8 text")).count(), 1);
            }
        }
    }

    #[test]
    fn the_defaults_are_those_of_the_design() {
        let settings = Settings::defaults().unwrap();
        let http = &settings.start.http;
        assert_eq!((http.host.to_string().as_str(), http.port), ("127.0.0.1", 8000));
        assert!(http.api_key.is_none() && !http.insecure && http.public_url.is_none() && http.cors_origins.is_empty());
        assert_eq!(http.max_body_bytes, 4 << 20);
        assert_eq!(settings.start.store.data_dir.to_str(), Some("toolsieve-data"));
        assert_eq!(settings.live.calls.timeout.as_secs(), 60);
        let selection = &settings.live.selection;
        assert_eq!((selection.limit, selection.chat_budget, selection.token_budget), (10, 24, None));
    }

    /// The flag, the variable, the settings file and the credential that set the key, or name a file with it. Regression: an empty text in
    /// the settings file beat the credential, so that the service ran without a key.
    #[test]
    fn a_key_and_a_file_with_a_key_override_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        for name in ["toolsieve.api_key", "one", "two"] {
            fs::write(path(name), format!("of-{name}")).unwrap();
        }
        let (value, file) = ("api_key = \"of-settings\"", format!("api_key_file = {:?}", path("one")));
        let key = |settings: &str, variables: &[(&str, &str)], flag: Option<&str>| {
            fs::write(path("settings.toml"), format!("[http]\n{settings}\n")).unwrap();
            let environment = Environment::default().with("CREDENTIALS_DIRECTORY", folder.path().to_str().unwrap());
            let sources = Sources {
                settings: Some(path("settings.toml").into()),
                environment: variables.iter().fold(environment, |environment, (name, value)| environment.with(name, value)),
                overrides: Overrides { api_key: flag.map(SecretString::from), ..Overrides::default() },
                ..Sources::default()
            };
            let loaded = Settings::load(&sources).map_err(|errors| errors.to_string())?;
            Ok::<_, String>(loaded.0.start.http.api_key.unwrap().expose_secret().to_owned())
        };
        let two = path("two");
        let empty_and_file = format!("api_key = \"\"\n{file}");
        for (settings, variables, flag, expected) in [
            ("", vec![], None, "of-toolsieve.api_key"),
            ("api_key = \"\"", vec![], None, "of-toolsieve.api_key"),
            ("api_key = \"${THE_KEY:-}\"\napi_key_file = \"\"", vec![], None, "of-toolsieve.api_key"),
            ("api_key = \"${THE_KEY:-}\"", vec![("THE_KEY", "of-the-key")], None, "of-the-key"),
            (DEFAULTS.split_once("[http]\n").map_or("", |(_, rest)| rest), vec![], None, "of-toolsieve.api_key"),
            ("", vec![], Some(""), "of-toolsieve.api_key"),
            (empty_and_file.as_str(), vec![], None, "of-one"),
            (file.as_str(), vec![], None, "of-one"),
            (value, vec![], None, "of-settings"),
            (value, vec![("TOOLSIEVE_API_KEY_FILE", two.as_str())], None, "of-two"),
            (&file, vec![("TOOLSIEVE_API_KEY", "of-variable")], None, "of-variable"),
            (&file, vec![("TOOLSIEVE_API_KEY_FILE", &two)], Some("of-flag"), "of-flag"),
        ] {
            assert_eq!(key(settings, &variables, flag).as_deref(), Ok(expected), "{settings} {variables:?} {flag:?}");
        }
        let both = [("TOOLSIEVE_API_KEY", "of-variable"), ("TOOLSIEVE_API_KEY_FILE", &two)];
        let error = key("", &both, None).unwrap_err();
        assert!(error.contains("TOOLSIEVE_API_KEY_FILE: http.api_key_file: conflicts with http.api_key"), "{error}");
    }

    #[test]
    fn an_address_without_a_key_stops_only_what_listens() {
        let sources = Sources { environment: Environment::default().with("TOOLSIEVE_HOST", "0.0.0.0"), ..Sources::default() };
        assert_eq!(Settings::load(&sources).unwrap_err().problems.len(), 1);
        let (_, warnings) = Settings::load(&Sources { never_listens: true, ..sources }).unwrap();
        assert!(matches!(&warnings[..], [one] if one.message == "reachable from other machines without a key"), "{warnings:?}");
    }
}
