//! Restores a backup into a data folder that no service uses.

use std::fs::File;
use std::io::{self, BufWriter, Read as _, Seek as _};
use std::path::{Path, PathBuf};

use tokio::task::spawn_blocking;
use uuid::Uuid;

use super::archive::{self, DATABASE, Manifest, ReadError};
use crate::adapters::data_dir::{self, DataDir, DataDirError};
use crate::adapters::private_files::{create_private_file, create_private_folder};
use crate::adapters::store::{CopyContents, CopyError, inspect};

/// The first bytes of a file that is compressed with gzip, and of a SQLite database.
const GZIP: &[u8] = &[0x1f, 0x8b];
const SQLITE: &[u8] = b"SQLite format 3\0";

/// How much to write at once, in bytes.
const BUFFER: usize = 64 << 10;

/// The result of a restore.
#[derive(Debug)]
pub struct Restored {
    /// When the backup was made, and by which version; `None` for a copy of only the database.
    pub made: Option<(String, String)>,
    /// The folder with the former contents, if there were any.
    pub aside: Option<PathBuf>,
    /// Whether the former contents belonged to another installation.
    pub is_other_installation: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    #[error("{} can't be read: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{} is not a backup of toolsieve: name a file that `toolsieve backup` has written", .0.display())]
    NotABackup(PathBuf),
    #[error("{} contains {name:?}, which is not a part of a backup: name a file that `toolsieve backup` has written", path.display())]
    Foreign { path: PathBuf, name: String },
    #[error("a newer version of toolsieve has written {} ({reason}): restore it with that version or a later one", path.display())]
    Newer { path: PathBuf, reason: String },
    #[error("{} is damaged: {reason}. Nothing was changed. Use another backup", path.display())]
    Damaged { path: PathBuf, reason: String },
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    #[error(
        "the data folder {} is not empty (it contains {names}): choose an empty folder with --data-dir, or move its contents aside \
         with --force",
        path.display()
    )]
    NotEmpty { path: PathBuf, names: String },
    #[error("the backup can't be written to {}: {source}. Nothing was changed", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error(
        "the restore into {} can't be finished: {source}. Solve this problem, and start the service or repeat the restore: the rest \
         follows by itself",
        path.display()
    )]
    Unfinished { path: PathBuf, source: io::Error },
}

impl RestoreError {
    /// Whether the arguments are the reason.
    pub fn is_invalid_use(&self) -> bool {
        matches!(self, Self::Unreadable { .. } | Self::NotABackup(_) | Self::Foreign { .. } | Self::Newer { .. } | Self::NotEmpty { .. })
    }
}

/// Restores a backup, or a copy of only the database. Verifies everything before it changes the data folder.
/// With `force`, the former contents of the folder move to a folder inside it. After a crash, the old contents are unchanged, or the
/// new ones are complete as soon as a service or a command uses the folder.
///
/// # Errors
/// [`RestoreError`]. The data folder is unchanged, except after [`RestoreError::Unfinished`].
pub async fn restore(path: &Path, data_dir: &Path, force: bool) -> Result<Restored, RestoreError> {
    let (file, kind) = open(path)?;
    let data = DataDir::open(data_dir)?;
    let unwritable = |source| RestoreError::Write { path: data.path().to_owned(), source };
    let present = data.present().map_err(unwritable)?;
    if !force && !present.is_empty() {
        return Err(RestoreError::NotEmpty { path: data.path().to_owned(), names: present.join(", ") });
    }
    let former = data.installation().read().ok().flatten().map(|former| former.id);
    let new = data.begin_replacement().map_err(unwritable)?;
    let (manifest, contents) = match fill(path, file, kind, &new).await {
        Ok(filled) => filled,
        Err(error) => {
            data.discard_replacement();
            return Err(error);
        }
    };
    let aside = data.replace().map_err(|source| {
        let path = data.path().to_owned();
        if data_dir::is_being_replaced(&path) {
            return RestoreError::Unfinished { path, source };
        }
        data.discard_replacement();
        RestoreError::Write { path, source }
    })?;
    Ok(Restored {
        made: manifest.map(|manifest| (manifest.created_at, manifest.program)),
        aside,
        is_other_installation: former.is_some() && former != contents.installation,
    })
}

#[derive(Clone, Copy)]
enum Kind {
    Archive,
    /// Only the database.
    Database,
}

fn open(path: &Path) -> Result<(File, Kind), RestoreError> {
    let unreadable = |source| RestoreError::Unreadable { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(unreadable)?;
    let mut head = Vec::new();
    file.by_ref().take(SQLITE.len() as u64).read_to_end(&mut head).map_err(unreadable)?;
    file.rewind().map_err(unreadable)?;
    match head.as_slice() {
        head if head.starts_with(GZIP) => Ok((file, Kind::Archive)),
        head if head == SQLITE => Ok((file, Kind::Database)),
        _ => Err(RestoreError::NotABackup(path.to_owned())),
    }
}

/// Writes the backup's contents to a folder, and verifies them.
async fn fill(path: &Path, file: File, kind: Kind, to: &Path) -> Result<(Option<Manifest>, CopyContents), RestoreError> {
    let folder = to.to_owned();
    let unpacked = spawn_blocking(move || match kind {
        Kind::Archive => unpack(file, &folder).map(Some),
        Kind::Database => write_file(&folder.join(DATABASE), &mut &file).map(|()| None).map_err(ReadError::Write),
    });
    let unwritable = |source| RestoreError::Write { path: to.to_owned(), source };
    let damaged = |reason| RestoreError::Damaged { path: path.to_owned(), reason };
    let manifest = unpacked.await.map_err(|error| unwritable(io::Error::other(error)))?.map_err(|error| match error {
        ReadError::NotABackup => RestoreError::NotABackup(path.to_owned()),
        ReadError::Foreign(name) => RestoreError::Foreign { path: path.to_owned(), name },
        ReadError::Newer { .. } => RestoreError::Newer { path: path.to_owned(), reason: error.to_string() },
        ReadError::Damaged(reason) => damaged(reason),
        ReadError::Write(source) => unwritable(source),
    })?;
    let contents = inspect(&to.join(DATABASE)).await.map_err(|error| match error {
        CopyError::Foreign => RestoreError::NotABackup(path.to_owned()),
        CopyError::Newer { .. } => RestoreError::Newer { path: path.to_owned(), reason: error.to_string() },
        CopyError::Damaged(_) | CopyError::Unreadable(_) => damaged(error.to_string()),
    })?;
    let installation = data_dir::installation(to).read().map_err(|error| damaged(format!("`installation` can't be read: {error}")))?;
    let belongs = |id: Uuid| contents.installation == Some(id);
    if installation.is_some_and(|installation| installation.had_rules_or_keys && !belongs(installation.id)) {
        return Err(damaged("its database belongs to another installation".to_owned()));
    }
    Ok((manifest, contents))
}

fn unpack(file: File, folder: &Path) -> Result<Manifest, ReadError> {
    archive::read(file, |name, content| {
        let path = folder.join(name);
        if let Some(parent) = path.parent() {
            create_private_folder(parent)?;
        }
        write_file(&path, content)
    })
}

fn write_file(path: &Path, content: &mut dyn io::Read) -> io::Result<()> {
    let mut file = BufWriter::with_capacity(BUFFER, create_private_file(path)?);
    io::copy(content, &mut file)?;
    file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}
