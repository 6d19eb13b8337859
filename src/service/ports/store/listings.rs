//! The last valid listing of every server.

use std::collections::HashMap;
use std::time::SystemTime;

use async_trait::async_trait;

use super::StoreError;
use crate::domain::catalog::catalog::ServerListing;
use crate::domain::catalog::tool::ServerName;
use crate::domain::catalog::user_lists::UserList;

#[async_trait]
pub trait ListingStore: Send + Sync {
    async fn listings(&self) -> Result<Vec<ServerListing>, StoreError>;

    /// The time of each server's last listing.
    async fn listing_times(&self) -> Result<HashMap<ServerName, SystemTime>, StoreError>;

    async fn save_listing(&self, listing: &ServerListing) -> Result<(), StoreError>;

    /// Adds users' lists to the stored list of their server, which other services on the same store may have changed. `listing` is this
    /// service's own list, which contains them. Its tools are stored only if nothing is stored yet.
    async fn merge_listing(&self, listing: &ServerListing, lists: &[UserList]) -> Result<(), StoreError>;

    async fn remove_listing(&self, server: &ServerName) -> Result<(), StoreError>;
}
