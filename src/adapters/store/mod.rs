//! The store: the port [`Store`](crate::service::ports::Store) on databases.
//!
//! One folder per database, with a file per noun and a folder of migrations of its own. The tables are the same everywhere: JSON is text
//! (a document type would lose the order of keys), times are milliseconds since 1970, hashes and vectors are bytes. `encoding` and `sums`
//! hold what the databases share. Types of `sqlx` stay in here.

mod encoding;
mod sums;
mod sqlite;

pub use sqlite::{BackupError, SqliteStore, StoreOpenError, back_up};
