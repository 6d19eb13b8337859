//! The store that the settings choose.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use secrecy::SecretSlice;

use super::postgres::{DatabaseFiles, PostgresOpenError, PostgresStore};
use super::sqlite::{SqliteOpenError, SqliteStore};
use crate::adapters::installation::AccessMark;
use crate::service::ports::{FileStore, Store, StoreError};
use crate::settings::PostgresSettings;

/// An open store: a file, or a schema of a PostgreSQL database.
#[derive(Clone, Debug)]
pub enum OpenedStore {
    Sqlite(Arc<SqliteStore>),
    Postgres(Arc<PostgresStore>),
}

/// The reason why the store could not be opened, with a remedy.
#[derive(Debug, thiserror::Error)]
pub enum StoreOpenError {
    #[error(transparent)]
    Sqlite(#[from] SqliteOpenError),
    #[error(transparent)]
    Postgres(#[from] PostgresOpenError),
}

impl StoreOpenError {
    /// Whether the configuration or the data is the reason, so that another attempt would fail too.
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::Sqlite(error) => matches!(
                error,
                SqliteOpenError::Damaged { .. }
                    | SqliteOpenError::Newer { .. }
                    | SqliteOpenError::Changed { .. }
                    | SqliteOpenError::Foreign { .. }
            ),
            Self::Postgres(error) => error.is_lasting(),
        }
    }

    /// Whether an earlier version has written the tables.
    pub fn is_older(&self) -> bool {
        matches!(self, Self::Sqlite(SqliteOpenError::Older { .. }) | Self::Postgres(PostgresOpenError::Older { .. }))
    }
}

impl fmt::Display for OpenedStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(_) => formatter.write_str("a file in the data folder"),
            Self::Postgres(store) => write!(formatter, "{}", store.place()),
        }
    }
}

impl OpenedStore {
    /// Opens the database of these settings. Without one, opens the file. Migrates the tables to this version, and creates what
    /// is missing.
    ///
    /// # Errors
    /// [`StoreOpenError`].
    pub async fn open(settings: Option<&PostgresSettings>, file: &Path) -> Result<Self, StoreOpenError> {
        Ok(match settings {
            Some(settings) => Self::Postgres(Arc::new(PostgresStore::open(settings).await?)),
            None => Self::Sqlite(Arc::new(SqliteStore::open(file).await?)),
        })
    }

    /// Opens the database of these settings or the file, but neither creates nor migrates anything. Returns `None` if there are no tables
    /// yet.
    ///
    /// # Errors
    /// [`StoreOpenError`], also if an earlier version has written the tables.
    pub async fn open_present(settings: Option<&PostgresSettings>, file: &Path) -> Result<Option<Self>, StoreOpenError> {
        Ok(match settings {
            Some(settings) => PostgresStore::open_present(settings).await?.map(|store| Self::Postgres(Arc::new(store))),
            None => SqliteStore::open_present(file).await?.map(|store| Self::Sqlite(Arc::new(store))),
        })
    }

    /// Checks that a start could create the tables in a database that has none. Leaves nothing behind.
    ///
    /// # Errors
    /// [`StoreOpenError`].
    pub async fn check_creation(settings: &PostgresSettings) -> Result<(), StoreOpenError> {
        Ok(PostgresStore::check_creation(settings).await?)
    }

    /// Opens the file.
    ///
    /// # Errors
    /// [`StoreOpenError`].
    pub async fn file(path: &Path) -> Result<Self, StoreOpenError> {
        Self::open(None, path).await
    }

    /// Gives the store the mark that it sets before it saves the first data whose loss must be detected.
    pub fn set_mark(&self, mark: AccessMark) {
        match self {
            Self::Sqlite(store) => store.set_mark(mark),
            Self::Postgres(store) => store.set_mark(mark),
        }
    }

    /// The files behind signed links, and the key that signs them, if several services share them. `own` is the key of this service's
    /// folder. The sizes are those of a file and of all files together.
    ///
    /// # Errors
    /// The database fails.
    pub(crate) async fn shared_files(
        &self,
        own: &SecretSlice<u8>,
        (max_file_bytes, max_total_bytes): (u64, u64),
    ) -> Result<Option<(Arc<dyn FileStore>, SecretSlice<u8>)>, StoreError> {
        let Self::Postgres(store) = self else { return Ok(None) };
        let key = store.link_key(own).await?;
        let files: Arc<dyn FileStore> = Arc::new(DatabaseFiles { store: Arc::clone(store), max_file_bytes, max_total_bytes });
        Ok(Some((files, key)))
    }

    /// The port.
    pub fn port(&self) -> Arc<dyn Store> {
        match self {
            Self::Sqlite(store) => Arc::clone(store) as _,
            Self::Postgres(store) => Arc::clone(store) as _,
        }
    }

    /// Lets a file of an older version shrink. Blocks writers, so call it before the service starts.
    pub async fn make_shrinkable(&self) {
        match self {
            Self::Sqlite(store) => store.make_shrinkable().await,
            Self::Postgres(_) => {}
        }
    }

    /// Ends what a killed process has claimed in a file. In a database, the claims may be those of another replica, and expire.
    pub async fn end_claims(&self) {
        match self {
            Self::Sqlite(store) => store.end_claims().await,
            Self::Postgres(_) => {}
        }
    }

    /// Waits for running statements, and closes the store.
    pub async fn close(&self) {
        match self {
            Self::Sqlite(store) => store.close().await,
            Self::Postgres(store) => store.close().await,
        }
    }
}
