//! The audit log.

use std::time::SystemTime;

use async_trait::async_trait;
use uuid::Uuid;

use super::StoreError;
use crate::service::ports::{AuditEntry, AuditQuery, StoredAuditEntry};

#[async_trait]
pub trait AuditStore: Send + Sync {
    /// Stores a batch, unless a batch with this id has been stored before.
    async fn save_audit_once(&self, batch: Uuid, entries: &[AuditEntry]) -> Result<(), StoreError>;

    async fn save_audit(&self, entries: &[AuditEntry]) -> Result<(), StoreError> {
        self.save_audit_once(Uuid::now_v7(), entries).await
    }

    /// Returns matching entries, newest first.
    async fn audit(&self, query: &AuditQuery) -> Result<Vec<StoredAuditEntry>, StoreError>;

    /// Deletes entries from before `time`. Returns their number.
    async fn forget_audit_before(&self, time: SystemTime) -> Result<u64, StoreError>;
}
