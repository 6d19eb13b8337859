//! Holds the definitions of tools against those that were seen first, or approved last.
//!
//! What differs is flagged, or the tool is withheld from everybody until an administrator approves what it says now, by
//! its fingerprint, so that nothing is approved that nobody looked at. What a server drops and brings back is held
//! against what it was before. A tool that a known server adds is no change, and is listed as new.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use ahash::RandomState;
use parking_lot::RwLock;
use serde::Serialize;
use serde_json::Value;

use crate::domain::canonical::Fingerprint;
use crate::domain::definition::{Difference, definition, difference, fingerprint};
use crate::domain::tool::{ServerName, Tool, ToolId};
use crate::service::ports::{Store, StoreError, StoredDefinition};
use crate::settings::DefinitionChanges;

/// Places of a difference that the log names.
const LOGGED_PLACES: usize = 5;

#[derive(Debug, thiserror::Error)]
pub enum ApproveError {
    #[error("there is no such tool")]
    NotFound,
    #[error("definitions are not compared: definitions.changes is \"off\"")]
    Off,
    #[error("the definition is another one by now: {0}")]
    Changed(Fingerprint),
    #[error("this is not the fingerprint of the tool; its definition has not changed and is {0}")]
    WrongFingerprint(Fingerprint),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// How the definition of a tool stands to the one that it is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DefinitionState {
    Same,
    /// Its server was known before it, and nobody has approved it.
    New,
    /// It differs.
    Changed,
    /// It differs, and the tool is withheld.
    Withheld,
}

/// How many tools stand how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DefinitionCounts {
    /// Those that are withheld among them.
    pub changed: usize,
    pub withheld: usize,
    pub new: usize,
}

pub struct Definitions {
    store: Arc<dyn Store>,
    state: RwLock<State>,
    /// One change at a time.
    approving: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    mode: DefinitionChanges,
    /// Of every tool that was ever seen.
    known: HashMap<ServerName, HashMap<Arc<str>, StoredDefinition, RandomState>, RandomState>,
    /// Of what servers list now.
    present: HashMap<ServerName, Present, RandomState>,
}

#[derive(Default)]
struct Present {
    fingerprints: HashMap<Arc<str>, Fingerprint, RandomState>,
    withheld: Vec<Arc<Tool>>,
}

/// What is to be written down of a listing.
#[derive(Default)]
struct News<'a> {
    added: Vec<(StoredDefinition, String)>,
    changed: Vec<(ToolId, Fingerprint, &'a Value)>,
}

impl Definitions {
    /// Reads what is known.
    ///
    /// # Errors
    /// [`StoreError`]: without it every change would look like the first definition.
    pub async fn start(store: Arc<dyn Store>, mode: DefinitionChanges) -> Result<Self, StoreError> {
        let mut state = State { mode, ..State::default() };
        for stored in store.definitions().await? {
            state.known.entry(stored.tool.server.clone()).or_default().insert(Arc::clone(&stored.tool.name), stored);
        }
        Ok(Self { store, state: RwLock::new(state), approving: tokio::sync::Mutex::default() })
    }

    /// What changes lead to from now on. The catalog follows when it is told of the servers.
    pub fn configure(&self, mode: DefinitionChanges) {
        self.state.write().mode = mode;
    }

    /// Takes note of what a server lists. Differences are logged once.
    pub async fn observe<'a>(&self, server: &ServerName, tools: impl Iterator<Item = &'a Arc<Value>>) {
        if self.state.read().mode == DefinitionChanges::Off {
            self.state.write().present.remove(server);
            return;
        }
        let seen = tools.filter_map(|raw| Some((Arc::<str>::from(raw.get("name")?.as_str()?), raw.as_ref(), fingerprint(raw))));
        let seen: Vec<(Arc<str>, &Value, Fingerprint)> = seen.collect();
        let news = self.news(server, &seen);
        if let Err(error) = self.store.add_definitions(&news.added).await {
            tracing::warn!(%server, %error, "definitions of new tools were not stored; they count as known until a restart");
        }
        let now = SystemTime::now();
        for (tool, other, raw) in &news.changed {
            self.log(tool, other, raw).await;
            if let Err(error) = self.store.note_definition(tool, other, now).await {
                tracing::warn!(%tool, %error, "that its definition has changed was not stored; it is logged again after a restart");
            }
        }
        let mut state = self.state.write();
        let known = state.known.entry(server.clone()).or_default();
        for (stored, _) in news.added {
            known.insert(Arc::clone(&stored.tool.name), stored);
        }
        for (tool, other, _) in &news.changed {
            if let Some(stored) = known.get_mut(&tool.name) {
                stored.noticed = Some((*other, now));
            }
        }
        let fingerprints = seen.into_iter().map(|(name, _, fingerprint)| (name, fingerprint)).collect();
        state.present.entry(server.clone()).or_default().fingerprints = fingerprints;
    }

    fn news<'a>(&self, server: &ServerName, seen: &[(Arc<str>, &'a Value, Fingerprint)]) -> News<'a> {
        let state = self.state.read();
        let known = state.known.get(server);
        let (mut news, now) = (News::default(), SystemTime::now());
        for (name, raw, fingerprint) in seen {
            let tool = || ToolId { server: server.clone(), name: Arc::clone(name) };
            match known.and_then(|known| known.get(name)) {
                None => {
                    let stored = StoredDefinition {
                        tool: tool(),
                        fingerprint: *fingerprint,
                        is_new: known.is_some_and(|known| !known.is_empty()),
                        first_seen: now,
                        noticed: None,
                        approved: None,
                    };
                    news.added.push((stored, definition(raw).to_string()));
                }
                Some(stored) if stored.fingerprint != *fingerprint => {
                    if stored.noticed.is_none_or(|(noticed, _)| noticed != *fingerprint) {
                        news.changed.push((tool(), *fingerprint, raw));
                    }
                }
                Some(_) => {}
            }
        }
        news
    }

    async fn log(&self, tool: &ToolId, other: &Fingerprint, raw: &Value) {
        let difference = self.difference(tool, raw).await.ok().flatten().unwrap_or_default();
        let places: Vec<&str> = difference.changes.iter().take(LOGGED_PLACES).map(|change| change.pointer.as_str()).collect();
        let more = (difference.changes.len() + difference.more).saturating_sub(places.len());
        let places = places.join(", ");
        let mode = self.state.read().mode;
        if mode == DefinitionChanges::Quarantine {
            tracing::warn!(%tool, fingerprint = %other, places, more, "the definition of a tool has changed; it is withheld until it is approved");
        } else {
            tracing::warn!(%tool, fingerprint = %other, places, more, "the definition of a tool has changed");
        }
    }

    /// A server that is not configured any more lists nothing.
    pub fn forget_present(&self, server: &ServerName) {
        self.state.write().present.remove(server);
    }

    #[must_use]
    pub fn is_withheld(&self, tool: &ToolId) -> bool {
        self.state.read().of(tool) == Some(DefinitionState::Withheld)
    }

    /// Keeps the tools of a server that nobody gets, for administrators to look at.
    pub fn withhold(&self, server: &ServerName, tools: Vec<Arc<Tool>>) {
        let mut state = self.state.write();
        if !tools.is_empty() || state.present.contains_key(server) {
            state.present.entry(server.clone()).or_default().withheld = tools;
        }
    }

    /// Those of one server.
    #[must_use]
    pub fn withheld_of(&self, server: &ServerName) -> Vec<Arc<Tool>> {
        self.state.read().present.get(server).map(|present| present.withheld.clone()).unwrap_or_default()
    }

    /// All tools that nobody gets.
    #[must_use]
    pub fn withheld(&self) -> Vec<Arc<Tool>> {
        self.state.read().present.values().flat_map(|present| &present.withheld).cloned().collect()
    }

    /// How this very tool stands; `None`: nothing is compared.
    #[must_use]
    pub fn state(&self, tool: &Tool) -> Option<DefinitionState> {
        self.state.read().compare(&tool.id, &tool.definition)
    }

    /// What is known of the definition of a tool that was seen once.
    #[must_use]
    pub fn known(&self, tool: &ToolId) -> Option<StoredDefinition> {
        self.state.read().known.get(&tool.server)?.get(&tool.name).cloned()
    }

    #[must_use]
    pub fn counts(&self) -> DefinitionCounts {
        self.counts_of(|_| true)
    }

    /// Of one server.
    #[must_use]
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
                        counts.changed += 1;
                        counts.withheld += 1;
                    }
                    Some(DefinitionState::New) => counts.new += 1,
                    Some(DefinitionState::Same) | None => {}
                }
            }
        }
        counts
    }

    /// Forgets the definitions of tools that no server has listed since then; returns how many.
    ///
    /// # Errors
    /// [`StoreError`]
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
            if let Some(known) = state.known.get_mut(&tool.server) {
                known.remove(&tool.name);
            }
        }
        state.known.retain(|_, known| !known.is_empty());
        Ok(gone.len() as u64)
    }

    /// What differs between the definition that a tool is held against and what its server sends; `None`: there is none.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn difference(&self, tool: &ToolId, raw: &Value) -> Result<Option<Difference>, StoreError> {
        let Some(text) = self.store.definition(tool).await? else { return Ok(None) };
        let before: Value = serde_json::from_str(&text).unwrap_or_default();
        Ok(Some(difference(&before, &definition(raw))))
    }

    /// Makes what a tool says now what it is held against, if it is what was looked at.
    ///
    /// # Errors
    /// [`ApproveError`]; then nothing has changed.
    pub async fn approve(&self, tool: &Tool, looked_at: &str) -> Result<(), ApproveError> {
        let _one = self.approving.lock().await;
        if self.state.read().mode == DefinitionChanges::Off {
            return Err(ApproveError::Off);
        }
        // What is published may be a moment behind what the server lists.
        let now = self.state.read().listed(&tool.id).unwrap_or(tool.definition);
        if now != tool.definition || !now.to_string().eq_ignore_ascii_case(looked_at.trim()) {
            let is_changed = now != tool.definition || self.known(&tool.id).is_none_or(|known| known.fingerprint != now);
            return Err(if is_changed { ApproveError::Changed(now) } else { ApproveError::WrongFingerprint(now) });
        }
        let at = SystemTime::now();
        self.store.approve_definition(&tool.id, &now, &definition(&tool.raw).to_string(), at).await?;
        let mut state = self.state.write();
        let known = state.known.entry(tool.id.server.clone()).or_default();
        let first_seen = known.get(&tool.id.name).map_or(at, |known| known.first_seen);
        let stored =
            StoredDefinition { tool: tool.id.clone(), fingerprint: now, is_new: false, first_seen, noticed: None, approved: Some(at) };
        known.insert(Arc::clone(&tool.id.name), stored);
        Ok(())
    }
}

impl State {
    /// The definition that its server lists now.
    fn listed(&self, tool: &ToolId) -> Option<Fingerprint> {
        self.present.get(&tool.server)?.fingerprints.get(&tool.name).copied()
    }

    fn of(&self, tool: &ToolId) -> Option<DefinitionState> {
        self.compare(tool, &self.listed(tool)?)
    }

    fn compare(&self, tool: &ToolId, definition: &Fingerprint) -> Option<DefinitionState> {
        let known = self.known.get(&tool.server)?.get(&tool.name)?;
        Some(match (known.fingerprint == *definition, self.mode) {
            (_, DefinitionChanges::Off) => return None,
            (true, _) if known.is_new => DefinitionState::New,
            (true, _) => DefinitionState::Same,
            (false, DefinitionChanges::Flag) => DefinitionState::Changed,
            (false, DefinitionChanges::Quarantine) => DefinitionState::Withheld,
        })
    }
}
