//! Explains the errors of PostgreSQL to operators of the service.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use sqlx::migrate::MigrateError;

use super::place::{OLDEST, PostgresPlace};

/// Codes of PostgreSQL, appendix A of its manual.
mod code {
    pub(super) const WRONG_PASSWORD: [&str; 2] = ["28P01", "28000"];
    pub(super) const NO_DATABASE: &str = "3D000";
    pub(super) const NO_PERMISSION: &str = "42501";
    /// The search path contains no schema that the role may use.
    pub(super) const NO_SCHEMA: &str = "3F000";
    pub(super) const LOCK_NOT_AVAILABLE: &str = "55P03";
    pub(super) const READ_ONLY: &str = "25006";
    /// The server or the role has no connection left.
    pub(super) const TOO_MANY_CONNECTIONS: &str = "53300";
    pub(super) const DISK_FULL: &str = "53100";
    /// A transaction that failed because of others: serialization failure and deadlock.
    pub(super) const CONFLICT: [&str; 2] = ["40001", "40P01"];
    /// The server is stopping, has crashed, or does not accept connections yet; too many connections.
    pub(super) const AWAY: [&str; 4] = ["57P01", "57P02", "57P03", TOO_MANY_CONNECTIONS];
    /// The server can't do it at the moment: a statement or a wait for a lock took too long, the transaction was idle for too long, or
    /// the server is a standby or has no space left.
    pub(super) const PASSING: [&str; 7] = ["57014", LOCK_NOT_AVAILABLE, "25P03", READ_ONLY, "53000", DISK_FULL, "53200"];
    /// An administrator is at work: no permission for the moment, or a backup is being restored, so that the schema or a table is missing.
    pub(super) const AT_WORK: [&str; 3] = [NO_PERMISSION, NO_SCHEMA, "42P01"];
    /// Errors of the server's system or of its files.
    pub(super) const BROKEN_CLASSES: [&str; 2] = ["58", "XX"];
    /// Connection exceptions.
    pub(super) const CONNECTION_CLASS: &str = "08";
}

const MORE_CONNECTIONS: &str = "raise max_connections of PostgreSQL or lower store.max_connections";

/// The reason why the database can't be used, with a remedy.
#[derive(Debug, thiserror::Error)]
pub enum PostgresOpenError {
    /// Without the URL, which may contain the password.
    #[error("store.url is not a valid address of a database: write it as postgres://USER:PASSWORD@HOST:5432/DATABASE")]
    Address,
    #[error("{place} can't be reached ({source}): check the host and port in store.url, and that the server is running")]
    Unreachable { place: Arc<PostgresPlace>, source: sqlx::Error },
    #[error("{place} has no connection left ({source}): {MORE_CONNECTIONS}")]
    NoConnections { place: Arc<PostgresPlace>, source: sqlx::Error },
    #[error("{place} refuses the user {user:?} ({source}): check the user and the password in store.url")]
    Refused { place: Arc<PostgresPlace>, user: String, source: sqlx::Error },
    #[error(
        "{place} does not exist: create it, for example with: createdb --encoding UTF8 --template template0 --locale C --owner {user} \
         {database}"
    )]
    NoDatabase { place: Arc<PostgresPlace>, user: String, database: String },
    #[error(
        "no encrypted connection to {place} ({source}): check the certificate of the server, sslrootcert=FILE and sslmode in \
         store.url. sslmode=disable is safe only on this machine"
    )]
    Tls { place: Arc<PostgresPlace>, source: sqlx::Error },
    #[error("{place} runs version {version}, but version {OLDEST} or later is needed: upgrade the server or use another one")]
    TooOld { place: Arc<PostgresPlace>, version: String },
    /// Most texts could be stored, but not those with other characters, such as definitions of tools.
    #[error(
        "{place} is encoded in {encoding}; create it with: createdb --encoding UTF8 --template template0 --locale C --owner {user} \
         {database} (another name, if you need the old database, which then also goes into store.url)"
    )]
    Encoding { place: Arc<PostgresPlace>, encoding: String, user: String, database: String },
    #[error(
        "{place} does not allow the user {user:?} to create or change the schema {schema:?} ({source}): let an administrator run CREATE \
         SCHEMA \"{schema}\" AUTHORIZATION \"{user}\", or if the schema exists: GRANT USAGE, CREATE ON SCHEMA \"{schema}\" TO \"{user}\""
    )]
    NoPermission { place: Arc<PostgresPlace>, user: String, schema: String, source: sqlx::Error },
    #[error("{place} is read-only, probably because it is a standby: write the address of the primary server into store.url")]
    ReadOnly { place: Arc<PostgresPlace> },
    #[error("the schema {schema:?} of {place} contains tables of another program: choose another name in store.schema")]
    Foreign { place: Arc<PostgresPlace>, schema: String },
    #[error(
        "the schema {schema:?} of {place} was written by a newer version of toolsieve (it has migration {migration}): run that version. \
         To go back to this version, restore a backup from before the upgrade"
    )]
    Newer { place: Arc<PostgresPlace>, schema: String, migration: i64 },
    #[error(
        "the schema {schema:?} of {place} was written by an earlier version of toolsieve: start the service with this version first, which \
         updates the schema, or use the program of that version"
    )]
    Older { place: Arc<PostgresPlace>, schema: String },
    #[error(
        "the schema {schema:?} of {place} has another version of migration {migration}, so a development build created it: choose another \
         name in store.schema"
    )]
    Changed { place: Arc<PostgresPlace>, schema: String, migration: i64 },
    #[error("another process has migrated {place} for more than {} s: check that it still runs, and start again", waited.as_secs())]
    Busy { place: Arc<PostgresPlace>, waited: Duration },
    #[error("{place} could not be opened: {source}")]
    Failed { place: Arc<PostgresPlace>, source: sqlx::Error },
    #[error("the tables of {place} could not be migrated to this version")]
    Migrate { place: Arc<PostgresPlace>, source: MigrateError },
}

impl PostgresOpenError {
    /// Whether another start would fail for the same reason.
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::NoConnections { .. }
            | Self::Busy { .. }
            | Self::Failed { .. }
            | Self::Migrate { .. }
            | Self::ReadOnly { .. }
            | Self::Older { .. } => false,
            Self::Address
            | Self::Refused { .. }
            | Self::NoDatabase { .. }
            | Self::Tls { .. }
            | Self::TooOld { .. }
            | Self::Encoding { .. }
            | Self::NoPermission { .. }
            | Self::Foreign { .. }
            | Self::Newer { .. }
            | Self::Changed { .. } => true,
        }
    }

    pub(super) fn of(place: &Arc<PostgresPlace>, source: sqlx::Error) -> Self {
        let place = Arc::clone(place);
        let code = code(&source);
        let is = |one: &str| code.as_deref() == Some(one);
        match &source {
            _ if code.as_deref().is_some_and(|code| code::WRONG_PASSWORD.contains(&code)) => {
                Self::Refused { user: place.user.clone(), place, source }
            }
            _ if is(code::NO_DATABASE) => Self::NoDatabase { user: place.user.clone(), database: place.database.clone(), place },
            _ if is(code::NO_PERMISSION) || is(code::NO_SCHEMA) => {
                Self::NoPermission { user: place.user.clone(), schema: place.schema.clone(), place, source }
            }
            _ if is(code::READ_ONLY) => Self::ReadOnly { place },
            _ if is(code::TOO_MANY_CONNECTIONS) => Self::NoConnections { place, source },
            sqlx::Error::Tls(_) => Self::Tls { place, source },
            sqlx::Error::Io(error) if error.kind() == io::ErrorKind::InvalidData => Self::Tls { place, source },
            sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut => Self::Unreachable { place, source },
            _ if is_lost(&source) => Self::Unreachable { place, source },
            _ => Self::Failed { place, source },
        }
    }

    pub(super) fn of_lock(place: &Arc<PostgresPlace>, source: sqlx::Error, waited: Duration) -> Self {
        if code(&source).as_deref() == Some(code::LOCK_NOT_AVAILABLE) {
            Self::Busy { place: Arc::clone(place), waited }
        } else {
            Self::of(place, source)
        }
    }

    pub(super) fn of_migration(place: &Arc<PostgresPlace>, source: MigrateError) -> Self {
        let schema = place.schema.clone();
        match source {
            MigrateError::VersionMissing(migration) => Self::Newer { place: Arc::clone(place), schema, migration },
            MigrateError::VersionMismatch(migration) => Self::Changed { place: Arc::clone(place), schema, migration },
            MigrateError::Execute(source) | MigrateError::ExecuteMigration(source, _) if code(&source).is_some() => Self::of(place, source),
            source => Self::Migrate { place: Arc::clone(place), source },
        }
    }
}

/// An error during use, with the place of the database.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {}", explained(source))]
struct UseError {
    place: Arc<PostgresPlace>,
    source: sqlx::Error,
}

pub(super) fn during_use(place: &Arc<PostgresPlace>, source: sqlx::Error) -> Box<dyn Error + Send + Sync> {
    Box::new(UseError { place: Arc::clone(place), source })
}

/// The text of an error. If the server has no connection or no space left, with a remedy.
pub(super) fn explained(error: &sqlx::Error) -> String {
    match code(error).as_deref() {
        Some(code::TOO_MANY_CONNECTIONS) => format!("PostgreSQL has no connection left: {MORE_CONNECTIONS} ({error})"),
        Some(code::DISK_FULL) => format!("PostgreSQL has no space left: free space on its disk ({error})"),
        _ => error.to_string(),
    }
}

/// Whether the server lacked connections or space. Other operations may succeed nevertheless.
pub(super) fn is_lack(error: &sqlx::Error) -> bool {
    code(error).is_some_and(|code| [code::TOO_MANY_CONNECTIONS, code::DISK_FULL].contains(&&*code))
}

/// Whether a transaction failed only because of others, so that it may succeed when it runs again.
pub(super) fn is_conflict(error: &sqlx::Error) -> bool {
    code(error).is_some_and(|code| code::CONFLICT.contains(&&*code))
}

/// Whether the same operation may succeed later, perhaps after an administrator has mended the database.
pub(super) fn is_passing(error: &sqlx::Error) -> bool {
    is_lost(error)
        || matches!(error, sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed)
        || code(error).is_some_and(|code| {
            [code::PASSING.as_slice(), &code::CONFLICT, &code::AT_WORK].iter().any(|codes| codes.contains(&&*code))
                || code::BROKEN_CLASSES.iter().any(|class| code.starts_with(class))
        })
}

/// Whether the error says that the server is away, or accepts no connections, or not this service's: a password may change while the
/// service runs.
pub(super) fn is_lost(error: &sqlx::Error) -> bool {
    match error {
        // A proxy that closes a new connection at once ends the negotiation of TLS in the middle, which the driver reports as a breach of
        // the protocol.
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) | sqlx::Error::PoolTimedOut => true,
        error => code(error).is_some_and(|code| {
            let is_refused = code::WRONG_PASSWORD.contains(&&*code) || code == code::NO_DATABASE;
            is_refused || code::AWAY.contains(&&*code) || code.starts_with(code::CONNECTION_CLASS)
        }),
    }
}

fn code(error: &sqlx::Error) -> Option<String> {
    error.as_database_error()?.code().map(String::from)
}
