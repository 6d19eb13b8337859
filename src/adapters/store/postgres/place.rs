//! The database of the store.

use std::fmt;

/// The oldest supported version of the server.
pub(super) const OLDEST: u32 = 15;

/// Where the store is, without the password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresPlace {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) database: String,
    pub(super) user: String,
    pub(super) schema: String,
}

impl fmt::Display for PostgresPlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, database, .. } = self;
        // The colons of an IPv6 address aren't the one before the port.
        let host = if host.contains(':') && !host.starts_with('/') { format!("[{host}]") } else { host.clone() };
        write!(formatter, "the PostgreSQL database {database:?} at {host}:{port}")
    }
}
