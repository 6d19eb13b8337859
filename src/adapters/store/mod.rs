//! What survives a restart: the port [`Store`](crate::service::ports::Store) on databases.
//!
//! One module per database, each with its own folder of migrations. The tables are the same everywhere: JSON is
//! text (a document type would lose the order of keys), times are milliseconds since 1970, hashes and vectors are
//! bytes. Types of `sqlx` stay in here.

mod encoding;
mod sqlite;

pub use sqlite::{BackupError, OpenError, SqliteStore, back_up};
