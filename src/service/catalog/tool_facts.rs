//! Overrides of tools by admins, and tags from the settings.
//!
//! A change is stored before it is acknowledged, and applies to every later request.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use parking_lot::RwLock;

use crate::domain::access::management::ManagedInFile;
use crate::domain::access::policy::Tagging;
use crate::domain::access::tool_facts::{Overlays, OverrideProblem, ToolOverride};
use crate::domain::catalog::hidden_text::visible;
use crate::domain::catalog::tool::{ServerName, ToolId};
use crate::service::catalog::rebuild::Rebuilds;
use crate::service::ports::{StoreError, StoredToolOverride, ToolOverrideStore};
use crate::settings::LiveSettings;

#[derive(Debug, thiserror::Error)]
pub enum OverrideError {
    #[error("there is no such tool, and no override for one")]
    NotFound,
    #[error(transparent)]
    Invalid(#[from] OverrideProblem),
    #[error(transparent)]
    OfFile(#[from] ManagedInFile),
    #[error("the tool's override was changed in the meantime: the current version is {0}")]
    Changed(u64),
    #[error(transparent)]
    Store(#[from] StoreError),
}

pub struct ToolOverrides {
    store: Arc<dyn ToolOverrideStore>,
    rebuilds: Rebuilds,
    overlays: ArcSwap<Overlays>,
    /// The name of the settings file.
    file: ArcSwap<Arc<str>>,
    /// The version of each tool's override, including deleted overrides.
    versions: RwLock<HashMap<ToolId, u64>>,
    /// Ensures that changes run one after another.
    changing: tokio::sync::Mutex<()>,
}

impl ToolOverrides {
    /// Loads the overrides.
    ///
    /// # Errors
    /// [`StoreError`], because tools would lose tags that rules match.
    pub async fn start(store: Arc<dyn ToolOverrideStore>, rebuilds: Rebuilds, live: &LiveSettings) -> Result<Self, StoreError> {
        let stored = store.tool_overrides().await?;
        let versions = stored.iter().map(|stored| (stored.tool.clone(), stored.version)).collect();
        let written = stored.into_iter().filter_map(|stored| Some((stored.tool, stored.written?))).collect();
        let overlays = Overlays { written, ..of_settings(live) };
        let this = Self {
            store,
            rebuilds,
            overlays: ArcSwap::from_pointee(overlays),
            file: ArcSwap::from_pointee(Arc::clone(&live.file)),
            versions: RwLock::new(versions),
            changing: tokio::sync::Mutex::default(),
        };
        this.warn();
        Ok(this)
    }

    /// Applies changed settings. The catalog adopts them when it receives the new list of servers.
    pub fn configure(&self, live: &LiveSettings) {
        self.overlays.rcu(|overlays| Overlays { written: overlays.written.clone(), ..of_settings(live) });
        self.file.store(Arc::new(Arc::clone(&live.file)));
        self.warn();
    }

    /// Warns about overrides that have no effect.
    fn warn(&self) {
        let overlays = self.overlays.load();
        for tool in overlays.of_files.keys().filter(|tool| overlays.written.contains_key(*tool)) {
            tracing::warn!(tool = visible(&tool.to_string()), "the settings and an admin describe the tool: the settings take precedence");
        }
    }

    /// Checks that no file defines the override of this tool.
    ///
    /// # Errors
    /// [`ManagedInFile`]
    pub fn check_given(&self, tool: &ToolId) -> Result<(), ManagedInFile> {
        if self.overlays.load().of_files.contains_key(tool) {
            return Err(self.managed(format_args!("the metadata of {}", visible(&tool.to_string()))));
        }
        Ok(())
    }

    /// The reason why the API can't change an entry of the settings file.
    pub fn managed(&self, entry: impl fmt::Display) -> ManagedInFile {
        ManagedInFile::new(entry, &self.file.load())
    }

    /// Takes over the stored overrides, which another service may have changed.
    ///
    /// # Errors
    /// [`StoreError`]. The overrides are then unchanged.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        let changed = {
            let _one = self.changing.lock().await;
            let stored = self.store.tool_overrides().await?;
            let present: HashSet<ToolId> = stored.iter().map(|stored| stored.tool.clone()).collect();
            self.versions.write().retain(|tool, _| present.contains(tool));
            let overlays = self.overlays.load();
            // After a failover that lost changes, a version may have been given again.
            let is_changed = |stored: &StoredToolOverride| {
                stored.version != self.version(&stored.tool) || stored.written.as_ref() != overlays.written.get(&stored.tool)
            };
            let mut changed: Vec<StoredToolOverride> = stored.into_iter().filter(is_changed).collect();
            let lost = overlays.written.keys().filter(|tool| !present.contains(*tool)).cloned();
            changed.extend(lost.map(|tool| StoredToolOverride { tool, version: 0, written: None }));
            let servers: BTreeSet<ServerName> = changed.iter().map(|stored| stored.tool.server.clone()).collect();
            for stored in changed {
                self.take(stored);
            }
            servers
        };
        for server in &changed {
            self.rebuilds.of(server).await;
        }
        Ok(())
    }

    pub fn overlays(&self) -> Arc<Overlays> {
        self.overlays.load_full()
    }

    /// The version of a tool's override; 0 if there never was one.
    pub fn version(&self, tool: &ToolId) -> u64 {
        self.versions.read().get(tool).copied().unwrap_or_default()
    }

    /// Sets or deletes the override of a tool, but only if `expected` (if given) is its current version.
    ///
    /// # Errors
    /// [`OverrideError`]. The override is then unchanged.
    pub async fn replace(&self, tool: &ToolId, written: Option<ToolOverride>, expected: Option<u64>) -> Result<(), OverrideError> {
        let written = written.map(ToolOverride::checked).transpose()?;
        self.check_given(tool)?;
        let changed = {
            let _one = self.changing.lock().await;
            let version = self.version(tool);
            if expected.is_some_and(|expected| expected != version) {
                return Err(OverrideError::Changed(version));
            }
            if let Some(version) = self.store.save_tool_override(tool, version, written.as_ref()).await? {
                self.take(StoredToolOverride { tool: tool.clone(), version, written });
                Ok(())
            } else {
                // Another replica was faster. Its override is the current one, so apply it here too.
                let stored = self.store.tool_overrides().await?;
                stored.into_iter().filter(|stored| stored.tool == *tool).for_each(|stored| self.take(stored));
                Err(OverrideError::Changed(self.version(tool)))
            }
        };
        self.rebuilds.of(&tool.server).await;
        changed
    }

    /// Forgets the versions of overrides that were deleted before `time`. Returns the number of tools.
    pub async fn forget_taken_back_before(&self, time: SystemTime) -> Result<u64, StoreError> {
        let _one = self.changing.lock().await;
        let gone = self.store.forget_tool_overrides_before(time).await?;
        let mut versions = self.versions.write();
        for tool in &gone {
            versions.remove(tool);
        }
        Ok(gone.len() as u64)
    }

    fn take(&self, StoredToolOverride { tool, version, written }: StoredToolOverride) {
        self.versions.write().insert(tool.clone(), version);
        self.overlays.rcu(|overlays| {
            let mut overlays = Overlays::clone(overlays);
            match &written {
                Some(written) => overlays.written.insert(tool.clone(), written.clone()),
                None => overlays.written.remove(&tool),
            };
            overlays
        });
    }
}

/// The part of the overlays that the settings define: tags and overrides.
pub fn of_settings(live: &LiveSettings) -> Overlays {
    let servers = live.servers.iter().filter(|server| !server.tags.is_empty());
    Overlays {
        tagging: Arc::new(Tagging::new(&live.tags)),
        servers: servers.map(|server| (ServerName::clone(&server.name), server.tags.clone())).collect(),
        of_files: live.tools.overrides.iter().map(|(tool, written)| (tool.clone(), written.clone())).collect(),
        ..Overlays::default()
    }
}
