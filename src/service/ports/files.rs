//! Files returned by tools.

use std::time::SystemTime;

use async_trait::async_trait;
use bytes::Bytes;
use uuid::Uuid;

use crate::service::ports::StoreError;

/// Stores files returned by tools until their links expire.
#[async_trait]
pub trait FileStore: Send + Sync {
    /// Stores a file under a new id.
    async fn save(&self, id: Uuid, file: StoredFile) -> Result<(), FileStoreError>;

    /// Reads a file; `None` if it no longer exists.
    async fn read(&self, id: Uuid) -> Result<Option<StoredFile>, FileStoreError>;
}

/// A file with its metadata.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredFile {
    /// The media type: `type/subtype`.
    pub mime_type: String,
    pub name: Option<String>,
    pub expires: SystemTime,
    pub bytes: Bytes,
}

#[derive(Debug, thiserror::Error)]
pub enum FileStoreError {
    #[error("the file is larger than the limit for all files together")]
    TooLarge,
    #[error("the file is larger than files.max_file_bytes")]
    FileTooLarge,
    #[error("the folder for files: {0}")]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
}
