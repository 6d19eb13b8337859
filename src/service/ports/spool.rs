//! A place on the disk for records that the store can't take at the moment.

use async_trait::async_trait;

/// Keeps batches in order until the store has them. A kept batch survives a killed process and a power cut.
#[async_trait]
pub trait Spool: Send + Sync {
    /// Whether no batch is waiting.
    fn is_empty(&self) -> bool;

    /// Keeps a batch, which contains no line break, after all others.
    async fn append(&self, batch: Vec<u8>) -> Result<(), SpoolError>;

    /// The oldest batches; `None` if no batch is waiting. Batches that are appended later belong to another segment.
    async fn oldest(&self) -> Result<Option<SpoolSegment>, SpoolError>;

    /// Removes a segment.
    async fn remove(&self, segment: u64) -> Result<(), SpoolError>;

    fn state(&self) -> SpoolState;

    /// Forgets the error of a batch that could not be kept, and is stored by now.
    fn forget_error(&self);
}

/// Consecutive batches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpoolSegment {
    pub number: u64,
    pub batches: Vec<Vec<u8>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpoolState {
    /// The size of the batches that are waiting.
    pub bytes: u64,
    /// Why the last batch could not be kept.
    pub error: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    #[error("the spool is full: it has reached store.max_spool_bytes")]
    Full,
    #[error("the spool can't be written or read: {0}")]
    Io(#[from] std::io::Error),
}
