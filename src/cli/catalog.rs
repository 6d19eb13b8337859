//! The tools of the configured servers, for commands that inspect them. The servers list them now, or the data folder
//! contains the last listings.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use crate::adapters::data_dir;
use crate::adapters::mcp::{self, McpServers};
use crate::adapters::process;
use crate::adapters::tokens::TokenCounter;
use crate::app;
use crate::cli::{Failure, stored};
use crate::domain::access::management::ManagedBy;
use crate::domain::access::tool_facts::{Overlays, ToolOverride};
use crate::domain::catalog::catalog::{Catalog, CatalogServer, ServerListing, SkippedTool};
use crate::domain::catalog::definition::{NO_TOOL, TOOLS_LISTED};
use crate::domain::catalog::hidden_text::HiddenText;
use crate::domain::catalog::shorten;
use crate::domain::catalog::tool::{ServerName, Tool, ToolId};
use crate::domain::text::canonical::Fingerprint;
use crate::service::catalog::build::build;
use crate::service::catalog::refresh::configured;
use crate::service::catalog::tool_facts::of_settings;
use crate::service::ports::{ServerEvent, Store, StoreError, ToolServers};
use crate::service::servers::StoredServers;
use crate::settings::{DefinitionChanges, DefinitionSettings, EntryRules, KnownServer, NewDefinitions, ServersSource, Settings};

/// The known tools of the configured servers, and all problems with them.
pub(super) struct Known {
    pub(super) catalog: Catalog,
    /// Servers whose tools are unknown, with the reason.
    pub(super) missing: Vec<(ServerName, String)>,
    /// Tools that can't be published.
    pub(super) skipped: Vec<(ServerName, SkippedTool)>,
    /// Tools whose definitions differ from the approved ones. Under quarantine, the catalog omits these tools.
    pub(super) changed: Vec<Changed>,
    /// Tools that the catalog omits until they are approved.
    pub(super) withheld: Vec<Arc<Tool>>,
    /// Hidden characters in the titles and instructions of servers.
    pub(super) hidden: Vec<(ServerName, HiddenText)>,
}

/// A tool whose definition isn't the approved one.
pub(super) struct Changed {
    pub(super) tool: ToolId,
    pub(super) listed: Fingerprint,
    /// The fingerprint that the settings file approves. `None` if the first recorded or last approved definition counts.
    pub(super) approved_in_file: Option<Fingerprint>,
    pub(super) is_withheld: bool,
}

/// What the service has stored about tools.
#[derive(Clone, Default)]
pub(super) struct Kept {
    written: Vec<(ToolId, ToolOverride)>,
    definitions: HashMap<ToolId, Fingerprint>,
    /// Tools that known servers have added and nobody has approved yet.
    new: HashSet<ToolId>,
    /// The fingerprints that the settings file approves. They replace the stored ones.
    approved: BTreeMap<ToolId, Fingerprint>,
}

impl Kept {
    pub(super) async fn of(store: &dyn Store) -> Result<Self, Failure> {
        let failed = |error: StoreError| Failure::failed(format!("error: {error}"));
        let written = store.tool_overrides().await.map_err(failed)?.into_iter().filter_map(|stored| Some((stored.tool, stored.written?)));
        let stored = store.definitions().await.map_err(failed)?;
        let new = stored.iter().filter(|stored| stored.is_new).map(|stored| stored.tool.clone()).collect();
        let definitions = stored.into_iter().map(|stored| (stored.tool, stored.fingerprint)).collect();
        Ok(Self { written: written.collect(), definitions, new, approved: BTreeMap::new() })
    }

    /// Reads the stored data; returns nothing if there is no data folder.
    async fn of_data_dir(settings: &Settings) -> Result<Self, Failure> {
        let Some(store) = stored::opened(settings).await? else { return Ok(Self::default()) };
        let kept = Self::of(&*store.port()).await;
        store.close().await;
        kept
    }

    /// Whether the tool is withheld because its server added it and nobody has approved it.
    fn is_withheld_as_new(&self, tool: &Tool, settings: DefinitionSettings) -> bool {
        let is_listed = |name: &str| name == TOOLS_LISTED || !name.starts_with(NO_TOOL);
        let is_known = || self.definitions.keys().any(|known| known.server == tool.id.server && is_listed(&known.name));
        let is_new = || self.new.contains(&tool.id) || (!self.definitions.contains_key(&tool.id) && is_known());
        settings.new == NewDefinitions::Quarantine && !self.approved.contains_key(&tool.id) && is_new()
    }

    fn is_changed(&self, tool: &Tool) -> bool {
        self.approved.get(&tool.id).or_else(|| self.definitions.get(&tool.id)).is_some_and(|known| *known != tool.definition)
    }
}

/// Replaces the configured servers with those that the service uses: with the servers that were added over the API or in the console,
/// and without those that were switched off there. Returns all that the service knows. Without a servers file, nothing changes.
pub(super) async fn merge_stored(settings: &mut Settings, store: &dyn Store) -> Result<Vec<KnownServer>, Failure> {
    if !has_servers_file(settings) {
        return Ok(Vec::new());
    }
    let stored = StoredServers::load(store, settings.start.secrets.keys.as_ref()).await;
    let stored = stored.map_err(|error| Failure::failed(format!("error: {error}")))?;
    let rules = EntryRules { start: &settings.start, calls: &settings.live.calls };
    let merged = rules.merge(&settings.live.servers, &stored.overrides());
    settings.live.servers = merged.servers;
    Ok(merged.known)
}

/// The same as [`merge_stored`], for commands that have not opened the store.
pub(super) async fn merge_stored_of_data_dir(settings: &mut Settings) -> Result<Vec<KnownServer>, Failure> {
    let Some(store) = stored::opened(settings).await? else { return Ok(Vec::new()) };
    let known = merge_stored(settings, &*store.port()).await;
    store.close().await;
    known
}

/// Why a known server is not used as one would expect, if so.
pub(super) fn peculiarity(server: &KnownServer) -> Option<String> {
    match (&server.error, server.managed_by) {
        _ if !server.enabled => Some("switched off over the API or in the console".to_owned()),
        (Some(error), ManagedBy::Api) => Some(format!("added over the API, but not used: {error}")),
        (Some(error), ManagedBy::File) => Some(error.clone()),
        (None, _) => None,
    }
}

/// Asks the servers as [`answers`] does, and adds what the service has stored about the tools.
pub(super) async fn ask(settings: &Settings) -> Result<Known, Failure> {
    answers(settings, &Kept::of_data_dir(settings).await?).await
}

/// Starts the servers, lists their tools, and stops the servers. This process holds keys, so the servers can't read its
/// memory or environment.
pub(super) async fn answers(settings: &Settings, kept: &Kept) -> Result<Known, Failure> {
    process::hide().map_err(|error| Failure::failed(format!("error: the process can't be hidden from others: {error}")))?;
    let options = app::mcp_options(&settings.start, &settings.start.store.data_dir);
    let options = options.map_err(|error| Failure::failed(format!("error: {error}")))?;
    let options = mcp::Options { timing: mcp::Timing::default(), ..options };
    let mut waiting: BTreeSet<ServerName> = settings.live.servers.iter().map(|server| server.name.clone()).collect();
    let servers = McpServers::start(settings.live.servers.clone(), options);
    let mut events = servers.events();
    let (mut listings, mut missing) = (Vec::new(), Vec::new());
    // A server that sends no list within its start timeout has failed.
    while !waiting.is_empty()
        && let Some(event) = events.recv().await
    {
        match event {
            ServerEvent::Listed(listing) if waiting.remove(&listing.server) => listings.push(listing),
            ServerEvent::Failed { server, reason, .. } if waiting.remove(&server) => missing.push((server, reason)),
            _ => {}
        }
    }
    servers.shut_down().await;
    Ok(known(&listings, missing, settings, kept))
}

/// The advice for commands that can also start the servers, if nothing has been listed yet.
pub(super) const START_OR_ASK: &str = "start the service once, or omit --offline to list the tools from the servers";

/// Reads the last good catalog from the data folder. `remedy` is the advice if there is no such catalog.
pub(super) async fn last_good(settings: &Settings, remedy: &str) -> Result<Known, Failure> {
    let Some(store) = stored::opened(settings).await? else {
        let path = data_dir::database(&settings.start.store.data_dir);
        return Err(Failure::failed(format!("error: there is no catalog yet: {} is missing: {remedy}", path.display())));
    };
    let port = store.port();
    let stored = port.listings().await.map_err(|error| Failure::failed(format!("error: {error}")))?;
    let kept = Kept::of(&*port).await?;
    store.close().await;
    Ok(configured_of(&stored, settings, &kept))
}

/// Whether a file says which servers there are. Without one, the stored listings do.
pub(super) fn has_servers_file(settings: &Settings) -> bool {
    !matches!(settings.sources.servers, ServersSource::Nothing)
}

/// Selects the listings of the configured servers. Without a servers file, all listings are used.
pub(super) fn configured_of(stored: &[ServerListing], settings: &Settings, kept: &Kept) -> Known {
    if !has_servers_file(settings) {
        return known(stored, Vec::new(), settings, kept);
    }
    let (mut listings, mut missing) = (Vec::new(), Vec::new());
    for server in &settings.live.servers {
        match stored.iter().find(|listing| listing.server == server.name) {
            Some(listing) => listings.push(listing.clone()),
            None => missing.push((server.name.clone(), "no listing yet".to_owned())),
        }
    }
    known(&listings, missing, settings, kept)
}

/// Builds tools from listings and stored data, with the same token counts and shortened texts as in the service.
pub(super) fn known(listings: &[ServerListing], mut missing: Vec<(ServerName, String)>, settings: &Settings, kept: &Kept) -> Known {
    let overlays = Overlays { written: kept.written.iter().cloned().collect(), ..of_settings(&settings.live) };
    let changes = settings.live.definitions;
    let kept = &Kept { approved: settings.live.tools.approvals.clone(), ..kept.clone() };
    let (mut changed, mut withheld, mut hidden) = (Vec::new(), Vec::new(), Vec::new());
    let (configured, tool_tokens) = (configured(&settings.live.servers), settings.start.documents.tool_tokens);
    let counter = TokenCounter::default();
    let mut skipped = Vec::new();
    let servers = listings.iter().map(|listing| {
        let disabled = configured.get(&listing.server);
        let is_enabled = |tool: &&SkippedTool| disabled.is_none_or(|disabled| !disabled.contains(&tool.tool));
        skipped.extend(listing.skipped.iter().filter(is_enabled).map(|tool| (listing.server.clone(), tool.clone())));
        let built = build(listing, disabled, &overlays, |_| None);
        skipped.extend(built.skipped.into_iter().map(|tool| (listing.server.clone(), tool)));
        let (omitted, mut tools): (Vec<Tool>, Vec<Tool>) = built.new.into_iter().partition(|tool| {
            let is_changed = changes.changes != DefinitionChanges::Off && kept.is_changed(tool);
            let is_withheld = is_changed && changes.changes == DefinitionChanges::Quarantine;
            if is_changed {
                let approved_in_file = kept.approved.get(&tool.id).copied();
                changed.push(Changed { tool: tool.id.clone(), listed: tool.definition, approved_in_file, is_withheld });
            }
            is_withheld || kept.is_withheld_as_new(tool, changes)
        });
        withheld.extend(omitted.into_iter().map(Arc::new));
        let definitions: Vec<String> = tools.iter().map(Tool::function_text).collect();
        for (tool, count) in tools.iter_mut().zip(counter.count(&definitions)) {
            tool.tokens = count;
        }
        if let Some(budget) = tool_tokens {
            shorten::shorten(&mut tools, budget, &|texts| counter.count(texts));
        }
        let (server, found) = CatalogServer::of(listing, tools.into_iter().map(Into::into).collect());
        hidden.extend(found.into_iter().map(|hidden| (listing.server.clone(), hidden)));
        server
    });
    let catalog = Catalog::new(servers.collect());
    missing.sort();
    Known { catalog, missing, skipped, changed, withheld, hidden }
}
