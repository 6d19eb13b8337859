//! Users' sign-ins to MCP servers, with their encrypted tokens.

use std::collections::BTreeSet;
use std::time::SystemTime;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::StoreError;
use crate::domain::access::api_key::{KeyId, Presented};
use crate::domain::access::principal::PrincipalId;
use crate::domain::access::secret::SealedSecret;
use crate::domain::catalog::tool::ServerName;
use crate::domain::text::canonical::Fingerprint;

/// A sign-in of one owner to one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredConnection {
    /// The tokens and the client, encrypted. Its place names the owner and the server.
    pub sealed: SealedSecret,
    /// Identifies the sign-in, and stays the same when its tokens are refreshed.
    pub sign_in: String,
    /// Increases when the tokens change or end, and identifies them within the sign-in.
    pub version: u64,
    /// The reason why the tokens are no longer valid; `None` while they are.
    pub ended: Option<String>,
    pub issuer: String,
    /// The granted scopes.
    pub scopes: Vec<String>,
    /// Scopes that calls lacked. The following sign-ins request them.
    pub wanted: Vec<String>,
    /// When the access token expires.
    pub expires_at: Option<SystemTime>,
    pub connected_at: SystemTime,
}

/// A sign-in that a person has begun and not completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingSignIn {
    /// The hash of the `state` parameter.
    pub state: String,
    /// The hash of the page session in which it began. No other session can complete it.
    pub session: String,
    /// Everything else, encrypted. Its place names the owner and the server.
    pub sealed: SealedSecret,
    pub expires_at: SystemTime,
}

/// A person who may manage an owner's sign-ins, by a link or in a page session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectVisit {
    /// The id of the link, or the hash of the session's cookie.
    pub id: String,
    pub owner: PrincipalId,
    /// How the page addresses the person.
    pub person: String,
    /// The servers that the person may see.
    pub servers: Vec<ServerName>,
    pub caller: VisitCaller,
    /// The server that the link is about.
    pub server: Option<ServerName>,
    pub expires_at: SystemTime,
}

/// The caller for whom a link was made, as far as its page needs it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VisitCaller {
    pub email: Option<String>,
    pub name: Option<String>,
    #[serde(default)]
    pub groups: BTreeSet<String>,
    /// The servers that take secrets of the caller, and that the caller may see.
    #[serde(default)]
    pub secret_servers: Vec<ServerName>,
    /// The named key that authenticated the caller. `None` if the caller has another key, or if the link is from before an upgrade.
    #[serde(default)]
    pub key: Option<VisitKey>,
}

/// A named key as it was when a link was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VisitKey {
    pub id: String,
    /// The hash of the whole key, as hexadecimal digits.
    pub hash: String,
}

impl VisitKey {
    /// The key; `None` if the stored hash is no hash.
    pub fn presented(&self) -> Option<Presented> {
        Some(Presented { id: KeyId::new(self.id.as_str()), hash: Fingerprint::of_hex(&self.hash)? })
    }
}

impl From<&Presented> for VisitKey {
    fn from(key: &Presented) -> Self {
        Self { id: key.id.as_str().to_owned(), hash: key.hash.to_string() }
    }
}

#[async_trait]
pub trait ConnectionStore: Send + Sync {
    /// All sign-ins of one owner.
    async fn connections(&self, owner: &PrincipalId) -> Result<Vec<StoredConnection>, StoreError>;

    async fn connection(&self, owner: &PrincipalId, server: &ServerName) -> Result<Option<StoredConnection>, StoreError>;

    /// All sign-ins to one server.
    async fn connections_to(&self, server: &ServerName) -> Result<Vec<StoredConnection>, StoreError>;

    /// All sign-ins encrypted with keys other than this one.
    async fn connections_of_other_keys(&self, key_id: &str) -> Result<Vec<StoredConnection>, StoreError>;

    /// Stores a new sign-in, and replaces a former one of the same owner and server. Durable.
    async fn save_connection(&self, connection: &StoredConnection) -> Result<(), StoreError>;

    /// Replaces the tokens of the sign-in with this version and this id, or ends it. Ends the claim, and leaves `wanted` as it is.
    /// Returns whether it was still there. Durable.
    async fn change_connection(&self, former: u64, new: &StoredConnection) -> Result<bool, StoreError>;

    /// Encrypts the same tokens anew, if the sign-in still has them. Changes neither the version nor the claim, so that a running
    /// refresh can store its answer. Durable.
    async fn reseal_connection(&self, connection: &StoredConnection, new: &SealedSecret) -> Result<(), StoreError>;

    /// Replaces the scopes that a call lacked. Changes neither the version nor the claim. Durable.
    async fn want_scopes(&self, connection: &StoredConnection, wanted: &[String]) -> Result<(), StoreError>;

    /// Claims the refresh of the sign-in with this version, until `until`. Returns `false` if the version has changed or somebody
    /// else's claim is still valid at `now`.
    async fn claim_refresh(&self, connection: &StoredConnection, now: SystemTime, until: SystemTime) -> Result<bool, StoreError>;

    /// Ends the claim of a refresh that failed.
    async fn release_refresh(&self, connection: &StoredConnection) -> Result<(), StoreError>;

    /// Deletes a sign-in. Returns whether there was one with this id. Durable.
    async fn remove_connection(&self, connection: &StoredConnection) -> Result<bool, StoreError>;

    /// Stores a pending sign-in.
    async fn save_sign_in(&self, pending: &PendingSignIn) -> Result<(), StoreError>;

    /// Removes and returns the pending sign-in with this state, if it began in this session and has not expired.
    async fn take_sign_in(&self, state: &str, session: &str, now: SystemTime) -> Result<Option<PendingSignIn>, StoreError>;

    /// The encrypted client registration at an authorization server.
    async fn oauth_client(&self, server: &ServerName, issuer: &str) -> Result<Option<SealedSecret>, StoreError>;

    /// Stores a client registration. Durable.
    async fn save_oauth_client(&self, issuer: &str, client: &SealedSecret) -> Result<(), StoreError>;

    async fn remove_oauth_client(&self, server: &ServerName, issuer: &str) -> Result<(), StoreError>;

    /// Stores a link.
    async fn save_connect_link(&self, link: &ConnectVisit) -> Result<(), StoreError>;

    /// The valid link with this id.
    async fn connect_link(&self, id: &str, now: SystemTime) -> Result<Option<ConnectVisit>, StoreError>;

    /// Exchanges the valid link with this id for a page session. Returns the link; `None` if it is used or has expired.
    async fn open_connect_session(
        &self,
        link: &str,
        session: &str,
        expires_at: SystemTime,
        now: SystemTime,
    ) -> Result<Option<ConnectVisit>, StoreError>;

    /// The valid page session with this hash.
    async fn connect_session(&self, session: &str, now: SystemTime) -> Result<Option<ConnectVisit>, StoreError>;

    /// Ends the links, page sessions and pending sign-ins of an owner. Durable.
    async fn end_connect_visits(&self, owner: &PrincipalId) -> Result<(), StoreError>;

    /// Deletes links, page sessions and pending sign-ins that have expired. Returns their number.
    async fn forget_connect_visits_before(&self, now: SystemTime) -> Result<u64, StoreError>;
}
