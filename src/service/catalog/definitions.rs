//! Compares tool definitions with the first ones seen or the last ones approved.
//!
//! If a definition has changed, the tool is flagged, or withheld from everybody until an administrator approves it. An approval
//! names the fingerprint, so nobody approves an unseen definition. A tool that disappears and returns is compared with its former
//! definition. A tool that a known server adds is flagged as new, or withheld too.
//!
//! The definitions of servers and their prompts are compared in the same way, under keys that no tool can have
//! ([`crate::domain::catalog::definition`]). The first ones seen count as approved.

mod state;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::RwLock;
use serde::Serialize;
use serde_json::{Value, json};

use self::state::{Present, State, shown};
use crate::domain::access::management::ManagedInFile;
use crate::domain::catalog::definition::{
    Difference, LISTED, NO_TOOL, PROMPTS_LISTED, SERVER_KEY, TOOLS_LISTED, definition_of, difference, fingerprint, prompt_key, prompt_of,
};
use crate::domain::catalog::tool::{OperationId, ServerName, Tool, ToolId};
use crate::domain::text::canonical::{self, Fingerprint};
use crate::domain::text::json_text::JsonText;
use crate::service::catalog::log_limit::LogLimit;
use crate::service::ports::{DefinitionStore, ServerListing, StoreError, StoredDefinition};
use crate::settings::{DefinitionChanges, DefinitionSettings, LiveSettings};

/// Maximum number of changes listed in a log line.
const LOGGED_PLACES: usize = 5;
/// Maximum number of remembered tools, and of remembered prompts, per server, because a server may keep inventing names.
const MOST_KNOWN: usize = 100_000;

#[derive(Debug, thiserror::Error)]
pub enum ApproveError {
    #[error("there is no such tool")]
    NotFound,
    #[error("definitions are not compared: definitions.changes is \"off\"")]
    Off,
    #[error("the definition has changed in the meantime; its fingerprint is now {0}")]
    Changed(Fingerprint),
    #[error("this is not the fingerprint of the tool; its definition has not changed and is {0}")]
    WrongFingerprint(Fingerprint),
    #[error(transparent)]
    OfFile(#[from] ManagedInFile),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The result of comparing a tool's definition with its reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DefinitionState {
    Same,
    /// A known server added the tool, and nobody has approved it yet.
    New,
    Changed,
    /// The tool is changed or new, and is withheld from everybody.
    Withheld,
}

/// The number of tools per result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DefinitionCounts {
    /// Number of changed tools, including withheld ones.
    pub changed: usize,
    pub withheld: usize,
    pub new: usize,
}

pub struct Definitions {
    store: Arc<dyn DefinitionStore>,
    state: RwLock<State>,
    /// Ensures that approvals run one after another.
    approving: tokio::sync::Mutex<()>,
}

/// A kind of list. An entry that is missing from the next list of its kind was removed.
#[derive(Clone, Copy)]
enum Kind {
    Tools,
    Server,
    Prompts,
}

impl Kind {
    fn has(self, key: &str) -> bool {
        match self {
            Self::Tools => !key.starts_with(NO_TOOL),
            Self::Server => key == SERVER_KEY,
            Self::Prompts => prompt_of(key).is_some(),
        }
    }

    /// The key that records the first list of this kind; `None` for a server's own definition, which is never empty.
    fn listed(self) -> Option<&'static str> {
        match self {
            Self::Tools => Some(TOOLS_LISTED),
            Self::Server => None,
            Self::Prompts => Some(PROMPTS_LISTED),
        }
    }
}

/// A definition in the current list of a server.
pub struct Seen {
    /// A tool's name, or the key of a server or a prompt.
    key: Arc<str>,
    raw: JsonText,
    fingerprint: Fingerprint,
}

impl Seen {
    /// The listed definition of a tool.
    pub(super) fn tool(tool: &Tool) -> Self {
        Self { key: Arc::clone(&tool.id.name), raw: tool.raw.clone(), fingerprint: tool.definition }
    }

    /// A listed definition, even if it can't be published. `None` if it has no name that a tool may have.
    pub fn listed(text: &JsonText) -> Option<Self> {
        let raw = text.value();
        let name = raw.get("name")?.as_str().filter(|name| !name.starts_with(NO_TOOL))?;
        Some(Self { key: name.into(), raw: text.clone(), fingerprint: fingerprint(&raw) })
    }

    /// The definition of a server or a prompt.
    fn part(key: impl Into<Arc<str>>, raw: &Value) -> Self {
        let key = key.into();
        let fingerprint = canonical::fingerprint(&definition_of(&key, raw));
        Self { key, raw: raw.into(), fingerprint }
    }

    /// The compared part.
    fn definition(&self) -> Value {
        definition_of(&self.key, &self.raw.value())
    }
}

/// The state of the definition of a server or of a prompt.
#[derive(Debug, Serialize)]
pub struct PartView {
    /// The result of the comparison; `null` if definitions are not compared.
    pub state: Option<DefinitionState>,
    /// The fingerprint of the current definition, which an approval must name.
    pub fingerprint: String,
    /// The changes since the approved definition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<Difference>,
}

/// The changes that a list causes in the store.
#[derive(Default)]
struct News {
    added: Vec<(StoredDefinition, String)>,
    changed: Vec<(ToolId, Fingerprint, Value)>,
    beyond: Vec<Arc<str>>,
}

impl Definitions {
    /// Loads the known definitions.
    ///
    /// # Errors
    /// [`StoreError`]. Without known definitions, changed ones would look new.
    pub async fn start(store: Arc<dyn DefinitionStore>, settings: DefinitionSettings) -> Result<Self, StoreError> {
        let mut state = State { settings, ..State::default() };
        for stored in store.definitions().await? {
            state.note_alike(&stored.tool);
            state.known.entry(stored.tool.server.clone()).or_default().insert(Arc::clone(&stored.tool.name), stored);
        }
        Ok(Self { store, state: RwLock::new(state), approving: tokio::sync::Mutex::default() })
    }

    /// Applies changed settings, and the approvals in the settings file. The catalog adopts them when it receives the new list of
    /// servers.
    pub fn configure(&self, live: &LiveSettings) {
        let mut state = self.state.write();
        state.settings = live.definitions;
        state.approved = live.tools.approvals.iter().map(|(tool, fingerprint)| (tool.clone(), *fingerprint)).collect();
        state.file = Arc::clone(&live.file);
        state.log_unapproved();
    }

    /// Compares the tools that a server lists. Logs each difference once.
    pub async fn observe(&self, server: &ServerName, tools: &[Seen]) {
        if self.state.read().settings.changes == DefinitionChanges::Off {
            self.state.write().present.remove(server);
            return;
        }
        self.note(server, (tools, true), Kind::Tools).await;
    }

    /// Compares a server's own definition.
    pub async fn observe_server(&self, listing: &ServerListing) {
        if self.state.read().settings.changes == DefinitionChanges::Off {
            return;
        }
        let raw = json!({"title": listing.title, "program": listing.program, "instructions": listing.instructions});
        self.note(&listing.server, (&[Seen::part(SERVER_KEY, &raw)], true), Kind::Server).await;
    }

    /// Compares a server's prompts. `is_whole`: whether the list has all of them. An incomplete first list is ignored: the rest would later
    /// count as added.
    pub async fn observe_prompts(&self, server: &ServerName, prompts: &[Value], is_whole: bool) {
        let is_first = || self.state.read().is_first(server, Kind::Prompts);
        if self.state.read().settings.changes == DefinitionChanges::Off || (!is_whole && is_first()) {
            return;
        }
        let seen = prompts.iter().filter_map(|raw| Some(Seen::part(prompt_key(raw.get("name")?.as_str()?), raw)));
        self.note(server, (&seen.collect::<Vec<_>>(), is_whole), Kind::Prompts).await;
    }

    /// Whether definitions can be withheld.
    pub fn withholds(&self) -> bool {
        self.state.read().withholds()
    }

    /// Whether a prompt is withheld. `listed` is its entry in the caller's list, which may differ from the lists of others; without one,
    /// the last list of anybody counts.
    pub fn withholds_prompt(&self, server: &ServerName, name: &str, listed: Option<&Value>) -> bool {
        let (key, state) = (prompt_key(name), self.state.read());
        if !state.withholds() {
            return false;
        }
        let fingerprint = listed.map(|raw| Seen::part(key.as_str(), raw).fingerprint);
        let id = ToolId::new(server.clone(), key);
        let found = fingerprint.or_else(|| state.listed(&id)).and_then(|fingerprint| state.compare(&id, &fingerprint));
        found == Some(DefinitionState::Withheld)
    }

    /// Compares the current list of one kind. What it lacks isn't there any more if it is whole.
    async fn note(&self, server: &ServerName, (seen, is_whole): (&[Seen], bool), kind: Kind) {
        let news = self.news(server, seen, kind);
        if let Err(error) = self.store.add_definitions(&news.added).await {
            tracing::warn!(%server, %error, "new definitions were not stored; they count as known until a restart");
        }
        let (now, mut limit) = (SystemTime::now(), LogLimit::default());
        for (tool, other, raw) in &news.changed {
            // Of these, only the approval in the file counts.
            let is_in_file = self.state.read().approved.contains_key(tool);
            if !is_in_file && limit.take() {
                self.log(tool, other, raw).await;
            }
        }
        if let Some(more) = limit.more() {
            tracing::warn!(%server, more, "the definitions of more tools have changed");
        }
        let noticed: Vec<_> = news.changed.iter().map(|(tool, other, _)| (Arc::clone(&tool.name), *other)).collect();
        if let Err(error) = self.store.note_definitions(server, &noticed, now).await {
            tracing::warn!(%server, %error, "changed definitions were not stored; a restart logs them again");
        }
        let mut state = self.state.write();
        let mut limit = LogLimit::default();
        for (stored, _) in &news.added {
            state.log_new(stored, &mut limit);
            state.note_alike(&stored.tool);
        }
        if let Some(more) = limit.more() {
            tracing::warn!(%server, more, "more definitions were added that are withheld, or have names that look the same");
        }
        let known = state.known.entry(server.clone()).or_default();
        for (stored, _) in news.added {
            known.insert(Arc::clone(&stored.tool.name), stored);
        }
        for (tool, other, _) in &news.changed {
            if let Some(stored) = known.get_mut(&tool.name) {
                stored.noticed = Some((*other, now));
            }
        }
        let present = state.present.entry(server.clone()).or_default();
        if present.beyond.is_empty() && !news.beyond.is_empty() {
            tracing::warn!(%server, most = MOST_KNOWN, "a server has listed too many names: further ones are not remembered");
        }
        if is_whole {
            present.beyond.retain(|key| !kind.has(key));
            present.fingerprints.retain(|key, _| !kind.has(key));
            present.parts.retain(|key, _| !kind.has(key));
        }
        present.beyond.extend(news.beyond);
        for seen in seen {
            present.fingerprints.insert(Arc::clone(&seen.key), seen.fingerprint);
            if seen.key.starts_with(NO_TOOL) {
                present.parts.insert(Arc::clone(&seen.key), seen.definition());
            }
        }
        state.log_unapproved();
    }

    fn news(&self, server: &ServerName, seen: &[Seen], kind: Kind) -> News {
        let state = self.state.read();
        let known = state.known.get(server);
        // The first list of a kind counts as approved, because the server had it when it was configured.
        let count = known.map_or(0, |known| known.keys().filter(|key| kind.has(key)).count());
        let is_listed = kind.listed().is_some_and(|key| known.is_some_and(|known| known.contains_key(key)));
        let is_known = is_listed || count > 0;
        let (mut news, now) = (News::default(), SystemTime::now());
        for one in seen {
            let Seen { key: name, raw, fingerprint } = one;
            let tool = || ToolId { server: server.clone(), name: Arc::clone(name) };
            match known.and_then(|known| known.get(name)) {
                None if count + news.added.len() >= MOST_KNOWN => news.beyond.push(Arc::clone(name)),
                None => {
                    let stored = StoredDefinition::first(tool(), *fingerprint, is_known, now);
                    news.added.push((stored, one.definition().to_string()));
                }
                Some(stored) if stored.fingerprint != *fingerprint => {
                    if stored.noticed.is_none_or(|(noticed, _)| noticed != *fingerprint) {
                        news.changed.push((tool(), *fingerprint, raw.value()));
                    }
                }
                Some(_) => {}
            }
        }
        if let Some(key) = kind.listed().filter(|_| !is_listed) {
            let nothing = json!({});
            let stored = StoredDefinition::first(ToolId::new(server.clone(), key), canonical::fingerprint(&nothing), false, now);
            news.added.push((stored, nothing.to_string()));
        }
        news
    }

    async fn log(&self, tool: &ToolId, other: &Fingerprint, raw: &Value) {
        let difference = self.difference(tool, raw).await.ok().flatten().unwrap_or_default();
        let places: Vec<&str> = difference.changes.iter().take(LOGGED_PLACES).map(|change| change.pointer.as_str()).collect();
        let more = (difference.changes.len() + difference.more).saturating_sub(places.len());
        let places = places.join(", ");
        let mode = self.state.read().settings.changes;
        let tool = shown(tool);
        if mode == DefinitionChanges::Quarantine {
            tracing::warn!(tool, fingerprint = %other, places, more, "the definition of a tool has changed; it is withheld until it is approved");
        } else {
            tracing::warn!(tool, fingerprint = %other, places, more, "the definition of a tool has changed");
        }
    }

    /// Drops the current definitions of a server that was removed from the configuration.
    pub fn forget_present(&self, server: &ServerName) {
        self.state.write().present.remove(server);
    }

    pub fn is_withheld(&self, tool: &ToolId) -> bool {
        self.state.read().of(tool) == Some(DefinitionState::Withheld)
    }

    /// Stores the withheld tools of a server, for administrators.
    pub fn withhold(&self, server: &ServerName, tools: Vec<Arc<Tool>>) {
        let mut state = self.state.write();
        if !tools.is_empty() || state.present.contains_key(server) {
            state.present.entry(server.clone()).or_default().withheld = tools;
        }
    }

    /// The withheld tools of one server.
    pub fn withheld_of(&self, server: &ServerName) -> Vec<Arc<Tool>> {
        self.state.read().present.get(server).map(|present| present.withheld.clone()).unwrap_or_default()
    }

    /// All withheld tools.
    pub fn withheld(&self) -> Vec<Arc<Tool>> {
        self.state.read().present.values().flat_map(|present| &present.withheld).cloned().collect()
    }

    /// The state of this version of a tool; `None` if definitions are not compared.
    pub fn state(&self, tool: &Tool) -> Option<DefinitionState> {
        self.state.read().compare(&tool.id, &tool.definition)
    }

    /// Whether a known server added the tool and nobody has approved it yet.
    pub fn is_new(&self, tool: &Tool) -> bool {
        self.state.read().is_new(&tool.id, &tool.definition)
    }

    /// The published names of all tools ever seen.
    pub fn names(&self) -> Vec<OperationId> {
        let state = self.state.read();
        let tools = state.known.values().flat_map(HashMap::values).map(|stored| &stored.tool);
        tools.filter(|tool| !tool.name.starts_with(NO_TOOL)).map(OperationId::of).collect()
    }

    /// The known data about the definition of a tool; `None` if the tool was never seen.
    pub fn known(&self, tool: &ToolId) -> Option<StoredDefinition> {
        self.state.read().known.get(&tool.server)?.get(&tool.name).filter(|known| !known.tool.name.starts_with(LISTED)).cloned()
    }

    pub fn counts(&self) -> DefinitionCounts {
        self.counts_of(|_| true)
    }

    pub fn counts_of_server(&self, server: &ServerName) -> DefinitionCounts {
        self.counts_of(|name| name == server)
    }

    fn counts_of(&self, is_meant: impl Fn(&ServerName) -> bool) -> DefinitionCounts {
        let state = self.state.read();
        let mut counts = DefinitionCounts::default();
        for (server, present) in state.present.iter().filter(|(server, _)| is_meant(server)) {
            for name in present.fingerprints.keys() {
                match state.of(&ToolId { server: server.clone(), name: Arc::clone(name) }) {
                    Some(DefinitionState::Changed) => counts.changed += 1,
                    Some(DefinitionState::Withheld) => {
                        counts.withheld += 1;
                        let id = ToolId { server: server.clone(), name: Arc::clone(name) };
                        let is_new = state.listed(&id).is_some_and(|now| state.is_new(&id, &now));
                        *(if is_new { &mut counts.new } else { &mut counts.changed }) += 1;
                    }
                    Some(DefinitionState::New) => counts.new += 1,
                    Some(DefinitionState::Same) | None => {}
                }
            }
        }
        counts
    }

    /// Takes over approvals by other services. Returns the servers whose tools they concern.
    ///
    /// # Errors
    /// [`StoreError`]. The approvals are then unchanged.
    pub async fn refresh(&self) -> Result<BTreeSet<ServerName>, StoreError> {
        let _one = self.approving.lock().await;
        let stored = self.store.definitions().await?;
        let mut state = self.state.write();
        let mut servers = BTreeSet::new();
        for stored in stored.into_iter().filter(|stored| stored.approved.is_some()) {
            let known = state.known.entry(stored.tool.server.clone()).or_default();
            let is_new = known.get(&stored.tool.name).is_none_or(|known| {
                (known.fingerprint, known.is_new, known.approved) != (stored.fingerprint, stored.is_new, stored.approved)
            });
            if is_new {
                servers.insert(stored.tool.server.clone());
                known.insert(Arc::clone(&stored.tool.name), stored);
            }
        }
        Ok(servers)
    }

    /// Deletes unapproved definitions of tools that no server has listed since `time`. Returns their number.
    pub async fn forget_unseen_before(&self, time: SystemTime) -> Result<u64, StoreError> {
        let _one = self.approving.lock().await;
        let present: Vec<(ServerName, Vec<Arc<str>>)> = {
            let state = self.state.read();
            let names = |present: &Present| present.fingerprints.keys().cloned().collect();
            state.present.iter().map(|(server, present)| (server.clone(), names(present))).collect()
        };
        let now = SystemTime::now();
        for (server, tools) in &present {
            self.store.note_definitions_seen(server, tools, now).await?;
        }
        let gone = self.store.forget_definitions_before(time).await?;
        let mut state = self.state.write();
        for tool in &gone {
            state.forget(tool);
        }
        state.known.retain(|_, known| !known.is_empty());
        Ok(gone.len() as u64)
    }

    /// The changes between a tool's reference definition (first seen or last approved) and `raw`. `None` if there are none.
    pub async fn difference(&self, tool: &ToolId, raw: &Value) -> Result<Option<Difference>, StoreError> {
        let Some(text) = self.store.definition(tool).await? else { return Ok(None) };
        let before: Value = serde_json::from_str(&text).unwrap_or_default();
        Ok(Some(difference(&before, &definition_of(&tool.name, raw))))
    }

    /// The approved definition of a server if its current one is withheld, otherwise `None`.
    pub async fn approved_server(&self, server: &ServerName) -> Result<Option<Value>, StoreError> {
        let id = ToolId::new(server.clone(), SERVER_KEY);
        if !self.is_withheld(&id) {
            return Ok(None);
        }
        if self.state.read().lacks_approved(&id) {
            return Ok(Some(Value::Null));
        }
        let text = self.store.definition(&id).await?.unwrap_or_default();
        Ok(Some(serde_json::from_str(&text).unwrap_or_default()))
    }

    /// The state of the definition of a server or of one of its prompts. `None` if it was not listed since the start, or if
    /// definitions are not compared.
    pub async fn part(&self, server: &ServerName, prompt: Option<&str>) -> Result<Option<PartView>, StoreError> {
        let id = part_id(server, prompt);
        let (state, fingerprint, raw) = {
            let known = self.state.read();
            let Some(fingerprint) = known.listed(&id) else { return Ok(None) };
            let raw = known.present.get(server).and_then(|present| present.parts.get(&id.name)).cloned().unwrap_or_default();
            (known.of(&id), fingerprint, raw)
        };
        let differs = matches!(state, Some(DefinitionState::Changed | DefinitionState::Withheld));
        let difference = if differs { self.difference(&id, &raw).await? } else { None };
        Ok(Some(PartView { state, fingerprint: fingerprint.to_string(), difference }))
    }

    /// The names of the prompts that a server has listed since the start.
    pub fn prompts(&self, server: &ServerName) -> BTreeSet<String> {
        let state = self.state.read();
        let keys = state.present.get(server).into_iter().flat_map(|present| present.parts.keys());
        keys.filter_map(|key| prompt_of(key)).map(str::to_owned).collect()
    }

    /// Approves the current definition of a server or of one of its prompts, if `looked_at` is its fingerprint.
    ///
    /// # Errors
    /// [`ApproveError`]. The definition is then not approved.
    pub async fn approve_part(&self, server: &ServerName, prompt: Option<&str>, looked_at: &str) -> Result<(), ApproveError> {
        let id = part_id(server, prompt);
        let raw = self.state.read().present.get(server).and_then(|present| present.parts.get(&id.name)).cloned();
        self.state.read().check_given(&id)?;
        let _one = self.approving.lock().await;
        if self.state.read().settings.changes == DefinitionChanges::Off {
            return Err(ApproveError::Off);
        }
        self.approve_as(&id, &raw.ok_or(ApproveError::NotFound)?, looked_at).await
    }

    /// Approves the current definition of a tool, if `looked_at` is its fingerprint.
    ///
    /// # Errors
    /// [`ApproveError`]. The definition is then not approved.
    pub async fn approve(&self, tool: &Tool, looked_at: &str) -> Result<(), ApproveError> {
        let _one = self.approving.lock().await;
        if self.state.read().settings.changes == DefinitionChanges::Off {
            return Err(ApproveError::Off);
        }
        self.state.read().check_given(&tool.id)?;
        // The published definition may be older than the server's latest list.
        let now = self.state.read().listed(&tool.id).unwrap_or(tool.definition);
        if now != tool.definition {
            return Err(ApproveError::Changed(now));
        }
        self.approve_as(&tool.id, &tool.raw.value(), looked_at).await
    }

    async fn approve_as(&self, id: &ToolId, raw: &Value, looked_at: &str) -> Result<(), ApproveError> {
        let body = definition_of(&id.name, raw);
        let now = canonical::fingerprint(&body);
        if !now.to_string().eq_ignore_ascii_case(looked_at.trim()) {
            let is_changed = self.known(id).is_none_or(|known| known.fingerprint != now);
            return Err(if is_changed { ApproveError::Changed(now) } else { ApproveError::WrongFingerprint(now) });
        }
        let at = SystemTime::now();
        self.store.approve_definition(id, &now, &body.to_string(), at).await?;
        let mut state = self.state.write();
        let known = state.known.entry(id.server.clone()).or_default();
        let first_seen = known.get(&id.name).map_or(at, |known| known.first_seen);
        let stored = StoredDefinition { tool: id.clone(), fingerprint: now, is_new: false, first_seen, noticed: None, approved: Some(at) };
        known.insert(Arc::clone(&id.name), stored);
        Ok(())
    }
}

fn part_id(server: &ServerName, prompt: Option<&str>) -> ToolId {
    ToolId::new(server.clone(), prompt.map_or_else(|| SERVER_KEY.to_owned(), prompt_key))
}
