//! The store: implements the port [`Store`](crate::service::ports::Store) with databases.
//!
//! The tables are the same in all databases, with one folder of migrations for each. `tables/` has the statements, with one file
//! per noun. JSON is stored as text, because a document type would lose the order of keys. Times are milliseconds since 1970;
//! hashes and vectors are bytes. Only this folder uses types of `sqlx`.

mod encoding;
mod migrating;
mod sums;
mod rows;
mod postgres;
mod sqlite;
mod opened;
mod copying;

pub use copying::copy;
pub use opened::{OpenedStore, StoreOpenError};
pub use postgres::{PostgresOpenError, PostgresPlace, PostgresStore};
pub use rows::StoreCopyError;
pub use sqlite::{BackupError, CopyContents, CopyError, SqliteOpenError, SqliteStore, back_up, inspect};
