//! Callers' secrets for MCP servers: stores, lists and deletes them, and passes them to the server with a call.
//!
//! Only its server receives a value. A change is stored before it is acknowledged; from then on, connections with the former
//! value accept no new calls. Other services on the store close theirs as soon as they learn of the change.

mod given;
mod credentials;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use http::HeaderMap;
use secrecy::SecretString;

pub(crate) use self::credentials::CredentialError;
use self::given::{Given, Stand};

use crate::domain::access::principal::{Principal, PrincipalId};
use crate::domain::access::secret::{NONCE_BYTES, SealError, SealedSecret, SecretKeys, SecretName, SecretOpenError, SecretPlace};
use crate::domain::access::template::{self, Slot};
use crate::domain::catalog::tool::ServerName;
use crate::domain::text::similar::did_you_mean;
use crate::service::access::connections::Connections;
use crate::service::ports::{Parting, SecretStore, StoreError, StoredSecret, ToolServers};
use crate::settings::{LiveSettings, PerUserSettings, TransportSettings};

/// Maximum length of a secret, in bytes. Private keys of certificates are among the longest.
pub(crate) const MAX_BYTES: usize = 16 << 10;

/// The state of a secret, as shown to its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SecretState {
    Set,
    /// A server expects the secret, but it is not stored.
    Missing,
    /// The secret is damaged, or the service no longer has the key that encrypted it.
    Unreadable,
}

/// A secret, without its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KnownSecret {
    pub server: ServerName,
    pub name: SecretName,
    pub state: SecretState,
    /// Whether the server's current configuration uses the secret.
    pub is_taken: bool,
    pub updated_at: Option<SystemTime>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum SecretError {
    #[error(
        "the service has no key to seal secrets with: an administrator must set `secrets.key` or TOOLSIEVE_SECRETS_KEY to what \
         `toolsieve secrets new-key` prints"
    )]
    NoKey,
    #[error(
        "secrets belong to a user or a named key, and this request belongs to neither: send a key created with `toolsieve keys create`, or \
         name the user with a trusted key"
    )]
    Nobody,
    #[error("there is no such server or secret")]
    NotFound,
    /// The parameter `name` or `value` is invalid.
    #[error("{reason}")]
    Invalid { parameter: &'static str, reason: String },
    #[error(transparent)]
    Seal(#[from] SealError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The secrets that a configured server uses.
struct Taken {
    settings: PerUserSettings,
    secrets: BTreeSet<SecretName>,
    slot: Slot,
}

pub(crate) struct Secrets {
    store: Arc<dyn SecretStore>,
    servers: Arc<dyn ToolServers>,
    connections: Arc<Connections>,
    /// The encryption keys; `None` if secrets can't be stored.
    keys: Option<SecretKeys>,
    taken: ArcSwap<HashMap<ServerName, Arc<Taken>>>,
    given: Given,
}

impl Secrets {
    pub(crate) fn new(
        store: Arc<dyn SecretStore>,
        servers: Arc<dyn ToolServers>,
        connections: Arc<Connections>,
        keys: Option<SecretKeys>,
        live: &LiveSettings,
    ) -> Self {
        let secrets = Self { store, servers, connections, keys, taken: ArcSwap::default(), given: Given::new() };
        secrets.configure(live);
        secrets
    }

    /// Applies changed settings.
    pub(crate) fn configure(&self, live: &LiveSettings) {
        self.connections.configure(live);
        let taken = live.servers.iter().map(|server| {
            let is_process = matches!(server.transport, TransportSettings::Stdio { .. });
            let slot = if is_process { Slot::Variable } else { Slot::Header };
            let taken = Taken { settings: server.per_user.clone(), secrets: server.per_user.secrets(), slot };
            (server.name.clone(), Arc::new(taken))
        });
        self.taken.store(Arc::new(taken.collect()));
    }

    /// The caller's secrets, and missing ones that servers visible to the caller use.
    pub(crate) async fn list(&self, caller: &Principal, may_know: impl Fn(&ServerName) -> bool) -> Result<Vec<KnownSecret>, SecretError> {
        let owner = owner(caller)?;
        let keys = self.keys()?;
        let taken = self.taken.load_full();
        let mut known = BTreeMap::new();
        for secret in self.store.secrets(owner).await? {
            let state = if keys.open(&secret).is_ok() { SecretState::Set } else { SecretState::Unreadable };
            let SecretPlace { server, name, .. } = secret.place;
            let is_taken = taken.get(&server).is_some_and(|taken| taken.secrets.contains(&name));
            let updated_at = Some(secret.updated_at);
            known.insert((server.clone(), name.clone()), KnownSecret { server, name, state, is_taken, updated_at });
        }
        for (server, taken) in taken.iter().filter(|(server, _)| may_know(server)) {
            for name in &taken.secrets {
                let missing = || KnownSecret {
                    server: server.clone(),
                    name: name.clone(),
                    state: SecretState::Missing,
                    is_taken: true,
                    updated_at: None,
                };
                known.entry((server.clone(), name.clone())).or_insert_with(missing);
            }
        }
        Ok(known.into_values().collect())
    }

    /// A part of the secrets of all users and keys without their values, and their whole number.
    pub(crate) async fn stored(&self, offset: usize, limit: usize) -> Result<(Vec<StoredSecret>, u64), StoreError> {
        self.store.stored_secrets(offset, limit).await
    }

    /// Stores a value, replacing a former one.
    pub(crate) async fn put(
        &self,
        caller: &Principal,
        server: &ServerName,
        name: &str,
        value: &SecretString,
    ) -> Result<SystemTime, SecretError> {
        // An unknown server comes first, because a denied one is rejected before any of this is read.
        let taken = self.taken.load().get(server).cloned().ok_or(SecretError::NotFound)?;
        let owner = owner(caller)?.clone();
        let keys = self.keys()?;
        let name = taken.name(server, name)?;
        if !template::fits(value, taken.slot) {
            let reason = match taken.slot {
                Slot::Header => "the server gets it in a header, which must be one line of ASCII without surrounding spaces",
                Slot::Variable => "the server gets it in a variable of its process, which can't contain NUL",
            };
            return Err(SecretError::Invalid { parameter: "value", reason: reason.to_owned() });
        }
        let now = SystemTime::now();
        let place = SecretPlace { owner, server: server.clone(), name };
        let secret = keys.seal(place, value, rand::random::<[u8; NONCE_BYTES]>(), now)?;
        self.store.save_secret(&secret).await?;
        self.end(&secret.place.owner, Some(server), Parting::AfterCalls);
        if let Ok(Some(credentials)) = self.credentials(caller, &HeaderMap::new(), server).await {
            self.servers.introduce(server, &secret.place.owner, credentials);
        }
        Ok(now)
    }

    /// Deletes a secret, even if its server is no longer configured.
    pub(crate) async fn remove(&self, caller: &Principal, server: &ServerName, name: &str) -> Result<(), SecretError> {
        let owner = owner(caller)?.clone();
        let name = SecretName::new(name).ok_or(SecretError::NotFound)?;
        let place = SecretPlace { owner, server: server.clone(), name };
        if !self.store.remove_secret(&place).await? {
            return Err(SecretError::NotFound);
        }
        self.end(&place.owner, Some(server), Parting::AtOnce);
        Ok(())
    }

    /// Ends the connections whose secrets another service has changed or deleted.
    ///
    /// # Errors
    /// The store fails. Some of the connections may have ended.
    pub(in crate::service) async fn refresh(&self) -> Result<(), StoreError> {
        let given = self.given.all();
        let mut owners: Vec<PrincipalId> = given.iter().map(|(owner, _)| owner.clone()).collect();
        owners.dedup();
        let mut stands: HashMap<(PrincipalId, ServerName), Stand> = HashMap::new();
        for StoredSecret { place: SecretPlace { owner, server, name }, updated_at } in self.store.secrets_of(&owners).await? {
            stands.entry((owner, server)).or_default().push((name, updated_at));
        }
        for (owner, server) in given {
            let taken = self.taken.load().get(&server).cloned();
            let stored = stands.remove(&(owner.clone(), server.clone())).unwrap_or_default();
            let stand = taken.map_or_else(Stand::new, |taken| taken.stand(stored));
            if let Some(parting) = self.given.note(&owner, &server, stand) {
                self.servers.disconnect(&owner, Some(&server), parting);
            }
        }
        Ok(())
    }

    /// Ends an owner's connections to one server or to all.
    fn end(&self, owner: &PrincipalId, server: Option<&ServerName>, parting: Parting) {
        self.given.forget(owner, server);
        self.servers.disconnect(owner, server, parting);
    }

    /// Deletes all secrets of an owner and ends the connections that use them. Returns the number of secrets.
    pub(crate) async fn forget(&self, owner: &PrincipalId) -> Result<u64, StoreError> {
        let removed = self.store.remove_secrets(owner).await?;
        self.disconnect(owner);
        Ok(removed)
    }

    /// Ends the connections of an owner whose secrets were deleted.
    pub(crate) fn disconnect(&self, owner: &PrincipalId) {
        self.end(owner, None, Parting::AtOnce);
    }

    /// Ends all sign-ins of an owner. Returns their number.
    ///
    /// # Errors
    /// The store fails; some of them may have been ended.
    pub(crate) async fn forget_sign_ins(&self, owner: &PrincipalId) -> Result<u64, StoreError> {
        self.connections.forget(owner).await
    }

    /// Encrypts secrets again with the current key if they use a former one. Logs secrets that no key can decrypt.
    pub(crate) async fn reseal(&self) {
        self.connections.reseal().await;
        let Some(keys) = &self.keys else { return };
        let found = match self.store.secrets_of_other_keys(keys.present.id()).await {
            Ok(found) => found,
            Err(error) => return tracing::warn!(%error, "secrets sealed with former keys could not be read"),
        };
        let (mut resealed, mut unknown) = (0_usize, BTreeMap::<Arc<str>, usize>::new());
        for secret in found {
            match self.resealed(keys, &secret).await {
                Ok(()) => resealed += 1,
                Err(Unsealed::Open(SecretOpenError::UnknownKey(key))) => *unknown.entry(key).or_default() += 1,
                Err(Unsealed::Open(SecretOpenError::Damaged)) => {
                    tracing::warn!(server = %secret.place.server, "a secret is damaged: its owner must set it again");
                }
                Err(Unsealed::Other(error)) => tracing::warn!(%error, "a secret remains sealed with its former key"),
            }
        }
        if resealed > 0 {
            tracing::info!(secrets = resealed, "secrets were sealed with the current key and no longer need secrets.former_keys");
        }
        for (key, secrets) in unknown {
            tracing::warn!(
                key = &*key,
                secrets,
                "secrets can't be read: they were sealed with a key that is neither secrets.key nor among secrets.former_keys"
            );
        }
    }

    async fn resealed(&self, keys: &SecretKeys, secret: &SealedSecret) -> Result<(), Unsealed> {
        let value = keys.open(secret)?;
        let new = keys.seal(secret.place.clone(), &value, rand::random::<[u8; NONCE_BYTES]>(), secret.updated_at)?;
        // If the secret was changed in the meantime, it already uses the current key.
        self.store.reseal_secret(secret, &new).await?;
        Ok(())
    }

    fn keys(&self) -> Result<&SecretKeys, SecretError> {
        self.keys.as_ref().ok_or(SecretError::NoKey)
    }
}

/// The reason why a secret still uses a former key.
#[derive(Debug, thiserror::Error)]
enum Unsealed {
    #[error(transparent)]
    Open(#[from] SecretOpenError),
    #[error(transparent)]
    Other(#[from] SecretError),
}

impl From<SealError> for Unsealed {
    fn from(error: SealError) -> Self {
        Self::Other(error.into())
    }
}

impl From<StoreError> for Unsealed {
    fn from(error: StoreError) -> Self {
        Self::Other(error.into())
    }
}

/// The id under which the caller's secrets are stored.
fn owner(caller: &Principal) -> Result<&PrincipalId, SecretError> {
    if caller.is_somebody() { Ok(&caller.id) } else { Err(SecretError::Nobody) }
}

impl Taken {
    /// Which of a caller's secrets for the server it gets, and when they were changed.
    fn stand(&self, stored: impl IntoIterator<Item = (SecretName, SystemTime)>) -> Stand {
        let mut stand: Stand = stored.into_iter().filter(|(name, _)| self.secrets.contains(name)).collect();
        stand.sort_unstable();
        stand
    }

    /// Validates the name of a secret that the server uses.
    fn name(&self, server: &ServerName, name: &str) -> Result<SecretName, SecretError> {
        let found = SecretName::new(name).filter(|name| self.secrets.contains(name));
        found.ok_or_else(|| {
            let taken: Vec<&str> = self.secrets.iter().map(SecretName::as_str).collect();
            let takes = if taken.is_empty() { "none".to_owned() } else { taken.join(", ") };
            let hint = did_you_mean(name, taken.into_iter());
            let reason = format!("the server `{server}` uses no secret with this name; it uses: {takes}{hint}");
            SecretError::Invalid { parameter: "name", reason }
        })
    }
}
