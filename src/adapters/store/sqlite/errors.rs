//! Explains SQLite's error codes to operators of the service.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use sqlx::migrate::MigrateError;

/// Primary result codes (SQLite, "Result and Error Codes").
const SQLITE_PERM: i32 = 3;
const SQLITE_BUSY: i32 = 5;
const SQLITE_READONLY: i32 = 8;
const SQLITE_FULL: i32 = 13;
const SQLITE_CANTOPEN: i32 = 14;
/// Extended result codes of a disk that takes no writes: write, flush, flush of the folder, truncate, and the size of shared memory.
const NO_WRITES: [i32; 6] = [778, 1034, 1290, 1546, 4874, 5386];
const SQLITE_CORRUPT: i32 = 11;
const SQLITE_NOTADB: i32 = 26;

/// The reason why the file could not be opened, with a remedy.
#[derive(Debug, thiserror::Error)]
pub enum SqliteOpenError {
    #[error("{} can't be created or opened: {source}. Check that the folder exists and that this user may write in it", path.display())]
    Create { path: PathBuf, source: io::Error },
    #[error(
        "{0} is damaged or not a database. Stop the service and restore a backup (toolsieve restore FILE --force), or save what can be \
         read: sqlite3 {0} .recover >{0}.sql && sqlite3 {0}.new <{0}.sql, then put {0}.new in its place, with the same owner and mode, \
         and remove {0}-wal, {0}-shm and {0}.sql. If sqlite3 reports `SQL logic error`, it can't recover anything, as in Debian 12: \
         use a newer one. To start over instead, move {0}, {0}-wal and {0}-shm away, and `installation` in the same folder: tools, \
         documents and vectors are rebuilt, but named keys, rules, toolsets, approvals, tool overrides, enrichments, users' secrets, \
         sessions, chats, usage and the audit log are lost",
        path.display()
    )]
    Damaged { path: PathBuf, source: sqlx::Error },
    #[error(
        "{} was written by a newer version of toolsieve (it has migration {migration}): run that version. To go back to this \
         version, restore a backup from before the upgrade: toolsieve restore FILE --force --data-dir {}",
        path.display(), folder(path)
    )]
    Newer { path: PathBuf, migration: i64 },
    #[error(
        "{} was written by an earlier version of toolsieve: start the service with this version first, which updates the file, or use the \
         program of that version",
        path.display()
    )]
    Older { path: PathBuf },
    #[error(
        "{} has another version of migration {migration}, so a development build created it: use \
         another data folder",
        path.display()
    )]
    Changed { path: PathBuf, migration: i64 },
    #[error("{} is a database of another program: use another data folder", path.display())]
    Foreign { path: PathBuf },
    #[error("{} is locked by another process: end that process and start again", path.display())]
    Busy { path: PathBuf, source: sqlx::Error },
    #[error(
        "{} can't be opened: {source}. This user must be able to write this file, the files {} and {} beside it, and the folder: give this \
         user access, or use the service's account or root",
        path.display(), beside(path, "-wal"), beside(path, "-shm")
    )]
    NoAccess { path: PathBuf, source: sqlx::Error },
    #[error("{} can't be written, because the disk is full. Free space, and start again", path.display())]
    Full { path: PathBuf, source: sqlx::Error },
    #[error("{} can't be written: {source}. If its disk is full, free space, and start again", path.display())]
    NoWrites { path: PathBuf, source: sqlx::Error },
    #[error("{} could not be opened: {source}", path.display())]
    Failed { path: PathBuf, source: sqlx::Error },
    #[error("the tables of {} could not be migrated to this version", path.display())]
    Migrate { path: PathBuf, source: MigrateError },
}

/// The data folder of a database, for a command.
fn folder(path: &Path) -> std::path::Display<'_> {
    path.parent().unwrap_or(path).display()
}

/// The name of a file that SQLite writes beside the database.
fn beside(path: &Path, ending: &str) -> String {
    format!("{}{ending}", path.file_name().unwrap_or_default().display())
}

/// Writes to a removed file would be lost when the process ends.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} was removed or replaced while the service runs: nothing is written any more; put the file back or restore a backup, and start \
     the service again",
    path.display()
)]
pub(super) struct GoneError {
    pub(super) path: PathBuf,
}

/// The disk takes no writes.
#[derive(Debug, thiserror::Error)]
#[error("{} can't be written: {source}. Free space on its disk; the service then continues by itself", path.display())]
struct NoWritesError {
    path: PathBuf,
    source: sqlx::Error,
}

/// The disk is full.
#[derive(Debug, thiserror::Error)]
#[error("{} can't be written: its disk is full. Free space; the service then continues by itself", path.display())]
pub(super) struct FullError {
    pub(super) path: PathBuf,
}

impl SqliteOpenError {
    pub(super) fn of(path: &Path, source: sqlx::Error) -> Self {
        let path = path.to_owned();
        match primary_code(&source) {
            Some(SQLITE_CORRUPT | SQLITE_NOTADB) => Self::Damaged { path, source },
            Some(SQLITE_BUSY) => Self::Busy { path, source },
            Some(SQLITE_FULL) => Self::Full { path, source },
            _ if takes_no_writes(&source) => Self::NoWrites { path, source },
            Some(SQLITE_PERM | SQLITE_READONLY | SQLITE_CANTOPEN) => Self::NoAccess { path, source },
            _ => Self::Failed { path, source },
        }
    }

    pub(super) fn of_migration(path: &Path, source: MigrateError) -> Self {
        match source {
            MigrateError::VersionMissing(migration) => Self::Newer { path: path.to_owned(), migration },
            MigrateError::VersionMismatch(migration) => Self::Changed { path: path.to_owned(), migration },
            MigrateError::Execute(source) => Self::of(path, source),
            MigrateError::ExecuteMigration(source, _) if primary_code(&source).is_some() => Self::of(path, source),
            source => Self::Migrate { path: path.to_owned(), source },
        }
    }
}

/// An error during use. Damage is detected only when a damaged page is read, so this error includes the remedy too.
pub(super) fn during_use(path: &Path, source: sqlx::Error) -> Box<dyn Error + Send + Sync> {
    match primary_code(&source) {
        Some(SQLITE_CORRUPT | SQLITE_NOTADB) => Box::new(SqliteOpenError::of(path, source)),
        _ if takes_no_writes(&source) => Box::new(NoWritesError { path: path.to_owned(), source }),
        _ => Box::new(source),
    }
}

/// Whether another attempt may succeed: another process holds the lock of the file, or the disk is full or takes no writes now.
pub(super) fn is_passing(error: &sqlx::Error) -> bool {
    is_locked(error) || takes_no_writes(error)
}

/// Whether another process or another write was in the way.
pub(super) fn is_locked(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::PoolTimedOut) || primary_code(error) == Some(SQLITE_BUSY)
}

fn takes_no_writes(error: &sqlx::Error) -> bool {
    primary_code(error) == Some(SQLITE_FULL) || extended_code(error).is_some_and(|code| NO_WRITES.contains(&code))
}

/// What to do about a failed backup, as a sentence after the error; empty if that is unknown.
pub(super) fn backup_remedy(error: &sqlx::Error) -> &'static str {
    match primary_code(error) {
        Some(SQLITE_CORRUPT | SQLITE_NOTADB) => {
            ". The database is damaged: keep the earlier backups, and restore one of them (toolsieve restore FILE --force)"
        }
        Some(SQLITE_FULL) => ". Free space, or write the backup to another disk",
        Some(SQLITE_PERM | SQLITE_READONLY | SQLITE_CANTOPEN) => {
            ". Run this command as root or as the service's account. If the disk of the data folder is read-only, copy the folder first, and \
             back up the copy"
        }
        _ => "",
    }
}

/// Whether the error means that the file is damaged, or not a database.
pub(super) fn is_damage(error: &sqlx::Error) -> bool {
    matches!(primary_code(error), Some(SQLITE_CORRUPT | SQLITE_NOTADB))
}

/// The primary code, which is the low byte of the extended code.
fn primary_code(error: &sqlx::Error) -> Option<i32> {
    extended_code(error).map(|code| code & 0xff)
}

fn extended_code(error: &sqlx::Error) -> Option<i32> {
    error.as_database_error()?.code()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use sqlx::error::{DatabaseError, ErrorKind};

    use super::*;

    /// An error of SQLite with this extended code.
    #[derive(Debug)]
    struct Coded(i32);

    impl fmt::Display for Coded {
        fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str(self.message())
        }
    }

    impl Error for Coded {}

    impl DatabaseError for Coded {
        fn message(&self) -> &'static str {
            "disk I/O error"
        }

        fn code(&self) -> Option<std::borrow::Cow<'_, str>> {
            Some(self.0.to_string().into())
        }

        fn as_error(&self) -> &(dyn Error + Send + Sync + 'static) {
            self
        }

        fn as_error_mut(&mut self) -> &mut (dyn Error + Send + Sync + 'static) {
            self
        }

        fn into_error(self: Box<Self>) -> Box<dyn Error + Send + Sync + 'static> {
            self
        }

        fn kind(&self) -> ErrorKind {
            ErrorKind::Other
        }
    }

    /// A user saw only `disk I/O error` at a start on a full disk.
    #[test]
    fn a_disk_that_takes_no_writes_has_a_remedy() {
        let shown = |code: i32| SqliteOpenError::of(Path::new("db"), sqlx::Error::Database(Box::new(Coded(code)))).to_string();
        for code in NO_WRITES {
            assert!(shown(code).contains("free space"), "{}", shown(code));
        }
        // A failed read.
        assert!(!shown(266).contains("free space"), "{}", shown(266));
    }
}
