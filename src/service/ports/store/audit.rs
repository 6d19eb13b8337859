//! The audit log.

use std::time::SystemTime;

use async_trait::async_trait;

use super::StoreError;
use crate::service::ports::{AuditEntry, AuditQuery, StoredAuditEntry};

#[async_trait]
pub trait AuditStore: Send + Sync {
    async fn save_audit(&self, entries: &[AuditEntry]) -> Result<(), StoreError>;

    /// Returns matching entries, newest first.
    async fn audit(&self, query: &AuditQuery) -> Result<Vec<StoredAuditEntry>, StoreError>;

    /// Deletes entries from before `time`. Returns their number.
    async fn forget_audit_before(&self, time: SystemTime) -> Result<u64, StoreError>;
}
