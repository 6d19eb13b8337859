//! The tools of the configured servers, for commands that look at them: asked now, or as they were last seen.

use std::collections::BTreeSet;

use crate::adapters::data_dir;
use crate::adapters::mcp::{self, McpServers};
use crate::adapters::store::SqliteStore;
use crate::adapters::tokens::TokenCounter;
use crate::cli::Failure;
use crate::domain::catalog::{self, Catalog, CatalogServer, ServerListing, SkippedTool};
use crate::domain::diet;
use crate::domain::tool::{ServerName, Tool};
use crate::service::ports::{ServerEvent, Store, ToolServers};
use crate::service::refresh::configured;
use crate::settings::Settings;

/// What is known of the configured servers.
pub(super) struct Known {
    pub(super) catalog: Catalog,
    /// Servers without tools here, and why.
    pub(super) missing: Vec<(ServerName, String)>,
    /// Tools that can't be published.
    pub(super) skipped: Vec<(ServerName, SkippedTool)>,
}

/// Starts the servers, asks each for its tools, and ends them.
pub(super) async fn ask(settings: &Settings) -> Result<Known, Failure> {
    let client = mcp::client_builder().build().map_err(|error| Failure::failed(format!("error: no HTTP client: {error}")))?;
    let options = mcp::Options {
        client,
        inherit_environment: settings.start.mcpo.is_some(),
        oauth: Some(data_dir::oauth(&settings.start.store.data_dir)),
        timing: mcp::Timing::default(),
        users: settings.start.user_connections.clone(),
    };
    let mut waiting: BTreeSet<ServerName> = settings.live.servers.iter().map(|server| server.name.clone()).collect();
    let servers = McpServers::start(settings.live.servers.clone(), options);
    let mut events = servers.events();
    let (mut listings, mut missing) = (Vec::new(), Vec::new());
    // A server that does not answer within its time for the start has failed.
    while !waiting.is_empty()
        && let Some(event) = events.recv().await
    {
        match event {
            ServerEvent::Listed(listing) if waiting.remove(&listing.server) => listings.push(listing),
            ServerEvent::Failed { server, reason } if waiting.remove(&server) => missing.push((server, reason)),
            _ => {}
        }
    }
    servers.shut_down().await;
    Ok(known(&listings, missing, settings))
}

/// The last good catalog of the service that uses this data folder.
pub(super) async fn last_good(settings: &Settings) -> Result<Known, Failure> {
    let path = data_dir::database(&settings.start.store.data_dir);
    if !path.exists() {
        let remedy = "start the service once, or ask the servers themselves, without --offline";
        return Err(Failure::failed(format!("error: there is no catalog yet: {} is missing. {remedy}.", path.display())));
    }
    let store = SqliteStore::open(&path).await.map_err(|error| Failure::failed(format!("error: {error}")))?;
    let stored = store.listings().await.map_err(|error| Failure::failed(format!("error: {error}")))?;
    store.close().await;
    Ok(configured_of(&stored, settings))
}

/// What these listings say of the configured servers; with none configured, of all that are listed.
pub(super) fn configured_of(stored: &[ServerListing], settings: &Settings) -> Known {
    if settings.live.servers.is_empty() {
        return known(stored, Vec::new(), settings);
    }
    let (mut listings, mut missing) = (Vec::new(), Vec::new());
    for server in &settings.live.servers {
        match stored.iter().find(|listing| listing.server == server.name) {
            Some(listing) => listings.push(listing.clone()),
            None => missing.push((server.name.clone(), "it was never listed".to_owned())),
        }
    }
    known(&listings, missing, settings)
}

/// Makes tools of listings, counted and shortened as the service does it.
pub(super) fn known(listings: &[ServerListing], mut missing: Vec<(ServerName, String)>, settings: &Settings) -> Known {
    let (configured, tool_tokens) = (configured(&settings.live.servers), settings.start.documents.tool_tokens);
    let counter = TokenCounter::default();
    let mut skipped = Vec::new();
    let servers = listings.iter().map(|listing| {
        let disabled = configured.get(&listing.server);
        let is_enabled = |tool: &&SkippedTool| disabled.is_none_or(|disabled| !disabled.contains(&tool.tool));
        skipped.extend(listing.skipped.iter().filter(is_enabled).map(|tool| (listing.server.clone(), tool.clone())));
        let mut tools: Vec<Tool> = Vec::new();
        for raw in listing.enabled(disabled) {
            match catalog::tool(&listing.server, raw) {
                Ok(tool) => tools.push(tool),
                Err(tool) => skipped.push((listing.server.clone(), tool)),
            }
        }
        let definitions: Vec<String> =
            tools.iter().map(|tool| Tool::function(&tool.operation_id, &tool.description, &tool.input).to_string()).collect();
        for (tool, count) in tools.iter_mut().zip(counter.count(&definitions)) {
            tool.tokens = count;
        }
        if let Some(budget) = tool_tokens {
            diet::shorten(&mut tools, budget, &|texts| counter.count(texts));
        }
        CatalogServer {
            name: listing.server.clone(),
            title: listing.title.clone(),
            program: listing.program.clone(),
            version: listing.version.clone(),
            instructions: listing.instructions.clone(),
            tools: tools.into_iter().map(Into::into).collect(),
        }
    });
    let catalog = Catalog::new(servers.collect());
    missing.sort();
    Known { catalog, missing, skipped }
}
