//! API keys: creates, rotates and revokes them, and looks them up in memory for every request.
//!
//! A change is stored before it is acknowledged, and applies as soon as the response is sent. The settings file can define
//! keys too. These are in the same table, and take precedence over stored keys with the same name or the same secret.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use secrecy::SecretString;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::domain::access::api_key::{self, ApiKey, ID_BYTES, KeyDefinition, KeyId, KeyProperties, KeyState, Presented, SECRET_BYTES};
use crate::domain::access::management::{ManagedBy, ManagedInFile};
use crate::domain::access::principal::PrincipalId;
use crate::domain::text::canonical::Fingerprint;
use crate::service::ports::{KeyStore, StoreError};
use crate::service::supervision::Supervised;
use crate::service::write_behind;
use crate::settings::LiveSettings;

/// Precision of a key's last use, in seconds.
const USE_SECONDS: u64 = 3_600;
/// Maximum number of queued uses. If one is dropped, the next use in a later hour is recorded instead.
const QUEUE: usize = 256;

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("there is no such key")]
    NotFound,
    /// The property `parameter` is invalid.
    #[error("{reason}")]
    Invalid { parameter: &'static str, reason: &'static str },
    #[error("a key with this name exists: revoke or rotate it first")]
    NameTaken,
    #[error(transparent)]
    OfFile(#[from] ManagedInFile),
    #[error(transparent)]
    Store(#[from] StoreError),
}

struct Entry {
    key: Arc<ApiKey>,
    /// Time of the last use, in hours since 1970; 0 if never used.
    used: AtomicU64,
}

/// All keys.
#[derive(Clone, Default)]
struct Table {
    by_id: HashMap<KeyId, Arc<Entry>>,
    /// The keys in files by their hashes, because their texts needn't contain an id.
    of_files: HashMap<Fingerprint, KeyId>,
    names_in_files: HashSet<String>,
    /// The file that defines these keys.
    file: Arc<str>,
}

pub struct Keys {
    store: Arc<dyn KeyStore>,
    table: ArcSwap<Table>,
    /// Whether a file has defined a key since the start. Then all callers need a key, even after the file has changed.
    required: AtomicBool,
    used: mpsc::Sender<(KeyId, SystemTime)>,
    /// Ensures that changes run one after another.
    changing: Mutex<()>,
    changed: watch::Sender<()>,
}

impl Keys {
    /// Loads all keys. Records their use until `stop`.
    ///
    /// # Errors
    /// [`StoreError`], because no caller could be identified without the keys.
    pub async fn start(store: Arc<dyn KeyStore>, stop: CancellationToken) -> Result<(Arc<Self>, JoinHandle<()>), StoreError> {
        let by_id = store.api_keys().await?.into_iter().map(|key| (key.id.clone(), Entry::of(key))).collect();
        let table = Table { by_id, ..Table::default() };
        let (used, queue) = mpsc::channel(QUEUE);
        let task = tokio::spawn(note_uses(Arc::clone(&store), queue, stop));
        let changed = watch::Sender::new(());
        let (table, required) = (ArcSwap::from_pointee(table), AtomicBool::new(false));
        Ok((Arc::new(Self { store, table, required, used, changing: Mutex::default(), changed }), task))
    }

    /// Replaces the keys that the settings file defines. The MCP sessions of keys that are gone or have another secret end.
    pub fn configure(&self, live: &LiveSettings) {
        if !live.api_keys.is_empty() {
            self.required.store(true, Ordering::Relaxed);
        }
        self.table.rcu(|table| table.with_definitions(&live.api_keys, &live.file));
        let table = self.table.load();
        let overridden = table.by_id.values().filter(|entry| entry.key.revoked_at.is_none() && table.overrides(&entry.key));
        for entry in overridden {
            tracing::warn!(
                key = entry.key.id.as_str(),
                name = entry.key.name,
                file = &*live.file,
                "a file defines a key with the same name or secret: the stored key doesn't work. Revoke it by its id"
            );
        }
        self.changed.send_replace(());
    }

    /// Takes over the stored keys, which another service may have changed.
    ///
    /// # Errors
    /// [`StoreError`]. The keys are then unchanged.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        let _one = self.changing.lock().await;
        let stored = self.store.api_keys().await?;
        self.table.rcu(|table| table.with_stored(&stored));
        self.changed.send_replace(());
        Ok(())
    }

    /// Whether a file has defined a key since the start, so that all callers need a key.
    pub fn are_required(&self) -> bool {
        self.required.load(Ordering::Relaxed)
    }

    /// Whether this text is a key that a file defines, valid or not.
    pub fn is_in_file(&self, presented: &str) -> bool {
        let table = self.table.load();
        !table.of_files.is_empty() && table.of_files.contains_key(&Fingerprint::of_text(presented))
    }

    /// The key with this text, if it is valid now.
    pub fn find(&self, presented: &str) -> Option<Arc<ApiKey>> {
        let now = SystemTime::now();
        let entry = self.good(&self.presented(presented)?, now)?;
        let hour = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / USE_SECONDS;
        if entry.used.swap(hour, Ordering::Relaxed) != hour {
            // If the queue is full, the use is not recorded.
            let _ = self.used.try_send((entry.key.id.clone(), of_hour(hour)));
        }
        Some(Arc::clone(&entry.key))
    }

    /// The key that this text claims to be. `None` if it has neither our format nor the hash of a key in a file.
    fn presented(&self, text: &str) -> Option<Presented> {
        let (table, id) = (self.table.load(), api_key::id_of(text));
        if table.of_files.is_empty() && id.is_none() {
            return None;
        }
        let hash = Fingerprint::of_text(text);
        Some(Presented { id: table.of_files.get(&hash).cloned().or(id)?, hash })
    }

    /// Whether the key that authenticated a caller is still valid, with the same secret.
    pub fn is_good(&self, presented: &Presented) -> bool {
        self.good(presented, SystemTime::now()).is_some()
    }

    /// The key that authenticated a caller, if it is still valid, with the same secret.
    pub fn of(&self, presented: &Presented) -> Option<Arc<ApiKey>> {
        self.good(presented, SystemTime::now()).map(|entry| Arc::clone(&entry.key))
    }

    fn good(&self, presented: &Presented, now: SystemTime) -> Option<Arc<Entry>> {
        let table = self.table.load();
        let entry = table.by_id.get(&presented.id)?;
        (entry.key.admits(presented.hash, now) && !table.overrides(&entry.key)).then(|| Arc::clone(entry))
    }

    /// A receiver that is notified of every change of a key.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// All keys: those in files, then the stored ones in order of creation.
    pub fn list(&self) -> Vec<ApiKey> {
        let mut keys: Vec<ApiKey> = self.table.load().by_id.values().map(|entry| entry.key()).collect();
        keys.sort_by(|one, other| one.created_at.cmp(&other.created_at).then_with(|| one.id.cmp(&other.id)));
        keys
    }

    /// The state of a key, which may be overridden by a key in a file.
    pub fn state(&self, key: &ApiKey, now: SystemTime) -> KeyState {
        match key.state(now) {
            KeyState::Active | KeyState::Expired if self.table.load().overrides(key) => KeyState::Overridden,
            state => state,
        }
    }

    /// All keys that are valid now.
    pub fn active(&self) -> Vec<ApiKey> {
        let now = SystemTime::now();
        self.list().into_iter().filter(|key| self.state(key, now) == KeyState::Active).collect()
    }

    /// Creates a key. The secret can't be read again later.
    pub async fn create(&self, new: KeyProperties) -> Result<(ApiKey, SecretString), KeyError> {
        let now = SystemTime::now();
        let invalid = |parameter, reason| KeyError::Invalid { parameter, reason };
        api_key::check(&new.name, new.servers.as_ref(), new.toolsets.as_ref(), &new.groups)
            .map_err(|(parameter, reason)| invalid(parameter, reason))?;
        let of_callers = [
            ("servers", new.servers.is_some()),
            ("toolsets", new.toolsets.is_some()),
            ("groups", !new.groups.is_empty()),
            ("trusted", new.trusted),
        ];
        api_key::check_role(new.role, &of_callers).map_err(|(parameter, reason)| invalid(parameter, reason))?;
        if new.expires_at.is_some_and(|end| end <= now) {
            return Err(invalid("expires_at", "the key would have expired already"));
        }
        let _one = self.changing.lock().await;
        self.check_stored(&KeyId::of_file(&new.name))?;
        if self.list().iter().any(|key| key.name == new.name && key.revoked_at.is_none()) {
            return Err(KeyError::NameTaken);
        }
        let id = KeyId::of_bytes(rand::random::<[u8; ID_BYTES]>());
        let secret = api_key::compose(&id, &rand::random::<[u8; SECRET_BYTES]>());
        let servers = api_key::servers_of_role(new.role, new.servers);
        let key = KeyProperties { servers, ..new }.record(id, api_key::hash(&secret), now);
        if self.save(&key).await? { Ok((key, secret)) } else { Err(KeyError::NameTaken) }
    }

    /// Replaces the secret of a key, and optionally its expiry. The former secret stops working.
    ///
    /// # Errors
    /// [`KeyError`]; a revoked key is treated as unknown.
    pub async fn rotate(&self, id: &KeyId, expires_at: Option<SystemTime>) -> Result<(ApiKey, SecretString), KeyError> {
        let now = SystemTime::now();
        let _one = self.changing.lock().await;
        self.check_stored(id)?;
        let mut key = self.current(id).await?;
        key.expires_at = expires_at.or(key.expires_at);
        match key.state(now) {
            KeyState::Active => {}
            KeyState::Expired => {
                let reason = "the key has expired: set a later expiry with its new secret";
                return Err(KeyError::Invalid { parameter: "expires_at", reason });
            }
            KeyState::Revoked | KeyState::Overridden => return Err(KeyError::NotFound),
        }
        let secret = api_key::compose(id, &rand::random::<[u8; SECRET_BYTES]>());
        key.hash = api_key::hash(&secret);
        if self.save(&key).await? { Ok((key, secret)) } else { Err(KeyError::NameTaken) }
    }

    /// Revokes a key permanently and deletes everything stored under its name, unless a key in a file has the same name.
    /// Returns whether it was still unrevoked.
    pub async fn revoke(&self, id: &KeyId) -> Result<(ApiKey, bool), KeyError> {
        let _one = self.changing.lock().await;
        self.check_stored(id)?;
        let mut key = self.current(id).await?;
        if key.revoked_at.is_some() {
            return Ok((key, false));
        }
        key.revoked_at = Some(SystemTime::now());
        if self.is_name_in_file(&key.name) {
            self.store.save_api_key(&key).await?;
        } else {
            self.store.revoke_api_key(&key).await?;
        }
        self.take(&key);
        Ok((key, true))
    }

    /// Whether this is a named key that was revoked, and no other key has its name. A request that began before may still run.
    pub(crate) fn is_revoked(&self, owner: &PrincipalId) -> bool {
        let Some(name) = owner.name_of_key() else { return false };
        let table = self.table.load();
        let mut named = table.by_id.values().filter(|entry| entry.key.name == name).peekable();
        named.peek().is_some() && named.all(|entry| entry.key.revoked_at.is_some())
    }

    /// Whether a file defines a key with this name. Data stored under the name then belongs to that key.
    pub fn is_name_in_file(&self, name: &str) -> bool {
        self.table.load().names_in_files.contains(name)
    }

    /// Checks that no file defines this key.
    fn check_stored(&self, id: &KeyId) -> Result<(), ManagedInFile> {
        let table = self.table.load();
        let entry = table.by_id.get(id).filter(|entry| entry.key.managed_by() == ManagedBy::File);
        entry.map_or(Ok(()), |entry| Err(ManagedInFile::new(format_args!("the key `{}`", entry.key.name), &table.file)))
    }

    /// What [`Self::forget_ended_before`] would delete together with expired keys: the keys, and the owners of their data.
    pub(crate) fn ended_before(&self, time: SystemTime) -> Vec<(KeyId, PrincipalId)> {
        let ended = self.list().into_iter().filter(|key| expired_before(key, time) && !self.is_name_in_file(&key.name));
        ended.map(|key| (key.id, PrincipalId::of_key(&key.name))).collect()
    }

    /// Deletes keys that were revoked or expired before `time`. Returns their number.
    pub async fn forget_ended_before(&self, time: SystemTime) -> Result<u64, StoreError> {
        let _one = self.changing.lock().await;
        for key in self.list() {
            if expired_before(&key, time) && key.managed_by() == ManagedBy::Api && self.is_name_in_file(&key.name) {
                // Unlike an expired key, a revoked one leaves the data under its name, which belongs to the key in the file.
                self.save(&ApiKey { revoked_at: key.expires_at, ..key }).await?;
            }
        }
        let gone = self.store.forget_keys_ended_before(time).await?;
        if !gone.is_empty() {
            self.table.rcu(|table| {
                let mut table = Table::clone(table);
                table.by_id.retain(|id, _| !gone.contains(id));
                table
            });
        }
        Ok(gone.len() as u64)
    }

    /// The key as it is stored now. Another service may have created or revoked it a moment ago.
    async fn current(&self, id: &KeyId) -> Result<ApiKey, KeyError> {
        let stored = self.store.api_keys().await?;
        self.table.rcu(|table| table.with_stored(&stored));
        self.get(id)
    }

    fn get(&self, id: &KeyId) -> Result<ApiKey, KeyError> {
        self.table.load().by_id.get(id).map(|entry| entry.key()).ok_or(KeyError::NotFound)
    }

    /// Returns whether the key is stored. Otherwise another service has just added one with its name.
    async fn save(&self, key: &ApiKey) -> Result<bool, StoreError> {
        let is_saved = self.store.save_api_key(key).await?;
        if is_saved {
            self.take(key);
        }
        Ok(is_saved)
    }

    fn take(&self, key: &ApiKey) {
        self.table.rcu(|table| {
            let mut table = Table::clone(table);
            table.by_id.insert(key.id.clone(), Entry::of(key.clone()));
            table
        });
        self.changed.send_replace(());
    }
}

impl Table {
    /// The table with these keys in place of the former ones in files. The times of their last use stay.
    fn with_definitions(&self, definitions: &[KeyDefinition], file: &Arc<str>) -> Self {
        let mut table = Self { file: Arc::clone(file), ..Self::default() };
        let stored = self.by_id.iter().filter(|(_, entry)| entry.key.managed_by() == ManagedBy::Api);
        table.by_id = stored.map(|(id, entry)| (id.clone(), Arc::clone(entry))).collect();
        for definition in definitions {
            let key = definition.record();
            let last_used_at = self.by_id.get(&key.id).and_then(|entry| entry.key().last_used_at);
            table.of_files.insert(key.hash, key.id.clone());
            table.names_in_files.insert(key.name.clone());
            table.by_id.insert(key.id.clone(), Entry::of(ApiKey { last_used_at, ..key }));
        }
        table
    }

    /// The table with these stored keys in place of the former ones. Later times of their last use stay.
    fn with_stored(&self, stored: &[ApiKey]) -> Self {
        let mut table = self.clone();
        table.by_id.retain(|_, entry| entry.key.managed_by() == ManagedBy::File);
        for key in stored {
            let used_here = self.by_id.get(&key.id).and_then(|entry| entry.key().last_used_at);
            let key = ApiKey { last_used_at: key.last_used_at.max(used_here), ..key.clone() };
            table.by_id.entry(key.id.clone()).or_insert_with(|| Entry::of(key));
        }
        table
    }

    /// Whether a key in a file takes precedence over this stored key.
    fn overrides(&self, key: &ApiKey) -> bool {
        let is_in_file = || self.names_in_files.contains(&key.name) || self.of_files.contains_key(&key.hash);
        key.managed_by() == ManagedBy::Api && is_in_file()
    }
}

impl Entry {
    fn of(key: ApiKey) -> Arc<Self> {
        let hour = |at: SystemTime| at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / USE_SECONDS;
        let used = AtomicU64::new(key.last_used_at.map_or(0, hour));
        Arc::new(Self { key: Arc::new(key), used })
    }

    /// The key, with the time of its last use.
    fn key(&self) -> ApiKey {
        let used = self.used.load(Ordering::Relaxed);
        ApiKey { last_used_at: (used > 0).then(|| of_hour(used)), ..ApiKey::clone(&self.key) }
    }
}

fn of_hour(hour: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(hour * USE_SECONDS)
}

async fn note_uses(store: Arc<dyn KeyStore>, mut queue: mpsc::Receiver<(KeyId, SystemTime)>, stop: CancellationToken) {
    let mut part = Supervised::new("use of keys");
    while part.panicked(note(store.as_ref(), &mut queue, &stop)).await {}
}

async fn note(store: &dyn KeyStore, queue: &mut mpsc::Receiver<(KeyId, SystemTime)>, stop: &CancellationToken) {
    while let Some((id, at)) = write_behind::next(queue, stop).await {
        if let Err(error) = store.touch_api_key(&id, at).await {
            tracing::warn!(error = %error, "the use of an API key was not recorded");
        }
    }
}
/// Whether a key expired before `time` without being revoked.
fn expired_before(key: &ApiKey, time: SystemTime) -> bool {
    key.revoked_at.is_none() && key.expires_at.is_some_and(|end| end < time)
}
