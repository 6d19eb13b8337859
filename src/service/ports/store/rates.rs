//! The rate limits that services on a store share.

use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use super::StoreError;

/// Identifies a limited caller or server: a hash, so that the store names nobody.
pub type RateKey = [u8; 16];

/// The requests that a service has permitted since the last exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateReport {
    pub key: RateKey,
    /// The time that the requests add to when the next one is due.
    pub taken: Duration,
    /// How far in the future the next request was due, as this service knows. The store may have lost it.
    pub ahead: Duration,
}

/// What all services have permitted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedRates {
    /// Number of services that have taken part in the last seconds, with this one.
    pub services: u32,
    /// For each key that was reported or that others have changed, how far in the future its next request is due.
    pub ahead: Vec<(RateKey, Duration)>,
    /// The time of the exchange on the store's clock, for the next one.
    pub at: u64,
}

#[async_trait]
pub trait RateStore: Send + Sync {
    /// Whether other services can take part.
    fn shares_rates(&self) -> bool;

    /// Adds these requests to what all services have permitted, and returns what others have changed since an earlier exchange.
    async fn exchange_rates(&self, service: Uuid, reports: &[RateReport], since: u64) -> Result<SharedRates, StoreError>;

    /// Removes what doesn't limit anybody any more.
    async fn forget_rates(&self) -> Result<(), StoreError>;
}
