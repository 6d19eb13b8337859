//! Implements the index port with Qdrant Edge, in this process.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use async_trait::async_trait;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use super::building::{IndexProgress, LARGE};
use super::contents::CanonicalContents;
use super::generation::Generation;
use super::layer;
use super::lists::Words;
use super::room;
use crate::service::ports::{IndexAnswer, IndexContents, IndexError, IndexQuery, IndexState, ToolIndex};

const PREFIX: &str = "gen-";
/// Interval between checks for free disk space.
const ROOM_PAUSE: Duration = Duration::from_secs(2);
const NO_ROOM: &str = "not enough disk space for the index";
const NO_ROOM_WARNING: &str = "ranked by words alone: not enough disk space for the index";

/// Options of the embedded index.
pub struct EmbeddedIndexOptions {
    /// The folder for generations (`gen-<n>`) and a lock file, used by one process at a time. Created if missing.
    pub folder: PathBuf,
    /// The model of the embedder for queries, as in [`crate::service::ports::Embedder::model`]. A generation with vectors of
    /// another model is searched only by words until it is replaced.
    pub model: Arc<str>,
    /// Reports progress, on the thread that builds. Show a progress bar only after about a second.
    pub progress: Arc<dyn Fn(IndexProgress) + Send + Sync>,
}

/// A [`ToolIndex`] in this process, stored on disk.
///
/// A small change of a large index is stored as an overlay of the former generation, whose files stay as they are.
///
/// With up to 10,000 documents, a search takes a fraction of a millisecond on the calling thread, and dense scores are
/// exact. With more, it runs on tokio's blocking pool, and dense scores are approximate (HNSW graph).
pub struct EmbeddedIndex {
    shared: Arc<Shared>,
    /// Allows one build at a time. The guard moves into the build, which continues even if its caller is dropped.
    builder: Arc<Mutex<()>>,
}

struct Shared {
    options: EmbeddedIndexOptions,
    current: ArcSwap<Generation>,
    /// The lexical index that is searched while the disk is full.
    words: ArcSwapOption<WithoutRoom>,
    /// Locks the folder until the file is closed.
    _lock: File,
}

struct WithoutRoom {
    words: Words,
    /// Disk space that the generation needs, in bytes.
    needed: u64,
}

impl EmbeddedIndex {
    /// Opens the folder and loads the newest complete generation, so that searches work before a rebuild. Removes older and
    /// unreadable generations, and folders without a marker. On a full disk, loads and removes nothing. Without a generation, the
    /// index is empty until [`ToolIndex::replace`]. Blocks for about 50 ms with 2,000 tools.
    ///
    /// # Errors
    /// [`IndexError::Io`] if the folder can't be created or read, with kind `WouldBlock` if another process uses it.
    pub fn open(options: EmbeddedIndexOptions) -> Result<Arc<Self>, IndexError> {
        fs::create_dir_all(&options.folder)?;
        let lock = lock(&options.folder)?;
        let mut loaded = None;
        let found = match room::check(&options.folder, room::TO_LOAD) {
            Ok(()) => generations(&options.folder)?,
            Err(error) => {
                tracing::warn!(%error, "could not load the index");
                Vec::new()
            }
        };
        for (_, folder) in found.into_iter().rev() {
            if loaded.is_none() {
                loaded = try_load(&folder, &options.model);
            }
            if loaded.as_ref().is_none_or(|loaded| !loaded.uses(&folder)) {
                layer::remove(&folder);
            }
        }
        let current = ArcSwap::from_pointee(loaded.unwrap_or_else(Generation::empty));
        Ok(Arc::new(Self {
            shared: Arc::new(Shared { options, current, words: ArcSwapOption::empty(), _lock: lock }),
            builder: Arc::default(),
        }))
    }
}

#[async_trait]
impl ToolIndex for EmbeddedIndex {
    async fn replace(&self, contents: IndexContents) -> Result<(), IndexError> {
        let building = Arc::clone(&self.builder).lock_owned().await;
        let shared = Arc::clone(&self.shared);
        on_blocking_thread(move || {
            let _building = building;
            shared.replace(contents)
        })
        .await
    }

    async fn search(&self, request: &IndexQuery<'_>) -> Result<IndexAnswer, IndexError> {
        if let Some(waiting) = &*self.shared.words.load() {
            return Ok(IndexAnswer { warning: Some(NO_ROOM_WARNING), ..waiting.words.search(request) });
        }
        let (size, state) = {
            let current = self.shared.current.load();
            (current.len(), current.state())
        };
        let answer = if size <= LARGE {
            self.shared.search(request)?
        } else {
            let shared = Arc::clone(&self.shared);
            let (texts, visibility, limit, servers) = (request.texts.to_vec(), request.visibility.clone(), request.limit, request.servers);
            on_blocking_thread(move || shared.search(&IndexQuery { texts: &texts, visibility: &visibility, limit, servers })).await?
        };
        Ok(IndexAnswer { warning: unembedded(request, state.documents, state.embedded), ..answer })
    }

    async fn needs_contents(&self) {
        loop {
            tokio::time::sleep(ROOM_PAUSE).await;
            let waiting = self.shared.words.load_full();
            if waiting.is_some_and(|waiting| room::check(&self.shared.options.folder, waiting.needed).is_ok()) {
                return;
            }
        }
    }

    fn state(&self) -> IndexState {
        match &*self.shared.words.load() {
            Some(waiting) => IndexState { documents: waiting.words.len(), error: Some(NO_ROOM), ..IndexState::default() },
            None => self.shared.current.load().state(),
        }
    }
}

impl Shared {
    fn search(&self, request: &IndexQuery<'_>) -> Result<IndexAnswer, IndexError> {
        loop {
            // If the search fails, a newer generation has become current: generations are retired only afterwards.
            if let Some(found) = self.current.load_full().search(request) {
                return found;
            }
        }
    }

    fn replace(&self, contents: IndexContents) -> Result<(), IndexError> {
        let contents = CanonicalContents::of(contents);
        let current = self.current.load_full();
        if current.holds(contents.fingerprint) {
            self.words.store(None);
            return Ok(());
        }
        let change = current.change(&contents);
        let needed = room::to_build(change.as_ref().map_or(&contents, |change| &change.added));
        if let Err(error) = room::check(&self.options.folder, needed) {
            tracing::warn!(%error, needed, "{NO_ROOM}: search is lexical only until there is enough");
            self.words.store(Some(Arc::new(WithoutRoom { words: Words::of(&contents), needed })));
            return Ok(());
        }
        let former = generations(&self.options.folder)?;
        let number = former.last().map_or(1, |(number, _)| number + 1);
        let folder = self.options.folder.join(format!("{PREFIX}{number}"));
        let progress = &*self.options.progress;
        let next = Arc::new(match change {
            Some(change) => Generation::overlay(&folder, change, &contents, progress)?,
            None => Generation::build(&folder, &contents, progress)?,
        });
        self.current.swap(Arc::clone(&next)).retire(&next);
        if self.words.swap(None).is_some() {
            tracing::info!("there is enough disk space for the index again");
        }
        // Remove the generations that were kept while the disk was full.
        for (_, folder) in former.into_iter().filter(|(_, folder)| !next.uses(folder)) {
            layer::remove(&folder);
        }
        Ok(())
    }
}

/// The warning for a semantic search in documents without vectors.
pub(super) fn unembedded(request: &IndexQuery<'_>, documents: usize, embedded: usize) -> Option<&'static str> {
    let by_meaning = request.texts.iter().any(|text| text.dense.is_some());
    (by_meaning && documents > 0 && embedded == 0).then_some("ranked by words alone: the tools are being embedded")
}

fn try_load(folder: &Path, model: &str) -> Option<Generation> {
    match Generation::load(folder, model) {
        Ok(generation) => Some(generation),
        Err(IndexError::Io(error)) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            tracing::warn!(folder = %folder.display(), %error, "deleted an unreadable index generation");
            None
        }
    }
}

/// The folders of generations, oldest first.
fn generations(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if let Some(number) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)).and_then(|number| number.parse().ok()) {
            found.push((number, entry.path()));
        }
    }
    found.sort();
    Ok(found)
}

/// Locks the folder. Waits for an index that was just dropped in this process and still finishes a build, which takes seconds on
/// a busy machine.
fn lock(folder: &Path) -> io::Result<File> {
    const PATIENCE: Duration = Duration::from_secs(15);
    const PAUSE: Duration = Duration::from_millis(10);
    let file = File::options().create(true).truncate(false).write(true).open(folder.join("lock"))?;
    let started = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if started.elapsed() < PATIENCE => std::thread::sleep(PAUSE),
            Err(TryLockError::WouldBlock) => return Err(io::Error::new(io::ErrorKind::WouldBlock, "another process uses it")),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

async fn on_blocking_thread<T: Send + 'static>(work: impl FnOnce() -> Result<T, IndexError> + Send + 'static) -> Result<T, IndexError> {
    spawn_blocking(work).await.unwrap_or_else(|error| {
        tracing::debug!(%error, "the index thread ended early");
        Err(IndexError::Engine { action: "finish" })
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::sync::Arc;

    use super::{EmbeddedIndex, EmbeddedIndexOptions};
    use crate::adapters::index::building::LARGE;
    use crate::domain::access::visibility::{Visibility, VisibilityClass};
    use crate::domain::catalog::tool::ToolId;
    use crate::domain::selection::relevance::SparseVector;
    use crate::service::ports::{IndexContents, IndexDocument, IndexQuery, IndexQueryText, ToolIndex};

    const TOOLS: u32 = 10_100;
    /// A term of all tools, and a changed tool's new term.
    const COMMON: u32 = 1;
    const CHANGED: u32 = 2;

    /// What happens to the folders, those that are left by the next start, and the number of changed tools.
    type Step<'a> = (&'a str, &'a dyn Fn(), &'a [&'a str], usize);

    fn open(folder: &Path) -> Arc<EmbeddedIndex> {
        EmbeddedIndex::open(EmbeddedIndexOptions { folder: folder.into(), model: "m".into(), progress: Arc::new(|_| ()) }).unwrap()
    }

    fn folders(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| name != "lock").collect();
        names.sort();
        names
    }

    fn copy(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let (entry, to) = (entry.as_ref().unwrap(), to.join(entry.as_ref().unwrap().file_name()));
            if entry.file_type().unwrap().is_dir() {
                copy(&entry.path(), &to);
            } else {
                fs::copy(entry.path(), to).unwrap();
            }
        }
    }

    /// The tools, of which the first ones are changed.
    fn contents(changed: u32) -> IndexContents {
        let document = |number: u32| IndexDocument {
            tool: ToolId::new("server", format!("tool-{number:05}")),
            class: VisibilityClass(0),
            dense: vec![Arc::from([1.0_f32, 0.0])],
            sparse: SparseVector { indices: vec![if number < changed { CHANGED } else { COMMON }], values: vec![1.0] },
        };
        IndexContents { model: "m".into(), dimension: 2, documents: (0..TOOLS).map(document).collect(), ..IndexContents::default() }
    }

    /// The number of changed tools that the index finds.
    async fn changed(index: &EmbeddedIndex) -> usize {
        assert_eq!(index.state().documents, TOOLS as usize);
        let texts = [IndexQueryText { dense: None, sparse: SparseVector { indices: vec![CHANGED], values: vec![1.0] } }];
        let visibility = Visibility::default();
        index.search(&IndexQuery { texts: &texts, visibility: &visibility, limit: 500, servers: false }).await.unwrap().candidates.len()
    }

    #[tokio::test]
    async fn small_changes_of_a_large_index_are_overlays_until_a_share_of_it_changed() {
        assert!(TOOLS as usize > LARGE);
        let folder = tempfile::tempdir().unwrap();
        let (path, kept) = (folder.path().join("index"), folder.path().join("kept"));
        let index = open(&path);
        index.replace(contents(0)).await.unwrap();
        assert_eq!(folders(&path), ["gen-1"]);
        for (count, expected) in [(1, ["gen-1", "gen-2"]), (100, ["gen-1", "gen-3"]), (202, ["gen-1", "gen-4"])] {
            index.replace(contents(count)).await.unwrap();
            assert_eq!((folders(&path), changed(&index).await), (expected.map(str::to_owned).to_vec(), count as usize));
        }
        drop(index);
        let index = open(&path);
        assert_eq!((folders(&path).len(), changed(&index).await), (2, 202), "both layers are loaded");
        copy(&path, &kept);
        // One more than a fiftieth of all tools.
        index.replace(contents(203)).await.unwrap();
        assert_eq!((folders(&path), changed(&index).await), (vec!["gen-5".to_owned()], 203));
        index.replace(contents(204)).await.unwrap();
        assert_eq!((folders(&path), changed(&index).await), (vec!["gen-5".to_owned(), "gen-6".to_owned()], 204));
        drop(index);

        // Each state in which a process can be killed while it replaces an overlay by another one, or by a full build.
        let unmark = |name: &str| fs::remove_file(path.join(name).join("generation.json")).unwrap();
        let steps: [Step<'_>; 5] = [
            ("the next overlay is incomplete", &|| fs::create_dir_all(path.join("gen-9/shard")).unwrap(), &["gen-5", "gen-6"], 204),
            ("the former overlay is still there", &|| copy(&path.join("gen-6"), &path.join("gen-7")), &["gen-5", "gen-7"], 204),
            ("the newer overlay lost its mark", &|| unmark("gen-7"), &["gen-5"], 203),
            ("a former base with its overlay", &|| copy(&kept, &path), &["gen-5"], 203),
            (
                "the full build is incomplete",
                &|| {
                    copy(&kept, &path);
                    unmark("gen-5");
                },
                &["gen-1", "gen-4"],
                202,
            ),
        ];
        for (name, step, expected, count) in steps {
            step();
            let index = open(&path);
            assert_eq!(
                (folders(&path), changed(&index).await),
                (expected.iter().map(|name| (*name).to_owned()).collect(), count),
                "{name}"
            );
        }
        // Without its base, an overlay is nothing.
        fs::remove_dir_all(path.join("gen-1/shard")).unwrap();
        assert_eq!((open(&path).state().documents, folders(&path)), (0, Vec::new()));
    }
}
