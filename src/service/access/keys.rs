//! API keys: creates, rotates and revokes them, and looks them up in memory for every request.
//!
//! A change is stored before it is acknowledged, and applies as soon as the response is sent.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use secrecy::SecretString;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::domain::access::api_key::{self, ApiKey, ID_BYTES, KeyId, KeyState, Presented, SECRET_BYTES};
use crate::domain::access::toolset::ToolsetName;
use crate::domain::catalog::tool::ServerName;
use crate::domain::text::canonical::Fingerprint;
use crate::service::ports::{KeyStore, StoreError};
use crate::service::records::write_behind;
use crate::service::supervision::Supervised;

/// Precision of a key's last use, in seconds.
const USE_SECONDS: u64 = 3_600;
/// Maximum number of queued uses. If one is dropped, the next use in a later hour is recorded instead.
const QUEUE: usize = 256;

/// The properties of a new key.
#[derive(Clone, Debug, Default)]
pub struct NewKey {
    pub name: String,
    /// The servers that the key may use; `None` for all.
    pub servers: Option<BTreeSet<ServerName>>,
    /// The toolsets that the key may use; `None` for all tools, including those in no toolset.
    pub toolsets: Option<BTreeSet<ToolsetName>>,
    pub groups: BTreeSet<String>,
    pub trusted: bool,
    pub expires_at: Option<SystemTime>,
}

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
    Store(#[from] StoreError),
}

struct Entry {
    key: Arc<ApiKey>,
    /// Time of the last use, in hours since 1970; 0 if never used.
    used: AtomicU64,
}

type Table = HashMap<KeyId, Arc<Entry>>;

pub struct Keys {
    store: Arc<dyn KeyStore>,
    table: ArcSwap<Table>,
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
        let table = store.api_keys().await?.into_iter().map(|key| (key.id.clone(), Entry::of(key))).collect();
        let (used, queue) = mpsc::channel(QUEUE);
        let task = tokio::spawn(note_uses(Arc::clone(&store), queue, stop));
        let changed = watch::Sender::new(());
        Ok((Arc::new(Self { store, table: ArcSwap::from_pointee(table), used, changing: Mutex::default(), changed }), task))
    }

    /// The key with this text, if it is valid now.
    pub fn find(&self, presented: &str) -> Option<Arc<ApiKey>> {
        let now = SystemTime::now();
        let entry = self.good(&Presented { id: api_key::id_of(presented)?, hash: Fingerprint::of_text(presented) }, now)?;
        let hour = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / USE_SECONDS;
        if entry.used.swap(hour, Ordering::Relaxed) != hour {
            // If the queue is full, the use is not recorded.
            let _ = self.used.try_send((entry.key.id.clone(), of_hour(hour)));
        }
        Some(Arc::clone(&entry.key))
    }

    /// Whether the key that authenticated a caller is still valid, with the same secret.
    pub fn is_good(&self, presented: &Presented) -> bool {
        self.good(presented, SystemTime::now()).is_some()
    }

    fn good(&self, presented: &Presented, now: SystemTime) -> Option<Arc<Entry>> {
        self.table.load().get(&presented.id).filter(|entry| entry.key.admits(presented.hash, now)).cloned()
    }

    /// A receiver that is notified of every change of a key.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// All keys, in order of creation.
    pub fn list(&self) -> Vec<ApiKey> {
        let mut keys: Vec<ApiKey> = self.table.load().values().map(|entry| entry.key()).collect();
        keys.sort_by(|one, other| one.created_at.cmp(&other.created_at).then_with(|| one.id.cmp(&other.id)));
        keys
    }

    /// All keys that are valid now.
    pub fn active(&self) -> Vec<ApiKey> {
        let now = SystemTime::now();
        self.list().into_iter().filter(|key| key.state(now) == KeyState::Active).collect()
    }

    /// Creates a key. The secret can't be read again later.
    pub async fn create(&self, new: NewKey) -> Result<(ApiKey, SecretString), KeyError> {
        let now = SystemTime::now();
        let invalid = |parameter, reason| KeyError::Invalid { parameter, reason };
        api_key::check_name(&new.name).map_err(|reason| invalid("name", reason))?;
        if new.expires_at.is_some_and(|end| end <= now) {
            return Err(invalid("expires_at", "the key would have expired already"));
        }
        if new.servers.as_ref().is_some_and(BTreeSet::is_empty) {
            return Err(invalid("servers", "servers is empty: leave it out for all, or name some"));
        }
        if new.toolsets.as_ref().is_some_and(BTreeSet::is_empty) {
            return Err(invalid("toolsets", "toolsets is empty: leave it out for all tools, or name some"));
        }
        let _one = self.changing.lock().await;
        if self.list().iter().any(|key| key.name == new.name && key.revoked_at.is_none()) {
            return Err(KeyError::NameTaken);
        }
        let id = KeyId::of_bytes(rand::random::<[u8; ID_BYTES]>());
        let secret = api_key::compose(&id, &rand::random::<[u8; SECRET_BYTES]>());
        let NewKey { name, servers, toolsets, groups, trusted, expires_at } = new;
        let hash = api_key::hash(&secret);
        let (created_at, revoked_at, last_used_at) = (now, None, None);
        let key = ApiKey { id, name, hash, servers, toolsets, groups, trusted, created_at, expires_at, revoked_at, last_used_at };
        self.save(key.clone()).await?;
        Ok((key, secret))
    }

    /// Replaces the secret of a key, and optionally its expiry. The former secret stops working.
    ///
    /// # Errors
    /// [`KeyError`]; a revoked key is treated as unknown.
    pub async fn rotate(&self, id: &KeyId, expires_at: Option<SystemTime>) -> Result<(ApiKey, SecretString), KeyError> {
        let now = SystemTime::now();
        let _one = self.changing.lock().await;
        let mut key = self.get(id)?;
        key.expires_at = expires_at.or(key.expires_at);
        match key.state(now) {
            KeyState::Active => {}
            KeyState::Expired => {
                let reason = "the key has expired: set a later expiry with its new secret";
                return Err(KeyError::Invalid { parameter: "expires_at", reason });
            }
            KeyState::Revoked => return Err(KeyError::NotFound),
        }
        let secret = api_key::compose(id, &rand::random::<[u8; SECRET_BYTES]>());
        key.hash = api_key::hash(&secret);
        self.save(key.clone()).await?;
        Ok((key, secret))
    }

    /// Revokes a key permanently and deletes everything stored under its name. Returns whether it was still unrevoked.
    pub async fn revoke(&self, id: &KeyId) -> Result<(ApiKey, bool), KeyError> {
        let _one = self.changing.lock().await;
        let mut key = self.get(id)?;
        let is_good = key.revoked_at.is_none();
        if is_good {
            key.revoked_at = Some(SystemTime::now());
            self.store.revoke_api_key(&key).await?;
            self.take(&key);
        }
        Ok((key, is_good))
    }

    /// Deletes keys that were revoked or expired before `time`. Returns their number.
    pub async fn forget_ended_before(&self, time: SystemTime) -> Result<u64, StoreError> {
        let _one = self.changing.lock().await;
        let gone = self.store.forget_keys_ended_before(time).await?;
        if !gone.is_empty() {
            self.table.rcu(|table| {
                let mut table = Table::clone(table);
                table.retain(|id, _| !gone.contains(id));
                table
            });
        }
        Ok(gone.len() as u64)
    }

    fn get(&self, id: &KeyId) -> Result<ApiKey, KeyError> {
        self.table.load().get(id).map(|entry| entry.key()).ok_or(KeyError::NotFound)
    }

    async fn save(&self, key: ApiKey) -> Result<(), StoreError> {
        self.store.save_api_key(&key).await?;
        self.take(&key);
        Ok(())
    }

    fn take(&self, key: &ApiKey) {
        self.table.rcu(|table| {
            let mut table = Table::clone(table);
            table.insert(key.id.clone(), Entry::of(key.clone()));
            table
        });
        self.changed.send_replace(());
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
