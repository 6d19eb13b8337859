//! A generation of the index: a folder that is built once, searched, and removed as a whole.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use super::contents::{CanonicalContents, canonical_sparse};
use super::directory::{Directory, Restriction};
use super::embedded::IndexProgress;
use super::engine::{Engine, PointFilter};
use super::marker::Marker;
use super::merged::{Merged, Scored};
use crate::domain::access::visibility::Visibility;
use crate::domain::text::canonical::Fingerprint;
use crate::service::ports::{IndexAnswer, IndexContents, IndexError, IndexQuery, IndexQueryText, IndexState};

/// Number of documents from which a graph is built and searches leave the async thread. Without a graph, a search over 20,000
/// tools takes 2 ms.
pub(super) const LARGE: usize = 10_000;

/// Number of documents per write. One write is one record in the engine's log, 0.5 to 1 MB with 384 dimensions.
const BATCH: usize = 128;

const ENGINE_FOLDER: &str = "shard";
const LOG_FOLDER: &str = "wal";

/// A complete, immutable set of documents.
pub(super) struct Generation {
    /// The folder; `None` for the initial empty generation.
    folder: Option<PathBuf>,
    /// The engine; `None` once the generation is retired. Searches hold the read lock, so retiring waits for them.
    engine: RwLock<Option<Engine>>,
    /// Hash of the contents, in hexadecimal.
    contents: String,
    /// Length of every dense vector.
    dimension: usize,
    directory: Directory,
    /// Whether queries and documents are embedded with the same model.
    comparable: bool,
}

impl Generation {
    /// A generation without documents and without a folder.
    pub(super) fn empty() -> Self {
        Self::over(None, None, Marker::of(&CanonicalContents::of(IndexContents::default())), true)
    }

    fn over(folder: Option<PathBuf>, engine: Option<Engine>, marker: Marker, comparable: bool) -> Self {
        let Marker { contents, dimension, points, servers, .. } = marker;
        Self { folder, engine: RwLock::new(engine), contents, dimension, directory: Directory::new(points, servers), comparable }
    }

    /// Builds a generation in a new folder. If that fails, the folder has no marker and is removed.
    ///
    /// # Errors
    /// Errors of the file system and of the engine.
    pub(super) fn build(folder: &Path, contents: &CanonicalContents, progress: &dyn Fn(IndexProgress)) -> Result<Self, IndexError> {
        let built = Self::try_build(folder, contents, progress);
        if built.is_err() {
            remove(folder);
        }
        built
    }

    fn try_build(folder: &Path, contents: &CanonicalContents, progress: &dyn Fn(IndexProgress)) -> Result<Self, IndexError> {
        let engine_folder = folder.join(ENGINE_FOLDER);
        fs::create_dir_all(&engine_folder)?;
        let engine = Engine::create(&engine_folder, contents.dimension)?;
        let total = contents.documents.len();
        for (batch, documents) in contents.documents.chunks(BATCH).enumerate() {
            progress(IndexProgress::Storing { done: batch * BATCH, total });
            engine.insert(batch * BATCH, documents)?;
        }
        for (batch, servers) in contents.servers.chunks(BATCH).enumerate() {
            engine.insert_servers(total + batch * BATCH, servers)?;
        }
        if total > LARGE {
            progress(IndexProgress::Optimizing);
            engine.optimize()?;
        }
        engine.close()?;
        // The points are on disk. The log is as large as they are and is never read again.
        fs::remove_dir_all(engine_folder.join(LOG_FOLDER))?;

        let marker = Marker::of(contents);
        // Load the written files now, so that an unreadable folder never gets a marker.
        let engine = Self::load_engine(folder, &marker)?;
        marker.write(folder)?;
        progress(IndexProgress::Finished);
        Ok(Self::over(Some(folder.to_owned()), Some(engine), marker, true))
    }

    /// Loads a complete generation.
    ///
    /// # Errors
    /// `NotFound` if there is no marker; `InvalidData` or the engine's error if the folder is damaged.
    pub(super) fn load(folder: &Path, model: &str) -> Result<Self, IndexError> {
        let marker = Marker::read(folder)?;
        let engine = Self::load_engine(folder, &marker)?;
        let comparable = marker.model == model;
        Ok(Self::over(Some(folder.to_owned()), Some(engine), marker, comparable))
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

    pub(super) fn holds(&self, contents: Fingerprint) -> bool {
        self.comparable && self.folder.is_some() && self.contents == contents.to_string()
    }

    pub(super) fn state(&self) -> IndexState {
        let embedded = if self.comparable { self.directory.embedded() } else { 0 };
        IndexState { documents: self.len(), embedded, ..IndexState::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.directory.len()
    }

    /// Searches the generation; `None` if it is retired.
    pub(super) fn search(&self, request: &IndexQuery<'_>) -> Option<Result<IndexAnswer, IndexError>> {
        let IndexQuery { texts, visibility, .. } = *request;
        let limit = request.limit.min(self.len());
        let filter = match self.directory.restriction(visibility) {
            _ if limit == 0 || texts.is_empty() => return Some(Ok(IndexAnswer::default())),
            Restriction::Nothing => return Some(Ok(IndexAnswer::default())),
            Restriction::Everything => None,
            Restriction::Some(values) => Some(PointFilter::of(values)),
        };
        let engine = self.engine.read().unwrap_or_else(PoisonError::into_inner);
        let engine = engine.as_ref()?;
        let tools = self.merged(engine, texts, filter.as_ref(), limit);
        let servers = || if request.servers { self.servers(engine, texts, visibility) } else { Ok(Vec::new()) };
        let found = tools.and_then(|tools| Ok((tools, servers()?)));
        Some(found.map(|(tools, servers)| IndexAnswer {
            candidates: self.directory.candidates(&tools, visibility),
            servers: self.directory.server_scores(servers, visibility),
            ..IndexAnswer::default()
        }))
    }

    /// Waits for running searches and removes the folder. Later searches return `None`.
    pub(super) fn retire(&self) {
        let engine = self.engine.write().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(engine) = engine {
            // Ignore a write error, because the folder is about to be removed. The error is in the log.
            drop(engine.close());
        }
        if let Some(folder) = &self.folder {
            remove(folder);
        }
    }

    /// Searches with every text and merges the candidates by point.
    fn merged(&self, engine: &Engine, texts: &[IndexQueryText], filter: Option<&PointFilter>, limit: usize) -> Result<Merged, IndexError> {
        let mut merged = Merged::new(texts.len(), self.len(), 2 * limit * texts.len());
        let queries: Vec<Option<&[f32]>> = texts.iter().map(|text| self.usable(text)).collect();
        for (position, text) in texts.iter().enumerate() {
            if let Some(query) = queries[position] {
                merged.add_dense(position, engine.nearest(query, filter, limit)?);
            }
            let sparse = canonical_sparse(&text.sparse);
            if !sparse.indices.is_empty() {
                merged.add_lexical(position, engine.lexical(&sparse, filter, limit)?);
            }
        }
        for (position, query) in queries.into_iter().enumerate() {
            let Some(query) = query else { continue };
            let missing = merged.without_dense(position, |point| self.directory.is_embedded(point));
            if !missing.is_empty() {
                merged.add_dense(position, engine.cosines(query, &missing)?);
            }
        }
        Ok(merged)
    }

    /// The cosines of all visible servers with every text.
    fn servers(&self, engine: &Engine, texts: &[IndexQueryText], visibility: &Visibility) -> Result<Vec<Scored>, IndexError> {
        let visible = self.directory.visible_servers(visibility);
        let mut found = Vec::new();
        if visible.is_empty() {
            return Ok(found);
        }
        for query in texts.iter().filter_map(|text| self.usable(text)) {
            found.extend(engine.server_cosines(query, &visible)?);
        }
        Ok(found)
    }

    /// The dense vector of a text, if it is comparable with those of the documents.
    fn usable<'a>(&self, text: &'a IndexQueryText) -> Option<&'a [f32]> {
        let vector = text.dense.as_deref()?;
        let fits = self.comparable && self.dimension > 0 && vector.len() == self.dimension;
        (fits && vector.iter().all(|value| value.is_finite())).then_some(vector)
    }
}

/// Removes a generation's marker, then its folder. If that fails, the next start retries.
pub(super) fn remove(folder: &Path) {
    let removed = Marker::remove(folder).and_then(|()| fs::remove_dir_all(folder));
    if let Err(error) = removed.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }) {
        tracing::warn!(folder = %folder.display(), %error, "could not remove an old generation of the index");
    }
}
