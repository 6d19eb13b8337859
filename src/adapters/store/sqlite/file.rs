//! Manages the database file: creates it privately, backs it up during use, and detects its removal before each write.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use sqlx::ConnectOptions;
use sqlx::Connection;
use sqlx::sqlite::SqliteConnectOptions;

#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("there is no database {}", .0.display())]
    NoDatabase(PathBuf),
    #[error("{} already exists: choose another file", .0.display())]
    Exists(PathBuf),
    #[error("{} can't be written", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("{} could not be copied to {}", from.display(), to.display())]
    Copy { from: PathBuf, to: PathBuf, source: sqlx::Error },
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
    match private().create_new(true).open(to) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(BackupError::Exists(to.to_owned())),
        made => made.map(drop).map_err(unwritable)?,
    }
    let copied = copy(from, to).await.map_err(|source| BackupError::Copy { from: from.to_owned(), to: to.to_owned(), source });
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

fn flush(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// Creates the file before SQLite does, whose permissions would depend on the umask. SQLite gives its log files the same
/// permissions.
pub(super) fn create_private(path: &Path) -> io::Result<()> {
    match private().create_new(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && !path.is_dir() => Ok(()),
        other => other.map(drop),
    }
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
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
