//! Makes a backup of a data folder, also while a service uses it.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::task::spawn_blocking;
use uuid::Uuid;

use super::archive::{self, DATABASE, FILES, INSTALLATION, OAUTH, ReadError, Writer, is_plain_name};
use crate::adapters::data_dir;
use crate::adapters::store::{BackupError, CopyContents, CopyError, back_up, inspect};

/// The extension of a file that the service is writing.
const UNFINISHED: &str = "part";
/// The extensions of unfinished files beside a backup.
const ARCHIVE: &str = "part";
const COPY: &str = "db";
/// After this time without a change, such files belong to a backup that was killed.
const ABANDONED: Duration = Duration::from_hours(24);

/// The result of a backup.
#[derive(Debug)]
pub struct Saved {
    /// Size of the backup.
    pub bytes: u64,
    /// Number of parts: the database and single files.
    pub parts: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    #[error("{} already exists: choose another file, or replace it with --force", .0.display())]
    Exists(PathBuf),
    #[error("{} is not a regular file: choose another file", .0.display())]
    NotAFile(PathBuf),
    #[error("there is no folder {}: create it, or choose another file", .0.display())]
    NoFolder(PathBuf),
    #[error("there is no database {}: name the data folder with --data-dir", .0.display())]
    NoDatabase(PathBuf),
    #[error("{} can't be read: {source}. Run this command as root or as the service's account", database.display())]
    NoAccess { database: PathBuf, source: io::Error },
    #[error(
        "a restore into {} was interrupted: start the service or repeat the restore, so that it is finished, and back up then",
        .0.display()
    )]
    Interrupted(PathBuf),
    #[error(
        "{} names an installation that had keys, rules, toolsets, servers, tags or approvals, and toolsieve.db next to it is not its database. \
         A backup would be of no use: restore an earlier one (toolsieve restore FILE --force)",
        .0.display()
    )]
    OtherStore(PathBuf),
    #[error("{} can't be backed up: {reason}", database.display())]
    Unusable { database: PathBuf, reason: CopyError },
    #[error(transparent)]
    Copy(#[from] BackupError),
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("the backup could not be read again: {0}. Check the disk, and repeat the backup")]
    Unverified(String),
}

impl SaveError {
    /// Whether the arguments are the reason.
    pub fn is_invalid_use(&self) -> bool {
        matches!(self, Self::Exists(_) | Self::NotAFile(_) | Self::NoFolder(_) | Self::NoDatabase(_) | Self::OtherStore(_))
    }
}

/// Writes a backup of the data folder to a file that only its owner can read, and reads it again to verify it. Only a complete and
/// verified backup gets the file's name. `force` replaces an existing regular file, or the one behind a symbolic link.
///
/// If the caller drops the future, the unfinished files are deleted.
///
/// # Errors
/// [`SaveError`]. An existing file is left unchanged.
pub async fn save(data_dir: &Path, file: &Path, force: bool) -> Result<Saved, SaveError> {
    let destination = destination(file, force)?;
    let file = destination.as_path();
    if data_dir::is_being_replaced(data_dir) {
        return Err(SaveError::Interrupted(data_dir.to_owned()));
    }
    let database = data_dir::database(data_dir);
    match data_dir::present(&database) {
        Ok(Some(found)) if found.is_file() => {}
        Ok(_) => return Err(SaveError::NoDatabase(database)),
        Err(source) => return Err(SaveError::NoAccess { database, source }),
    }
    delete_abandoned(file);
    let draft = Draft::beside(file);
    back_up(&database, &draft.database).await?;
    let unusable = |reason| SaveError::Unusable { database: database.clone(), reason };
    let contents = inspect(&draft.database).await.map_err(unusable)?;
    // Read after the copy: the service notes that there are keys or rules before it stores the first one.
    let installation = installation(data_dir, contents)?;

    let (folder, copy, to) = (data_dir.to_owned(), draft.database.clone(), draft.archive.clone());
    let written = spawn_blocking(move || write(&folder, &copy, installation, contents, &to)).await;
    let parts = written.map_err(|error| io_error(&draft.archive)(io::Error::other(error)))??;
    let bytes = fs::metadata(&draft.archive).map_err(io_error(&draft.archive))?.len();
    fs::rename(&draft.archive, file).map_err(io_error(file))?;
    File::open(parent(file)).and_then(|parent| parent.sync_all()).map_err(io_error(file))?;
    Ok(Saved { bytes, parts })
}

/// The file to write. A rename replaces devices and links too, so they are found here.
fn destination(file: &Path, force: bool) -> Result<PathBuf, SaveError> {
    if fs::symlink_metadata(file).is_err() {
        let folder = parent(file);
        let is_missing = fs::metadata(folder).is_err_and(|error| error.kind() == ErrorKind::NotFound);
        return if is_missing { Err(SaveError::NoFolder(folder.to_owned())) } else { Ok(file.to_owned()) };
    }
    if !force {
        return Err(SaveError::Exists(file.to_owned()));
    }
    let target = fs::canonicalize(file).map_err(io_error(file))?;
    if target.is_file() { Ok(target) } else { Err(SaveError::NotAFile(file.to_owned())) }
}

/// The unfinished files beside a backup, which are deleted at the end.
struct Draft {
    archive: PathBuf,
    database: PathBuf,
}

impl Draft {
    fn beside(file: &Path) -> Self {
        let number = Uuid::new_v4().simple();
        let name = |ending: &str| {
            let mut path = file.as_os_str().to_owned();
            path.push(format!(".{number}.{ending}"));
            PathBuf::from(path)
        };
        Self { archive: name(ARCHIVE), database: name(COPY) }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.archive);
        let _ = fs::remove_file(&self.database);
    }
}

/// Deletes what earlier backups to the same file have left because they were killed.
fn delete_abandoned(file: &Path) {
    let Some(name) = file.file_name().and_then(|name| name.to_str()) else { return };
    for entry in fs::read_dir(parent(file)).into_iter().flatten().flatten() {
        let is_draft = entry.file_name().to_str().and_then(|other| other.strip_prefix(name)).is_some_and(is_draft_of);
        let changed = entry.metadata().and_then(|metadata| metadata.modified()).ok();
        if is_draft && changed.and_then(|changed| changed.elapsed().ok()).is_some_and(|age| age > ABANDONED) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Whether this follows a backup's name in the name of an unfinished file.
fn is_draft_of(rest: &str) -> bool {
    let parts = rest.strip_prefix('.').and_then(|rest| rest.split_once('.'));
    parts.is_some_and(|(number, ending)| {
        number.len() == 32 && number.bytes().all(|byte| byte.is_ascii_hexdigit()) && [ARCHIVE, COPY].contains(&ending)
    })
}

fn parent(file: &Path) -> &Path {
    file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> SaveError {
    let path = path.to_owned();
    move |source| SaveError::Io { path, source }
}

/// The contents of the file `installation`, if the database belongs to it.
fn installation(data_dir: &Path, contents: CopyContents) -> Result<Option<Vec<u8>>, SaveError> {
    let file = data_dir::installation(data_dir);
    let known = file.read().map_err(io_error(file.path()))?;
    if known.is_some_and(|known| known.had_rules_or_keys && contents.installation != Some(known.id)) {
        return Err(SaveError::OtherStore(file.path().to_owned()));
    }
    known.map(|known| serde_json::to_vec(&known).map_err(|error| io_error(file.path())(error.into()))).transpose()
}

/// Writes the archive and verifies it. Returns the number of its parts.
fn write(data_dir: &Path, database: &Path, installation: Option<Vec<u8>>, contents: CopyContents, to: &Path) -> Result<usize, SaveError> {
    let mut writer = Writer::create(to).map_err(io_error(to))?;
    let copy = File::open(database).map_err(io_error(database))?;
    let length = copy.metadata().map_err(io_error(database))?.len();
    writer.part(DATABASE, length, copy).map_err(io_error(to))?;
    if let Some(text) = installation {
        writer.part(INSTALLATION, text.len() as u64, text.as_slice()).map_err(io_error(to))?;
    }
    for (name, folder) in [(FILES, data_dir::files(data_dir)), (OAUTH, data_dir::oauth(data_dir))] {
        add_folder(&mut writer, name, &folder, to)?;
    }
    let manifest = writer.finish(contents).map_err(io_error(to))?;
    let file = File::open(to).map_err(io_error(to))?;
    match archive::read(file, |_, _| Ok(())) {
        Ok(read) if read.parts.len() == manifest.parts.len() => Ok(manifest.parts.len()),
        Ok(_) => Err(SaveError::Unverified("parts are missing".to_owned())),
        Err(ReadError::Damaged(reason)) => Err(SaveError::Unverified(reason)),
        Err(error) => Err(SaveError::Unverified(error.to_string())),
    }
}

/// Adds the files in a folder. The service writes each of them under another name first, and may delete them at any time.
fn add_folder(writer: &mut Writer, name: &str, folder: &Path, to: &Path) -> Result<(), SaveError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(io_error(folder))?,
    };
    for entry in entries {
        let path = entry.map_err(io_error(folder))?.path();
        let Some(file_name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if path.extension().is_some_and(|extension| extension == UNFINISHED) || !is_plain_name(file_name) {
            continue;
        }
        let file = match File::open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            file => file.map_err(io_error(&path))?,
        };
        let metadata = file.metadata().map_err(io_error(&path))?;
        if metadata.is_file() {
            writer.part(&format!("{name}/{file_name}"), metadata.len(), file).map_err(io_error(to))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::time::SystemTime;

    use super::*;

    /// Regression test: `--force` replaced devices, and links in place of their targets.
    #[test]
    fn only_regular_files_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        File::create(path("file")).unwrap();
        symlink(path("file"), path("link")).unwrap();
        symlink(path("gone"), path("dangling")).unwrap();
        let target = fs::canonicalize(path("file")).unwrap();
        assert_eq!(destination(&path("link"), true).unwrap(), target);
        assert_eq!(destination(&path("file"), true).unwrap(), target);
        assert_eq!(destination(&path("new"), true).unwrap(), path("new"));
        for other in [Path::new("/dev/null"), folder.path()] {
            assert!(matches!(destination(other, true), Err(SaveError::NotAFile(_))), "{}", other.display());
        }
        assert!(matches!(destination(&path("dangling"), true), Err(SaveError::Io { .. })));
        assert!(matches!(destination(&path("dangling"), false), Err(SaveError::Exists(_))));
        assert!(matches!(destination(&path("nowhere/new"), false), Err(SaveError::NoFolder(_))));
        assert!(destination(Path::new("a-new-file-of-no-folder"), false).is_ok());
    }

    #[test]
    fn only_old_unfinished_files_of_the_same_backup_are_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("backup.tar.gz");
        let number = "0123456789abcdef0123456789abcdef";
        let create = |name: String, age: Duration| {
            let path = folder.path().join(name);
            File::create(&path).unwrap().set_modified(SystemTime::now() - age).unwrap();
            path
        };
        let old = ABANDONED + Duration::from_mins(1);
        let gone = [ARCHIVE, COPY].map(|ending| create(format!("backup.tar.gz.{number}.{ending}"), old));
        let kept = [
            create("backup.tar.gz".to_owned(), old),
            create(format!("backup.tar.gz.{}.part", number.replace('0', "9")), Duration::ZERO),
            create(format!("other.tar.gz.{number}.part"), old),
            create(format!("backup.tar.gz.{number}.txt"), old),
            create("backup.tar.gz.2026.db".to_owned(), old),
        ];
        delete_abandoned(&file);
        assert!(gone.iter().all(|path| !path.exists()) && kept.iter().all(|path| path.exists()));
    }
}
