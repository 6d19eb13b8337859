//! Forwards requests for prompts, resources and completions to servers.
//!
//! Policy rules apply only to tools. A caller that sees none of a server's tools can't see the server or anything in it. A caller
//! that sees at least one tool sees all prompts and resources of its server. A server without tools is visible if the policy
//! allows its name. A session's lists contain only the servers of its tools, but its address permits the same reads as the service's.

mod pages;
mod reads;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use moka::future::Cache;
use parking_lot::Mutex;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::domain::access::principal::{Principal, PrincipalId};
use crate::domain::access::visibility::Visibility;
use crate::domain::catalog::catalog::CatalogServer;
use crate::domain::catalog::hidden_text::strip;
use crate::domain::catalog::tool::ServerName;
use crate::domain::publishing::address::Address;
use crate::domain::text::canonical::Fingerprint;
use crate::domain::toolsets::mode::Mode;
use crate::service::access::limits::{CallPermit, Limited, Limits};
use crate::service::access::secrets::{CredentialError, Secrets};
use crate::service::caller::{CallOptions, CallerContext};
use crate::service::catalog::current::{CurrentCatalog, View};
use crate::service::catalog::definitions::Definitions;
use crate::service::mcp::passthrough::pages::Pages;
use crate::service::mcp::passthrough::reads::Read;
use crate::service::mcp::waiting_calls::WaitError;
use crate::service::ports::{CallContext, CallError, Offers, PassthroughKind, PassthroughRequest, SpanKind, ToolServers};
use crate::service::records::audit::Audit;
use crate::service::spans;

/// How long a server's list is cached.
const FRESH: Duration = Duration::from_mins(1);
/// Maximum number of cached lists.
const KEPT: u64 = 1_000;
/// Time limit for a list with all its pages.
const LISTING: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub(crate) enum PassError {
    /// The caller sees no such server, prompt or resource.
    #[error("there is no such prompt or resource")]
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

/// What a list is needed for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Freshness {
    /// The caller reads it.
    ForCaller,
    /// A prompt in it is compared with the approved one. A list that is a minute old will do.
    ForQuarantine,
}

/// The member that identifies an entry in this kind of list: `name` or a URI.
pub(crate) fn member_of_name(list: PassthroughKind) -> &'static str {
    match list {
        PassthroughKind::Prompts => "name",
        PassthroughKind::ResourceTemplates => "uriTemplate",
        _ => "uri",
    }
}

/// A cached list. Its number of invalidations leaves out a list that was requested before the last one.
#[derive(Clone, PartialEq, Eq, Hash)]
struct ListKey {
    server: ServerName,
    what: PassthroughKind,
    /// The caller with the hash of its credentials; `None` if all callers get the same list.
    of: Option<(PrincipalId, Fingerprint)>,
    forgotten: u64,
}

/// A caller at the address of the service, or of a single server.
#[derive(Clone)]
pub(crate) struct PassthroughCaller {
    pub caller: CallerContext,
    pub address: Arc<Address>,
    /// The server, if the address belongs to a single one.
    pub server: Option<ServerName>,
}

pub(crate) struct Passthrough {
    current: Arc<CurrentCatalog>,
    servers: Arc<dyn ToolServers>,
    secrets: Arc<Secrets>,
    limits: Arc<Limits>,
    /// Cached lists: those of servers that return the same list to every caller, and for quarantine the prompts that others list.
    lists: Cache<ListKey, Listed>,
    /// Number of invalidations per list.
    forgotten: Mutex<HashMap<(ServerName, PassthroughKind), u64>>,
    /// Original names of entries with hidden characters, by their names without these characters.
    spelled: Mutex<HashMap<(ServerName, PassthroughKind), HashMap<String, String>>>,
    audit: Audit,
    /// Compares prompts with approved ones.
    definitions: Arc<Definitions>,
}

/// What a server lists.
#[derive(Clone)]
struct Listed {
    entries: Arc<Vec<Value>>,
    /// Whether the server has more entries.
    is_cut: bool,
}

impl Passthrough {
    pub(crate) fn new(
        current: Arc<CurrentCatalog>,
        servers: Arc<dyn ToolServers>,
        secrets: Arc<Secrets>,
        limits: Arc<Limits>,
        audit: Audit,
        definitions: Arc<Definitions>,
    ) -> Self {
        let lists = Cache::builder().max_capacity(KEPT).time_to_live(FRESH).build();
        Self { current, servers, secrets, limits, lists, forgotten: Mutex::default(), spelled: Mutex::default(), audit, definitions }
    }

    /// The servers whose prompts and resources a caller may read, sorted by name.
    pub(crate) fn readable(&self, from: &PassthroughCaller) -> Vec<ServerName> {
        let (principal, only) = (&from.caller.principal, from.server.as_ref());
        let View { catalog, visibility, .. } = self.current.view(principal);
        let is_readable = |server: &&CatalogServer| {
            only.is_none_or(|only| *only == server.name) && self.is_readable(server, principal, &from.address, &visibility)
        };
        catalog.servers().iter().filter(is_readable).map(|server| server.name.clone()).collect()
    }

    /// The servers whose prompts and resources a caller's lists contain, sorted by name.
    pub(crate) fn servers(&self, from: &PassthroughCaller) -> Vec<ServerName> {
        self.servers_for(&from.caller.principal, &from.address, from.server.as_ref())
    }

    /// The servers in the lists of a caller at an address, sorted by name. `only` limits them to a single server.
    pub(crate) fn servers_for(&self, principal: &Principal, address: &Address, only: Option<&ServerName>) -> Vec<ServerName> {
        let View { catalog, visibility, .. } = self.current.view(principal);
        let is_there = |server: &&CatalogServer| {
            only.is_none_or(|only| *only == server.name) && self.is_there(server, principal, address, &visibility)
        };
        catalog.servers().iter().filter(is_there).map(|server| server.name.clone()).collect()
    }

    /// Whether a caller at an address may read a server's prompts and resources. `only` limits the address to a single server. At a
    /// session's address, lists are shorter: all tools can be called there too, and their results refer to resources.
    pub(crate) fn sees(&self, principal: &Principal, address: &Address, only: Option<&ServerName>, server: &ServerName) -> bool {
        if only.is_some_and(|only| only != server) {
            return false;
        }
        let View { catalog, visibility, .. } = self.current.view(principal);
        catalog.server(server.as_str()).is_some_and(|server| self.is_readable(server, principal, address, &visibility))
    }

    fn is_readable(&self, server: &CatalogServer, principal: &Principal, address: &Address, visibility: &Visibility) -> bool {
        match address {
            Address::Session(_) => {
                self.current.shows_server(principal, &server.name) && server.tools.iter().any(|tool| visibility.allows(tool))
            }
            Address::Whole | Address::Toolset(_) => self.is_there(server, principal, address, visibility),
        }
    }

    fn is_there(&self, server: &CatalogServer, principal: &Principal, address: &Address, visibility: &Visibility) -> bool {
        let shows = || match address {
            Address::Whole => server.tools.is_empty() || server.tools.iter().any(|tool| visibility.allows(tool)),
            address => server.tools.iter().any(|tool| visibility.allows(tool) && address.shows(tool, visibility, Mode::Full)),
        };
        self.current.shows_server(principal, &server.name) && shows()
    }

    /// All servers, regardless of callers.
    pub(crate) fn all_servers(&self) -> Vec<ServerName> {
        self.current.snapshot().servers().iter().map(|server| server.name.clone()).collect()
    }

    /// The combined capabilities of the servers visible to a caller.
    pub(crate) fn offers(&self, from: &PassthroughCaller) -> Offers {
        self.servers(from).iter().map(|server| self.servers.offers(server)).fold(Offers::default(), |all, one| Offers {
            prompts: all.prompts || one.prompts,
            resources: all.resources || one.resources,
            completions: all.completions || one.completions,
            subscriptions: all.subscriptions || one.subscriptions,
        })
    }

    /// Invalidates these cached lists of a server.
    pub(crate) fn forget(&self, server: &ServerName, lists: &[PassthroughKind]) {
        let mut forgotten = self.forgotten.lock();
        for what in lists {
            *forgotten.entry((server.clone(), *what)).or_default() += 1;
        }
    }

    /// The entries of each server visible to the caller. Servers that fail are omitted.
    pub(crate) async fn list(&self, what: PassthroughKind, from: &PassthroughCaller) -> Vec<(ServerName, Arc<Vec<Value>>)> {
        let servers = self.servers(from).into_iter().filter(|server| self.servers.offers(server).have(what));
        let listed = servers.map(async |server| {
            let entries = self.list_one(&server, what, &from.caller, Freshness::ForCaller).await;
            if let Err(error) = &entries {
                let error = if let PassError::Call(error) = error { error.without_words() } else { error.to_string() };
                tracing::info!(%server, method = what.method(), error, "server left out of a list");
            }
            (server, entries.map(|listed| listed.entries).unwrap_or_default())
        });
        let listed = join_all(listed).await;
        listed.into_iter().map(|(server, entries)| self.without_withheld(server, what, entries)).collect()
    }

    fn without_withheld(&self, server: ServerName, what: PassthroughKind, mut entries: Arc<Vec<Value>>) -> (ServerName, Arc<Vec<Value>>) {
        let name = |entry: &Value| entry.get("name").and_then(Value::as_str).map(str::to_owned);
        let is_withheld = |entry: &Value| name(entry).is_some_and(|name| self.definitions.withholds_prompt(&server, &name, Some(entry)));
        if what == PassthroughKind::Prompts && entries.iter().any(is_withheld) {
            entries = Arc::new(entries.iter().filter(|entry| !is_withheld(entry)).cloned().collect());
        }
        (server, entries)
    }

    /// Whether a request is for a prompt that is withheld, because its definition differs from the approved one.
    async fn is_withheld(&self, server: &ServerName, request: &PassthroughRequest, caller: &CallerContext) -> Result<bool, PassError> {
        let name = match request.what {
            PassthroughKind::Prompt => request.params.get("name"),
            PassthroughKind::Completion => request.params.pointer("/ref/name"),
            _ => None,
        };
        let Some(name) = name.and_then(Value::as_str) else { return Ok(false) };
        if !self.definitions.withholds() {
            return Ok(false);
        }
        // A server without a connection offers nothing at the moment.
        if !self.servers.offers(server).prompts {
            return Ok(self.definitions.withholds_prompt(server, name, None));
        }
        // Another caller's list may lack the prompt, or have another definition of it.
        let is_meant = |entry: &&Value| entry.get("name").and_then(Value::as_str) == Some(name);
        let mut prompts = self.list_one(server, PassthroughKind::Prompts, caller, Freshness::ForQuarantine).await?;
        if !prompts.entries.iter().any(|entry| is_meant(&entry)) {
            // It may be newer than the list.
            prompts = self.list_one(server, PassthroughKind::Prompts, caller, Freshness::ForCaller).await?;
        }
        let found = prompts.entries.iter().find(is_meant);
        // Nobody knows the present definition of a prompt that an incomplete list lacks.
        Ok((prompts.is_cut && found.is_none()) || self.definitions.withholds_prompt(server, name, found))
    }

    async fn list_one(
        &self,
        server: &ServerName,
        what: PassthroughKind,
        caller: &CallerContext,
        freshness: Freshness,
    ) -> Result<Listed, PassError> {
        let credentials = self.secrets.credentials(&caller.principal, &caller.headers, server).await?;
        let forwards_headers = self.servers.forwards_headers(server);
        let of = credentials.as_ref().map(|credentials| (caller.principal.id.clone(), credentials.fingerprint()));
        let is_shared = of.is_none() && !forwards_headers;
        let place = (server.clone(), what);
        let forgotten = self.forgotten.lock().get(&place).copied().unwrap_or_default();
        let key = ListKey { server: server.clone(), what, of, forgotten };
        if (is_shared || (freshness == Freshness::ForQuarantine && !forwards_headers))
            && let Some(known) = self.lists.get(&key).await
        {
            return Ok(known);
        }
        let member = match what {
            PassthroughKind::Prompts => "prompts",
            PassthroughKind::ResourceTemplates => "resourceTemplates",
            _ => "resources",
        };
        let deadline = Instant::now() + LISTING;
        let context = CallContext {
            headers: self.headers(server, caller),
            credentials,
            deadline: Some(deadline),
            ..CallContext::new(Arc::clone(&caller.principal))
        };
        let mut pages = Pages::default();
        loop {
            let request = PassthroughRequest { what, params: pages.next() };
            match self.servers.ask(server, request, context.clone()).await {
                Ok(page) if pages.add(&page, member) => {}
                Ok(_) => break,
                // The pages so far are better than no list.
                Err(_) if Instant::now() >= deadline && pages.end_late() => break,
                Err(error) => return Err(error.into()),
            }
        }
        let (entries, cut) = pages.listed();
        if let Some(reason) = cut {
            tracing::warn!(%server, method = what.method(), listed = entries.len(), reason, "a list is incomplete");
        }
        self.note_spelling(&place, member_of_name(what), &entries);
        if what == PassthroughKind::Prompts {
            self.definitions.observe_prompts(server, &entries, cut.is_none()).await;
        }
        let listed = Listed { entries: Arc::new(entries), is_cut: cut.is_some() };
        let is_for_quarantine = what == PassthroughKind::Prompts && !forwards_headers && self.definitions.withholds();
        if is_shared || is_for_quarantine {
            self.lists.insert(key, listed.clone()).await;
        }
        Ok(listed)
    }

    fn note_spelling(&self, key: &(ServerName, PassthroughKind), member: &str, entries: &[Value]) {
        let names = || entries.iter().filter_map(|entry| entry.get(member)?.as_str());
        let known: HashSet<&str> = names().collect();
        let stripped = names().filter_map(|name| Some((strip(name)?.0, name.to_owned())));
        // If an entry has exactly this name, that entry takes precedence.
        let spelled: HashMap<String, String> = stripped.filter(|(shown, _)| !known.contains(shown.as_str())).collect();
        let mut all = self.spelled.lock();
        if spelled.is_empty() {
            all.remove(key);
        } else {
            all.insert(key.clone(), spelled);
        }
    }

    /// The original name of an entry that is listed under the name `shown`.
    pub(crate) fn own_name(&self, server: &ServerName, list: PassthroughKind, shown: &str) -> String {
        let spelled = self.spelled.lock();
        let own = spelled.get(&(server.clone(), list)).and_then(|names| names.get(shown));
        own.map_or(shown, String::as_str).to_owned()
    }

    /// Forwards a request to a server that the caller sees. With `options.round`, the result may be a request for input. Records
    /// reads of prompts and resources in the audit log.
    pub(crate) async fn ask(
        &self,
        server: &ServerName,
        request: PassthroughRequest,
        from: &PassthroughCaller,
        options: CallOptions,
    ) -> Result<Box<RawValue>, PassError> {
        let mut read = Read::begin(&self.audit, server, &request, &from.caller.principal);
        let result = match self.enter(server, from).await {
            Ok(_permit) => match self.is_withheld(server, &request, &from.caller).await {
                Ok(false) => self.send(server, request, &from.caller, options).await,
                Ok(true) => Err(PassError::NotFound),
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        if let Some(read) = &mut read {
            read.ended(&result, self.knows(server));
        }
        result
    }

    /// Records a request for a prompt or resource of a hidden server in the audit log.
    pub(crate) fn note_denial(&self, server: &ServerName, request: &PassthroughRequest, principal: &Principal) {
        if let Some(mut read) = Read::begin(&self.audit, server, request, principal) {
            read.ended(&Err(PassError::NotFound), self.knows(server));
        }
    }

    fn knows(&self, server: &ServerName) -> bool {
        self.current.snapshot().server(server.as_str()).is_some()
    }

    /// Checks visibility and limits. Hold the returned permit during the request.
    ///
    /// # Errors
    /// [`PassError::NotFound`] if the server is not visible, [`PassError::Limited`] over a limit.
    pub(crate) async fn enter(&self, server: &ServerName, from: &PassthroughCaller) -> Result<CallPermit, PassError> {
        let principal = &from.caller.principal;
        if !self.sees(principal, &from.address, from.server.as_ref(), server) {
            return Err(PassError::NotFound);
        }
        Ok(self.limits.call(principal, server).await?)
    }

    /// Whether all callers share one connection to a server.
    pub(crate) async fn is_shared(&self, server: &ServerName, principal: &Principal) -> bool {
        !self.servers.forwards_headers(server)
            && matches!(self.secrets.credentials(principal, &http::HeaderMap::new(), server).await, Ok(None))
    }

    async fn send(
        &self,
        server: &ServerName,
        request: PassthroughRequest,
        caller: &CallerContext,
        options: CallOptions,
    ) -> Result<Box<RawValue>, PassError> {
        let method = request.what.method();
        let step = spans::child(SpanKind::Client, || method.into());
        if let Some(span) = step.recorded() {
            span.set("mcp.method.name", method.into());
            span.set("toolsieve.server", server.to_string().into());
        }
        let context = CallContext {
            principal: Arc::clone(&caller.principal),
            headers: self.headers(server, caller),
            credentials: self.secrets.credentials(&caller.principal, &caller.headers, server).await?,
            deadline: None,
            progress: options.progress,
            messages: options.messages,
            round: options.round,
            trace: step.context(),
        };
        let ask = |context| self.servers.ask(server, request.clone(), context);
        let result = self.secrets.send(server, context, ask).await;
        match &result {
            Err(PassError::Call(error)) => step.fail(error.kind()),
            Err(_) => step.fail("sign_in_needed"),
            Ok(_) => {}
        }
        result
    }

    fn headers(&self, server: &ServerName, caller: &CallerContext) -> Arc<http::HeaderMap> {
        let takes_headers = self.servers.forwards_headers(server) || self.secrets.exchanges(server);
        if takes_headers { Arc::clone(&caller.headers) } else { Arc::default() }
    }
}
