//! What servers have beside tools, handed on: prompts, resources, completion.
//!
//! The policy knows tools. A server of which a caller sees no tool is not there for it, with all that it has; of one of which it
//! sees a tool it sees all prompts and resources. A server without any tool is seen where the policy allows its name.

mod reads;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use moka::future::Cache;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::domain::catalog::CatalogServer;
use crate::domain::document::Mode;
use crate::domain::principal::{Principal, Visibility};
use crate::domain::tool::ServerName;
use crate::service::audit::Audit;
use crate::service::current::CurrentCatalog;
use crate::service::execute::{Caller, Told};
use crate::service::limits::{CallPermit, Limited, Limits};
use crate::service::passthrough::reads::Read;
use crate::service::ports::{Asked, AskedKind, CallContext, CallError, Offers, ToolServers};
use crate::service::publish::Place;
use crate::service::secrets::{CredentialError, Secrets};
use crate::service::waiting_calls::WaitError;

/// How long the list of a server is taken for what it is.
const FRESH: Duration = Duration::from_mins(1);
/// Lists that are kept.
const KEPT: u64 = 1_000;
/// How long a list may take, all its pages.
const LISTING: Duration = Duration::from_secs(10);
const PAGES: usize = 50;
/// Entries of one server's list.
const ENTRIES: usize = 10_000;

#[derive(Debug, thiserror::Error)]
pub enum PassError {
    /// There is no such server for this caller.
    #[error("there is no such thing")]
    NotFound,
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    Credentials(#[from] CredentialError),
    #[error(transparent)]
    Limited(#[from] Limited),
    #[error(transparent)]
    Waiting(#[from] WaitError),
}

/// Who asks, and where.
#[derive(Clone)]
pub struct View {
    pub caller: Caller,
    pub place: Arc<Place>,
    /// The one server that is spoken to.
    pub server: Option<ServerName>,
}

pub struct Passthrough {
    current: Arc<CurrentCatalog>,
    servers: Arc<dyn ToolServers>,
    secrets: Arc<Secrets>,
    limits: Arc<Limits>,
    /// Of servers that list the same to everybody.
    lists: Cache<(ServerName, AskedKind), Arc<Vec<Value>>>,
    /// How often a list was forgotten: what was fetched before is not kept.
    forgotten: Mutex<HashMap<(ServerName, AskedKind), u64>>,
    audit: Audit,
}

impl Passthrough {
    #[must_use]
    pub fn new(
        current: Arc<CurrentCatalog>,
        servers: Arc<dyn ToolServers>,
        secrets: Arc<Secrets>,
        limits: Arc<Limits>,
        audit: Audit,
    ) -> Self {
        let lists = Cache::builder().max_capacity(KEPT).time_to_live(FRESH).build();
        Self { current, servers, secrets, limits, lists, forgotten: Mutex::default(), audit }
    }

    /// The servers that are there for a caller, in the order of their names.
    #[must_use]
    pub fn servers(&self, view: &View) -> Vec<ServerName> {
        self.servers_for(&view.caller.principal, &view.place, view.server.as_ref())
    }

    /// The same for a caller at a place, and the one server that is spoken to there.
    #[must_use]
    pub fn servers_for(&self, principal: &Principal, place: &Place, only: Option<&ServerName>) -> Vec<ServerName> {
        let (catalog, visibility) = (self.current.snapshot(), self.current.visibility(principal));
        let is_there =
            |server: &&CatalogServer| only.is_none_or(|only| *only == server.name) && self.is_there(server, principal, place, &visibility);
        catalog.servers().iter().filter(is_there).map(|server| server.name.clone()).collect()
    }

    /// Whether a server is there for a caller at a place.
    #[must_use]
    pub fn sees(&self, principal: &Principal, place: &Place, only: Option<&ServerName>, server: &ServerName) -> bool {
        if only.is_some_and(|only| only != server) {
            return false;
        }
        let (catalog, visibility) = (self.current.snapshot(), self.current.visibility(principal));
        catalog.server(server.as_str()).is_some_and(|server| self.is_there(server, principal, place, &visibility))
    }

    fn is_there(&self, server: &CatalogServer, principal: &Principal, place: &Place, visibility: &Visibility) -> bool {
        let shows = || match place {
            Place::Whole => server.tools.is_empty() || server.tools.iter().any(|tool| visibility.allows(tool)),
            place => server.tools.iter().any(|tool| visibility.allows(tool) && place.shows(tool, visibility, Mode::Full)),
        };
        self.current.shows_server(principal, &server.name) && shows()
    }

    /// All servers, whoever asks.
    #[must_use]
    pub fn all_servers(&self) -> Vec<ServerName> {
        self.current.snapshot().servers().iter().map(|server| server.name.clone()).collect()
    }

    /// What the servers have together that are there for a caller.
    #[must_use]
    pub fn offers(&self, view: &View) -> Offers {
        self.servers(view).iter().map(|server| self.servers.offers(server)).fold(Offers::default(), |all, one| Offers {
            prompts: all.prompts || one.prompts,
            resources: all.resources || one.resources,
            completions: all.completions || one.completions,
            subscriptions: all.subscriptions || one.subscriptions,
        })
    }

    /// Has these lists of a server fetched anew.
    pub async fn forget(&self, server: &ServerName, lists: &[AskedKind]) {
        for what in lists {
            let key = (server.clone(), *what);
            *self.forgotten.lock().entry(key.clone()).or_default() += 1;
            self.lists.invalidate(&key).await;
        }
    }

    fn times_forgotten(&self, key: &(ServerName, AskedKind)) -> u64 {
        self.forgotten.lock().get(key).copied().unwrap_or_default()
    }

    /// The entries of all servers, by server. One that can't be asked has none.
    pub async fn list(&self, what: AskedKind, view: &View) -> Vec<(ServerName, Arc<Vec<Value>>)> {
        let servers = self.servers(view).into_iter().filter(|server| self.servers.offers(server).have(what));
        let listed = servers.map(async |server| {
            let entries = self.list_one(&server, what, &view.caller).await;
            if let Err(error) = &entries {
                let error = if let PassError::Call(error) = error { error.without_words() } else { error.to_string() };
                tracing::info!(%server, method = what.method(), error, "left out of a list");
            }
            (server, entries.unwrap_or_default())
        });
        join_all(listed).await
    }

    async fn list_one(&self, server: &ServerName, what: AskedKind, caller: &Caller) -> Result<Arc<Vec<Value>>, PassError> {
        let credentials = self.secrets.credentials(&caller.principal, server).await?;
        let is_shared = credentials.is_none() && !self.servers.forwards_headers(server);
        let key = (server.clone(), what);
        if is_shared && let Some(known) = self.lists.get(&key).await {
            return Ok(known);
        }
        let member = match what {
            AskedKind::Prompts => "prompts",
            AskedKind::ResourceTemplates => "resourceTemplates",
            _ => "resources",
        };
        let forgotten = self.times_forgotten(&key);
        let context = CallContext {
            headers: self.headers(server, caller),
            credentials,
            deadline: Some(Instant::now() + LISTING),
            ..CallContext::new(Arc::clone(&caller.principal))
        };
        let (mut entries, mut cursor) = (Vec::new(), None::<Value>);
        for _ in 0..PAGES {
            let params = cursor.take().map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
            let page = self.servers.ask(server, Asked { what, params }, context.clone()).await?;
            let mut page: Value = serde_json::from_str(page.get()).unwrap_or_default();
            if let Some(Value::Array(more)) = page.get_mut(member).map(Value::take) {
                entries.extend(more);
            }
            cursor = page.get_mut("nextCursor").map(Value::take).filter(Value::is_string);
            if cursor.is_none() || entries.len() > ENTRIES {
                break;
            }
        }
        entries.truncate(ENTRIES);
        let entries = Arc::new(entries);
        if is_shared && self.times_forgotten(&key) == forgotten {
            self.lists.insert(key, Arc::clone(&entries)).await;
        }
        Ok(entries)
    }

    /// Asks one server, if it is there for the caller. Where `told` has a round, a question may come in place of a result. Reads are
    /// written down.
    ///
    /// # Errors
    /// [`PassError`]
    pub async fn ask(&self, server: &ServerName, asked: Asked, view: &View, told: Told) -> Result<Box<RawValue>, PassError> {
        let mut read = Read::begin(&self.audit, server, &asked, &view.caller.principal);
        let result = match self.enter(server, view) {
            Ok(_permit) => self.send(server, asked, &view.caller, told).await,
            Err(error) => Err(error),
        };
        if let Some(read) = &mut read {
            read.ended(&result, self.knows(server));
        }
        result
    }

    /// Writes down that a prompt or a resource of a server was asked for that is not there for the caller.
    pub fn note_denial(&self, server: &ServerName, asked: &Asked, principal: &Principal) {
        if let Some(mut read) = Read::begin(&self.audit, server, asked, principal) {
            read.ended(&Err(PassError::NotFound), self.knows(server));
        }
    }

    fn knows(&self, server: &ServerName) -> bool {
        self.current.snapshot().server(server.as_str()).is_some()
    }

    /// What lets a caller ask a server something, as long as it is kept.
    ///
    /// # Errors
    /// [`PassError::NotFound`], [`PassError::Limited`]
    pub fn enter(&self, server: &ServerName, view: &View) -> Result<CallPermit, PassError> {
        let principal = &view.caller.principal;
        if !self.sees(principal, &view.place, view.server.as_ref(), server) {
            return Err(PassError::NotFound);
        }
        Ok(self.limits.call(principal, server)?)
    }

    /// Whether a server is asked in the same way for everybody.
    pub async fn is_shared(&self, server: &ServerName, principal: &Principal) -> bool {
        !self.servers.forwards_headers(server) && matches!(self.secrets.credentials(principal, server).await, Ok(None))
    }

    async fn send(&self, server: &ServerName, asked: Asked, caller: &Caller, told: Told) -> Result<Box<RawValue>, PassError> {
        let context = CallContext {
            principal: Arc::clone(&caller.principal),
            headers: self.headers(server, caller),
            credentials: self.secrets.credentials(&caller.principal, server).await?,
            deadline: None,
            progress: told.progress,
            said: told.said,
            round: told.round,
        };
        Ok(self.servers.ask(server, asked, context).await?)
    }

    fn headers(&self, server: &ServerName, caller: &Caller) -> Arc<http::HeaderMap> {
        if self.servers.forwards_headers(server) { Arc::clone(&caller.headers) } else { Arc::default() }
    }
}
