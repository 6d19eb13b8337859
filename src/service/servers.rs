//! Servers that the API manages: adds, changes, switches off, restarts and removes them. A change is stored before it is applied, and
//! acknowledged once the catalog contains it. Servers of the servers file can only be switched off, on, and restarted.
//!
//! `service/catalog/reload` merges the stored servers with the file. Secret values of an entry are encrypted, and never shown.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::RwLock;
use secrecy::ExposeSecret;
use serde_json::{Map, Value};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::sleep;

use crate::domain::access::management::{ManagedBy, ManagedInFile, version_of};
use crate::domain::access::secret::{NONCE_BYTES, SealError, SealedSecret, SecretKeys, SecretPlace};
use crate::domain::catalog::server_entry::{self, ServerEntry};
use crate::domain::catalog::tool::ServerName;
use crate::service::access::connections::Connections;
use crate::service::catalog::rebuild::Rebuilds;
use crate::service::catalog::reload::Reload;
use crate::service::ports::{Overwrites, ServerPhase, ServerState, Store, StoreError, StoredServer, ToolServers};
use crate::settings::{EntryError, EntryProblem, KnownServer, ServerOverride, parse_entry};

/// Maximum number of servers that the API can add.
pub(crate) const MAX_SERVERS: usize = 2_000;
/// How long a change waits for the server to connect and list its tools. After that, the server goes on in the background.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// The same for people, who see afterwards that the server is being connected.
pub(crate) const BRIEF: Duration = Duration::from_secs(2);
/// How long a connected server's listing may take to reach the catalog.
const LISTING: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(10);

#[derive(Debug, thiserror::Error)]
pub(crate) enum ServerError {
    #[error("there is no server `{0}`")]
    NotFound(String),
    #[error(transparent)]
    OfFile(#[from] ManagedInFile),
    #[error(
        "the API may not add programs (`command`): an administrator of this machine must set `access.allow_commands`, or add the server to the servers file"
    )]
    Commands,
    #[error("the entry is not JSON: {0}")]
    Syntax(String),
    /// A server can't have this name.
    #[error("{0}")]
    Name(String),
    /// Parts of the entry are invalid.
    #[error("{}", in_words(.0))]
    Invalid(Vec<EntryProblem>),
    #[error(
        "the entry has secret values ({0}), and the service has no key to encrypt them: set `secrets.key` or TOOLSIEVE_SECRETS_KEY to what \
         `toolsieve secrets new-key` prints"
    )]
    NoKey(String),
    #[error("the server `{0}` is switched off: switch it on first")]
    Off(String),
    #[error("the server `{0}` has changed in the meantime")]
    Changed(String),
    #[error("the API can add at most {MAX_SERVERS} servers: remove one first")]
    TooMany,
    #[error(transparent)]
    Seal(#[from] SealError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A stored server whose values were decrypted.
#[derive(Clone, PartialEq, Eq)]
struct Row {
    /// `None` if the servers file defines the server.
    entry: Option<ServerEntry>,
    /// The reason why the secret values can't be read.
    fault: Option<String>,
    /// When the secret values were stored. It stays if a service encrypts them again.
    sealed_at: Option<SystemTime>,
    enabled: bool,
    restarts: u64,
}

impl Default for Row {
    /// A server of the servers file, as the file defines it.
    fn default() -> Self {
        Self { entry: None, fault: None, sealed_at: None, enabled: true, restarts: 0 }
    }
}

type Rows = BTreeMap<ServerName, Row>;

/// What the API has stored, as read at the start.
pub(crate) struct StoredServers(Rows);

pub(crate) struct Servers {
    store: Arc<dyn Store>,
    keys: Option<SecretKeys>,
    reload: Arc<Reload>,
    running: Arc<dyn ToolServers>,
    connections: Arc<Connections>,
    rebuilds: Rebuilds,
    rows: RwLock<Rows>,
    /// Ensures that changes run one after another.
    changing: Mutex<()>,
}

/// The parts of the service that this use case changes.
pub(crate) struct ServerParts {
    pub reload: Arc<Reload>,
    pub servers: Arc<dyn ToolServers>,
    pub connections: Arc<Connections>,
    pub rebuilds: Rebuilds,
}

impl StoredServers {
    /// Reads the stored servers.
    ///
    /// # Errors
    /// [`StoreError`], because a server that was switched off must not start.
    pub(crate) async fn load(store: &dyn Store, keys: Option<&SecretKeys>) -> Result<Self, StoreError> {
        Ok(Self(store.servers().await?.into_iter().map(|stored| (stored.name.clone(), Row::of(stored, keys))).collect()))
    }

    pub(crate) fn overrides(&self) -> Vec<ServerOverride> {
        overrides(&self.0)
    }
}

impl Servers {
    pub(crate) fn new(store: Arc<dyn Store>, keys: Option<SecretKeys>, stored: StoredServers, parts: ServerParts) -> Self {
        let ServerParts { reload, servers: running, connections, rebuilds } = parts;
        Self { store, keys, reload, running, connections, rebuilds, rows: RwLock::new(stored.0), changing: Mutex::default() }
    }

    /// A server's entry with a mark in place of every secret value. `None` if the API has not added the server.
    pub(crate) fn entry(&self, name: &ServerName) -> Option<Value> {
        if self.known(name)?.managed_by == ManagedBy::File {
            return None;
        }
        self.stored_entry(name)
    }

    /// The version of a server's entry, for a change that must not overwrite another one.
    pub(crate) fn version(&self, name: &ServerName) -> String {
        version_of(self.entry(name).as_ref())
    }

    /// Adds a server, or replaces the entry of one that the API has added, but only if `expected` (if given) is its current version
    /// (`management::NO_ENTRY` for a new one). Waits for at most `patience` until the server is connected. Returns whether the server is
    /// new, and the warnings. An entry without `enabled` and `disabled` leaves the server as it is, on or off.
    ///
    /// # Errors
    /// [`ServerError`]. Nothing is changed then.
    pub(crate) async fn put(
        &self,
        name: &ServerName,
        text: &str,
        expected: Option<&str>,
        patience: Duration,
    ) -> Result<(bool, Vec<EntryProblem>), ServerError> {
        let mut members = parse_entry(text)?;
        let switched = server_entry::take_switches(&mut members).map_err(|member| {
            let message = "not true or false: write one of the two".to_owned();
            ServerError::Invalid(vec![EntryProblem { pointer: format!("/{member}"), message }])
        })?;
        let one = self.changing.lock().await;
        self.take_over().await?;
        self.check_not_of_file(name)?;
        self.check_version(name, expected)?;
        let known = self.stored_entry(name);
        let (entry, former, was_on) = self.joined(name, members)?;
        let whole = entry.whole();
        let warnings = self.reload.check_entry(|rules| rules.read(name, &whole).map(|(_, warnings)| warnings)).await?;
        let sealed = self.sealed(name, &entry)?;
        let enabled = switched.or(was_on).unwrap_or(true);
        let is_new = former.is_none();
        if is_new && self.rows.read().values().filter(|row| row.entry.is_some()).count() >= MAX_SERVERS {
            return Err(ServerError::TooMany);
        }
        // What users have stored was for the former address or program.
        let is_other = former.is_some_and(|former| !former.has_same_server(&entry));
        if is_other {
            self.end_sign_ins(name).await?;
        }
        let since = self.rebuilds.listings();
        let sealed_at = sealed.as_ref().map(|sealed| sealed.updated_at);
        let stored = StoredServer { name: name.clone(), entry: Some(Value::Object(entry.shown.clone())), enabled, restarts: 0, sealed };
        let overwrites = Overwrites::expecting(expected, known.as_ref());
        if !self.store.save_server(&stored, is_other, overwrites).await? {
            self.take_over().await?;
            return Err(ServerError::Changed(name.to_string()));
        }
        let change = |row: &mut Row| *row = Row { entry: Some(entry), fault: None, sealed_at, enabled, restarts: row.restarts };
        self.change_and_settle(one, name, (since, patience), change).await;
        Ok((is_new, warnings))
    }

    /// Switches a server on or off. Its entry and what users have stored for it stay. Waits for at most `patience`, as [`Self::put`] does.
    pub(crate) async fn switch(&self, name: &ServerName, enabled: bool, patience: Duration) -> Result<(), ServerError> {
        let one = self.changing.lock().await;
        self.take_over().await?;
        let known = self.known(name).ok_or_else(|| ServerError::NotFound(name.to_string()))?;
        if known.enabled == enabled {
            return Ok(());
        }
        let since = self.rebuilds.listings();
        self.store.switch_server(name, enabled).await?;
        self.change_and_settle(one, name, (since, patience), |row| row.enabled = enabled).await;
        Ok(())
    }

    /// Restarts a server on every service that uses the store. Waits for at most `patience`, as [`Self::put`] does.
    pub(crate) async fn restart(&self, name: &ServerName, patience: Duration) -> Result<(), ServerError> {
        let one = self.changing.lock().await;
        self.take_over().await?;
        let known = self.known(name).ok_or_else(|| ServerError::NotFound(name.to_string()))?;
        if !known.enabled {
            return Err(ServerError::Off(name.to_string()));
        }
        let since = self.rebuilds.listings();
        self.store.restart_server(name).await?;
        self.change_and_settle(one, name, (since, patience), |row| row.restarts += 1).await;
        Ok(())
    }

    /// Removes a server that the API has added, with its secret values and with what users have stored for it, but only if `expected`
    /// (if given) is the current version of its entry.
    pub(crate) async fn remove(&self, name: &ServerName, expected: Option<&str>) -> Result<(), ServerError> {
        let _one = self.changing.lock().await;
        self.take_over().await?;
        self.check_not_of_file(name)?;
        if self.rows.read().get(name).is_none_or(|row| row.entry.is_none()) {
            return Err(ServerError::NotFound(name.to_string()));
        }
        self.check_version(name, expected)?;
        let known = self.stored_entry(name);
        // Tokens can be revoked only as long as the server is configured.
        self.end_sign_ins(name).await?;
        let overwrites = Overwrites::expecting(expected, known.as_ref());
        if !self.store.remove_server(name, overwrites).await? {
            if expected.is_some() {
                self.take_over().await?;
                self.check_version(name, expected)?;
            }
            return Err(ServerError::NotFound(name.to_string()));
        }
        let rows = {
            let mut rows = self.rows.read().clone();
            rows.remove(name);
            rows
        };
        self.apply(rows).await;
        // Somebody may have signed in meanwhile.
        if let Err(error) = self.store.forget_users_of_server(name).await {
            tracing::warn!(server = %name, %error, "what users have stored for a removed server may still be there");
        }
        self.rebuilds.of(name).await;
        Ok(())
    }

    /// Takes over the stored servers, which another service may have changed.
    ///
    /// # Errors
    /// [`StoreError`]. The servers are then unchanged.
    pub(crate) async fn refresh(&self) -> Result<(), StoreError> {
        let _one = self.changing.lock().await;
        self.take_over().await
    }

    /// Every change starts with this: what this service remembers may be older than the store.
    async fn take_over(&self) -> Result<(), StoreError> {
        let StoredServers(mut rows) = StoredServers::load(self.store.as_ref(), self.keys.as_ref()).await?;
        for (name, row) in &mut rows {
            if let Some(former) = self.rows.read().get(name) {
                row.keep_values(former);
            }
        }
        if rows != *self.rows.read() {
            self.apply(rows).await;
        }
        Ok(())
    }

    /// Applies a change that is stored, and waits until the catalog contains it.
    async fn change_and_settle(
        &self,
        one: MutexGuard<'_, ()>,
        name: &ServerName,
        (since, patience): (u64, Duration),
        change: impl FnOnce(&mut Row),
    ) {
        self.change(name, change).await;
        // The server may take long, and other changes must not wait for it.
        drop(one);
        self.settle(name, since, patience).await;
    }

    /// Applies a change that is stored.
    async fn change(&self, name: &ServerName, change: impl FnOnce(&mut Row)) {
        let rows = {
            let mut rows = self.rows.read().clone();
            change(rows.entry(name.clone()).or_default());
            rows
        };
        self.apply(rows).await;
    }

    /// Replaces what the API has set, and restarts the servers whose number of restarts has grown.
    async fn apply(&self, rows: Rows) {
        let overrides = overrides(&rows);
        let former = std::mem::replace(&mut *self.rows.write(), rows.clone());
        let restarts = |name: &ServerName| former.get(name).map_or(0, |row| row.restarts);
        let restart = rows.iter().filter(|(name, row)| row.restarts > restarts(name)).map(|(name, _)| name.clone()).collect();
        self.reload.set_overrides(overrides, &restart).await;
    }

    /// Waits until the catalog contains a change: a server that is on has connected and listed its tools, or failed to. `since` is the
    /// number of listings before the change.
    async fn settle(&self, name: &ServerName, since: u64, patience: Duration) {
        let start = Instant::now();
        let state = || self.running.states().into_iter().find(|state: &ServerState| state.server == *name);
        let mut phase = state().map(|state| state.phase);
        while phase == Some(ServerPhase::Starting) && start.elapsed() < patience {
            sleep(LOOK).await;
            phase = state().map(|state| state.phase);
        }
        if phase == Some(ServerPhase::Connected) {
            self.rebuilds.listed_after(since, name, LISTING).await;
        }
        // Everything before this request is in the catalog then.
        self.rebuilds.of(name).await;
    }

    /// Ends the sign-ins of all users to a server, and revokes their tokens.
    async fn end_sign_ins(&self, name: &ServerName) -> Result<(), StoreError> {
        for stored in self.store.connections_to(name).await? {
            self.connections.disconnect(&stored.sealed.place.owner, name).await?;
        }
        Ok(())
    }

    /// The new entry with the secret values that it keeps, the former one, and whether that one is on.
    fn joined(
        &self,
        name: &ServerName,
        members: Map<String, Value>,
    ) -> Result<(ServerEntry, Option<ServerEntry>, Option<bool>), ServerError> {
        let rows = self.rows.read();
        let row = rows.get(name);
        let former = row.and_then(|row| row.entry.clone());
        let mut entry = ServerEntry::split(members);
        entry.keep(former.as_ref()).map_err(|error| {
            let (pointer, message) = (error.pointer().to_owned(), error.to_string());
            ServerError::Invalid(vec![EntryProblem { pointer, message }])
        })?;
        // A switch without an entry is for a server of the file that had this name before.
        let was_on = row.filter(|row| row.entry.is_some()).map(|row| row.enabled);
        Ok((entry, former, was_on))
    }

    fn sealed(&self, name: &ServerName, entry: &ServerEntry) -> Result<Option<SealedSecret>, ServerError> {
        if entry.secrets.is_empty() {
            return Ok(None);
        }
        let Some(keys) = &self.keys else {
            let pointers: Vec<&str> = entry.secrets.keys().map(String::as_str).collect();
            return Err(ServerError::NoKey(pointers.join(", ")));
        };
        let values: Value = entry.secrets.iter().map(|(pointer, value)| (pointer.as_str(), value.as_str())).collect();
        let nonce = rand::random::<[u8; NONCE_BYTES]>();
        Ok(Some(keys.seal(SecretPlace::of_entry(name), &values.to_string().into(), nonce, now())?))
    }

    fn known(&self, name: &ServerName) -> Option<KnownServer> {
        self.reload.known().iter().find(|known| known.name == *name).cloned()
    }

    /// The entry in the store, as far as this service knows.
    fn stored_entry(&self, name: &ServerName) -> Option<Value> {
        let rows = self.rows.read();
        Some(Value::Object(rows.get(name)?.entry.as_ref()?.shown.clone()))
    }

    /// Checks that a change is based on the current entry.
    fn check_version(&self, name: &ServerName, expected: Option<&str>) -> Result<(), ServerError> {
        let is_current = expected.is_none_or(|expected| expected == self.version(name));
        if is_current { Ok(()) } else { Err(ServerError::Changed(name.to_string())) }
    }

    fn check_not_of_file(&self, name: &ServerName) -> Result<(), ManagedInFile> {
        match self.known(name) {
            Some(known) if known.managed_by == ManagedBy::File => {
                Err(ManagedInFile::new(format_args!("the server `{name}`"), &self.reload.servers_file()))
            }
            _ => Ok(()),
        }
    }
}

impl Row {
    fn of(stored: StoredServer, keys: Option<&SecretKeys>) -> Self {
        let (secrets, fault) = match (&stored.sealed, keys) {
            (None, _) => (BTreeMap::new(), None),
            (Some(_), None) => (BTreeMap::new(), Some(WITHOUT_KEY.to_owned())),
            (Some(sealed), Some(keys)) => match opened(keys, sealed) {
                Ok(secrets) => (secrets, None),
                Err(reason) => (BTreeMap::new(), Some(unreadable(&reason))),
            },
        };
        let entry = stored.entry.and_then(|entry| match entry {
            Value::Object(shown) => Some(ServerEntry { shown, secrets }),
            _ => None,
        });
        let sealed_at = stored.sealed.map(|sealed| sealed.updated_at);
        Self { entry, fault, sealed_at, enabled: stored.enabled, restarts: stored.restarts }
    }

    /// Keeps the secret values that this service knows, if it can't read the stored ones, but nobody has changed them: another service has
    /// encrypted them with a key that this one doesn't have yet.
    fn keep_values(&mut self, former: &Self) {
        let (Some(entry), Some(known)) = (&mut self.entry, &former.entry) else { return };
        if self.fault.is_some() && self.sealed_at == former.sealed_at && entry.shown == known.shown {
            entry.secrets.clone_from(&known.secrets);
        }
    }

    /// The entry to use, or the reason why there is none; and why the stored one can't be read, if the known one is used.
    fn usable(&self) -> Option<(Result<Value, String>, Option<String>)> {
        let entry = self.entry.as_ref()?;
        let still_known = |fault: &String| format!("{fault}. Until the next restart, it runs with the values that this service knows");
        Some(if entry.is_complete() {
            (Ok(entry.whole()), self.fault.as_ref().map(still_known))
        } else {
            (Err(self.fault.clone().unwrap_or_else(|| unreadable("some are missing"))), None)
        })
    }
}

/// The fault of entries that were stored with a key. Without one, they can't be saved again either.
const WITHOUT_KEY: &str = "its secret values can't be read without a key: set secrets.key (or TOOLSIEVE_SECRETS_KEY) to the key that \
                           encrypted them, and restart the service";

fn unreadable(reason: &str) -> String {
    format!("its secret values can't be read ({reason}): save the entry again, with its values")
}

fn opened(keys: &SecretKeys, sealed: &SealedSecret) -> Result<BTreeMap<String, String>, String> {
    let values = keys.open(sealed).map_err(|error| error.to_string())?;
    serde_json::from_str(values.expose_secret()).map_err(|_| "they are damaged".to_owned())
}

/// The present time as precise as stores keep it, so that what was written is equal to what is read.
fn now() -> SystemTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UNIX_EPOCH + Duration::new(since.as_secs(), since.subsec_millis() * 1_000_000)
}

fn overrides(rows: &Rows) -> Vec<ServerOverride> {
    let one = |(name, row): (&ServerName, &Row)| {
        let (entry, fault) = row.usable().map_or((None, None), |(entry, fault)| (Some(entry), fault));
        ServerOverride { name: name.clone(), entry, fault, enabled: row.enabled }
    };
    rows.iter().map(one).collect()
}

impl From<EntryError> for ServerError {
    fn from(error: EntryError) -> Self {
        match error {
            EntryError::Syntax(error) => Self::Syntax(error),
            EntryError::Commands => Self::Commands,
            EntryError::Name(reason) => Self::Name(reason),
            EntryError::Invalid(problems) => Self::Invalid(problems),
        }
    }
}

fn in_words(problems: &[EntryProblem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
