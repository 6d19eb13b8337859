//! The last valid listing of every server.

use std::collections::HashMap;
use std::time::SystemTime;

use async_trait::async_trait;

use super::StoreError;
use crate::domain::catalog::catalog::ServerListing;
use crate::domain::catalog::tool::ServerName;

#[async_trait]
pub trait ListingStore: Send + Sync {
    async fn listings(&self) -> Result<Vec<ServerListing>, StoreError>;

    /// The time of each server's last listing.
    async fn listing_times(&self) -> Result<HashMap<ServerName, SystemTime>, StoreError>;

    async fn save_listing(&self, listing: &ServerListing) -> Result<(), StoreError>;

    async fn remove_listing(&self, server: &ServerName) -> Result<(), StoreError>;
}
