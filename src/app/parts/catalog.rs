//! The tools and their servers.

use std::path::Path;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::adapters::data_dir::oauth;
use crate::adapters::mcp::{self, McpServers};
use crate::adapters::tokens::TokenCounter;
use crate::app::StartError;
use crate::app::foundation::Foundation;
use crate::service::catalog::definitions::Definitions;
use crate::service::catalog::rebuild::Rebuilds;
use crate::service::catalog::refresh::{CatalogInputs, Configured, CountTokens, Refresh, configured};
use crate::service::catalog::tool_facts::ToolOverrides;
use crate::service::ports::{ServerListing, Store, StoreError, ToolServers};
use crate::service::supervision::joined;
use crate::settings::{LiveSettings, StartSettings};

/// The tools and their servers.
#[derive(Clone)]
pub(in crate::app) struct CatalogParts {
    pub servers: Arc<dyn ToolServers>,
    /// Receives the configured servers when they change.
    pub configured: watch::Sender<Arc<Configured>>,
    pub overrides: Arc<ToolOverrides>,
    pub definitions: Arc<Definitions>,
    pub rebuilds: Rebuilds,
    pub count_tokens: CountTokens,
    /// Whether the store contained tools.
    pub had_tools: bool,
}

/// What the store contains about tools. With very many tools, reading it takes long.
pub(in crate::app) struct KnownTools {
    definitions: JoinHandle<Result<Definitions, StoreError>>,
    listings: JoinHandle<Result<Vec<ServerListing>, StoreError>>,
}

impl KnownTools {
    /// Begins to read, in the background.
    pub(in crate::app) fn read(store: &Arc<dyn Store>, live: &LiveSettings) -> Self {
        let definitions = tokio::spawn(Definitions::start(store.clone(), live.definitions));
        let store = store.clone();
        Self { definitions, listings: tokio::spawn(async move { store.listings().await }) }
    }
}

impl CatalogParts {
    /// Loads the known tools, then starts the servers. They change the catalog once the returned [`Refresh`] follows their events.
    pub(super) async fn load(base: &Foundation<'_>, known: KnownTools) -> Result<(Self, Refresh), StartError> {
        let Foundation { start, live, store, current, .. } = base;
        let counter = TokenCounter::default();
        let count_tokens: CountTokens = Arc::new(move |texts: &[String]| counter.count(texts));
        let (configured, changes) = watch::channel(configured(&live.servers));
        let (rebuilds, requests) = Rebuilds::channel();
        let overrides = ToolOverrides::start(store.clone(), rebuilds.clone(), live).await.map_err(StartError::ToolOverrides)?;
        let overrides = Arc::new(overrides);
        let definitions = joined(known.definitions).await.map_err(StartError::ToolOverrides)?;
        definitions.configure(live);
        let definitions = Arc::new(definitions);
        let inputs = CatalogInputs { overrides: Arc::clone(&overrides), definitions: Arc::clone(&definitions), rebuilds: requests };
        let mut refresh = Refresh::new(Arc::clone(current), store.clone(), Arc::clone(&count_tokens), changes, inputs)
            .with_tool_tokens(start.documents.tool_tokens);
        // Before the servers start, because many of them would delay it.
        let had_tools = refresh.load_last_good(joined(known.listings).await).await > 0;
        // Names that are in the catalog count once they are gone.
        let loaded = current.snapshot();
        current.remember(definitions.names().into_iter().filter(|name| loaded.operation_position(name.as_str()).is_none()));
        let servers = McpServers::start(live.servers.clone(), mcp_options(start, base.data_dir.path())?);
        servers.remember(refresh.listings());
        Ok((Self { servers, configured, overrides, definitions, rebuilds, count_tokens, had_tools }, refresh))
    }
}

/// The options for connections to MCP servers. Commands also use this function, without locking the data folder.
pub(crate) fn mcp_options(settings: &StartSettings, data_dir: &Path) -> Result<mcp::Options, StartError> {
    Ok(mcp::Options {
        client: mcp::client_builder().build().map_err(StartError::Client)?,
        processes: Arc::new(mcp::Processes::of(settings, data_dir)),
        oauth: Some(oauth(data_dir)),
        timing: mcp::Timing { drain: settings.reload.drain, ping: settings.processes.ping, ..mcp::Timing::default() },
        users: settings.user_connections.clone(),
        questions: mcp::Questions { elicitation: settings.mcp.elicitation, sampling: settings.mcp.sampling },
    })
}
