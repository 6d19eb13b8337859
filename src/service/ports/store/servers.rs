//! The MCP servers over which the API has a say.

use async_trait::async_trait;
use serde_json::Value;

use super::{Overwrites, StoreError};
use crate::domain::access::secret::SealedSecret;
use crate::domain::catalog::tool::ServerName;

/// A server that the API added, or one of the servers file that it switched off or restarted.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredServer {
    pub name: ServerName,
    /// The entry without its secret values. `None` if the servers file defines the server.
    pub entry: Option<Value>,
    pub enabled: bool,
    /// How often the server was restarted. A service that finds a higher number restarts the server.
    pub restarts: u64,
    /// The secret values of the entry, encrypted.
    pub sealed: Option<SealedSecret>,
}

#[async_trait]
pub trait ServerStore: Send + Sync {
    /// All servers, sorted by name.
    async fn servers(&self) -> Result<Vec<StoredServer>, StoreError>;

    /// Adds a server, or replaces the entry and the secret values of the server with the same name. Ignores `restarts`. With
    /// `forgets_users`, also does what [`Self::forget_users_of_server`] does. Returns `false` if it would overwrite another entry.
    /// Durable.
    async fn save_server(&self, server: &StoredServer, forgets_users: bool, overwrites: Overwrites<'_, Value>) -> Result<bool, StoreError>;

    /// Switches a server on or off. Durable.
    async fn switch_server(&self, name: &ServerName, enabled: bool) -> Result<(), StoreError>;

    /// Counts a restart of a server. Durable.
    async fn restart_server(&self, name: &ServerName) -> Result<(), StoreError>;

    /// Deletes a server, and what users have stored for it, like [`Self::forget_users_of_server`]. Returns `false` if there was none, or
    /// one with another entry. Durable.
    async fn remove_server(&self, name: &ServerName, overwrites: Overwrites<'_, Value>) -> Result<bool, StoreError>;

    /// Deletes the secrets, sign-ins and pending sign-ins of all users for a server, and the service's registrations as a client for
    /// it. Returns the number of secrets and sign-ins. Durable.
    async fn forget_users_of_server(&self, name: &ServerName) -> Result<u64, StoreError>;
}
