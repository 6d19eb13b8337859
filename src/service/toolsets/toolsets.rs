//! Toolsets, for administrators and callers: those in the settings, and those created over the API.
//!
//! A change is stored before it is acknowledged, and applies to every later request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::RwLock;
use serde::Serialize;
use serde_json::{Value, json};

use crate::domain::access::management::{ManagedBy, ManagedInFile, NO_ENTRY, version_of};
use crate::domain::access::policy::CompiledToolsets;
use crate::domain::access::principal::Principal;
use crate::domain::access::toolset::{PublishedToolsets, Toolset, ToolsetDefinition, ToolsetProblem};
use crate::domain::access::toolset_name::ToolsetName;
use crate::domain::catalog::tool::Tool;
use crate::domain::text::similar::did_you_mean;
use crate::service::catalog::current::{CurrentCatalog, View};
use crate::service::ports::{Overwrites, StoreError, ToolsetStore};
use crate::settings::{LiveSettings, ToolsetSettings};

/// Maximum number of toolsets that the API can create.
pub(crate) const MAX_TOOLSETS: usize = 500;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ToolsetError {
    #[error("there is no toolset `{0}`")]
    NotFound(String),
    #[error(transparent)]
    OfFile(#[from] ManagedInFile),
    /// A part of the toolset is invalid: `parameter`, if it is a single one.
    #[error("{reason}")]
    Invalid { parameter: Option<&'static str>, reason: String },
    #[error("the toolset `{0}` has changed in the meantime")]
    Changed(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<ToolsetProblem> for ToolsetError {
    fn from(ToolsetProblem { member, reason }: ToolsetProblem) -> Self {
        Self::Invalid { parameter: member, reason }
    }
}

/// A toolset, as shown to administrators.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ToolsetView {
    pub name: ToolsetName,
    #[serde(flatten)]
    pub definition: ToolsetDefinition,
    /// Where the toolset is defined: `settings` or `api`.
    pub source: &'static str,
    pub managed_by: ManagedBy,
    /// Published names of all current members, regardless of visibility.
    pub members: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl ToolsetView {
    /// The version of the definition, for a change that must not overwrite another one.
    pub(crate) fn version(&self) -> String {
        version(&self.definition)
    }
}

/// The presets of the settings, and the toolsets that this service publishes.
pub(crate) struct Presets {
    /// The toolsets of every preset, by its name.
    pub presets: BTreeMap<String, Vec<String>>,
    pub published: PublishedToolsets,
}

/// A toolset, as shown to a caller that sees at least one of its tools.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct VisibleToolset {
    pub name: ToolsetName,
    pub description: String,
    /// Number of its tools that the caller sees.
    pub tools: usize,
    /// Tokens (cl100k) of the definitions of these tools.
    pub tokens: u64,
}

pub(crate) struct Toolsets {
    current: Arc<CurrentCatalog>,
    store: Arc<dyn ToolsetStore>,
    parts: RwLock<Parts>,
    /// Ensures that changes run one after another.
    changing: tokio::sync::Mutex<()>,
}

struct Parts {
    settings: ToolsetSettings,
    /// The name of the settings file.
    file: Arc<str>,
    given: BTreeMap<ToolsetName, ToolsetDefinition>,
}

impl Toolsets {
    /// Loads the toolsets and applies them.
    ///
    /// # Errors
    /// [`StoreError`], because keys may be limited to toolsets that can't be read.
    pub(crate) async fn start(current: Arc<CurrentCatalog>, store: Arc<dyn ToolsetStore>, live: &LiveSettings) -> Result<Self, StoreError> {
        let given = stored(store.as_ref()).await?;
        let parts = Parts { settings: live.toolsets.clone(), file: Arc::clone(&live.file), given };
        parts.warn();
        current.set_toolsets(parts.ready());
        Ok(Self { current, store, parts: RwLock::new(parts), changing: tokio::sync::Mutex::default() })
    }

    /// Applies changed settings.
    pub(crate) fn configure(&self, live: &LiveSettings) {
        let mut parts = self.parts.write();
        parts.settings = live.toolsets.clone();
        parts.file = Arc::clone(&live.file);
        parts.warn();
        self.current.set_toolsets(parts.ready());
    }

    /// Takes over the stored toolsets, which another service may have changed.
    ///
    /// # Errors
    /// [`StoreError`]. The toolsets are then unchanged.
    pub(crate) async fn refresh(&self) -> Result<(), StoreError> {
        let _one = self.changing.lock().await;
        self.take_over().await
    }

    /// Every change starts with this: what this service remembers may be older than the store.
    async fn take_over(&self) -> Result<(), StoreError> {
        let given = stored(self.store.as_ref()).await?;
        let mut parts = self.parts.write();
        if parts.given != given {
            parts.given = given;
            self.current.set_toolsets(parts.ready());
        }
        Ok(())
    }

    /// All toolsets, sorted by name.
    pub(crate) fn list(&self) -> Vec<ToolsetView> {
        let mut views: Vec<ToolsetView> = self.current.toolsets().iter().map(|(name, definition)| self.view(name, definition)).collect();
        views.sort_by(|one, other| one.name.cmp(&other.name));
        views
    }

    /// The presets of the settings file, and what the service was started with.
    pub(crate) fn presets(&self) -> Presets {
        let ToolsetSettings { presets, published, .. } = &self.parts.read().settings;
        Presets { presets: presets.clone(), published: published.clone() }
    }

    /// The toolset with this name; [`ToolsetError::NotFound`] if there is none.
    pub(crate) fn get(&self, name: &str) -> Result<ToolsetView, ToolsetError> {
        let toolsets = self.current.toolsets();
        let name = ToolsetName::new(name);
        toolsets.get(&name).map(|definition| self.view(&name, definition)).ok_or_else(|| ToolsetError::NotFound(name.to_string()))
    }

    /// Creates a toolset, or replaces the toolset with the same name, but only if `expected` (if given) is its current version
    /// ([`NO_ENTRY`] for a new one). Returns whether it is new.
    ///
    /// # Errors
    /// [`ToolsetError`]. The toolsets are then unchanged.
    pub(crate) async fn replace(&self, name: &str, value: &Value, expected: Option<&str>) -> Result<(ToolsetView, bool), ToolsetError> {
        let Toolset { name, definition } = Toolset::read(name, value)?;
        let _one = self.changing.lock().await;
        self.take_over().await?;
        let known = {
            let parts = self.parts.read();
            parts.check_change(&name, expected)?;
            if parts.given.len() >= MAX_TOOLSETS && !parts.given.contains_key(&name) {
                let reason = format!("at most {MAX_TOOLSETS} toolsets are possible: delete one first");
                return Err(ToolsetError::Invalid { parameter: None, reason });
            }
            parts.given.get(&name).cloned()
        };
        let overwrites = Overwrites::expecting(expected, known.as_ref());
        if !self.store.save_toolset(&name, &definition, overwrites).await? {
            self.take_over().await?;
            return Err(ToolsetError::Changed(name.to_string()));
        }
        let is_new = {
            let mut parts = self.parts.write();
            let is_new = parts.given.insert(name.clone(), definition.clone()).is_none();
            self.current.set_toolsets(parts.ready());
            is_new
        };
        Ok((self.view(&name, &definition), is_new))
    }

    /// Deletes a toolset, but only if `expected` (if given) is its current version. After an error ([`ToolsetError`]), the toolsets are
    /// unchanged.
    pub(crate) async fn remove(&self, name: &str, expected: Option<&str>) -> Result<(), ToolsetError> {
        let name = ToolsetName::new(name);
        let _one = self.changing.lock().await;
        self.take_over().await?;
        let known = {
            let parts = self.parts.read();
            parts.check_change(&name, expected)?;
            parts.given.get(&name).cloned()
        };
        let overwrites = Overwrites::expecting(expected, known.as_ref());
        if !self.store.remove_toolset(&name, overwrites).await? {
            if expected.is_some() {
                self.take_over().await?;
                self.parts.read().check_version(&name, expected)?;
            }
            return Err(ToolsetError::NotFound(name.to_string()));
        }
        let mut parts = self.parts.write();
        parts.given.remove(&name);
        self.current.set_toolsets(parts.ready());
        Ok(())
    }

    /// The toolsets that contain at least one tool visible to the caller.
    pub(crate) fn visible(&self, principal: &Principal) -> Vec<VisibleToolset> {
        let View { catalog, visibility, .. } = self.current.view(principal);
        let toolsets = self.current.toolsets();
        let visible = toolsets.iter().filter_map(|(name, definition)| {
            let tools = || catalog.visible(&visibility).filter(|tool| visibility.assigned.is_in(name, tool));
            let count = tools().count();
            let tokens = tools().map(|tool| u64::from(tool.tokens)).sum();
            let description = definition.description.clone();
            (count > 0).then(|| VisibleToolset { name: name.clone(), description, tools: count, tokens })
        });
        let mut visible: Vec<VisibleToolset> = visible.collect();
        visible.sort_by(|one, other| one.name.cmp(&other.name));
        visible
    }

    /// Checks that these toolsets exist, regardless of visibility.
    ///
    /// # Errors
    /// [`ToolsetError::Invalid`] with all unknown names and suggestions.
    pub(crate) fn check_names<'a>(&self, names: impl IntoIterator<Item = &'a ToolsetName>) -> Result<(), ToolsetError> {
        let toolsets = self.current.toolsets();
        let unknown = names.into_iter().filter(|name| toolsets.get(name).is_none());
        let known = || toolsets.iter().map(|(known, _)| known.as_str());
        let problem = |name: &ToolsetName| format!("there is no toolset `{name}`{}", did_you_mean(name.as_str(), known()));
        let problems: Vec<String> = unknown.map(problem).collect();
        if problems.is_empty() {
            return Ok(());
        }
        Err(ToolsetError::Invalid { parameter: Some("toolsets"), reason: problems.join("; ") })
    }

    fn view(&self, name: &ToolsetName, definition: &ToolsetDefinition) -> ToolsetView {
        let (catalog, everybody) = (self.current.snapshot(), self.current.classes());
        let members: Vec<&Arc<Tool>> = catalog.tools().iter().filter(|tool| everybody.is_in(name, tool)).collect();
        let mut warnings = Vec::new();
        if members.is_empty() {
            warnings.push("it contains none of the current tools".to_owned());
        }
        let servers: BTreeSet<&str> = members.iter().map(|tool| tool.id.server.as_str()).collect();
        let plain = |text: &&String| !text.contains(['*', '?', '[', '{']) && !servers.contains(text.as_str());
        warnings.extend(definition.servers.iter().filter(plain).map(|server| format!("it contains no tool of the server `{server}`")));
        let is_of_settings = self.parts.read().is_of_settings(name);
        ToolsetView {
            name: name.clone(),
            definition: definition.clone(),
            source: if is_of_settings { "settings" } else { "api" },
            managed_by: if is_of_settings { ManagedBy::File } else { ManagedBy::Api },
            members: members.iter().map(|tool| tool.operation_id.to_string()).collect(),
            warnings,
        }
    }
}

fn version(definition: &ToolsetDefinition) -> String {
    version_of(Some(&json!(definition)))
}

/// Loads the toolsets that were created over the API.
async fn stored(store: &dyn ToolsetStore) -> Result<BTreeMap<ToolsetName, ToolsetDefinition>, StoreError> {
    Ok(store.toolsets().await?.into_iter().map(|toolset| (toolset.name, toolset.definition)).collect())
}

impl Parts {
    fn is_of_settings(&self, name: &ToolsetName) -> bool {
        self.settings.defined.iter().any(|toolset| toolset.name == *name)
    }

    /// Checks that no file defines this toolset, and that a change is based on its current definition.
    fn check_change(&self, name: &ToolsetName, expected: Option<&str>) -> Result<(), ToolsetError> {
        if self.is_of_settings(name) {
            return Err(ManagedInFile::new(format_args!("the toolset `{name}`"), &self.file).into());
        }
        self.check_version(name, expected)
    }

    fn check_version(&self, name: &ToolsetName, expected: Option<&str>) -> Result<(), ToolsetError> {
        let current = self.given.get(name).map_or_else(|| NO_ENTRY.to_owned(), version);
        let is_current = expected.is_none_or(|expected| expected == current);
        if is_current { Ok(()) } else { Err(ToolsetError::Changed(name.to_string())) }
    }

    /// Compiles all toolsets. Those in the settings come first and take precedence.
    fn ready(&self) -> CompiledToolsets {
        let given = self.given.iter().map(|(name, definition)| Toolset { name: name.clone(), definition: definition.clone() });
        CompiledToolsets::new(self.settings.defined.iter().cloned().chain(given), self.settings.published.clone())
    }

    fn warn(&self) {
        for name in self.given.keys().filter(|name| self.is_of_settings(name)) {
            tracing::warn!(toolset = %name, "the toolset is defined in the settings and over the API: the settings take precedence");
        }
    }
}
