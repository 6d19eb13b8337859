//! One generation of the index: a folder that is built once, searched, and removed as a whole.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use super::contents::{CanonicalContents, canonical_sparse};
use super::embedded::IndexProgress;
use super::engine::{Engine, PointFilter, Scored};
use super::marker::{Marker, Point};
use crate::domain::canonical::Fingerprint;
use crate::domain::principal::{Scope, Visibility, VisibilityClass};
use crate::domain::tool::ServerName;
use crate::service::ports::{IndexCandidate, IndexError, IndexQueryText, IndexState};

/// From this size on a graph is built, and a search is long enough to leave the async thread: 20,000 tools take 2 ms
/// without a graph.
pub(super) const LARGE: usize = 10_000;

/// Documents per write. One write is one record of the engine's log, 0.5 to 1 MB at 384 dimensions.
const BATCH: usize = 128;

const ENGINE_FOLDER: &str = "shard";
const LOG_FOLDER: &str = "wal";

/// A complete, immutable set of documents.
pub(super) struct Generation {
    /// Where it lies; `None` for the one that holds nothing because nothing was ever built.
    folder: Option<PathBuf>,
    /// `None` once it is retired. Readers share the lock for one search, so that retiring waits for them.
    engine: RwLock<Option<Engine>>,
    marker: Marker,
    servers: BTreeSet<ServerName>,
    classes: BTreeSet<VisibilityClass>,
    /// Whether the dense vectors come from the model that embeds the queries.
    comparable: bool,
}

/// What a view leaves of a generation.
enum Restriction {
    Nothing,
    Everything,
    Some(PointFilter),
}

impl Generation {
    /// A generation without documents and without a folder.
    pub(super) fn empty() -> Self {
        let contents = CanonicalContents::of(crate::service::ports::IndexContents::default());
        Self::over(None, None, Marker::new(contents.fingerprint, "", 0, Vec::new()), true)
    }

    fn over(folder: Option<PathBuf>, engine: Option<Engine>, marker: Marker, comparable: bool) -> Self {
        let servers = marker.points.iter().map(|point| point.tool.server.clone()).collect();
        let classes = marker.points.iter().map(Point::class).collect();
        Self { folder, engine: RwLock::new(engine), marker, servers, classes, comparable }
    }

    /// Builds a generation in a new folder. What a failed attempt leaves there has no marker and is removed.
    ///
    /// # Errors
    /// Those of the file system and of the engine.
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
        if total > LARGE {
            progress(IndexProgress::Optimizing);
            engine.optimize()?;
        }
        engine.close()?;
        // The points are on disk and nobody reads the log again; it is as large as they are.
        fs::remove_dir_all(engine_folder.join(LOG_FOLDER))?;

        let points = contents
            .documents
            .iter()
            .map(|document| Point { tool: document.tool.clone(), class: document.class.0, embedded: !document.dense.is_empty() })
            .collect();
        let marker = Marker::new(contents.fingerprint, &contents.model, contents.dimension, points);
        // What was written is what is searched: a folder that can't be loaded never gets a marker.
        let engine = Self::load_engine(folder, &marker)?;
        marker.write(folder)?;
        progress(IndexProgress::Finished);
        Ok(Self::over(Some(folder.to_owned()), Some(engine), marker, true))
    }

    /// Loads a complete generation.
    ///
    /// # Errors
    /// `NotFound` without a marker, `InvalidData` or the engine's failure when it is damaged.
    pub(super) fn load(folder: &Path, model: &str) -> Result<Self, IndexError> {
        let marker = Marker::read(folder)?;
        let engine = Self::load_engine(folder, &marker)?;
        let comparable = marker.model == model;
        Ok(Self::over(Some(folder.to_owned()), Some(engine), marker, comparable))
    }

    fn load_engine(folder: &Path, marker: &Marker) -> Result<Engine, IndexError> {
        let engine = Engine::load(&folder.join(ENGINE_FOLDER))?;
        let points = engine.points()?;
        if points == marker.points.len() {
            return Ok(engine);
        }
        tracing::debug!(points, expected = marker.points.len(), "the index holds another number of points than it should");
        Err(IndexError::Engine { action: "find all of its points" })
    }

    pub(super) fn holds(&self, contents: Fingerprint) -> bool {
        self.comparable && self.folder.is_some() && self.marker.contents == contents.to_string()
    }

    pub(super) fn state(&self) -> IndexState {
        let embedded = self.marker.points.iter().filter(|point| self.comparable && point.embedded).count();
        IndexState { documents: self.marker.points.len(), embedded }
    }

    /// Number of documents.
    pub(super) fn len(&self) -> usize {
        self.marker.points.len()
    }

    /// Searches, or returns `None` when the generation is retired: another one has taken its place.
    pub(super) fn search(
        &self,
        texts: &[IndexQueryText],
        visibility: &Visibility,
        limit: usize,
    ) -> Option<Result<Vec<IndexCandidate>, IndexError>> {
        let limit = limit.min(self.len());
        let filter = match self.restriction(visibility) {
            _ if limit == 0 || texts.is_empty() => return Some(Ok(Vec::new())),
            Restriction::Nothing => return Some(Ok(Vec::new())),
            Restriction::Everything => None,
            Restriction::Some(filter) => Some(filter),
        };
        let engine = self.engine.read().unwrap_or_else(PoisonError::into_inner);
        let engine = engine.as_ref()?;
        Some(self.merged(engine, texts, filter.as_ref(), limit).map(|found| self.candidates(&found, visibility)))
    }

    /// Waits for the searches that are under way and removes the folder. Later searches find it retired.
    pub(super) fn retire(&self) {
        let engine = self.engine.write().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(engine) = engine {
            // A failure to write what is removed next is of no interest, and it is in the log.
            drop(engine.close());
        }
        if let Some(folder) = &self.folder {
            remove(folder);
        }
    }

    fn restriction(&self, visibility: &Visibility) -> Restriction {
        let (Ok(servers), Ok(classes)) = (allowed(&self.servers, &visibility.servers), allowed(&self.classes, &visibility.classes)) else {
            return Restriction::Nothing;
        };
        let servers = servers.map(|servers| servers.into_iter().map(|server| server.as_str().to_owned()).collect());
        let classes = classes.map(|classes| classes.into_iter().map(|class| class.0).collect());
        PointFilter::of(servers, classes).map_or(Restriction::Everything, Restriction::Some)
    }

    /// The union of the lists of all texts, by point.
    fn merged(&self, engine: &Engine, texts: &[IndexQueryText], filter: Option<&PointFilter>, limit: usize) -> Result<Merged, IndexError> {
        let mut merged = Merged::new(texts.len(), self.marker.points.len(), 2 * limit * texts.len());
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
            let missing = merged.without_dense(position, |point| self.marker.points.get(point).is_some_and(|point| point.embedded));
            if !missing.is_empty() {
                merged.add_dense(position, engine.cosines(query, &missing)?);
            }
        }
        Ok(merged)
    }

    /// The dense vector of a text, if it can be compared with those of the documents.
    fn usable<'a>(&self, text: &'a IndexQueryText) -> Option<&'a [f32]> {
        let vector = text.dense.as_deref()?;
        let fits = self.comparable && self.marker.dimension > 0 && vector.len() == self.marker.dimension;
        (fits && vector.iter().all(|value| value.is_finite())).then_some(vector)
    }

    /// Points become tools. The filter was part of the query; asking again costs nothing and means that damage to
    /// the files of the engine can hide a tool but never show one.
    fn candidates(&self, merged: &Merged, visibility: &Visibility) -> Vec<IndexCandidate> {
        let rows = merged.dense.chunks_exact(merged.texts).zip(merged.lexical.chunks_exact(merged.texts));
        merged
            .points
            .iter()
            .zip(rows)
            .filter_map(|(point, (dense, lexical))| {
                let point = self.marker.points.get(*point)?;
                let visible = visibility.servers.contains(&point.tool.server) && visibility.classes.contains(&point.class());
                visible.then(|| IndexCandidate { tool: point.tool.clone(), dense: dense.to_vec(), lexical: lexical.to_vec() })
            })
            .collect()
    }
}

/// What the lists brought, a row for every point among them.
struct Merged {
    texts: usize,
    /// For each point of the generation its row, or [`NO_ROW`].
    rows: Vec<u32>,
    /// The point of each row.
    points: Vec<usize>,
    /// Row-major, the texts of a point beside each other.
    dense: Vec<Option<f32>>,
    lexical: Vec<f32>,
}

const NO_ROW: u32 = u32::MAX;

impl Merged {
    fn new(texts: usize, points: usize, expected: usize) -> Self {
        Self {
            texts,
            rows: vec![NO_ROW; points],
            points: Vec::with_capacity(expected),
            dense: Vec::with_capacity(expected * texts),
            lexical: Vec::with_capacity(expected * texts),
        }
    }

    /// Where the scores of a point begin; `None` for a point that the generation does not have.
    fn row(&mut self, point: usize) -> Option<usize> {
        let row = self.rows.get_mut(point)?;
        if *row == NO_ROW {
            *row = u32::try_from(self.points.len()).ok()?;
            self.points.push(point);
            self.dense.resize(self.dense.len() + self.texts, None);
            self.lexical.resize(self.lexical.len() + self.texts, 0.0);
        }
        Some(*row as usize * self.texts)
    }

    fn add_dense(&mut self, text: usize, scores: Vec<Scored>) {
        for (point, score) in scores {
            if let Some(row) = self.row(point) {
                self.dense[row + text] = Some(score);
            }
        }
    }

    fn add_lexical(&mut self, text: usize, scores: Vec<Scored>) {
        for (point, score) in scores {
            if let Some(row) = self.row(point) {
                self.lexical[row + text] = score;
            }
        }
    }

    fn without_dense(&self, text: usize, embedded: impl Fn(usize) -> bool) -> Vec<usize> {
        let cosines = self.dense.iter().skip(text).step_by(self.texts);
        self.points.iter().zip(cosines).filter(|(point, cosine)| cosine.is_none() && embedded(**point)).map(|(point, _)| *point).collect()
    }
}

/// What a scope leaves of the values that occur: `Ok(None)` for all of them, `Err` for none.
fn allowed<T: Ord + Clone>(occurring: &BTreeSet<T>, scope: &Scope<T>) -> Result<Option<Vec<T>>, ()> {
    let Scope::Only(values) = scope else { return Ok(None) };
    let left: Vec<T> = occurring.intersection(values).cloned().collect();
    match left.len() {
        0 => Err(()),
        all if all == occurring.len() => Ok(None),
        _ => Ok(Some(left)),
    }
}

/// Removes a generation folder, its marker first. What can't be removed is tried again at the next start.
pub(super) fn remove(folder: &Path) {
    let removed = Marker::remove(folder).and_then(|()| fs::remove_dir_all(folder));
    if let Err(error) = removed.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }) {
        tracing::warn!(folder = %folder.display(), %error, "could not remove an old generation of the index");
    }
}
