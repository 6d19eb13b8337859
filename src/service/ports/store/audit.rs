//! The audit log.

use std::time::SystemTime;

use async_trait::async_trait;

use super::StoreError;
use crate::service::ports::{AuditEntry, AuditQuery, StoredAuditEntry};

#[async_trait]
pub trait AuditStore: Send + Sync {
    async fn save_audit(&self, entries: &[AuditEntry]) -> Result<(), StoreError>;

    /// Entries of the audit log, newest first.
    async fn audit(&self, query: &AuditQuery) -> Result<Vec<StoredAuditEntry>, StoreError>;

    /// Removes the entries before `time`; returns how many.
    async fn forget_audit_before(&self, time: SystemTime) -> Result<u64, StoreError>;
}
