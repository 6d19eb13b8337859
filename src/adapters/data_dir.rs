//! The data folder, which only one process may use at a time.
//!
//! The lock is an operating system lock on an open file (`std::fs::File::try_lock`), so it always ends with the process. A
//! leftover lock file locks nothing.

mod replacement;

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::statvfs::statvfs;

use crate::adapters::installation::InstallationFile;
use crate::adapters::private_files::{create_private_folder, private_options};
use crate::service::ports::DiskSpace;

/// How long to retry if the folder is locked, and the pause between two attempts.
const PATIENCE: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(20);
const LOCK_FILE: &str = "toolsieve.lock";
const DATABASE_FILE: &str = "toolsieve.db";
const INDEX_FOLDER: &str = "index";
const OAUTH_FOLDER: &str = "oauth";
const FILES_FOLDER: &str = "files";
const SPOOL_FOLDER: &str = "spool";
const INSTALLATION_FILE: &str = "installation";
const SANDBOXES_FOLDER: &str = "sandboxes";

/// The metadata of a file; `None` if it doesn't exist. A file in a folder that this user may not open is an error, because without its
/// contents, keys, rules and servers would seem to be missing.
pub(crate) fn present(path: &Path) -> io::Result<Option<fs::Metadata>> {
    match fs::metadata(path) {
        Ok(found) => Ok(Some(found)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A locked data folder. Dropping it releases the lock, so keep it as long as anything in the folder is open.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    _lock: File,
}

/// The reason why the folder can't be used, with a remedy.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    #[error("the data folder {} is not a folder: choose another one with --data-dir", path.display())]
    NotAFolder { path: PathBuf },
    #[error(
        "the data folder {} can't be created or written: {source}. Give this user access, or choose another one with \
         --data-dir",
        path.display()
    )]
    NotWritable { path: PathBuf, source: io::Error },
    #[error(
        "the lock file {} can't be opened: {source}. Give this user access to it and to the other files in the folder, which another user \
         may have created, or choose another data folder with --data-dir",
        path.display()
    )]
    LockNotWritable { path: PathBuf, source: io::Error },
    #[error(
        "the data folder {} is in use by another process{}: stop that process, or choose another folder with \
         --data-dir",
        path.display(), process_note(*process)
    )]
    InUse { path: PathBuf, process: Option<u32> },
    #[error(
        "the data folder {} can't be locked: its file system does not support file locks; choose one on a local disk with \
         --data-dir",
        path.display()
    )]
    NoLocks { path: PathBuf, source: io::Error },
    #[error(
        "a restore into the data folder {} was interrupted and can't be finished: {source}. Solve this problem, and start again: the \
         rest of the restore follows by itself",
        path.display()
    )]
    Unfinished { path: PathBuf, source: io::Error },
}

impl DataDir {
    /// Creates the folder if it is missing (accessible to its owner only) and locks it for this process. Finishes a restore that was
    /// interrupted.
    ///
    /// # Errors
    /// [`DataDirError`], which names the folder and a remedy.
    pub fn open(path: &Path) -> Result<Self, DataDirError> {
        let not_writable = |source| DataDirError::NotWritable { path: path.to_owned(), source };
        if path.exists() && !path.is_dir() {
            return Err(DataDirError::NotAFolder { path: path.to_owned() });
        }
        create_private_folder(path).map_err(not_writable)?;
        let lock_file = path.join(LOCK_FILE);
        let mut lock = private_file(&lock_file).map_err(|source| DataDirError::LockNotWritable { path: lock_file, source })?;
        match try_lock(&lock) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(DataDirError::InUse { path: path.to_owned(), process: process_in(&mut lock) });
            }
            Err(TryLockError::Error(source)) => return Err(DataDirError::NoLocks { path: path.to_owned(), source }),
        }
        // If this fails, for example on a full disk, only a hint in other processes' error messages is missing.
        if let Err(error) = write_process(&mut lock) {
            tracing::warn!(%error, "could not write the process id to the lock file");
        }
        // From here on, the path must not depend on the working directory, so make it absolute.
        let path = fs::canonicalize(path).map_err(not_writable)?;
        // After a command of root, such as `doctor`, the service's account must still be able to open the lock.
        if let Err(error) = replacement::adopt_lock(&path) {
            tracing::warn!(%error, "could not give the lock file to the owner of the data folder");
        }
        replacement::finish(&path).map_err(|source| DataDirError::Unfinished { path: path.clone(), source })?;
        Ok(Self { path, _lock: lock })
    }

    /// The absolute path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of the `SQLite` database.
    pub fn database(&self) -> PathBuf {
        database(&self.path)
    }

    /// The file that contains the installation's id.
    pub fn installation(&self) -> InstallationFile {
        installation(&self.path)
    }

    /// The folder of the index, a cache that may be deleted while the service is stopped. The index creates it.
    pub fn index(&self) -> PathBuf {
        self.path.join(INDEX_FOLDER)
    }

    /// The folder for files returned by tools. The file store creates it.
    pub fn files(&self) -> PathBuf {
        files(&self.path)
    }

    /// The folder for records that wait for the store. The spool creates it.
    pub fn spool(&self) -> PathBuf {
        self.path.join(SPOOL_FOLDER)
    }

    /// Gives the database and the lock to the owner of the folder: after a command of root, the service's account must still own them.
    ///
    /// # Errors
    /// An error of the file system.
    pub fn adopt_database(&self) -> io::Result<()> {
        replacement::adopt_database(&self.path)
    }

    /// The names in the folder, apart from the lock.
    pub(super) fn present(&self) -> io::Result<Vec<String>> {
        replacement::present(&self.path)
    }

    /// Creates an empty folder for contents that shall replace those of this folder.
    pub(super) fn begin_replacement(&self) -> io::Result<PathBuf> {
        replacement::begin(&self.path)
    }

    /// Deletes the contents that [`Self::replace`] would use.
    pub(super) fn discard_replacement(&self) {
        if let Err(error) = replacement::discard(&self.path) {
            tracing::warn!(%error, "could not delete an incomplete restore");
        }
    }

    /// Replaces the contents of this folder. Returns the folder with the former contents, if there were any.
    ///
    /// # Errors
    /// An error of the file system. [`is_being_replaced`] shows whether the old contents or the new ones apply.
    pub(super) fn replace(&self) -> io::Result<Option<PathBuf>> {
        replacement::commit(&self.path)?;
        replacement::finish(&self.path)
    }
}

/// Locks the file, with retries: if a process is killed while it starts a child, the child holds the lock until it executes its
/// own program.
fn try_lock(file: &File) -> Result<(), TryLockError> {
    let end = Instant::now() + PATIENCE;
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if Instant::now() < end => thread::sleep(PAUSE),
            outcome => return outcome,
        }
    }
}

/// The space of the file system that contains the folder; `None` if the system does not report it.
pub(crate) fn space(folder: &Path) -> Option<DiskSpace> {
    let disk = statvfs(folder).inspect_err(|error| tracing::debug!(%error, "could not read the space of the data folder")).ok()?;
    let block = disk.fragment_size();
    Some(DiskSpace { available_bytes: disk.blocks_available().saturating_mul(block), size_bytes: disk.blocks().saturating_mul(block) })
}

/// The path of the database in a data folder, without opening the folder.
pub fn database(path: &Path) -> PathBuf {
    path.join(DATABASE_FILE)
}

/// The file with the installation's id in a data folder, without opening the folder.
pub(crate) fn installation(path: &Path) -> InstallationFile {
    InstallationFile::new(path.join(INSTALLATION_FILE))
}

/// The path of the folder for files in a data folder, without opening the data folder.
pub(super) fn files(path: &Path) -> PathBuf {
    path.join(FILES_FOLDER)
}

/// Whether a restore into this data folder was interrupted, so that parts of it are not in their places yet.
pub(super) fn is_being_replaced(path: &Path) -> bool {
    replacement::is_interrupted(path)
}

/// The path of the folder for OAuth tokens in a data folder, without opening the data folder.
pub fn oauth(path: &Path) -> PathBuf {
    path.join(OAUTH_FOLDER)
}

/// The path of the folder that contains the folders of sandboxed servers.
pub fn sandboxes(path: &Path) -> PathBuf {
    path.join(SANDBOXES_FOLDER)
}

fn private_file(path: &Path) -> io::Result<File> {
    private_options().read(true).write(true).create(true).truncate(false).open(path)
}

/// Writes the process id for the error messages of other processes. Only the lock itself protects the folder.
fn write_process(lock: &mut File) -> io::Result<()> {
    lock.set_len(0)?;
    lock.rewind()?;
    writeln!(lock, "{}", std::process::id())
}

fn process_in(lock: &mut File) -> Option<u32> {
    let mut text = String::new();
    lock.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn process_note(process: Option<u32>) -> String {
    process.map(|process| format!(" (process {process})")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{DataDir, DataDirError};

    #[test]
    fn one_process_per_folder_until_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/data");
        let first = DataDir::open(&path).unwrap();
        let refused = DataDir::open(&path).unwrap_err();
        assert!(matches!(refused, DataDirError::InUse { process: Some(id), .. } if id == std::process::id()));
        let message = refused.to_string();
        assert!(message.contains(path.to_str().unwrap()) && message.contains("--data-dir"), "{message}");
        drop(first);
        DataDir::open(&path).unwrap();
    }

    #[test]
    fn a_file_is_not_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "x").unwrap();
        assert!(matches!(DataDir::open(&path).unwrap_err(), DataDirError::NotAFolder { .. }));
        let below = DataDir::open(&path.join("below")).unwrap_err();
        assert!(matches!(below, DataDirError::NotWritable { .. }) && below.to_string().contains("Not a directory"), "{below}");
    }

    #[test]
    fn a_lock_that_can_not_be_opened_is_named_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("toolsieve.lock")).unwrap();
        let refused = DataDir::open(folder.path()).unwrap_err().to_string();
        assert!(refused.contains("toolsieve.lock") && refused.contains("Is a directory"), "{refused}");
    }

    /// Only root can give files away.
    #[cfg(unix)]
    #[test]
    fn the_lock_of_root_belongs_to_the_owner_of_the_folder() {
        use std::os::unix::fs::{MetadataExt, chown};

        let folder = tempfile::tempdir().unwrap();
        if std::fs::metadata(folder.path()).unwrap().uid() != 0 {
            return;
        }
        chown(folder.path(), Some(12_345), Some(12_346)).unwrap();
        let _data = DataDir::open(folder.path()).unwrap();
        let lock = std::fs::metadata(folder.path().join("toolsieve.lock")).unwrap();
        assert_eq!((lock.uid(), lock.gid()), (12_345, 12_346));
    }

    #[test]
    fn its_disk_has_some_space() {
        let folder = tempfile::tempdir().unwrap();
        let space = super::space(folder.path()).unwrap();
        assert!(space.size_bytes > 1 << 20 && space.available_bytes <= space.size_bytes, "{space:?}");
        assert_eq!(super::space(&folder.path().join("missing")), None);
    }

    #[cfg(unix)]
    #[test]
    fn others_can_not_read_it() {
        use std::os::unix::fs::PermissionsExt;

        let folder = tempfile::tempdir().unwrap();
        let data = DataDir::open(&folder.path().join("data")).unwrap();
        let mode = std::fs::metadata(data.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }
}
