//! The rate limits that services on a store share.

use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use super::StoreError;

/// Identifies a limited caller or server: a hash, so that the store names nobody.
pub type RateKey = [u8; 16];

/// What a service has permitted since the last exchange, and what it wants to reserve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateReport {
    pub key: RateKey,
    /// The time that one request adds to when the next one is due.
    pub interval: Duration,
    /// How far in the future the next request may be due when another one is permitted.
    pub tolerance: Duration,
    /// How far in the future the next request was due, as this service knows. The store may have lost it.
    pub ahead: Duration,
    /// Number of requests that were permitted without a reservation.
    pub owed: u32,
    /// Number of reserved requests that were not used.
    pub returned: u32,
    /// Number of requests to reserve, as far as they are left.
    pub waiting: u32,
    /// Number of further requests to reserve, up to a part of what is left.
    pub extra: u32,
}

/// What all services have permitted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedRates {
    /// Number of services that have taken part in the last seconds, with this one.
    pub services: u32,
    /// The keys that were reported or that others have changed.
    pub rates: Vec<SharedRate>,
    /// The time of the exchange on the store's clock, for the next one.
    pub at: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedRate {
    pub key: RateKey,
    /// How far in the future the next request is due.
    pub ahead: Duration,
    /// Number of requests that were reserved for this service.
    pub reserved: u32,
}

#[async_trait]
pub trait RateStore: Send + Sync {
    /// Whether other services can take part.
    fn shares_rates(&self) -> bool;

    /// Adds these requests to what all services have permitted, reserves others, and returns what others have changed since an earlier
    /// exchange. [`RateReport::extra`] is limited to what is left, divided by `parts`.
    async fn exchange_rates(&self, service: Uuid, reports: &[RateReport], parts: u32, since: u64) -> Result<SharedRates, StoreError>;

    /// Removes what doesn't limit anybody any more.
    async fn forget_rates(&self) -> Result<(), StoreError>;
}
