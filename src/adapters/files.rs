//! Stores files returned by tools in a folder. Each file starts with a line of JSON metadata.
//!
//! If their total size exceeds the configured limit, expired files are deleted first, then the oldest.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use secrecy::SecretSlice;
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;
use uuid::Uuid;

use crate::adapters::private_files::{create_private_file, create_private_folder};
use crate::service::ports::{FileStore, FileStoreError, StoredFile};

const KEY_FILE: &str = "key";
const KEY_BYTES: usize = 32;
/// The extension of a file that is being written.
const UNFINISHED: &str = "part";

/// The first line of a file.
#[derive(Serialize, Deserialize)]
struct Head {
    mime_type: String,
    name: Option<String>,
    /// Expiry in seconds since 1970.
    expires: u64,
}

/// A folder of files. The data folder's lock ensures that only one process uses it.
pub(crate) struct FileFolder {
    folder: PathBuf,
    max_total_bytes: u64,
    kept: Mutex<Kept>,
}

/// The stored files, in order of deletion.
#[derive(Default)]
struct Kept {
    files: BTreeSet<(u64, Uuid, u64)>,
    bytes: u64,
}

impl FileFolder {
    /// Opens or creates the folder and deletes expired files.
    ///
    /// # Errors
    /// The folder can't be created or read.
    pub(crate) fn open(folder: PathBuf, max_total_bytes: u64) -> io::Result<Self> {
        create_private_folder(&folder)?;
        let mut kept = Kept::default();
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let name = entry.file_name();
            if name == KEY_FILE {
                continue;
            }
            let id = name.to_str().and_then(|name| Uuid::try_parse(name).ok());
            let head = head_of(&entry.path()).ok();
            match (id, head) {
                (Some(id), Some(head)) => kept.add(head.expires, id, entry.metadata()?.len()),
                // An unknown subfolder is no reason to fail.
                _ if entry.file_type()?.is_dir() => {
                    tracing::warn!(folder = %entry.path().display(), "ignoring a folder among the files");
                }
                // An incomplete file from a process that was killed.
                _ => fs::remove_file(entry.path())?,
            }
        }
        let store = Self { folder, max_total_bytes, kept: Mutex::new(kept) };
        store.make_room(&mut store.kept.lock(), 0);
        Ok(store)
    }

    /// The key that signs links. Generated once and stored in the folder, readable only by its owner.
    ///
    /// # Errors
    /// The file can't be read or written.
    pub(crate) fn signing_key(&self) -> io::Result<SecretSlice<u8>> {
        let path = self.folder.join(KEY_FILE);
        match fs::read(&path) {
            Ok(key) if key.len() == KEY_BYTES => return Ok(SecretSlice::from(key)),
            // If the key is too short, it was written incompletely.
            Ok(_) => fs::remove_file(&path)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let key: [u8; KEY_BYTES] = rand::random();
        write(&path, &[&key])?;
        Ok(SecretSlice::from(key.to_vec()))
    }

    /// Deletes expired files, then the oldest ones, until there is room for `bytes`.
    fn make_room(&self, kept: &mut Kept, bytes: u64) {
        let now = seconds(SystemTime::now());
        while let Some(&(expires, id, size)) = kept.files.first() {
            if expires > now && kept.bytes + bytes <= self.max_total_bytes {
                return;
            }
            kept.remove(expires, id, size);
            if let Err(error) = fs::remove_file(self.path(id))
                && error.kind() != ErrorKind::NotFound
            {
                tracing::warn!(%error, "could not delete a stored file");
            }
        }
    }

    fn path(&self, id: Uuid) -> PathBuf {
        self.folder.join(id.simple().to_string())
    }
}

impl Kept {
    fn add(&mut self, expires: u64, id: Uuid, size: u64) {
        self.files.insert((expires, id, size));
        self.bytes += size;
    }

    fn remove(&mut self, expires: u64, id: Uuid, size: u64) {
        if self.files.remove(&(expires, id, size)) {
            self.bytes = self.bytes.saturating_sub(size);
        }
    }
}

#[async_trait]
impl FileStore for FileFolder {
    async fn save(&self, id: Uuid, file: StoredFile) -> Result<(), FileStoreError> {
        let expires = seconds(file.expires);
        let head = Head { mime_type: file.mime_type, name: file.name, expires };
        let mut head = serde_json::to_vec(&head).map_err(io::Error::from)?;
        head.push(b'\n');
        let size = (head.len() + file.bytes.len()) as u64;
        if size > self.max_total_bytes {
            return Err(FileStoreError::TooLarge);
        }
        {
            // Reserve the space before writing, so that concurrent calls don't use it too.
            let mut kept = self.kept.lock();
            self.make_room(&mut kept, size);
            kept.add(expires, id, size);
        }
        let path = self.path(id);
        let write = move || -> io::Result<()> {
            let unfinished = path.with_extension(UNFINISHED);
            let written = write(&unfinished, &[&head, &file.bytes]).and_then(|()| fs::rename(&unfinished, &path));
            written.inspect_err(|_| drop(fs::remove_file(&unfinished)))
        };
        let written = spawn_blocking(write).await.map_err(io::Error::other).flatten();
        let mut kept = self.kept.lock();
        if written.is_err() {
            kept.remove(expires, id, size);
        } else if !kept.files.contains(&(expires, id, size)) {
            // The file was deleted in the meantime to make room for others.
            let _ = fs::remove_file(self.path(id));
        }
        Ok(written?)
    }

    async fn read(&self, id: Uuid) -> Result<Option<StoredFile>, FileStoreError> {
        let path = self.path(id);
        let file = match spawn_blocking(move || fs::read(path)).await.map_err(io::Error::other)? {
            Ok(file) => Bytes::from(file),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let Some((head, start)) = parse(&file) else { return Ok(None) };
        let expires = UNIX_EPOCH + Duration::from_secs(head.expires);
        Ok(Some(StoredFile { mime_type: head.mime_type, name: head.name, expires, bytes: file.slice(start..) }))
    }
}

fn head_of(path: &Path) -> io::Result<Head> {
    let mut line = Vec::new();
    BufReader::new(File::open(path)?).read_until(b'\n', &mut line)?;
    Ok(serde_json::from_slice(&line)?)
}

/// Parses the metadata. Returns it with the offset of the content.
fn parse(file: &[u8]) -> Option<(Head, usize)> {
    let end = file.iter().position(|byte| *byte == b'\n')?;
    Some((serde_json::from_slice(&file[..end]).ok()?, end + 1))
}

fn write(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let mut file = create_private_file(path)?;
    parts.iter().try_for_each(|part| file.write_all(part))
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    fn file(length: usize, lifetime: i64) -> StoredFile {
        let expires = UNIX_EPOCH + Duration::from_secs(seconds(SystemTime::now()).checked_add_signed(lifetime).unwrap());
        StoredFile { mime_type: "audio/wav".into(), name: Some("größe.wav".into()), expires, bytes: vec![b'\n'; length].into() }
    }

    fn files_in(folder: &Path) -> usize {
        fs::read_dir(folder).unwrap().count()
    }

    #[tokio::test]
    async fn files_outlive_the_process_until_their_time_is_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("files");
        let (kept, over) = (Uuid::new_v4(), Uuid::new_v4());
        let first = FileFolder::open(path.clone(), 1 << 20).unwrap();
        let key = first.signing_key().unwrap();
        first.save(kept, file(100, 60)).await.unwrap();
        first.save(over, file(100, -1)).await.unwrap();
        fs::write(path.join("0123.part"), "unfinished").unwrap();

        let second = FileFolder::open(path.clone(), 1 << 20).unwrap();
        assert_eq!(second.signing_key().unwrap().expose_secret(), key.expose_secret());
        let read = second.read(kept).await.unwrap().unwrap();
        assert!(read == file(100, 60) || read.expires != file(100, 60).expires, "as it was saved");
        assert_eq!((read.bytes.len(), read.name.as_deref()), (100, Some("größe.wav")));
        assert!(second.read(over).await.unwrap().is_none() && second.read(Uuid::new_v4()).await.unwrap().is_none());
        assert_eq!(files_in(&path), 2, "the key and the file that is kept");
    }

    #[tokio::test]
    async fn the_oldest_give_way_and_the_room_is_never_exceeded() {
        let folder = tempfile::tempdir().unwrap();
        let store = FileFolder::open(folder.path().to_owned(), 10_000).unwrap();
        let ids: Vec<Uuid> = (0..20).map(|_| Uuid::new_v4()).collect();
        for (age, id) in ids.iter().enumerate() {
            store.save(*id, file(2_000, 60 + i64::try_from(age).unwrap())).await.unwrap();
            let total: u64 = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
            assert!(total <= 10_000, "{total}");
        }
        assert!(store.read(ids[0]).await.unwrap().is_none() && store.read(ids[19]).await.unwrap().is_some());
        assert_eq!(files_in(folder.path()), 4);
        assert!(matches!(store.save(Uuid::new_v4(), file(10_000, 60)).await, Err(FileStoreError::TooLarge)));
        assert_eq!(files_in(folder.path()), 4, "what can't be kept drives nothing out");
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn others_can_not_read_them() {
        use std::os::unix::fs::PermissionsExt;

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("files");
        let store = FileFolder::open(path.clone(), 1 << 20).unwrap();
        store.signing_key().unwrap();
        store.save(Uuid::new_v4(), file(1, 60)).await.unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        for entry in fs::read_dir(&path).unwrap() {
            assert_eq!(entry.unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
    }
}
