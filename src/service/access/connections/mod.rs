//! Sign-ins of users to MCP servers: who is signed in where, and with which token a server is called.
//!
//! The store decides: a sign-in, its tokens and the claim to refresh them are stored before they count, so that a restart or another
//! replica finds them. Tokens in memory are only copies.

mod grant;
mod copies;
mod states;
mod refresh;
mod exchange;
mod tokens;
mod sign_in;
mod parting;
mod visits;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use futures::future::join_all;
use parking_lot::Mutex;

pub(crate) use self::sign_in::{AuthorizationAnswer, SignInError};
pub(crate) use self::visits::SESSION;

use self::copies::{Copies, Key, Turns, Unsaved};
use self::exchange::{Discovered, Exchanges};
use self::grant::Grant;
use self::states::SignedIn;
use self::visits::RecentLinks;
use crate::domain::access::principal::{Principal, PrincipalId, PrincipalKind};
use crate::domain::access::secret::{SealError, SecretKeys};
use crate::domain::access::signature::Signer;
use crate::domain::catalog::tool::ServerName;
use crate::service::access::keys::Keys;
use crate::service::catalog::current::CurrentCatalog;
use crate::service::ports::{AuthorizationClient, ConnectionStore, Credentials, StoreError, ToolServers};
use crate::settings::{ConnectSettings, LiveSettings, TokenFor};

/// The owner of sign-ins that all users share. No principal can have this id.
const ALL: &str = "all";
/// The owner of tokens that the service requests as a program.
const MACHINE: &str = "machine";
/// The path of the page for sign-ins.
pub(crate) const PAGE: &str = "/ui/me";
/// The path of the redirect URI.
pub(crate) const CALLBACK: &str = "/ui/oauth/callback";
/// The path of the client id metadata document.
pub(crate) const CLIENT_METADATA: &str = "/ui/oauth/client.json";

/// Whether a caller may call a server's tools at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionState {
    Ready,
    SignIn,
}

impl ConnectionState {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::SignIn => "sign_in",
        }
    }
}

/// A server that people sign in to, as its page shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KnownConnection {
    pub server: ServerName,
    pub state: ConnectionState,
    /// Why a former sign-in ended, or why the last attempt failed.
    pub reason: Option<String>,
    pub issuer: Option<String>,
    pub scopes: Vec<String>,
    pub connected_at: Option<SystemTime>,
}

/// The reason why a server can't be called with the caller's sign-in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error("{}", needed(.server, .reason.as_deref(), .link.as_deref()))]
    SignInNeeded {
        server: ServerName,
        /// Why a former sign-in doesn't count; `None` if there was none.
        reason: Option<String>,
        /// The caller's link; `None` if only an administrator can sign in.
        link: Option<String>,
    },
    #[error(
        "`{0}` is called with a sign-in of a user or a named key, and this request belongs to neither: send a key created with \
         `toolsieve keys create`, or name the user with a trusted key; for one sign-in for everybody, write \"for\": \"all\" in its `auth`"
    )]
    Nobody(ServerName),
    #[error("nobody can sign in to `{0}`: an administrator must set `secrets.key` and `http.public_url`")]
    NotSetUp(ServerName),
    #[error(
        "`{server}` is called with the user's own token, and this request has none in the header `{header}`: let the application that \
         calls send the token of the signed-in user there"
    )]
    NoUserToken { server: ServerName, header: String },
    /// The authorization server or the MCP server rejects the user's own token.
    #[error("`{server}` can't be called with your token: {reason}")]
    TokenRejected { server: ServerName, reason: String },
    /// There is no token until an administrator corrects something.
    #[error("no token for `{server}`: {reason}")]
    NotIssued { server: ServerName, reason: String },
    /// The authorization server failed, and a later attempt may succeed.
    #[error("no token for `{server}`: {reason}")]
    Unavailable { server: ServerName, reason: String },
    #[error(transparent)]
    Seal(#[from] SealError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn needed(server: &ServerName, reason: Option<&str>, link: Option<&str>) -> String {
    let why = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
    match link {
        Some(link) => format!(
            "`{server}` needs the user to sign in{why}. Show the user this link, unchanged: {link} It is only for this user, works once, and \
             expires in ten minutes. After the sign-in, call the tool again"
        ),
        None => format!("an administrator must sign in to `{server}` for all users{why}"),
    }
}

pub(super) struct ConfiguredServer {
    pub(super) name: ServerName,
    pub(super) settings: ConnectSettings,
    /// Whether calls need nothing else of the caller.
    pub(super) needs_only_token: bool,
    /// Time limit of a call, and of finding its token.
    pub(super) call_timeout: Duration,
    /// The authorization server that exchanges tokens.
    discovered: Discovered,
}

impl ConfiguredServer {
    /// The origin of the server's URL.
    fn origin(&self) -> String {
        self.settings.server_url.origin().ascii_serialization()
    }
}

pub(crate) struct Connections {
    pub(super) store: Arc<dyn ConnectionStore>,
    pub(super) client: Arc<dyn AuthorizationClient>,
    pub(super) servers: Arc<dyn ToolServers>,
    pub(super) current: Arc<CurrentCatalog>,
    api_keys: Arc<Keys>,
    /// The encryption keys; `None` if nobody can sign in.
    pub(super) keys: Option<SecretKeys>,
    /// Signs links; `None` without a public URL.
    pub(super) signer: Option<Signer>,
    /// The URL at which browsers reach the service, without a slash at its end.
    pub(super) public_url: Option<String>,
    configured: ArcSwap<HashMap<ServerName, Arc<ConfiguredServer>>>,
    /// The servers that take secrets of their callers, sorted.
    take_secrets: ArcSwap<Vec<ServerName>>,
    pub(super) copies: Copies,
    pub(super) signed_in: SignedIn,
    pub(super) turns: Turns<Key>,
    exchanges: Exchanges,
    pub(super) unsaved: Unsaved,
    pub(super) links: RecentLinks,
    /// The error of the last sign-in to each server that failed because of its authorization server.
    faults: Mutex<HashMap<ServerName, String>>,
}

/// What sign-ins need besides the store.
pub(crate) struct ConnectionParts {
    pub client: Arc<dyn AuthorizationClient>,
    pub servers: Arc<dyn ToolServers>,
    pub current: Arc<CurrentCatalog>,
    pub api_keys: Arc<Keys>,
    pub keys: Option<SecretKeys>,
    pub signer: Option<Signer>,
    pub public_url: Option<String>,
}

impl Connections {
    pub(crate) fn new(store: Arc<dyn ConnectionStore>, parts: ConnectionParts, live: &LiveSettings) -> Arc<Self> {
        let ConnectionParts { client, servers, current, api_keys, keys, signer, public_url } = parts;
        let connections = Arc::new(Self {
            store,
            client,
            servers,
            current,
            api_keys,
            keys,
            signer,
            public_url,
            configured: ArcSwap::default(),
            take_secrets: ArcSwap::default(),
            copies: Copies::default(),
            signed_in: SignedIn::default(),
            turns: Turns::default(),
            exchanges: Exchanges::default(),
            unsaved: Unsaved::default(),
            links: RecentLinks::default(),
            faults: Mutex::default(),
        });
        connections.configure(live);
        connections
    }

    /// Applies changed settings.
    pub(crate) fn configure(&self, live: &LiveSettings) {
        let configured = live.servers.iter().filter_map(|server| {
            let settings = server.remote.connect.clone()?;
            let configured = ConfiguredServer {
                name: server.name.clone(),
                settings,
                needs_only_token: server.per_user.templates.is_empty(),
                call_timeout: server.call_timeout,
                discovered: Discovered::default(),
            };
            Some((server.name.clone(), Arc::new(configured)))
        });
        self.configured.store(Arc::new(configured.collect()));
        let take_secrets = live.servers.iter().filter(|server| !server.per_user.secrets().is_empty());
        let mut take_secrets: Vec<ServerName> = take_secrets.map(|server| server.name.clone()).collect();
        take_secrets.sort_by(|one, other| one.as_str().cmp(other.as_str()));
        self.take_secrets.store(Arc::new(take_secrets));
        self.faults.lock().clear();
        self.copies.clear();
        self.exchanges.clear();
    }

    pub(super) fn configured(&self, server: &ServerName) -> Option<Arc<ConfiguredServer>> {
        self.configured.load().get(server).cloned()
    }

    /// The owner of the sign-in with which a caller calls a server.
    pub(super) fn owner(server: &ConfiguredServer, caller: &Principal) -> Option<PrincipalId> {
        match server.settings.token_for {
            TokenFor::User => caller.is_somebody().then(|| caller.id.clone()),
            TokenFor::All => Some(PrincipalId::new(ALL)),
            TokenFor::Machine => Some(PrincipalId::new(MACHINE)),
        }
    }

    /// The owner whose sign-ins a caller may manage: its own, or as an administrator those of all users.
    pub(super) fn managed_by(caller: &Principal) -> Option<PrincipalId> {
        if caller.is_somebody() {
            Some(caller.id.clone())
        } else {
            let is_admin = caller.administers || caller.kind == PrincipalKind::AdminKey;
            is_admin.then(|| PrincipalId::new(ALL))
        }
    }

    /// Whether the owner manages the sign-in to a server.
    pub(super) fn manages(owner: &PrincipalId, server: &ConfiguredServer) -> bool {
        if server.settings.exchange.is_some() {
            return false;
        }
        match server.settings.token_for {
            TokenFor::User => owner.as_str() != ALL,
            TokenFor::All => owner.as_str() == ALL,
            TokenFor::Machine => false,
        }
    }

    pub(super) fn keys(&self, server: &ServerName) -> Result<&SecretKeys, ConnectionError> {
        self.keys.as_ref().ok_or_else(|| ConnectionError::NotSetUp(server.clone()))
    }

    /// The address to which authorization servers send people back.
    pub(super) fn redirect_uri(&self, server: &ServerName) -> Result<String, ConnectionError> {
        let url = self.public_url.as_ref().ok_or_else(|| ConnectionError::NotSetUp(server.clone()))?;
        Ok(format!("{url}{CALLBACK}"))
    }

    /// The error of the last sign-in to a server, if its authorization server caused it.
    pub(crate) fn fault(&self, server: &ServerName) -> Option<String> {
        self.faults.lock().get(server).cloned()
    }

    /// Like [`Self::fault`], with what can't be done because of it.
    pub(crate) fn fault_in_words(&self, server: &ServerName) -> Option<String> {
        let what = if self.exchanges(server) { "users' tokens can't be exchanged" } else { "nobody can sign in" };
        self.fault(server).map(|reason| format!("{what}: {reason}"))
    }

    pub(super) fn note_fault(&self, server: &ServerName, reason: &str) {
        tracing::warn!(%server, reason, "there is no token for the server");
        self.faults.lock().insert(server.clone(), reason.to_owned());
    }

    pub(super) fn clear_fault(&self, server: &ServerName) {
        self.faults.lock().remove(server);
    }

    /// The sign-ins that an owner manages, to these servers.
    pub(crate) async fn list(&self, owner: &PrincipalId, servers: &[ServerName]) -> Result<Vec<KnownConnection>, StoreError> {
        let stored = self.store.connections(owner).await?;
        let configured = self.configured.load_full();
        let mut known: Vec<KnownConnection> = configured
            .values()
            .filter(|server| servers.contains(&server.name) && Self::manages(owner, server))
            .map(|server| {
                let stored = stored.iter().find(|stored| stored.sealed.place.server == server.name);
                let is_ready = stored.is_some_and(|stored| stored.ended.is_none());
                KnownConnection {
                    server: server.name.clone(),
                    state: if is_ready { ConnectionState::Ready } else { ConnectionState::SignIn },
                    reason: stored.and_then(|stored| stored.ended.clone()).or_else(|| self.fault(&server.name)),
                    issuer: stored.map(|stored| stored.issuer.clone()),
                    scopes: stored.map(|stored| stored.scopes.clone()).unwrap_or_default(),
                    connected_at: stored.map(|stored| stored.connected_at),
                }
            })
            .collect();
        known.sort_by(|one, other| one.server.as_str().cmp(other.server.as_str()));
        Ok(known)
    }

    /// Lists the tools of servers that no user can list, because all users share one sign-in or nobody signs in. Servers that are in the
    /// catalog are left alone: their tools stay as they were last seen.
    pub(crate) async fn list_shared(self: &Arc<Self>) {
        let configured = self.configured.load_full();
        let is_shared = |server: &&Arc<ConfiguredServer>| server.settings.token_for != TokenFor::User && server.needs_only_token;
        // An authorization server that doesn't answer delays no other server.
        join_all(configured.values().filter(is_shared).map(|server| self.list_one(server))).await;
    }

    async fn list_one(self: &Arc<Self>, server: &Arc<ConfiguredServer>) {
        if self.current.snapshot().server(server.name.as_str()).is_some() {
            return;
        }
        let owner = PrincipalId::new(if server.settings.token_for == TokenFor::All { ALL } else { MACHINE });
        if let Some(token) = self.token_of(server, &owner).await {
            self.servers.introduce(&server.name, &owner, Arc::new(Credentials::of_sign_in(token)));
        }
    }

    /// Encrypts sign-ins again with the current key if they use a former one.
    pub(crate) async fn reseal(&self) {
        let Some(keys) = &self.keys else { return };
        let found = match self.store.connections_of_other_keys(keys.present.id()).await {
            Ok(found) => found,
            Err(error) => return tracing::warn!(%error, "sign-ins sealed with former keys could not be read"),
        };
        for stored in found {
            let place = &stored.sealed.place;
            let Ok(grant) = Grant::open(keys, &stored.sealed) else {
                tracing::warn!(server = %place.server, "a sign-in can't be read with secrets.key or secrets.former_keys");
                continue;
            };
            let Ok(sealed) = grant.seal(keys, &place.owner, &place.server) else { continue };
            // If its tokens were refreshed in the meantime, they already use the current key.
            if let Err(error) = self.store.reseal_connection(&stored, &sealed).await {
                tracing::warn!(%error, "a sign-in remains sealed with its former key");
            }
        }
    }
}
