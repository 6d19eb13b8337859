//! Keeps the catalog in sync with the servers.
//!
//! A listing is converted to tools; unchanged tools are reused. The new catalog replaces the old one, and the listing is stored
//! as the server's last valid one. The index follows in the background, first with words, then with vectors.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::{mpsc, watch};

use crate::domain::catalog::catalog::{Catalog, CatalogServer, ServerListing};
use crate::domain::catalog::hidden_text::{HiddenText, visible};
use crate::domain::catalog::shorten;
use crate::domain::catalog::tool::{ServerName, Tool};
use crate::domain::text::canonical::{self, Fingerprint};
use crate::service::catalog::build::{Built, build};
use crate::service::catalog::current::CurrentCatalog;
use crate::service::catalog::definitions::Definitions;
use crate::service::catalog::rebuild::{Rebuild, RebuildRequests};
use crate::service::catalog::tool_facts::ToolOverrides;
use crate::service::ports::{ServerEvent, Store};
use crate::service::supervision::Supervised;
use crate::settings::servers::ServerSettings;

/// Counts the cl100k tokens of several texts. Blocks and is CPU-bound. Provided by the composition root.
pub type CountTokens = Arc<dyn Fn(&[String]) -> Vec<u32> + Send + Sync>;

/// The configured servers, each with its disabled tools.
pub type Configured = BTreeMap<ServerName, BTreeSet<String>>;

pub fn configured(servers: &[ServerSettings]) -> Arc<Configured> {
    Arc::new(servers.iter().map(|server| (server.name.clone(), server.disabled_tools.iter().cloned().collect())).collect())
}

/// Inputs of the catalog other than listings.
pub struct CatalogInputs {
    pub overrides: Arc<ToolOverrides>,
    pub definitions: Arc<Definitions>,
    /// Requests to rebuild a server's tools.
    pub rebuilds: RebuildRequests,
}

pub struct Refresh {
    current: Arc<CurrentCatalog>,
    store: Arc<dyn Store>,
    count_tokens: CountTokens,
    changes: watch::Receiver<Arc<Configured>>,
    inputs: CatalogInputs,
    /// The servers in the current catalog.
    configured: Arc<Configured>,
    /// Maximum number of tokens per definition. Longer definitions are shortened.
    tool_tokens: Option<u32>,
    /// The last listing of every configured server, including disabled tools.
    listings: BTreeMap<ServerName, ServerListing>,
    /// Listings of servers that are not configured yet, as far as known here. Listings and configured servers arrive on two channels, so
    /// a new server's first listing may come first. It is not repeated, unless the server's tools change.
    early: BTreeMap<ServerName, ServerListing>,
}

impl Refresh {
    pub fn new(
        current: Arc<CurrentCatalog>,
        store: Arc<dyn Store>,
        count_tokens: CountTokens,
        mut changes: watch::Receiver<Arc<Configured>>,
        inputs: CatalogInputs,
    ) -> Self {
        let configured = Arc::clone(&changes.borrow_and_update());
        Self {
            current,
            store,
            count_tokens,
            changes,
            inputs,
            configured,
            tool_tokens: None,
            listings: BTreeMap::new(),
            early: BTreeMap::new(),
        }
    }

    /// Sets the maximum number of tokens per definition. Longer definitions are shortened.
    #[must_use]
    pub fn with_tool_tokens(mut self, tool_tokens: Option<u32>) -> Self {
        self.tool_tokens = tool_tokens;
        self
    }

    /// Publishes the stored listings of all configured servers. Returns their number.
    pub async fn load_last_good(&mut self) -> usize {
        let listings = match self.store.listings().await {
            Ok(listings) => listings,
            Err(error) => {
                tracing::warn!(error = %error, "the stored catalog could not be read; it is rebuilt from the servers");
                return 0;
            }
        };
        let (known, gone): (Vec<_>, Vec<_>) = listings.into_iter().partition(|listing| self.configured.contains_key(&listing.server));
        for listing in gone {
            self.forget(&listing.server).await;
        }
        let mut servers = Vec::new();
        for listing in &known {
            servers.push(self.server(listing, None).await);
        }
        if !servers.is_empty() {
            self.publish(servers);
        }
        self.listings = known.into_iter().map(|listing| (listing.server.clone(), listing)).collect();
        self.listings.len()
    }

    /// Follows the servers and their configuration until the event stream ends.
    pub async fn follow(&mut self, mut events: mpsc::Receiver<ServerEvent>) {
        let mut part = Supervised::new("catalog");
        while part.panicked(self.follow_events(&mut events)).await {}
    }

    async fn follow_events(&mut self, events: &mut mpsc::Receiver<ServerEvent>) {
        let mut changes = self.changes.clone();
        let mut is_live = true;
        loop {
            let event = tokio::select! {
                // Handle removed servers before any events.
                biased;
                changed = changes.changed(), if is_live => {
                    is_live = changed.is_ok();
                    let configured = Arc::clone(&changes.borrow_and_update());
                    self.reconfigure(configured).await;
                    continue;
                }
                // The sender waits for this rebuild to finish.
                Some(Rebuild { server, done }) = self.inputs.rebuilds.next() => {
                    self.rebuild(&server).await;
                    let _ = done.send(());
                    continue;
                }
                event = events.recv() => event,
            };
            match event {
                Some(ServerEvent::Listed(listing)) => self.listed(listing).await,
                Some(ServerEvent::Failed { server, reason }) => {
                    let kept = self.current.snapshot().server(server.as_str()).map_or(0, |known| known.tools.len());
                    tracing::warn!(%server, reason, kept_tools = kept, "server is not available; retrying");
                }
                Some(ServerEvent::Removed { server }) => {
                    self.listings.remove(&server);
                    self.early.remove(&server);
                    self.inputs.rebuilds.note_removed(&server);
                    self.inputs.definitions.forget_present(&server);
                    self.swap(&server, None);
                    self.forget(&server).await;
                }
                None => return,
            }
        }
    }

    /// Applies a new list of servers as a single change of the catalog.
    async fn reconfigure(&mut self, configured: Arc<Configured>) {
        self.configured = configured;
        let (kept, gone): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut self.listings).into_iter().partition(|(name, _)| self.configured.contains_key(name));
        let snapshot = self.current.snapshot();
        let mut servers = Vec::new();
        for (name, listing) in &kept {
            servers.push(self.server(listing, snapshot.server(name.as_str())).await);
        }
        self.listings = kept;
        self.publish(servers);
        for name in gone.keys() {
            self.inputs.definitions.forget_present(name);
            self.forget(name).await;
        }
        let (expected, early) = std::mem::take(&mut self.early).into_iter().partition(|(name, _)| self.configured.contains_key(name));
        self.early = early;
        for listing in expected.into_values() {
            self.listed(listing).await;
        }
    }

    async fn listed(&mut self, listing: ServerListing) {
        let Some(disabled) = self.configured.get(&listing.server) else {
            // A removed server's late listing is followed by its removal.
            self.early.insert(listing.server.clone(), listing);
            return;
        };
        for skipped in listing.skipped.iter().filter(|skipped| !disabled.contains(&skipped.tool)) {
            tracing::warn!(server = %listing.server, tool = skipped.tool, reason = skipped.reason, "tool left out");
        }
        let snapshot = self.current.snapshot();
        let server = self.server(&listing, snapshot.server(listing.server.as_str())).await;
        tracing::info!(server = %listing.server, tools = server.tools.len(), "server listed");
        self.swap(&listing.server, Some(server));
        if let Err(error) = self.store.save_listing(&listing).await {
            tracing::warn!(server = %listing.server, error = %error, "the listing was not stored; the next start waits for the server");
        }
        self.inputs.rebuilds.note_listed(&listing.server);
        self.listings.insert(listing.server.clone(), listing);
    }

    /// Rebuilds a server's tools after a change other than a new listing.
    async fn rebuild(&self, name: &ServerName) {
        let Some(listing) = self.listings.get(name) else { return };
        let snapshot = self.current.snapshot();
        let server = self.server(listing, snapshot.server(name.as_str())).await;
        self.swap(name, Some(server));
        self.current.hurry();
    }

    fn swap(&self, name: &ServerName, server: Option<CatalogServer>) {
        let mut servers: Vec<CatalogServer> =
            self.current.snapshot().servers().iter().filter(|known| known.name != *name).cloned().collect();
        servers.extend(server);
        self.publish(servers);
    }

    fn publish(&self, servers: Vec<CatalogServer>) {
        let catalog = Catalog::new(servers);
        if catalog.version() == self.current.snapshot().version() {
            return;
        }
        self.current.swap(catalog);
    }

    async fn forget(&self, server: &ServerName) {
        if let Err(error) = self.store.remove_listing(server).await {
            tracing::warn!(%server, error = %error, "the stored listing of a removed server was not deleted");
        }
    }

    /// Builds a server's tools. Reuses unchanged ones and omits disabled and withheld ones.
    async fn server(&self, listing: &ServerListing, known: Option<&CatalogServer>) -> CatalogServer {
        let definitions = &self.inputs.definitions;
        definitions.observe(&listing.server, listing.enabled(self.configured.get(&listing.server))).await;
        let withheld = definitions.withheld_of(&listing.server);
        let known_tools = || known.into_iter().flat_map(|server| server.tools.iter().chain(&server.disabled)).chain(&withheld);
        let by_fingerprint: HashMap<&Fingerprint, &Arc<Tool>> = known_tools().map(|tool| (&tool.fingerprint, tool)).collect();
        // A repeated listing contains the same values in memory, so nothing is hashed again.
        let by_address: HashMap<usize, &Arc<Tool>> = known_tools().map(|tool| (address(&tool.raw), tool)).collect();
        let overlays = self.inputs.overrides.overlays();
        let former = |raw: &Arc<Value>| by_address.get(&address(raw)).or_else(|| by_fingerprint.get(&canonical::fingerprint(raw))).copied();
        let Built { kept: mut tools, mut new, skipped } = build(listing, self.configured.get(&listing.server), &overlays, former);
        for tool in new.iter().filter(|tool| !by_fingerprint.contains_key(&tool.fingerprint)) {
            log_hidden(&tool.id.to_string(), &tool.hidden);
        }
        for tool in &new {
            log_misfits(tool);
        }
        for skipped in skipped {
            tracing::warn!(server = %listing.server, tool = skipped.tool, reason = skipped.reason, "tool left out");
        }
        self.count_tokens(&mut new).await;
        if let Some(budget) = self.tool_tokens {
            new = self.shortened(new, budget).await;
        }
        tools.extend(new.into_iter().map(Arc::new));
        let (withheld, tools): (Vec<_>, Vec<_>) = tools.into_iter().partition(|tool| definitions.is_withheld(&tool.id));
        definitions.withhold(&listing.server, withheld);
        definitions.observe_server(listing).await;
        let (server, hidden) = CatalogServer::of(&self.approved(listing).await, tools);
        if known.is_none_or(|known| known.instructions != server.instructions || known.title != server.title) {
            log_hidden(listing.server.as_str(), &hidden);
        }
        server
    }

    /// The listing, with the server's approved definition if its current one is withheld.
    async fn approved(&self, listing: &ServerListing) -> ServerListing {
        let now = ServerListing {
            server: listing.server.clone(),
            title: listing.title.clone(),
            program: listing.program.clone(),
            version: listing.version.clone(),
            instructions: listing.instructions.clone(),
            tools: Vec::new(),
            skipped: Vec::new(),
        };
        let text = |approved: &Value, member: &str| approved.get(member).and_then(Value::as_str).map(str::to_owned);
        match self.inputs.definitions.approved_server(&listing.server).await {
            Ok(None) => now,
            Ok(Some(approved)) => ServerListing {
                title: text(&approved, "title"),
                program: text(&approved, "program"),
                instructions: text(&approved, "instructions"),
                ..now
            },
            Err(error) => {
                tracing::warn!(server = %listing.server, %error, "the approved definition could not be read; title and instructions are left out");
                ServerListing { title: None, program: None, instructions: None, ..now }
            }
        }
    }

    async fn shortened(&self, mut tools: Vec<Tool>, budget: u32) -> Vec<Tool> {
        let (within, mut long): (Vec<Tool>, Vec<Tool>) = tools.drain(..).partition(|tool| tool.tokens <= budget);
        tools = within;
        let count = Arc::clone(&self.count_tokens);
        let long = tokio::task::spawn_blocking(move || {
            shorten::shorten(&mut long, budget, &*count);
            long
        });
        tools.extend(long.await.unwrap_or_default());
        tools
    }

    async fn count_tokens(&self, tools: &mut [Tool]) {
        let definitions = tools.iter().map(|tool| tool.function().to_string()).collect();
        for (tool, count) in tools.iter_mut().zip(self.tokens(definitions).await) {
            tool.tokens = count;
        }
    }

    /// The token count of each definition, from the store's cache or newly counted.
    async fn tokens(&self, definitions: Vec<String>) -> Vec<u32> {
        if definitions.is_empty() {
            return Vec::new();
        }
        let hashes: Vec<Fingerprint> = definitions.iter().map(|definition| Fingerprint::of_text(definition)).collect();
        let mut counts = self.store.token_counts(&hashes).await.unwrap_or_else(|error| {
            tracing::warn!(error = %error, "stored token counts could not be read; they are counted again");
            HashMap::new()
        });
        let (missing, texts): (Vec<Fingerprint>, Vec<String>) =
            hashes.iter().copied().zip(definitions).filter(|(hash, _)| !counts.contains_key(hash)).unzip();
        if !texts.is_empty() {
            let count = Arc::clone(&self.count_tokens);
            let counted = tokio::task::spawn_blocking(move || count(&texts)).await.unwrap_or_default();
            let counted: Vec<(Fingerprint, u32)> = missing.into_iter().zip(counted).collect();
            if let Err(error) = self.store.save_token_counts(&counted).await {
                tracing::warn!(error = %error, "token counts were not stored");
            }
            counts.extend(counted);
        }
        hashes.iter().map(|hash| counts.get(hash).copied().unwrap_or_default()).collect()
    }
}

/// Identifies a listed value by its memory address, as long as it is alive.
fn address(raw: &Arc<Value>) -> usize {
    Arc::as_ptr(raw).addr()
}

/// Logs which parts of a tool's shape no longer fit its definition.
fn log_misfits(tool: &Tool) {
    for problem in &tool.shape.problems {
        tracing::warn!(tool = visible(&tool.id.to_string()), problem = %problem, "the shape of a tool does not fit its definition");
    }
}

/// Logs the places of hidden characters, without their text.
fn log_hidden(what: &str, hidden: &[HiddenText]) {
    if hidden.is_empty() {
        return;
    }
    let places: Vec<String> = hidden.iter().map(|hidden| format!("{}: {}", hidden.pointer, hidden.code_points.join(" "))).collect();
    tracing::warn!(of = what, places = places.join("; "), "hidden characters in a definition are not shown to models");
}
