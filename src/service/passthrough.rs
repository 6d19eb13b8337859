//! What servers have beside tools, handed on: prompts, resources, completion.
//!
//! The policy knows tools. A server of which a caller sees no tool is not there for it, with all that it has; of one of which it
//! sees a tool it sees all prompts and resources. A server without any tool is seen where the policy allows its name.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use moka::future::Cache;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::domain::catalog::CatalogServer;
use crate::domain::document::Mode;
use crate::domain::tool::ServerName;
use crate::service::current::CurrentCatalog;
use crate::service::execute::{Caller, Told};
use crate::service::limits::{Limited, Limits};
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
}

impl Passthrough {
    #[must_use]
    pub fn new(current: Arc<CurrentCatalog>, servers: Arc<dyn ToolServers>, secrets: Arc<Secrets>, limits: Arc<Limits>) -> Self {
        let lists = Cache::builder().max_capacity(KEPT).time_to_live(FRESH).build();
        Self { current, servers, secrets, limits, lists }
    }

    /// The servers that are there for a caller, in the order of their names.
    #[must_use]
    pub fn servers(&self, view: &View) -> Vec<ServerName> {
        let (catalog, principal) = (self.current.snapshot(), &view.caller.principal);
        let visibility = self.current.visibility(principal);
        let is_there = |server: &&CatalogServer| {
            let is_wanted = view.server.as_ref().is_none_or(|wanted| *wanted == server.name);
            let shows = || match &*view.place {
                Place::Whole => server.tools.is_empty() || server.tools.iter().any(|tool| visibility.allows(tool)),
                place => server.tools.iter().any(|tool| visibility.allows(tool) && place.shows(tool, &visibility, Mode::Full)),
            };
            is_wanted && self.current.shows_server(principal, &server.name) && shows()
        };
        catalog.servers().iter().filter(is_there).map(|server| server.name.clone()).collect()
    }

    /// What the servers have together that are there for a caller.
    #[must_use]
    pub fn offers(&self, view: &View) -> Offers {
        self.servers(view).iter().map(|server| self.servers.offers(server)).fold(Offers::default(), |all, one| Offers {
            prompts: all.prompts || one.prompts,
            resources: all.resources || one.resources,
            completions: all.completions || one.completions,
        })
    }

    /// The entries of all servers, by server. One that can't be asked has none.
    pub async fn list(&self, what: AskedKind, view: &View) -> Vec<(ServerName, Arc<Vec<Value>>)> {
        let servers = self.servers(view).into_iter().filter(|server| self.servers.offers(server).have(what));
        let listed = servers.map(async |server| {
            let entries = self.list_one(&server, what, &view.caller).await;
            if let Err(error) = &entries {
                // The server's own words are not for the log.
                let error = if matches!(error, PassError::Call(CallError::Protocol { .. })) {
                    "an error of the server"
                } else {
                    &error.to_string()
                };
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
        let context = CallContext {
            principal: Arc::clone(&caller.principal),
            headers: self.headers(server, caller),
            credentials,
            deadline: Some(Instant::now() + LISTING),
            progress: None,
            said: None,
            round: None,
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
        if is_shared {
            self.lists.insert(key, Arc::clone(&entries)).await;
        }
        Ok(entries)
    }

    /// Asks one server, if it is there for the caller. Where `told` has a round, a question may come in place of a result.
    ///
    /// # Errors
    /// [`PassError`]
    pub async fn ask(&self, server: &ServerName, asked: Asked, view: &View, told: Told) -> Result<Box<RawValue>, PassError> {
        if !self.servers(view).contains(server) {
            return Err(PassError::NotFound);
        }
        let caller = &view.caller;
        let _permit = self.limits.call(&caller.principal, server)?;
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
