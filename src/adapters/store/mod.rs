//! The store: implements the port [`Store`](crate::service::ports::Store) with databases.
//!
//! There is one folder per database, with one file per noun and its own folder of migrations. The tables are the same in all of
//! them. JSON is stored as text, because a document type would lose the order of keys. Times are milliseconds since 1970; hashes
//! and vectors are bytes. `encoding` and `sums` are shared. Only this folder uses types of `sqlx`.

mod encoding;
mod sums;
mod sqlite;

pub use sqlite::{BackupError, CopyContents, CopyError, SqliteStore, StoreOpenError, back_up, inspect};
