//! Manages the database file: creates it privately, backs it up during use, and detects its removal before each write.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use nix::sys::statvfs::statvfs;
use sqlx::ConnectOptions;
use sqlx::Connection;
use sqlx::SqliteConnection;
use sqlx::sqlite::SqliteConnectOptions;
use uuid::Uuid;

use super::errors::{backup_remedy, is_damage};
use super::{APPLICATION_ID, MIGRATIONS};
use crate::adapters::private_files::create_private_file;
use crate::adapters::store::migrating;

#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("there is no database {}", .0.display())]
    NoDatabase(PathBuf),
    #[error("{} already exists: choose another file", .0.display())]
    Exists(PathBuf),
    #[error("{} can't be written: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("{} could not be copied: {source}{}", from.display(), backup_remedy(source))]
    Copy { from: PathBuf, source: sqlx::Error },
}

/// Copies a consistent snapshot of a database into a new file that only its owner can read. Other processes may use the
/// database at the same time. The copy is on disk when this returns.
///
/// # Errors
/// [`BackupError`]. No new file is left behind.
pub async fn back_up(from: &Path, to: &Path) -> Result<(), BackupError> {
    if !from.is_file() {
        return Err(BackupError::NoDatabase(from.to_owned()));
    }
    let unwritable = |source| BackupError::Write { path: to.to_owned(), source };
    match create_private_file(to) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(BackupError::Exists(to.to_owned())),
        made => made.map(drop).map_err(unwritable)?,
    }
    let copied = copy(from, to).await.map_err(|source| BackupError::Copy { from: from.to_owned(), source });
    let kept = copied.and_then(|()| flush(to).map_err(unwritable));
    if kept.is_err() {
        // An incomplete file must not be taken for a backup.
        let _ = fs::remove_file(to);
    }
    kept
}

async fn copy(from: &Path, to: &Path) -> Result<(), sqlx::Error> {
    let mut connection = SqliteConnectOptions::new().filename(from).read_only(true).disable_statement_logging().connect().await?;
    let name = to.to_str().ok_or_else(|| sqlx::Error::Configuration("the name of the copy is not UTF-8".into()))?;
    sqlx::query("VACUUM INTO ?").bind(name).execute(&mut connection).await?;
    connection.close().await
}

/// What a copy of a database contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyContents {
    /// The number of the last migration.
    pub schema: i64,
    pub installation: Option<Uuid>,
}

/// The reason why a copy is of no use.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error("it is not a database of toolsieve")]
    Foreign,
    #[error("it has migration {migration}, which this version doesn't know")]
    Newer { migration: i64 },
    #[error("its database is damaged: {0}")]
    Damaged(String),
    #[error("its database can't be read: {0}")]
    Unreadable(sqlx::Error),
}

/// Checks a copy of a database completely, without changing it or writing files beside it. No process may use the copy.
///
/// # Errors
/// [`CopyError`] if the copy is damaged, or if this version can't use it.
pub async fn inspect(copy: &Path) -> Result<CopyContents, CopyError> {
    let read = |error: sqlx::Error| if is_damage(&error) { CopyError::Damaged(error.to_string()) } else { CopyError::Unreadable(error) };
    let options = SqliteConnectOptions::new().filename(copy).read_only(true).immutable(true).disable_statement_logging();
    let mut connection = options.connect().await.map_err(read)?;
    let (contents, compatible_from) = contents(&mut connection).await.map_err(read)?.ok_or(CopyError::Foreign)?;
    let verdict: String = sqlx::query_scalar("PRAGMA integrity_check(1)").fetch_one(&mut connection).await.map_err(read)?;
    connection.close().await.map_err(read)?;
    if verdict != "ok" {
        return Err(CopyError::Damaged(verdict));
    }
    let is_usable = migrating::may_use(migrating::newest(&MIGRATIONS), contents.schema, compatible_from);
    if is_usable { Ok(contents) } else { Err(CopyError::Newer { migration: contents.schema }) }
}

/// Reads what a database contains, and the number from which on a version may use it; `None` if it is not ours.
async fn contents(connection: &mut SqliteConnection) -> Result<Option<(CopyContents, Option<i64>)>, sqlx::Error> {
    const HAS_INSTALLATION: &str = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'installation'";
    const HAS_NUMBER: &str = "SELECT count(*) FROM pragma_table_info('installation') WHERE name = 'compatible_from'";
    let id: i32 = sqlx::query_scalar("PRAGMA application_id").fetch_one(&mut *connection).await?;
    if id != APPLICATION_ID {
        return Ok(None);
    }
    let schema: Option<i64> = sqlx::query_scalar(migrating::NEWEST).fetch_one(&mut *connection).await?;
    let has_installation: i64 = sqlx::query_scalar(HAS_INSTALLATION).fetch_one(&mut *connection).await?;
    let installation: Option<String> =
        if has_installation > 0 { sqlx::query_scalar("SELECT id FROM installation").fetch_one(&mut *connection).await? } else { None };
    let installation = installation.map(|id| Uuid::try_parse(&id).unwrap_or_default());
    let has_number: i64 = sqlx::query_scalar(HAS_NUMBER).fetch_one(&mut *connection).await?;
    let compatible_from =
        if has_number > 0 { sqlx::query_scalar(migrating::COMPATIBLE_FROM).fetch_one(&mut *connection).await? } else { None };
    Ok(Some((CopyContents { schema: schema.unwrap_or_default(), installation }, compatible_from)))
}

fn flush(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// Creates the file before SQLite does, whose permissions would depend on the umask. SQLite gives its log files the same
/// permissions.
pub(super) fn create_private(path: &Path) -> io::Result<()> {
    match create_private_file(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && !path.is_dir() => Ok(()),
        other => other.map(drop),
    }
}

/// The bytes that are available on the file's disk; `None` if the system does not report them.
pub(super) fn space(path: &Path) -> Option<u64> {
    let disk = statvfs(path).ok()?;
    Some(disk.blocks_available().saturating_mul(disk.fragment_size()))
}

/// Whether the file contains nothing yet.
pub(super) fn is_empty(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.len() == 0)
}

/// Removes a file that was never complete, and what SQLite writes beside it. What can't be removed stays.
pub(super) fn remove_with_log(path: &Path) {
    for ending in ["", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        if let Err(error) = fs::remove_file(&name)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(file = %name.display(), %error, "could not remove an incomplete database");
        }
    }
}

/// Identifies an opened file independently of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity(u64, u64);

impl Identity {
    #[cfg(unix)]
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        use std::os::unix::fs::MetadataExt;

        let metadata = fs::metadata(path)?;
        Ok(Self(metadata.dev(), metadata.ino()))
    }

    /// Always matches: other systems don't allow removing an open file.
    #[cfg(not(unix))]
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        fs::metadata(path).map(|_| Self(0, 0))
    }
}
