//! One folder of the index: an engine with points, and a marker. It is built once, searched, and removed as a whole.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use super::building::{IndexProgress, LARGE};
use super::contents::CanonicalContents;
use super::directory::Directory;
use super::engine::Engine;
use super::lists::Frequencies;
use super::marker::{Base, Marker};
use crate::service::ports::IndexError;

/// Number of documents per write. One write is one record in the engine's log, 0.5 to 1 MB with 384 dimensions.
const BATCH: usize = 128;

const ENGINE_FOLDER: &str = "shard";
const LOG_FOLDER: &str = "wal";

pub(super) struct Layer {
    pub(super) folder: PathBuf,
    /// The engine; `None` once the layer is removed. Searches hold the read lock, so the removal waits for them.
    engine: RwLock<Option<Engine>>,
    /// Hash of the whole contents, in hexadecimal.
    pub(super) contents: String,
    pub(super) model: String,
    /// Length of every dense vector.
    pub(super) dimension: usize,
    /// The layer below this one; `None` if this one has all points.
    pub(super) base: Option<Base>,
    /// The points of this layer, whose positions are their ids.
    pub(super) directory: Arc<Directory>,
    /// The hashes of these points.
    pub(super) hashes: Vec<u64>,
    /// The frequencies of the terms in the whole contents.
    pub(super) terms: Frequencies,
}

impl Layer {
    /// Builds a layer in a new folder: all points, or those that the base lacks. If that fails, the folder has no marker and is removed.
    ///
    /// # Errors
    /// Errors of the file system and of the engine.
    pub(super) fn build(
        folder: &Path,
        points: &CanonicalContents,
        marker: Marker,
        progress: &dyn Fn(IndexProgress),
    ) -> Result<Self, IndexError> {
        let built = Self::try_build(folder, points, marker, progress);
        if built.is_err() {
            remove(folder);
        }
        built
    }

    fn try_build(folder: &Path, points: &CanonicalContents, marker: Marker, progress: &dyn Fn(IndexProgress)) -> Result<Self, IndexError> {
        let engine_folder = folder.join(ENGINE_FOLDER);
        fs::create_dir_all(&engine_folder)?;
        let engine = Engine::create(&engine_folder, points.dimension)?;
        let total = points.documents.len();
        for (batch, documents) in points.documents.chunks(BATCH).enumerate() {
            progress(IndexProgress::Storing { done: batch * BATCH, total });
            engine.insert(batch * BATCH, documents)?;
        }
        for (batch, servers) in points.servers.chunks(BATCH).enumerate() {
            engine.insert_servers(total + batch * BATCH, servers)?;
        }
        if total > LARGE {
            progress(IndexProgress::Optimizing);
            engine.optimize()?;
        }
        engine.close()?;
        // The points are on disk. The log is as large as they are and is never read again.
        fs::remove_dir_all(engine_folder.join(LOG_FOLDER))?;

        // Load the written files now, so that an unreadable folder never gets a marker.
        let engine = load_engine(folder, &marker)?;
        marker.write(folder)?;
        progress(IndexProgress::Finished);
        Ok(Self::over(folder, engine, marker))
    }

    /// Loads a complete layer.
    ///
    /// # Errors
    /// `NotFound` if there is no marker; `InvalidData` or the engine's error if the folder is damaged.
    pub(super) fn load(folder: &Path) -> Result<Self, IndexError> {
        let marker = Marker::read(folder)?;
        let engine = load_engine(folder, &marker)?;
        Ok(Self::over(folder, engine, marker))
    }

    fn over(folder: &Path, engine: Engine, marker: Marker) -> Self {
        let Marker { contents, model, dimension, base, points, servers, hashes, terms, .. } = marker;
        let directory = Arc::new(Directory::new(points, servers));
        Self { folder: folder.to_owned(), engine: RwLock::new(Some(engine)), contents, model, dimension, base, directory, hashes, terms }
    }

    /// The engine, which stays until the guard is dropped; `None` inside once the layer is removed.
    pub(super) fn engine(&self) -> RwLockReadGuard<'_, Option<Engine>> {
        self.engine.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for running searches and removes the folder.
    pub(super) fn retire(&self) {
        let engine = self.engine.write().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(engine) = engine {
            // Ignore a write error, because the folder is about to be removed. The error is in the log.
            drop(engine.close());
        }
        remove(&self.folder);
    }
}

fn load_engine(folder: &Path, marker: &Marker) -> Result<Engine, IndexError> {
    let engine = Engine::load(&folder.join(ENGINE_FOLDER))?;
    let points = engine.points()?;
    let expected = marker.points.len() + marker.servers.len();
    if points == expected {
        return Ok(engine);
    }
    tracing::debug!(points, expected, "the index has an unexpected number of points");
    Err(IndexError::Engine { action: "find all of its points" })
}

/// Removes a folder's marker, then the folder. If that fails, the next start retries.
pub(super) fn remove(folder: &Path) {
    let removed = Marker::remove(folder).and_then(|()| fs::remove_dir_all(folder));
    if let Err(error) = removed.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }) {
        tracing::warn!(folder = %folder.display(), %error, "could not remove an old generation of the index");
    }
}
