//! The format of a backup.
//!
//! The first entry contains the version of the format, and the last one, the manifest, lists all parts with their SHA-256 hashes. So
//! the archive is written in one pass, a truncated one has no manifest, and a later format can be recognized.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::adapters::private_files::create_private_file;
use crate::adapters::store::CopyContents;

const FORMAT: u32 = 1;
/// The first entry.
const MARK: &str = "toolsieve-backup";
/// The last entry.
const MANIFEST: &str = "manifest.json";
/// Maximum sizes of these two, in bytes.
const MARK_LIMIT: u64 = 64;
const MANIFEST_LIMIT: u64 = 64 << 20;

pub(super) const DATABASE: &str = "toolsieve.db";
pub(super) const INSTALLATION: &str = "installation";
pub(super) const FILES: &str = "files";
pub(super) const OAUTH: &str = "oauth";

/// What a backup contains.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub format: u32,
    /// The version of the program that has written the backup.
    pub program: String,
    pub created_at: String,
    /// The number of the database's last migration.
    pub schema: i64,
    pub installation: Option<Uuid>,
    pub parts: Vec<Part>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Part {
    pub path: String,
    pub bytes: u64,
    pub sha256: String,
}

/// Writes an archive. [`Self::finish`] completes it.
pub(super) struct Writer {
    archive: tar::Builder<GzEncoder<BufWriter<File>>>,
    parts: Vec<Part>,
    now: u64,
}

impl Writer {
    /// Creates a new file, which only its owner can read.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let file = BufWriter::new(create_private_file(path)?);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let archive = tar::Builder::new(GzEncoder::new(file, Compression::fast()));
        let mut writer = Self { archive, parts: Vec::new(), now };
        let mark = format!("{FORMAT}\n");
        writer.append(MARK, mark.len() as u64, mark.as_bytes())?;
        Ok(writer)
    }

    /// Adds a part with exactly this many bytes.
    pub(super) fn part(&mut self, path: &str, bytes: u64, content: impl Read) -> io::Result<()> {
        let mut content = Hashing::new(content);
        self.append(path, bytes, content.by_ref().take(bytes))?;
        if content.bytes != bytes {
            return Err(io::Error::other(format!("{path} became shorter while it was read")));
        }
        self.parts.push(content.part(path));
        Ok(())
    }

    /// Writes the manifest and flushes the archive to disk.
    pub(super) fn finish(mut self, contents: CopyContents) -> io::Result<Manifest> {
        let manifest = Manifest {
            format: FORMAT,
            program: env!("BUILD_VERSION").to_owned(),
            created_at: Timestamp::from_second(i64::try_from(self.now).unwrap_or_default()).unwrap_or_default().to_string(),
            schema: contents.schema,
            installation: contents.installation,
            parts: std::mem::take(&mut self.parts),
        };
        let mut text = serde_json::to_vec_pretty(&manifest)?;
        text.push(b'\n');
        self.append(MANIFEST, text.len() as u64, text.as_slice())?;
        let mut file = self.archive.into_inner()?.finish()?;
        file.flush()?;
        file.get_ref().sync_all()?;
        Ok(manifest)
    }

    fn append(&mut self, path: &str, bytes: u64, content: impl Read) -> io::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes);
        header.set_mode(0o600);
        header.set_mtime(self.now);
        self.archive.append_data(&mut header, path, content)
    }
}

/// The reason why an archive can't be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error("it is not a backup")]
    NotABackup,
    #[error("it has format {format}")]
    Newer { format: u32 },
    #[error("it contains {0:?}, which is not a part of a backup")]
    Foreign(String),
    #[error("it is damaged: {0}")]
    Damaged(String),
    #[error("a part can't be written: {0}")]
    Write(io::Error),
}

fn damaged(reason: impl Into<String>) -> ReadError {
    ReadError::Damaged(reason.into())
}

fn unreadable(error: &io::Error) -> ReadError {
    ReadError::Damaged(error.to_string())
}

/// Reads an archive to its end, and passes each part to `take`, which may read it or not. Returns the manifest after everything has
/// turned out to be as the manifest says.
///
/// # Errors
/// [`ReadError`]. What `take` received before is then worth nothing.
pub(super) fn read(file: File, mut take: impl FnMut(&str, &mut dyn Read) -> io::Result<()>) -> Result<Manifest, ReadError> {
    let mut archive = tar::Archive::new(GzDecoder::new(BufReader::new(file)));
    let (mut found, mut manifest) = (BTreeMap::new(), None);
    {
        let mut entries = archive.entries().map_err(|_| ReadError::NotABackup)?;
        let Some(Ok(mark)) = entries.next() else { return Err(ReadError::NotABackup) };
        check_mark(mark)?;
        for entry in entries {
            let mut entry = entry.map_err(|error| unreadable(&error))?;
            let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            if path == MANIFEST && manifest.is_none() {
                manifest = Some(manifest_of(entry)?);
                continue;
            }
            if manifest.is_some() || !is_part(&path) || !entry.header().entry_type().is_file() || found.contains_key(&path) {
                return Err(ReadError::Foreign(path));
            }
            let size = entry.size();
            let mut content = Hashing::new(&mut entry);
            let taken = take(&path, &mut content);
            if content.has_failed {
                return Err(damaged(format!("{path} can't be read")));
            }
            taken.map_err(ReadError::Write)?;
            io::copy(&mut content, &mut io::sink()).map_err(|error| unreadable(&error))?;
            if content.bytes != size {
                return Err(damaged(format!("it ends within {path}")));
            }
            found.insert(path.clone(), content.part(&path));
        }
    }
    // The checksum of the compression is at the end.
    io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(|error| unreadable(&error))?;
    let manifest: Manifest = manifest.ok_or_else(|| damaged("it ends before its manifest"))?;
    for part in &manifest.parts {
        match found.remove(&part.path) {
            Some(read) if read.bytes == part.bytes && read.sha256 == part.sha256 => {}
            Some(_) => return Err(damaged(format!("{} has other contents than its manifest says", part.path))),
            None => return Err(damaged(format!("{} is missing", part.path))),
        }
    }
    if let Some((path, _)) = found.pop_first() {
        return Err(ReadError::Foreign(path));
    }
    if manifest.parts.iter().any(|part| part.path == DATABASE) { Ok(manifest) } else { Err(damaged("it contains no database")) }
}

fn check_mark(mark: tar::Entry<'_, impl Read>) -> Result<(), ReadError> {
    if *mark.path_bytes() != *MARK.as_bytes() {
        return Err(ReadError::NotABackup);
    }
    let mut text = String::new();
    mark.take(MARK_LIMIT).read_to_string(&mut text).map_err(|error| unreadable(&error))?;
    match text.trim().parse() {
        Ok(FORMAT) => Ok(()),
        Ok(format) if format > FORMAT => Err(ReadError::Newer { format }),
        _ => Err(ReadError::NotABackup),
    }
}

fn manifest_of(entry: impl Read) -> Result<Manifest, ReadError> {
    let mut text = Vec::new();
    entry.take(MANIFEST_LIMIT).read_to_end(&mut text).map_err(|error| unreadable(&error))?;
    serde_json::from_slice(&text).map_err(|error| damaged(format!("its manifest can't be read: {error}")))
}

/// Whether a backup may contain this path. Nothing else is ever written to a data folder.
fn is_part(path: &str) -> bool {
    match path.split_once('/') {
        None => [DATABASE, INSTALLATION].contains(&path),
        Some((folder, name)) => [FILES, OAUTH].contains(&folder) && is_plain_name(name),
    }
}

/// Whether this is the name of a file, and not a path.
pub(super) fn is_plain_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '\\', '\0', char::REPLACEMENT_CHARACTER])
}

/// Counts and hashes what is read.
struct Hashing<R> {
    content: R,
    hash: Sha256,
    bytes: u64,
    has_failed: bool,
}

impl<R: Read> Hashing<R> {
    fn new(content: R) -> Self {
        Self { content, hash: Sha256::new(), bytes: 0, has_failed: false }
    }

    fn part(self, path: &str) -> Part {
        let sha256 = self.hash.finalize().iter().fold(String::new(), |mut text, byte| {
            // Writing to a string can't fail.
            let _ = write!(text, "{byte:02x}");
            text
        });
        Part { path: path.to_owned(), bytes: self.bytes, sha256 }
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.content.read(buffer).inspect_err(|error| self.has_failed |= error.kind() != io::ErrorKind::Interrupted)?;
        self.hash.update(&buffer[..read]);
        self.bytes += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use tempfile::TempDir;

    use super::*;

    const CONTENTS: CopyContents = CopyContents { schema: 21, installation: None };

    fn written(parts: &[(&str, &str)]) -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("backup");
        let mut writer = Writer::create(&path).unwrap();
        for (name, text) in parts {
            writer.part(name, text.len() as u64, text.as_bytes()).unwrap();
        }
        writer.finish(CONTENTS).unwrap();
        (folder, path)
    }

    /// The parts as they were read.
    fn read_all(path: &Path) -> Result<Vec<(String, String)>, ReadError> {
        let mut parts = Vec::new();
        read(File::open(path).unwrap(), |name, content| {
            let mut text = String::new();
            content.read_to_string(&mut text)?;
            parts.push((name.to_owned(), text));
            Ok(())
        })?;
        Ok(parts)
    }

    /// An archive with these entries, as any program may make one.
    fn foreign(path: &Path, entries: &[(&str, &str, tar::EntryType)]) {
        let mut archive = tar::Builder::new(GzEncoder::new(File::create(path).unwrap(), Compression::fast()));
        for (name, text, kind) in entries {
            let mut header = tar::Header::new_gnu();
            // `set_path` would refuse paths that leave the folder.
            header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_size(text.len() as u64);
            header.set_entry_type(*kind);
            header.set_cksum();
            archive.append(&header, text.as_bytes()).unwrap();
        }
        archive.into_inner().unwrap().finish().unwrap();
    }

    #[test]
    fn what_is_written_is_read_again() {
        let parts = [(DATABASE, "d"), (INSTALLATION, "i"), ("files/key", ""), ("oauth/a.json", "{}")];
        let (_folder, path) = written(&parts);
        let contents = read_all(&path).unwrap();
        assert_eq!(contents.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect::<Vec<_>>(), parts);
        // Whoever reads nothing still learns whether all is right.
        let manifest = read(File::open(&path).unwrap(), |_, _| Ok(())).unwrap();
        assert_eq!((manifest.schema, manifest.parts.len()), (21, 4));
    }

    #[test]
    fn a_truncated_archive_is_damaged_wherever_it_ends() {
        // Text that hardly becomes shorter, so that the archive has many places to end.
        let text: String = (0..2_000_u32).map(|number| char::from(b'!' + u8::try_from(number * number % 89).unwrap())).collect();
        let (_folder, path) = written(&[(DATABASE, &text), ("files/key", &text)]);
        let whole = fs::read(&path).unwrap();
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            let error = read_all(&path).unwrap_err();
            assert!(matches!(error, ReadError::Damaged(_) | ReadError::NotABackup), "{length} of {}: {error}", whole.len());
        }
    }

    #[test]
    fn a_changed_part_a_missing_one_and_one_too_many_are_noticed() {
        let (folder, path) = written(&[(DATABASE, "d"), ("oauth/a.json", "{}")]);
        let manifest = read(File::open(&path).unwrap(), |_, _| Ok(())).unwrap();
        let manifest = serde_json::to_string(&manifest).unwrap();
        let path = folder.path().join("other");
        let file = tar::EntryType::Regular;
        let (mark, manifest) = ((MARK, "1\n", file), (MANIFEST, manifest.as_str(), file));
        let (database, token) = ((DATABASE, "d", file), ("oauth/a.json", "{}", file));
        foreign(&path, &[mark, database, token, manifest]);
        assert_eq!(read_all(&path).unwrap().len(), 2);
        for (entries, reason) in [
            (vec![mark, (DATABASE, "e", file), token, manifest], "other contents"),
            (vec![mark, database, manifest], "missing"),
            (vec![mark, database, token, (INSTALLATION, "{}", file), manifest], "not a part"),
            (vec![mark, database, database, token, manifest], "not a part"),
            (vec![mark, database, token], "before its manifest"),
            (vec![mark, database, token, (MANIFEST, "{}", file)], "manifest can't be read"),
            (vec![mark, manifest, database, token], "not a part"),
            (vec![database, token, manifest], "not a backup"),
            (vec![(MARK, "2\n", file), database], "format 2"),
        ] {
            foreign(&path, &entries);
            let error = read_all(&path).unwrap_err();
            assert!(error.to_string().contains(reason), "{error} instead of {reason}");
        }
    }

    #[test]
    fn paths_and_links_that_leave_the_folder_are_refused_before_they_are_taken() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("backup");
        let file = tar::EntryType::Regular;
        for (name, kind) in [
            ("../toolsieve.db", file),
            ("/etc/passwd", file),
            ("files/../../x", file),
            ("files/a/b", file),
            ("files/..", file),
            ("files/", file),
            ("./toolsieve.db", file),
            ("index/x", file),
            (DATABASE, tar::EntryType::Symlink),
            (DATABASE, tar::EntryType::Link),
            ("files/a", tar::EntryType::Directory),
        ] {
            foreign(&path, &[(MARK, "1\n", file), (name, "", kind)]);
            let mut taken = Vec::new();
            let error = read(File::open(&path).unwrap(), |name, _| {
                taken.push(name.to_owned());
                Ok(())
            });
            assert!(matches!(&error, Err(ReadError::Foreign(path)) if path == name), "{name} {kind:?}: {error:?}");
            assert_eq!(taken, Vec::<String>::new());
        }
    }

    #[test]
    fn a_full_disk_is_not_taken_for_a_damaged_archive() {
        let (_folder, path) = written(&[(DATABASE, "d")]);
        let error = read(File::open(&path).unwrap(), |_, _| Err(io::ErrorKind::StorageFull.into())).unwrap_err();
        assert!(matches!(&error, ReadError::Write(error) if error.kind() == io::ErrorKind::StorageFull), "{error:?}");
    }
}
