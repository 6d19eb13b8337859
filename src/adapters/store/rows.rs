//! Tables and their rows, independent of the database, for a copy between databases.

/// A table and its columns, in the order of the copy.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) name: String,
    pub(super) columns: Vec<(String, Kind)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Bytes,
    Integer,
    Flag,
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    Text(Option<String>),
    Bytes(Option<Vec<u8>>),
    Integer(Option<i64>),
    Flag(Option<bool>),
}

/// What a source sends: the rows of each table and their sum, then the id of the installation.
#[derive(Debug)]
pub(super) enum Batch {
    Rows(Vec<Vec<Value>>),
    End(Sum),
    Installation(Option<String>),
}

/// The contents of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) rows: u64,
    /// The sum of the rows' SHA-256, which doesn't depend on their order.
    pub(super) hash: [u64; 4],
}

/// The reason why a store was not copied. The target is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum StoreCopyError {
    #[error("the target is not empty (its table {table} has rows): use an empty data folder, or another store.schema")]
    NotEmpty { table: String },
    #[error("the copy of the table {table} differs from the original ({expected} rows were sent, {found} were read again)")]
    Different { table: String, expected: u64, found: u64 },
    #[error("one of the stores is a file, the other one a PostgreSQL database")]
    SameKind,
    #[error("the other side has failed")]
    Stopped,
    #[error("a service is running on the database, and would go on writing to it: stop all services first")]
    InUse,
    #[error("the table {table} could not be stored: {source}")]
    Table { table: String, source: sqlx::Error },
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}
