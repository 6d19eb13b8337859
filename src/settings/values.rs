//! The values of all settings from all sources, before they are converted to their types.
//!
//! The compiled-in defaults contain every setting with its type, so they determine which settings exist. Each source
//! overrides the sources before it: defaults, settings file, environment, command line.

mod reader;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use secrecy::SecretString;
use toml::de::{DeTable, DeValue};
use toml::{Table, Value};
use url::Url;

pub(super) use self::reader::{Reader, section};
use crate::domain::text::canonical::Fingerprint;
use crate::domain::text::similar::nearest;
use crate::settings::Sources;
use crate::settings::finding::{Findings, Location, suggestion};
use crate::settings::interpolate::{self, Environment};
use crate::settings::json_text::line_and_column;
use crate::settings::processes::{ProcessSettings, is_file, is_secret};
use crate::settings::secret_file;

/// The commented defaults, which document every setting.
pub const DEFAULTS: &str = include_str!("defaults.toml");

const PREFIX: &str = "TOOLSIEVE_";
const DATABASE_URL: &str = "DATABASE_URL";
/// Short variable names for the most common settings.
const SHORT_NAMES: [(&str, &str); 21] = [
    (DATABASE_URL, "store.url"),
    ("EMBEDDER_API_KEY", "embedder.api_key"),
    ("EMBEDDER_FOLDER", "embedder.folder"),
    ("EMBEDDER_MODEL", "embedder.model"),
    ("EMBEDDER_URL", "embedder.url"),
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "telemetry.endpoint"),
    ("OTEL_EXPORTER_OTLP_HEADERS", "telemetry.headers"),
    ("OTEL_SERVICE_NAME", "telemetry.service_name"),
    ("OTEL_TRACES_SAMPLER_ARG", "telemetry.sample_ratio"),
    ("QDRANT_API_KEY", "index.qdrant_api_key"),
    ("QDRANT_URL", "index.qdrant_url"),
    ("TOOLSIEVE_ADMIN_KEY", "access.admin_key"),
    ("TOOLSIEVE_ADMIN_KEY_FILE", "access.admin_key_file"),
    ("TOOLSIEVE_API_KEY", "http.api_key"),
    ("TOOLSIEVE_API_KEY_FILE", "http.api_key_file"),
    ("TOOLSIEVE_DATA_DIR", "store.data_dir"),
    ("TOOLSIEVE_HOST", "http.host"),
    ("TOOLSIEVE_LOG", "logging.level"),
    ("TOOLSIEVE_PORT", "http.port"),
    ("TOOLSIEVE_SECRETS_KEY", "secrets.key"),
    ("TOOLSIEVE_SECRETS_KEY_FILE", "secrets.key_file"),
];
/// Keys that name a file, with the key that the file's contents set.
const FILES: [(&str, &str); 3] =
    [("access.admin_key_file", "access.admin_key"), ("http.api_key_file", "http.api_key"), ("secrets.key_file", "secrets.key")];
/// Suffix of a variable that names a file with the value.
const FILE: &str = "_FILE";
/// The variable with the path of systemd's credentials folder.
const CREDENTIALS_FOLDER: &str = "CREDENTIALS_DIRECTORY";
/// The names of systemd credentials, with the keys that they set.
const CREDENTIALS: [(&str, &str); 7] = [
    ("toolsieve.admin_key", "access.admin_key"),
    ("toolsieve.api_key", "http.api_key"),
    ("toolsieve.database_url", "store.url"),
    ("toolsieve.embedder_api_key", "embedder.api_key"),
    ("toolsieve.qdrant_api_key", "index.qdrant_api_key"),
    ("toolsieve.secrets_key", "secrets.key"),
    ("toolsieve.user_jwt_secret", "access.user_jwt_secret"),
];
/// A variable that Kubernetes sets in every pod beside a service named `toolsieve`, and how its other variables start.
const SERVICE_LINK: &str = "TOOLSIEVE_SERVICE_HOST";
const SERVICE_LINKS: [&str; 2] = ["TOOLSIEVE_SERVICE_", "TOOLSIEVE_PORT"];
/// Variables that are not settings. These belong to command-line flags (`env = …` in `cli`), or to the project's
/// scripts and tests.
const NOT_SETTINGS: [&str; 9] = [
    "TOOLSIEVE_BIN",
    "TOOLSIEVE_CONFIG",
    "TOOLSIEVE_IMAGE",
    "TOOLSIEVE_MCP_URL",
    "TOOLSIEVE_QUICKSTART_CONFIG",
    "TOOLSIEVE_QUICKSTART_DIR",
    "TOOLSIEVE_SETTINGS",
    "TOOLSIEVE_SHARED",
    "TOOLSIEVE_URL",
];

struct Entry {
    value: Value,
    place: Location,
    /// The number of the source. Later sources have higher numbers.
    source: u32,
}

/// The value of every setting, with the source of the value.
pub(super) struct Values {
    entries: BTreeMap<String, Entry>,
    defaults: BTreeMap<String, Value>,
    /// The number of the source that is being added.
    source: u32,
    read: BTreeSet<String>,
    /// Section `[groups]`, whose keys are the names of groups.
    pub(super) groups: BTreeMap<String, Vec<String>>,
    /// The `[[policy]]` tables, not parsed yet.
    pub(super) policy: Vec<(serde_json::Value, Location)>,
    /// The `[toolsets.NAME]` tables, not parsed yet.
    pub(super) toolsets: Vec<(String, serde_json::Value, Location)>,
    /// Section `[presets]`: lists of toolsets, by the name of the preset.
    pub(super) presets: BTreeMap<String, (Vec<String>, Location)>,
    /// The `[[tag]]` tables, not parsed yet.
    pub(super) tags: Vec<(serde_json::Value, Location)>,
    /// The `[[key]]` tables, not parsed yet. `None` if a variable or a file is missing, which is already reported.
    pub(super) api_keys: Vec<(Option<serde_json::Value>, Location)>,
    /// The `[[tool]]` tables.
    pub(super) tools: Vec<(Option<serde_json::Value>, Location)>,
    /// The `[[approval]]` tables.
    pub(super) approvals: Vec<(Option<serde_json::Value>, Location)>,
    /// The `[[price]]` tables, not parsed yet.
    pub(super) prices: Vec<(serde_json::Value, Location)>,
}

/// The section of groups, whose keys are their names.
const GROUPS: &str = "groups";
/// The name of the tables with policy rules.
const POLICY: &str = "policy";
/// The section of toolsets, whose keys are their names.
const TOOLSETS: &str = "toolsets";
const PRESETS: &str = "presets";
const A_LIST_OF_TOOLSETS: &str = "write a list of toolsets' names, such as [\"mail\", \"calendar\"]";
/// The name of the tables with tag rules.
const TAG: &str = "tag";
/// The name of the tables with API keys.
pub(super) const KEY: &str = "key";
/// The name of the tables with metadata of tools.
pub(super) const TOOL: &str = "tool";
/// The name of the tables with approved definitions.
pub(super) const APPROVAL: &str = "approval";
/// All names of tables that can be repeated.
const LISTS: [&str; 6] = [APPROVAL, KEY, POLICY, PRICE, TAG, TOOL];
/// The name of the tables with prices of models.
const PRICE: &str = "price";

impl Values {
    /// Only the compiled-in defaults.
    pub(super) fn defaults(findings: &mut Findings) -> Self {
        let table = toml::from_str::<Table>(DEFAULTS).unwrap_or_else(|error| {
            findings.problem(built_in(None), error.message(), "this build is broken: please report it");
            Table::new()
        });
        let mut defaults = BTreeMap::new();
        for (section, keys) in table {
            if let Value::Table(keys) = keys {
                defaults.extend(keys.into_iter().map(|(key, value)| (format!("{section}.{key}"), value)));
            }
        }
        let entry = |key: &str, value: &Value| Entry { value: value.clone(), place: built_in(Some(key)), source: 0 };
        let entries = defaults.iter().map(|(key, value)| (key.clone(), entry(key, value))).collect();
        Self {
            entries,
            defaults,
            source: 0,
            read: BTreeSet::new(),
            groups: BTreeMap::new(),
            policy: Vec::new(),
            toolsets: Vec::new(),
            presets: BTreeMap::new(),
            tags: Vec::new(),
            api_keys: Vec::new(),
            tools: Vec::new(),
            approvals: Vec::new(),
            prices: Vec::new(),
        }
    }

    /// Overrides the current values with those in the settings file.
    pub(super) fn add_file(&mut self, path: &Path, text: &str, environment: &Environment, findings: &mut Findings) {
        self.source += 1;
        let place = |position: Option<usize>, key: Option<&str>| Location {
            source: path.display().to_string(),
            line: position.map(|position| line_and_column(text, position).0),
            column: None,
            key: key.map(str::to_owned),
        };
        let (positions, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            let column = error.span().map(|span| line_and_column(text, span.start).1);
            let place = Location { column, ..place(error.span().map(|span| span.start), None) };
            findings.problem(place, error.message(), "correct the TOML there");
        }
        if !errors.is_empty() {
            return;
        }
        for (section, keys) in positions.get_ref() {
            let name = section.get_ref().as_ref();
            let place_of_section = place(Some(section.span().start), Some(name));
            if LISTS.contains(&name) {
                let DeValue::Array(tables) = keys.get_ref() else {
                    findings.problem(place_of_section, "not a list of tables", format!("begin each table with a line [[{name}]]"));
                    continue;
                };
                for table in tables {
                    self.add_table(name, table.get_ref(), place(Some(table.span().start), Some(name)), environment, findings);
                }
                continue;
            }
            let DeValue::Table(keys) = keys.get_ref() else {
                findings.problem(place_of_section, "outside of any section", self.section_hint(name));
                continue;
            };
            if ![GROUPS, PRESETS, TOOLSETS].contains(&name) && !self.sections().contains(&name) {
                let known = [self.sections().as_slice(), &[GROUPS, PRESETS, TOOLSETS], &LISTS].concat();
                findings.problem(place_of_section, "unknown section", suggestion(name, &known));
                continue;
            }
            for (key, value) in keys {
                let path = format!("{name}.{}", key.get_ref());
                let place = place(Some(key.span().start), Some(&path));
                match name {
                    GROUPS => self.add_group(key.get_ref(), plain_value(value.get_ref()), place, environment, findings),
                    PRESETS | TOOLSETS => self.add_named(name, key.get_ref(), value.get_ref(), place, environment, findings),
                    _ => self.add_file_value(&path, plain_value(value.get_ref()), place, environment, findings),
                }
            }
        }
    }

    /// Adds a table of a list, such as a `[[policy]]` table.
    fn add_table(&mut self, list: &str, table: &DeValue<'_>, place: Location, environment: &Environment, findings: &mut Findings) {
        let mut is_whole = true;
        let value = any_value(table, &mut |text| {
            let text = replaced(text, environment, &place, findings);
            is_whole &= text.is_some();
            text.unwrap_or_default()
        });
        match list {
            PRICE => self.prices.push((value, place)),
            TAG => self.tags.push((value, place)),
            POLICY => self.policy.push((value, place)),
            KEY => self.api_keys.push((is_whole.then_some(value), place)),
            TOOL => self.tools.push((is_whole.then_some(value), place)),
            _ => self.approvals.push((is_whole.then_some(value), place)),
        }
    }

    fn add_file_value(&mut self, key: &str, value: Option<Value>, place: Location, environment: &Environment, findings: &mut Findings) {
        let Some(default) = self.defaults.get(key) else {
            let (section, name) = key.split_once('.').unwrap_or_default();
            findings.problem(place, "unknown key", suggestion(name, &self.keys_of(section)));
            return;
        };
        let mut is_whole = true;
        let mut replace = |text: String| {
            let text = replaced(&text, environment, &place, findings);
            is_whole &= text.is_some();
            text.unwrap_or_default()
        };
        let value = match (value, default) {
            (Some(Value::String(text)), Value::String(_)) => Some(Value::String(replace(text))),
            // A text such as `"${PORT}"` may become a number.
            (Some(Value::String(text)), default) if interpolate::has_variables(&text) => parse_text(&replace(text), default),
            (Some(Value::Array(items)), Value::Array(_)) => items
                .into_iter()
                .map(|item| match item {
                    Value::String(text) => Some(Value::String(replace(text))),
                    _ => None,
                })
                .collect::<Option<Vec<_>>>()
                .map(Value::Array),
            (Some(Value::Integer(value)), Value::Integer(_)) => Some(Value::Integer(value)),
            #[expect(clippy::cast_precision_loss, reason = "a fraction is small, and checked against its range later")]
            (Some(Value::Integer(value)), Value::Float(_)) => Some(Value::Float(value as f64)),
            (Some(Value::Float(value)), Value::Float(_)) => Some(Value::Float(value)),
            (Some(Value::Boolean(value)), Value::Boolean(_)) => Some(Value::Boolean(value)),
            _ => None,
        };
        if is_whole {
            self.set(key, value, place, findings);
        }
    }

    fn add_group(&mut self, name: &str, members: Option<Value>, place: Location, environment: &Environment, findings: &mut Findings) {
        let Some(Value::Array(members)) = members else {
            findings.problem(place, "wrong type", "write a list of users' ids or e-mail addresses");
            return;
        };
        let mut texts = Vec::new();
        for member in members {
            match member.as_str() {
                Some(text) => texts.extend(replaced(text, environment, &place, findings)),
                None => findings.problem(place.clone(), "wrong type", "write a list of users' ids or e-mail addresses"),
            }
        }
        self.groups.insert(name.to_owned(), texts);
    }

    /// Adds a toolset or a preset.
    fn add_named(
        &mut self,
        section: &str,
        name: &str,
        value: &DeValue<'_>,
        place: Location,
        environment: &Environment,
        findings: &mut Findings,
    ) {
        let value = any_value(value, &mut |text| replaced(text, environment, &place, findings).unwrap_or_default());
        if section == TOOLSETS {
            self.toolsets.push((name.to_owned(), value, place));
            return;
        }
        match serde_json::from_value::<Vec<String>>(value) {
            Ok(toolsets) if !toolsets.is_empty() => {
                self.presets.insert(name.to_owned(), (toolsets, place));
            }
            Ok(_) => findings.problem(place, "contains no toolset", A_LIST_OF_TOOLSETS),
            Err(_) => findings.problem(place, "wrong type", A_LIST_OF_TOOLSETS),
        }
    }

    /// Fills empty values from systemd credentials (`LoadCredential=`). Must be called after all other sources have been added, because an
    /// empty text in one of them means that the setting is not set. A `*_file` key overrides a credential.
    pub(super) fn add_credentials(&mut self, environment: &Environment, findings: &mut Findings) {
        let Some(folder) = environment.get(CREDENTIALS_FOLDER).filter(|folder| !folder.is_empty()) else { return };
        for (name, key) in CREDENTIALS {
            let path = Path::new(folder).join(name);
            // Also watched if it is missing, because it may appear later.
            findings.files.insert(path.clone());
            if path.exists() {
                let place = Location { source: path.display().to_string(), key: Some(key.to_owned()), ..Location::default() };
                if let Some(text) = secret(&path, &place, findings)
                    && !self.has_text(key)
                {
                    // The number of the defaults, because all other sources override a credential.
                    self.entries.insert(key.to_owned(), Entry { value: Value::String(text), place, source: 0 });
                }
            }
        }
    }

    /// The name of the source that sets the value: a file, a variable or a flag. `None` for the compiled-in default.
    pub(super) fn source_of(&self, key: &str) -> Option<&str> {
        self.entries.get(key).filter(|entry| entry.source > 0).map(|entry| entry.place.source.as_str())
    }

    fn has_text(&self, key: &str) -> bool {
        self.entries.get(key).and_then(|entry| entry.value.as_str()).is_some_and(|text| !text.is_empty())
    }

    /// Reads the files that `*_file` keys name. Must be called after all sources have been added. A file and a value override each other
    /// like two values, and contradict each other only in the same source.
    pub(super) fn read_files(&mut self, findings: &mut Findings) {
        for (file_key, key) in FILES {
            self.read.insert(file_key.to_owned());
            let Some(entry) = self.entries.get(file_key) else { continue };
            let (place, path) = (entry.place.clone(), entry.value.as_str().unwrap_or_default().to_owned());
            if path.is_empty() {
                continue;
            }
            let value = self.entries.get(key).filter(|entry| entry.value.as_str().is_some_and(|text| !text.is_empty()));
            match value.map(|value| value.source.cmp(&entry.source)) {
                Some(Ordering::Greater) => {}
                Some(Ordering::Equal) => findings.problem(place, format!("conflicts with {key}"), "keep one of the two"),
                Some(Ordering::Less) | None => {
                    if let Some(text) = secret(Path::new(&path), &place, findings) {
                        self.set(key, Some(Value::String(text)), place, findings);
                    }
                }
            }
        }
    }

    /// Overrides the current values with variables: `TOOLSIEVE_SECTION__KEY`, the short names and, for texts, both with
    /// `_FILE`. An empty variable counts as unset, because compose files and unit files often contain empty variables.
    /// In mcpo mode, `DATABASE_URL` is no setting, because mcpo's users have that variable for one of their servers.
    pub(super) fn add_environment(&mut self, environment: &Environment, is_mcpo: bool, findings: &mut Findings) {
        self.source += 1;
        let is_known = |name: &str| !(is_mcpo && name == DATABASE_URL);
        let known = || SHORT_NAMES.iter().filter(|(name, _)| is_known(name)).map(|(name, key)| ((*name).to_owned(), (*key).to_owned()));
        let long_names: Vec<_> = self.defaults.keys().map(|key| (variable(key), key.clone())).collect();
        // The long names come last, so that they win if both are set.
        let names: Vec<(String, String)> = known().chain(long_names).collect();
        let is_linked = environment.get(SERVICE_LINK).is_some();
        if is_linked {
            let place = Location { source: SERVICE_LINK.to_owned(), ..Location::default() };
            let remedy = "set `enableServiceLinks: false` in the pod, or give the Kubernetes service another name";
            findings.problem(place, "Kubernetes has set variables for a service with this name, and they look like settings", remedy);
        }
        let is_link = |name: &str| is_linked && SERVICE_LINKS.iter().any(|start| name.starts_with(start));
        for (name, key) in names.iter().filter(|(name, _)| !is_link(name)) {
            if let Some(text) = environment.get(name).filter(|text| !text.is_empty()) {
                let value = self.defaults.get(key).and_then(|default| parse_text(text, default));
                let place = Location { source: name.clone(), key: Some(key.clone()), ..Location::default() };
                if interpolate::has_variables(text) {
                    let of_file = if self.may_come_from_file(&names, name, key) { format!(". Or set {name}{FILE}") } else { String::new() };
                    let remedy = format!("only the settings file can contain ${{…}}: write the value itself{of_file}");
                    findings.warning(place.clone(), "contains `${`, which is used as it is", remedy);
                }
                self.set(key, value, place, findings);
            }
            if self.may_come_from_file(&names, name, key) {
                self.add_file_of_variable(name, key, environment, findings);
            }
        }
        // A key that was left out would leave the service open.
        let is_setting = |name: &str| names.iter().any(|known| known.0 == name.strip_suffix(FILE).unwrap_or(name) || known.0 == name);
        for name in environment.unreadable().filter(|name| is_setting(name)) {
            let place = Location { source: name.to_owned(), ..Location::default() };
            findings.problem(place, "is not UTF-8 text", "write the value in UTF-8, or unset the variable");
        }
        for (name, _) in environment.iter().filter(|(name, _)| name.starts_with(PREFIX) && !is_link(name)) {
            let of_file =
                |(known, key): &(String, String)| name.strip_suffix(FILE) == Some(known) && self.may_come_from_file(&names, known, key);
            if !names.iter().any(|known| known.0 == name || of_file(known)) && !NOT_SETTINGS.contains(&name) {
                let place = Location { source: name.to_owned(), ..Location::default() };
                // Compares names without their common prefix, because the prefix would make all names similar.
                let known: Vec<&str> = names.iter().filter_map(|(name, _)| name.strip_prefix(PREFIX)).collect();
                let remedy = match nearest(name.trim_start_matches(PREFIX), known.iter().copied()) {
                    Some(name) => format!("did you mean {PREFIX}{name}?"),
                    None => "unset it; settings are named TOOLSIEVE_SECTION__KEY, such as TOOLSIEVE_HTTP__PORT".to_owned(),
                };
                findings.problem(place, "environment variable without a setting", remedy);
            }
        }
    }

    /// Whether the variable may end in `_FILE`. The setting must be a text, and no other setting may have that
    /// variable.
    fn may_come_from_file(&self, names: &[(String, String)], name: &str, key: &str) -> bool {
        let is_taken = names.iter().any(|(known, _)| known.strip_suffix(FILE) == Some(name));
        !is_taken && self.defaults.get(key).is_some_and(Value::is_str)
    }

    fn add_file_of_variable(&mut self, name: &str, key: &str, environment: &Environment, findings: &mut Findings) {
        let of_file = format!("{name}{FILE}");
        let Some(path) = environment.get(&of_file).filter(|path| !path.is_empty()) else { return };
        let place = Location { source: of_file.clone(), key: Some(key.to_owned()), ..Location::default() };
        if environment.get(name).is_some_and(|text| !text.is_empty()) {
            findings.problem(place, format!("conflicts with {name}"), "keep one of the two");
        } else if let Some(text) = secret(Path::new(path), &place, findings) {
            self.set(key, Some(Value::String(text)), place, findings);
        }
    }

    /// Sets a value from a command-line flag.
    pub(super) fn add_flag(&mut self, flag: &str, key: &str, value: Value, findings: &mut Findings) {
        self.source += 1;
        let place = Location { source: flag.to_owned(), ..Location::default() };
        self.set(key, Some(value), place, findings);
    }

    fn set(&mut self, key: &str, value: Option<Value>, place: Location, findings: &mut Findings) {
        match (value, self.defaults.get(key)) {
            (Some(value), _) => {
                self.entries.insert(key.to_owned(), Entry { value, place, source: self.source });
            }
            (None, default) => findings.problem(place, "wrong type", format!("write {}", expected(default))),
        }
    }

    /// The suggested fix for a value outside all sections.
    fn section_hint(&self, name: &str) -> String {
        match self.split_keys().find(|(section, key)| *key == name || *section == name) {
            Some((section, key)) if key == name => format!("write it below a line [{section}]"),
            Some((section, _)) => format!("write its keys below a line [{section}]"),
            None => format!("write it below the line of its section: {}", self.sections().join(", ")),
        }
    }

    fn sections(&self) -> Vec<&str> {
        let mut sections: Vec<&str> = self.split_keys().map(|(section, _)| section).collect();
        sections.dedup();
        sections
    }

    fn keys_of(&self, section: &str) -> Vec<&str> {
        self.split_keys().filter(|(of, _)| *of == section).map(|(_, key)| key).collect()
    }

    fn split_keys(&self) -> impl Iterator<Item = (&str, &str)> {
        self.defaults.keys().filter_map(|key| key.split_once('.'))
    }

    /// A fingerprint of each value, by key, to find changes later.
    pub(super) fn fingerprints(&self) -> BTreeMap<String, Fingerprint> {
        let entries = self.entries.iter().map(|(key, entry)| (key.clone(), Fingerprint::of_text(&entry.value.to_string())));
        let rules = |tables: &[(serde_json::Value, Location)]| format!("{:?}", tables.iter().map(|(rule, _)| rule).collect::<Vec<_>>());
        let toolsets: Vec<(&String, &serde_json::Value)> = self.toolsets.iter().map(|(name, value, _)| (name, value)).collect();
        let presets: Vec<(&String, &Vec<String>)> = self.presets.iter().map(|(name, (toolsets, _))| (name, toolsets)).collect();
        let tables = [
            (GROUPS, format!("{:?}", self.groups)),
            (POLICY, rules(&self.policy)),
            (TOOLSETS, format!("{toolsets:?}")),
            (PRESETS, format!("{presets:?}")),
            (TAG, rules(&self.tags)),
            (PRICE, rules(&self.prices)),
        ];
        entries.chain(tables.map(|(name, text)| (name.to_owned(), Fingerprint::of_text(&text)))).collect()
    }

    /// Collects the secrets and files that server processes must not read.
    pub(super) fn complete(&self, processes: &mut ProcessSettings, sources: &Sources, named_files: &BTreeSet<PathBuf>) {
        let texts = |test: fn(&str) -> bool| {
            let values = self.entries.iter().filter(move |(key, _)| test(key)).flat_map(|(_, entry)| match &entry.value {
                Value::Array(values) => values.iter().filter_map(Value::as_str).collect(),
                value => Vec::from_iter(value.as_str()),
            });
            values.filter(|text| !text.is_empty())
        };
        processes.launcher.clone_from(&sources.overrides.launcher);
        processes.secrets = texts(is_secret).map(SecretString::from).collect();
        processes.files = sources.files();
        processes.files.extend(texts(is_file).map(PathBuf::from));
        let is_named = |name: &str| name == CREDENTIALS_FOLDER || (name.starts_with(PREFIX) && name.ends_with("_FILE"));
        let named = sources.environment.iter().filter(|(name, path)| is_named(name) && !path.is_empty());
        processes.files.extend(named.map(|(_, path)| PathBuf::from(path)));
        for file in named_files {
            if !processes.files.contains(file) {
                processes.files.push(file.clone());
            }
        }
    }

    /// Whether the settings define an API key, even an invalid one.
    pub(super) fn has_api_keys(&self) -> bool {
        !self.api_keys.is_empty()
    }

    /// Keys in the defaults that no code reads, so that they have no effect.
    #[cfg(test)]
    pub(super) fn unread(&self) -> Vec<&str> {
        self.defaults.keys().filter(|key| !self.read.contains(*key)).map(String::as_str).collect()
    }
}

/// Parses an `http` or `https` URL without user, query and fragment.
pub(super) fn plain_url(text: &str) -> Option<Url> {
    Url::parse(text).ok().filter(|url| {
        matches!(url.scheme(), "http" | "https")
            && url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
            && url.password().is_none()
    })
}

/// Replaces the variables in a text. Returns `None` if it reported a problem.
fn replaced(text: &str, environment: &Environment, place: &Location, findings: &mut Findings) -> Option<String> {
    match interpolate::interpolate(text, environment, &mut findings.files) {
        Ok(interpolated) => {
            for file in interpolated.open_files {
                findings.warning(place.clone(), format!("{file}: {}", secret_file::OPEN), secret_file::CLOSE);
            }
            Some(interpolated.text)
        }
        Err(errors) => {
            for error in errors {
                findings.problem(place.clone(), error.to_string(), error.remedy());
            }
            None
        }
    }
}

/// Reads a secret file. Returns `None` if it reported a problem.
pub(super) fn secret(path: &Path, place: &Location, findings: &mut Findings) -> Option<String> {
    findings.files.insert(path.to_owned());
    match secret_file::read(path) {
        Ok(file) => {
            if file.is_open {
                findings.warning(place.clone(), format!("{}: {}", path.display(), secret_file::OPEN), secret_file::CLOSE);
            }
            Some(file.text)
        }
        Err(error) => {
            findings.problem(place.clone(), format!("{} {error}", path.display()), error.remedy());
            None
        }
    }
}

/// The environment variable of a setting, such as `TOOLSIEVE_HTTP__PORT` for `http.port`.
fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.to_uppercase().replacen('.', "__", 1))
}

fn built_in(key: Option<&str>) -> Location {
    Location { source: "built-in defaults".to_owned(), key: key.map(str::to_owned), ..Location::default() }
}

/// Parses a text from the environment as the same type as the default.
fn parse_text(text: &str, default: &Value) -> Option<Value> {
    let trimmed = text.trim();
    match default {
        Value::String(_) => Some(Value::String(text.to_owned())),
        Value::Integer(_) => trimmed.parse().ok().map(Value::Integer),
        Value::Float(_) => trimmed.parse().ok().map(Value::Float),
        Value::Boolean(_) => switch_of(trimmed).map(Value::Boolean),
        Value::Array(_) => {
            let items = trimmed.split(',').map(str::trim).filter(|item| !item.is_empty());
            Some(Value::Array(items.map(|item| Value::String(item.to_owned())).collect()))
        }
        Value::Datetime(_) | Value::Table(_) => None,
    }
}

/// Parses a switch that is written as a text.
pub(super) fn switch_of(text: &str) -> Option<bool> {
    match text.trim().to_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Some(true),
        "false" | "0" | "no" | "off" => Some(false),
        _ => None,
    }
}

fn expected(default: Option<&Value>) -> &'static str {
    match default {
        Some(Value::String(_)) => "a text in quotes",
        Some(Value::Integer(_)) => "a whole number",
        Some(Value::Float(_)) => "a number",
        Some(Value::Boolean(_)) => "true or false",
        Some(Value::Array(_)) => "a list of texts, in the environment separated by commas",
        _ => "another value",
    }
}

/// Converts a value to JSON, and applies `replace` to every text in it.
fn any_value(value: &DeValue<'_>, replace: &mut impl FnMut(&str) -> String) -> serde_json::Value {
    match value {
        DeValue::String(text) => replace(text).into(),
        DeValue::Boolean(value) => (*value).into(),
        DeValue::Array(items) => items.iter().map(|item| any_value(item.get_ref(), replace)).collect(),
        DeValue::Table(keys) => keys
            .iter()
            .map(|(key, value)| (key.get_ref().to_string(), any_value(value.get_ref(), replace)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        // Numbers that JSON doesn't have stay texts, which the reader of the table rejects.
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => number.into(),
            Err(_) => number.to_string().into(),
        },
        DeValue::Float(number) => match number.as_str().parse().ok().and_then(serde_json::Number::from_f64) {
            Some(number) => number.into(),
            None => number.to_string().into(),
        },
        DeValue::Datetime(time) => time.to_string().into(),
    }
}

/// Converts a value, and drops its positions. Returns `None` for types that no setting has (dates, tables, numbers
/// beyond 64 bits).
fn plain_value(value: &DeValue<'_>) -> Option<Value> {
    match value {
        DeValue::String(text) => Some(Value::String(text.to_string())),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).ok().map(Value::Integer),
        DeValue::Float(number) => number.as_str().parse().ok().map(Value::Float),
        DeValue::Boolean(value) => Some(Value::Boolean(*value)),
        DeValue::Array(items) => items.iter().map(|item| plain_value(item.get_ref())).collect::<Option<Vec<_>>>().map(Value::Array),
        DeValue::Datetime(_) | DeValue::Table(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_in_tables_stay_numbers() {
        let table = DeTable::parse("shape = { fixed = 1_000, low = -5, share = 0.5, odd = inf, day = 2026-01-31, text = \"20\" }").unwrap();
        let value = any_value(&DeValue::Table(table.into_inner()), &mut str::to_owned);
        let expected = json!({"fixed": 1000, "low": -5, "share": 0.5, "odd": "inf", "day": "2026-01-31", "text": "20"});
        assert_eq!(value["shape"], expected);
    }
}
