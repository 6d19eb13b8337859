//! Implements the port [`Spool`] with files in the data folder.
//!
//! A segment is a file with one batch per line, after the first digits of its SHA-256. A line that a killed process has not completed
//! doesn't fit them, and is ignored: it was never acknowledged.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::task::spawn_blocking;

use crate::adapters::private_files::{create_private_folder, private_options};
use crate::domain::text::canonical::Fingerprint;
use crate::service::ports::{Spool, SpoolError, SpoolSegment, SpoolState};

/// The size from which a further batch gets a segment of its own.
const SEGMENT: u64 = 1 << 20;
/// Number of hexadecimal digits before a batch.
const DIGITS: usize = 16;

/// The space that all spools together may use.
#[derive(Debug)]
pub(crate) struct SpoolSpace {
    used: AtomicU64,
    max_bytes: u64,
}

impl SpoolSpace {
    pub(crate) fn new(max_bytes: u64) -> Arc<Self> {
        Arc::new(Self { used: AtomicU64::new(0), max_bytes })
    }

    fn take(&self, bytes: u64) -> Result<(), SpoolError> {
        let more = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.max_bytes);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).map(drop).map_err(|_| SpoolError::Full)
    }

    fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// A folder of segments. The data folder's lock ensures that only one process uses it.
#[derive(Clone, Debug)]
pub(crate) struct SpoolFolder(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    folder: PathBuf,
    space: Arc<SpoolSpace>,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// Number and size of each segment, the oldest first.
    segments: VecDeque<(u64, u64)>,
    /// The last segment, while batches are appended to it.
    open: Option<File>,
    next: u64,
    error: Option<String>,
}

impl SpoolFolder {
    /// Opens or creates the folder, with the batches that a former process has left.
    ///
    /// # Errors
    /// The folder can't be created or read.
    pub(crate) fn open(folder: PathBuf, space: Arc<SpoolSpace>) -> io::Result<Self> {
        create_private_folder(&folder)?;
        let mut segments: Vec<(u64, u64)> = Vec::new();
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) {
                segments.push((number, entry.metadata()?.len()));
            }
        }
        segments.sort_unstable();
        // What is there already counts, even if the limit was lowered.
        space.used.fetch_add(segments.iter().map(|(_, bytes)| bytes).sum(), Ordering::Relaxed);
        let next = segments.last().map_or(0, |(number, _)| number + 1);
        let kept = Kept { segments: segments.into(), next, ..Kept::default() };
        Ok(Self(Arc::new(Inner { folder, space, kept: Mutex::new(kept) })))
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, SpoolError> + Send + 'static,
    ) -> Result<T, SpoolError> {
        let inner = Arc::clone(&self.0);
        spawn_blocking(move || work(&inner)).await.map_err(io::Error::other)?
    }
}

impl Inner {
    fn path(&self, segment: u64) -> PathBuf {
        self.folder.join(format!("{segment:020}"))
    }

    fn append(&self, batch: &[u8]) -> Result<(), SpoolError> {
        let mut line = digits(batch).into_bytes();
        line.push(b' ');
        line.extend_from_slice(batch);
        line.push(b'\n');
        let size = line.len() as u64;
        let mut kept = self.kept.lock();
        let done = self.space.take(size).and_then(|()| {
            let written = self.write(&mut kept, &line);
            written.inspect_err(|_| self.space.give_back(size)).map_err(SpoolError::from)
        });
        kept.error = done.as_ref().err().map(ToString::to_string);
        done
    }

    fn write(&self, kept: &mut Kept, line: &[u8]) -> io::Result<()> {
        if kept.segments.back().is_none_or(|(_, size)| *size >= SEGMENT) {
            kept.open = None;
        }
        if kept.open.is_none() {
            let number = kept.next;
            let file = create(&self.path(number))?;
            // The name must be on the disk too.
            File::open(&self.folder)?.sync_all()?;
            kept.next += 1;
            kept.segments.push_back((number, 0));
            kept.open = Some(file);
        }
        let (Some(file), Some((_, size))) = (&mut kept.open, kept.segments.back_mut()) else { return Err(ErrorKind::NotFound.into()) };
        let written = file.write_all(line).and_then(|()| file.sync_data());
        match written {
            Ok(()) => *size += line.len() as u64,
            // A part of the line may be there. The next one goes elsewhere if it can't be removed.
            Err(_) if file.set_len(*size).is_ok() => {}
            Err(_) => kept.open = None,
        }
        // A segment without a batch would make the spool look as if something waited in it.
        if written.is_err() && kept.segments.back().is_some_and(|(_, size)| *size == 0) {
            kept.segments.pop_back();
            kept.open = None;
            let _ = fs::remove_file(self.path(kept.next - 1));
        }
        written
    }

    fn oldest(&self) -> Result<Option<SpoolSegment>, SpoolError> {
        let number = {
            let mut kept = self.kept.lock();
            let Some((number, _)) = kept.segments.front().copied() else { return Ok(None) };
            if kept.segments.len() == 1 {
                kept.open = None;
            }
            number
        };
        let bytes = match fs::read(self.path(number)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            read => read?,
        };
        let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let (mut batches, mut damaged) = (Vec::new(), 0_u32);
        for line in lines {
            match line.split_at_checked(DIGITS + 1) {
                Some((head, batch)) if head == format!("{} ", digits(batch)).as_bytes() => batches.push(batch.to_vec()),
                _ => damaged += 1,
            }
        }
        if damaged > 0 {
            tracing::warn!(damaged, "incomplete records of a killed process are ignored");
        }
        Ok(Some(SpoolSegment { number, batches }))
    }

    fn remove(&self, segment: u64) -> Result<(), SpoolError> {
        match fs::remove_file(self.path(segment)) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let mut kept = self.kept.lock();
        if let Some(at) = kept.segments.iter().position(|(number, _)| *number == segment)
            && let Some((_, size)) = kept.segments.remove(at)
        {
            self.space.give_back(size);
        }
        if kept.segments.is_empty() {
            kept.error = None;
        }
        Ok(())
    }
}

#[async_trait]
impl Spool for SpoolFolder {
    fn is_empty(&self) -> bool {
        self.0.kept.lock().segments.is_empty()
    }

    async fn append(&self, batch: Vec<u8>) -> Result<(), SpoolError> {
        self.blocking(move |inner| inner.append(&batch)).await
    }

    async fn oldest(&self) -> Result<Option<SpoolSegment>, SpoolError> {
        self.blocking(Inner::oldest).await
    }

    async fn remove(&self, segment: u64) -> Result<(), SpoolError> {
        self.blocking(move |inner| inner.remove(segment)).await
    }

    fn state(&self) -> SpoolState {
        let kept = self.0.kept.lock();
        SpoolState { bytes: kept.segments.iter().map(|(_, size)| size).sum(), error: kept.error.clone() }
    }

    fn forget_error(&self) {
        self.0.kept.lock().error = None;
    }
}

fn create(path: &Path) -> io::Result<File> {
    // A file whose name could not be flushed is used again.
    let file = private_options().append(true).create(true).open(path)?;
    file.set_len(0)?;
    Ok(file)
}

fn digits(batch: &[u8]) -> String {
    format!("{:016x}", Fingerprint::of_bytes(batch).prefix())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn batches(spool: &SpoolFolder) -> Vec<String> {
        let mut all = Vec::new();
        while let Some(segment) = spool.oldest().await.unwrap() {
            all.extend(segment.batches.into_iter().map(|batch| String::from_utf8(batch).unwrap()));
            spool.remove(segment.number).await.unwrap();
        }
        all
    }

    #[tokio::test]
    async fn batches_come_back_in_order_after_a_restart_without_what_is_incomplete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("spool");
        let space = SpoolSpace::new(1 << 20);
        let first = SpoolFolder::open(path.clone(), Arc::clone(&space)).unwrap();
        assert!(first.is_empty());
        for batch in ["one", "two"] {
            first.append(batch.into()).await.unwrap();
        }
        let segment = fs::read_dir(&path).unwrap().next().unwrap().unwrap().path();
        fs::OpenOptions::new().append(true).open(segment).unwrap().write_all(b"0123456789abcdef thr").unwrap();
        let second = SpoolFolder::open(path.clone(), SpoolSpace::new(1 << 20)).unwrap();
        assert!(!second.is_empty() && second.state().bytes > 0);
        second.append("three".into()).await.unwrap();
        assert_eq!(batches(&second).await, ["one", "two", "three"]);
        assert_eq!((second.is_empty(), second.state(), fs::read_dir(&path).unwrap().count()), (true, SpoolState::default(), 0));
    }

    #[tokio::test]
    async fn a_batch_after_the_oldest_ones_were_read_is_not_removed_with_them() {
        let folder = tempfile::tempdir().unwrap();
        let spool = SpoolFolder::open(folder.path().to_owned(), SpoolSpace::new(1 << 20)).unwrap();
        spool.append("one".into()).await.unwrap();
        let read = spool.oldest().await.unwrap().unwrap();
        spool.append("two".into()).await.unwrap();
        spool.remove(read.number).await.unwrap();
        assert_eq!(batches(&spool).await, ["two"]);
    }

    #[tokio::test]
    async fn all_spools_share_their_space_and_a_full_one_says_so_until_it_has_room() {
        let folder = tempfile::tempdir().unwrap();
        let space = SpoolSpace::new(100);
        let [one, other] = ["one", "other"].map(|name| SpoolFolder::open(folder.path().join(name), Arc::clone(&space)).unwrap());
        one.append(vec![b'x'; 60]).await.unwrap();
        assert!(matches!(other.append(vec![b'x'; 60]).await, Err(SpoolError::Full)));
        assert!(other.state().error.unwrap().contains("store.max_spool_bytes"));
        assert_eq!(batches(&one).await.len(), 1);
        other.append(vec![b'x'; 60]).await.unwrap();
        assert_eq!(other.state().error, None);
    }
}
