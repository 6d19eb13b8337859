//! Keeps the catalog in sync with the servers.
//!
//! A listing is converted to tools; unchanged tools are reused. The new catalog replaces the old one, and the listing is stored
//! as the server's last valid one. The index follows in the background, first with words, then with vectors.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::mem;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::domain::catalog::catalog::{Catalog, CatalogServer, ServerListing};
use crate::domain::catalog::hidden_text::{HiddenText, visible};
use crate::domain::catalog::shorten;
use crate::domain::catalog::tool::{ServerName, Tool};
use crate::domain::catalog::user_lists::UserList;
use crate::domain::text::canonical::{self, Fingerprint};
use crate::domain::text::json_text::JsonText;
use crate::service::catalog::build::{Built, build};
use crate::service::catalog::current::CurrentCatalog;
use crate::service::catalog::definitions::Definitions;
use crate::service::catalog::log_limit::{LogLimit, log_skipped};
use crate::service::catalog::rebuild::{Rebuild, RebuildRequests};
use crate::service::catalog::tool_facts::ToolOverrides;
use crate::service::ports::{ServerEvent, Store, StoreError};
use crate::service::supervision::{Supervised, joined};
use crate::settings::servers::ServerSettings;

/// Counts the cl100k tokens of several texts. Blocks and is CPU-bound. Provided by the composition root.
pub type CountTokens = Arc<dyn Fn(&[String]) -> Vec<u32> + Send + Sync>;

/// How many events are handled together, if that many wait. The listings among them make one new catalog, because a catalog of very
/// many tools takes long to make. Requests to rebuild a server's tools wait meanwhile.
const TOGETHER: usize = 64;

/// Maximum number of users' lists per server that wait for the store.
const MAX_UNSTORED: usize = 100;

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
    early: BTreeMap<ServerName, New>,
    /// Events that were received and not handled yet. They are kept here, so that a panic during one event loses no other.
    waiting: VecDeque<ServerEvent>,
    /// New listings with the servers that were built from them, which are not published or not stored yet.
    built: VecDeque<(New, CatalogServer)>,
    /// Users' lists that the store did not take. They are stored with the next list of their server.
    unstored: HashMap<ServerName, Vec<UserList>>,
}

/// A new listing. With the user's list, if it is merged from the lists of users.
struct New {
    listing: ServerListing,
    list: Option<UserList>,
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
            waiting: VecDeque::new(),
            built: VecDeque::new(),
            unstored: HashMap::new(),
        }
    }

    /// Sets the maximum number of tokens per definition. Longer definitions are shortened.
    #[must_use]
    pub fn with_tool_tokens(mut self, tool_tokens: Option<u32>) -> Self {
        self.tool_tokens = tool_tokens;
        self
    }

    /// Publishes the stored listings of all configured servers. Returns their number.
    pub async fn load_last_good(&mut self, stored: Result<Vec<ServerListing>, StoreError>) -> usize {
        let listings = match stored {
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
        let mut chunks = known.chunks(TOGETHER);
        let mut next = chunks.next().map(|listings| (listings, self.start_building(listings)));
        while let Some((listings, building)) = next {
            let mut built = finish_building(building).await;
            // The next ones are built while these are completed.
            next = chunks.next().map(|listings| (listings, self.start_building(listings)));
            self.count_tokens(&mut built).await;
            for (listing, built) in listings.iter().zip(built) {
                log_hidden_in(&listing.server, &built.new);
                servers.push(self.complete(listing, None, built).await);
            }
        }
        if !servers.is_empty() {
            self.publish(servers);
        }
        self.listings = known.into_iter().map(|listing| (listing.server.clone(), listing)).collect();
        self.listings.len()
    }

    /// The last listing of every server.
    pub fn listings(&self) -> impl Iterator<Item = &ServerListing> {
        self.listings.values()
    }

    /// Follows the servers and their configuration until the event stream ends.
    pub async fn follow(&mut self, mut events: mpsc::Receiver<ServerEvent>) {
        let mut part = Supervised::new("catalog");
        while part.panicked(self.follow_events(&mut events)).await {}
    }

    async fn follow_events(&mut self, events: &mut mpsc::Receiver<ServerEvent>) {
        let (mut is_live, mut received) = (true, Vec::new());
        loop {
            self.handle_waiting().await;
            tokio::select! {
                // Handle removed servers before any events.
                biased;
                changed = self.changes.changed(), if is_live => {
                    is_live = changed.is_ok();
                    let configured = Arc::clone(&self.changes.borrow_and_update());
                    self.reconfigure(configured).await;
                }
                // The sender waits for this rebuild to finish.
                Some(Rebuild { server, done }) = self.inputs.rebuilds.next() => {
                    self.rebuild(&server).await;
                    let _ = done.send(());
                }
                count = events.recv_many(&mut received, TOGETHER) => {
                    if count == 0 {
                        return;
                    }
                    self.waiting.extend(received.drain(..));
                }
            }
        }
    }

    async fn handle_waiting(&mut self) {
        while let Some(event) = self.waiting.pop_front() {
            match event {
                ServerEvent::Listed(listing) => self.listed(New { listing, list: None }).await,
                ServerEvent::ListedForUser { listing, list } => self.listed(New { listing, list: Some(list) }).await,
                ServerEvent::Failed { server, reason, is_connected } => {
                    self.publish_built().await;
                    let kept = self.current.snapshot().server(server.as_str()).map_or(0, |known| known.tools.len());
                    if is_connected {
                        tracing::warn!(%server, reason, kept_tools = kept, "server could not list its tools again; retrying");
                    } else {
                        tracing::warn!(%server, reason, kept_tools = kept, "server is not available; retrying");
                    }
                }
                ServerEvent::Removed { server } => {
                    self.publish_built().await;
                    self.listings.remove(&server);
                    self.early.remove(&server);
                    self.unstored.remove(&server);
                    self.inputs.rebuilds.note_removed(&server);
                    self.inputs.definitions.forget_present(&server);
                    self.swap(&server, None);
                    self.forget(&server).await;
                }
            }
        }
        self.publish_built().await;
    }

    /// Applies a new list of servers as a single change of the catalog.
    async fn reconfigure(&mut self, configured: Arc<Configured>) {
        self.configured = configured;
        let snapshot = self.current.snapshot();
        let mut servers = Vec::new();
        // The listings stay where they are until the end: a panic here must not make all tools vanish.
        for (name, listing) in self.listings.iter().filter(|(name, _)| self.configured.contains_key(*name)) {
            servers.push(self.server(listing, snapshot.server(name.as_str())).await);
        }
        self.publish(servers);
        let gone: Vec<ServerName> = self.listings.keys().filter(|name| !self.configured.contains_key(*name)).cloned().collect();
        self.listings.retain(|name, _| self.configured.contains_key(name));
        for name in &gone {
            self.unstored.remove(name);
            self.inputs.definitions.forget_present(name);
            self.forget(name).await;
        }
        let (expected, early) = mem::take(&mut self.early).into_iter().partition(|(name, _)| self.configured.contains_key(name));
        self.early = early;
        for new in expected.into_values() {
            self.listed(new).await;
        }
        self.publish_built().await;
    }

    /// Builds the tools of a new listing.
    async fn listed(&mut self, new: New) {
        let listing = &new.listing;
        let Some(disabled) = self.configured.get(&listing.server) else {
            // A removed server's late listing is followed by its removal.
            self.early.insert(listing.server.clone(), new);
            return;
        };
        let newest = self.built.iter().rfind(|(built, _)| built.listing.server == listing.server);
        let known = newest.map_or_else(|| self.listings.get(&listing.server), |(built, _)| Some(&built.listing));
        let snapshot = self.current.snapshot();
        let former = newest.map(|(_, server)| server).or_else(|| snapshot.server(listing.server.as_str()));
        // Most users' lists contain nothing new, and there may be many of them.
        if let Some(former) = former.filter(|_| new.list.is_some() && known == Some(listing)) {
            self.built.push_back((new, former.clone()));
            return;
        }
        log_skipped(&listing.server, listing.skipped.iter().filter(|skipped| !disabled.contains(&skipped.tool)));
        let server = self.server(listing, former).await;
        tracing::info!(server = %listing.server, tools = server.tools.len(), "server listed");
        self.built.push_back((new, server));
    }

    /// Publishes the servers with new listings, and stores their listings.
    async fn publish_built(&mut self) {
        if self.built.is_empty() {
            return;
        }
        let snapshot = self.current.snapshot();
        let mut servers: BTreeMap<&ServerName, &CatalogServer> = snapshot.servers().iter().map(|server| (&server.name, server)).collect();
        // The last listing of a server replaces its earlier ones.
        servers.extend(self.built.iter().map(|(new, server)| (&new.listing.server, server)));
        self.publish(servers.into_values().cloned().collect());
        while let Some((New { listing, list }, _)) = self.built.pop_front() {
            if let Err(error) = self.save(&listing, list).await {
                tracing::warn!(server = %listing.server, error = %error, "the listing was not stored; the next start waits for the server");
            }
            self.inputs.rebuilds.note_listed(&listing.server);
            self.listings.insert(listing.server.clone(), listing);
        }
    }

    /// Stores a listing. A user's list is merged into the stored one, because other services may have stored the lists of other users.
    async fn save(&mut self, listing: &ServerListing, list: Option<UserList>) -> Result<(), StoreError> {
        let mut lists = self.unstored.remove(&listing.server).unwrap_or_default();
        let Some(list) = list else { return self.store.save_listing(listing).await };
        lists.push(list);
        let stored = self.store.merge_listing(listing, &lists).await;
        if stored.is_err() {
            lists.drain(..lists.len().saturating_sub(MAX_UNSTORED));
            self.unstored.insert(listing.server.clone(), lists);
        }
        stored
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

    /// Builds the tools of several listings on all cores, in as many parts. No former tools are reused.
    fn start_building(&self, listings: &[ServerListing]) -> Vec<JoinHandle<Vec<Built>>> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let parts = listings.chunks(listings.len().div_ceil(cores).max(1));
        let build_part = |part: &[ServerListing]| {
            let (part, configured, overlays) = (part.to_vec(), Arc::clone(&self.configured), self.inputs.overrides.overlays());
            tokio::task::spawn_blocking(move || {
                let build = |listing: &ServerListing| build(listing, configured.get(&listing.server), &overlays, |_| None);
                part.iter().map(build).collect()
            })
        };
        parts.map(build_part).collect()
    }

    /// Builds a server's tools. Reuses unchanged ones and omits disabled and withheld ones.
    async fn server(&self, listing: &ServerListing, known: Option<&CatalogServer>) -> CatalogServer {
        let withheld = self.inputs.definitions.withheld_of(&listing.server);
        let known_tools = || known.into_iter().flat_map(|server| server.tools.iter().chain(&server.disabled)).chain(&withheld);
        let by_fingerprint: HashMap<&Fingerprint, &Arc<Tool>> = known_tools().map(|tool| (&tool.fingerprint, tool)).collect();
        // A repeated listing contains the same texts in memory, so nothing is parsed and hashed again.
        let by_address: HashMap<usize, &Arc<Tool>> = known_tools().map(|tool| (tool.raw.address(), tool)).collect();
        let overlays = self.inputs.overrides.overlays();
        let former =
            |raw: &JsonText| by_address.get(&raw.address()).or_else(|| by_fingerprint.get(&canonical::fingerprint(&raw.value()))).copied();
        let mut built = build(listing, self.configured.get(&listing.server), &overlays, former);
        log_hidden_in(&listing.server, built.new.iter().filter(|tool| !by_fingerprint.contains_key(&tool.fingerprint)));
        self.count_tokens(std::slice::from_mut(&mut built)).await;
        self.complete(listing, known, built).await
    }

    /// Compares the definitions with the known ones, shortens long ones, and withholds what waits for an approval. The tokens of new tools
    /// are counted.
    async fn complete(&self, listing: &ServerListing, known: Option<&CatalogServer>, built: Built) -> CatalogServer {
        let definitions = &self.inputs.definitions;
        let Built { kept: mut tools, mut new, skipped, seen, .. } = built;
        definitions.observe(&listing.server, &seen).await;
        for tool in &new {
            log_misfits(tool);
        }
        log_skipped(&listing.server, &skipped);
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

    /// Counts the tokens of the new tools, or takes the counts from the store.
    async fn count_tokens(&self, built: &mut [Built]) {
        let functions: Vec<Fingerprint> = built.iter().flat_map(|built| &built.functions).copied().collect();
        if functions.is_empty() {
            return;
        }
        let mut counts = self.store.token_counts(&functions).await.unwrap_or_else(|error| {
            tracing::warn!(error = %error, "stored token counts could not be read; they are counted again");
            HashMap::new()
        });
        let new = || built.iter().flat_map(|built| built.functions.iter().zip(&built.new));
        let missing = new().filter(|(function, _)| !counts.contains_key(function));
        let (missing, texts): (Vec<Fingerprint>, Vec<String>) = missing.map(|(function, tool)| (*function, tool.function_text())).unzip();
        if !texts.is_empty() {
            let count = Arc::clone(&self.count_tokens);
            let counted = tokio::task::spawn_blocking(move || count(&texts)).await.unwrap_or_default();
            let counted: Vec<(Fingerprint, u32)> = missing.into_iter().zip(counted).collect();
            if let Err(error) = self.store.save_token_counts(&counted).await {
                tracing::warn!(error = %error, "token counts were not stored");
            }
            counts.extend(counted);
        }
        for Built { functions, new, .. } in built {
            for (function, tool) in functions.iter().zip(new) {
                tool.tokens = counts.get(function).copied().unwrap_or_default();
            }
        }
    }
}

/// Waits for the parts of [`Refresh::start_building`].
async fn finish_building(parts: Vec<JoinHandle<Vec<Built>>>) -> Vec<Built> {
    let mut built = Vec::new();
    for part in parts {
        built.extend(joined(part).await);
    }
    built
}

/// Logs which parts of a tool's shape no longer fit its definition.
fn log_misfits(tool: &Tool) {
    for problem in &tool.shape.problems {
        tracing::warn!(tool = visible(&tool.id.to_string()), problem = %problem, "the shape of a tool does not fit its definition");
    }
}

/// Logs the hidden characters in the tools of a list.
fn log_hidden_in<'a>(server: &ServerName, tools: impl IntoIterator<Item = &'a Tool>) {
    let mut limit = LogLimit::default();
    for tool in tools.into_iter().filter(|tool| !tool.hidden.is_empty()) {
        if limit.take() {
            log_hidden(&tool.id.to_string(), &tool.hidden);
        }
    }
    if let Some(more) = limit.more() {
        tracing::warn!(%server, more, "more definitions have hidden characters, which are not shown to models");
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
