//! A generation of the index: all points in one layer, or in a large and a small one. Nothing in it ever changes.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::building::{IndexProgress, LARGE};
use super::contents::CanonicalContents;
use super::directory::{Directory, Restriction};
use super::engine::PointFilter;
use super::layer::Layer;
use super::marker::Marker;
use super::merged::{Merged, Scored};
use super::overlay::{Change, Engines, Places};
use crate::domain::access::visibility::Visibility;
use crate::domain::text::canonical::Fingerprint;
use crate::service::ports::{IndexAnswer, IndexError, IndexQuery, IndexQueryText, IndexState};

/// The largest share of points in an overlay, as its inverse. An overlay has no graph. With 100,000 tools, it has at most 2,000.
const OVERLAID: usize = 50;

/// A complete, immutable set of documents.
pub(super) struct Generation {
    /// The layer with all points, or with nearly all of them; `None` for the initial empty generation. Generations with different
    /// overlays share it.
    base: Option<Arc<Layer>>,
    overlay: Option<UpperLayer>,
    directory: Arc<Directory>,
    /// Whether queries and documents are embedded with the same model.
    comparable: bool,
}

/// The small layer, and where its points are among all.
struct UpperLayer {
    layer: Layer,
    places: Places,
}

impl Generation {
    /// A generation without documents and without a folder.
    pub(super) fn empty() -> Self {
        Self { base: None, overlay: None, directory: Arc::new(Directory::new(Vec::new(), Vec::new())), comparable: true }
    }

    fn of(base: Layer, comparable: bool) -> Self {
        let directory = Arc::clone(&base.directory);
        Self { base: Some(Arc::new(base)), overlay: None, directory, comparable }
    }

    /// # Errors
    /// `InvalidData` if the overlay is not one of this base.
    fn overlaid(base: Arc<Layer>, layer: Layer, comparable: bool) -> Result<Self, IndexError> {
        let marked = layer.base.as_ref().filter(|marked| base.base.is_none() && marked.contents == base.contents);
        let merged = marked.and_then(|marked| Places::of(&base.directory, &marked.removed, &layer.directory));
        let (directory, places) = merged.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "an overlay of other contents"))?;
        Ok(Self { base: Some(base), overlay: Some(UpperLayer { layer, places }), directory: Arc::new(directory), comparable })
    }

    /// Builds a generation of one layer in a new folder.
    ///
    /// # Errors
    /// Errors of the file system and of the engine.
    pub(super) fn build(folder: &Path, contents: &CanonicalContents, progress: &dyn Fn(IndexProgress)) -> Result<Self, IndexError> {
        let layer = Layer::build(folder, contents, Marker::of(contents, contents, None), progress)?;
        Ok(Self::of(layer, true))
    }

    /// Builds an overlay in a new folder, which turns the contents of the change's base into these.
    ///
    /// # Errors
    /// Errors of the file system and of the engine.
    pub(super) fn overlay(
        folder: &Path,
        change: Change,
        contents: &CanonicalContents,
        progress: &dyn Fn(IndexProgress),
    ) -> Result<Self, IndexError> {
        let layer = Layer::build(folder, &change.added, Marker::of(&change.added, contents, Some(change.marked())), progress)?;
        Self::overlaid(change.base, layer, true)
    }

    /// Loads a complete generation.
    ///
    /// # Errors
    /// `NotFound` if there is no marker; `InvalidData` or the engine's error if a folder is damaged.
    pub(super) fn load(folder: &Path, model: &str) -> Result<Self, IndexError> {
        let layer = Layer::load(folder)?;
        let comparable = layer.model == model;
        match &layer.base {
            None => Ok(Self::of(layer, comparable)),
            Some(base) => {
                let base = Layer::load(&folder.with_file_name(&base.folder))?;
                Self::overlaid(Arc::new(base), layer, comparable)
            }
        }
    }

    /// How these contents differ from those of the large layer, if an overlay is worth it.
    pub(super) fn change(&self, contents: &CanonicalContents) -> Option<Change> {
        let base = self.base.as_ref().filter(|base| base.directory.len().min(contents.documents.len()) > LARGE)?;
        Change::of(base, contents, contents.points() / OVERLAID)
    }

    pub(super) fn holds(&self, contents: Fingerprint) -> bool {
        self.comparable && self.top().is_some_and(|layer| layer.contents == contents.to_string())
    }

    /// Whether the generation is searched in this folder.
    pub(super) fn uses(&self, folder: &Path) -> bool {
        self.layers().any(|layer| layer.folder == folder)
    }

    pub(super) fn state(&self) -> IndexState {
        let embedded = if self.comparable { self.directory.embedded() } else { 0 };
        IndexState { documents: self.len(), embedded, ..IndexState::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.directory.len()
    }

    fn layers(&self) -> impl Iterator<Item = &Layer> {
        self.base.as_deref().into_iter().chain(self.overlay.as_ref().map(|overlay| &overlay.layer))
    }

    /// The layer that describes the whole contents.
    fn top(&self) -> Option<&Layer> {
        self.layers().last()
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
        let base = self.base.as_ref()?.engine();
        let overlay = self.overlay.as_ref().map(|overlay| (overlay.layer.engine(), &overlay.places));
        let overlay = match &overlay {
            Some((engine, places)) => Some((engine.as_ref()?, *places)),
            None => None,
        };
        let engines = Engines { base: base.as_ref()?, overlay };
        let tools = self.merged(&engines, texts, filter.as_ref(), limit);
        let servers = || if request.servers { self.servers(&engines, texts, visibility) } else { Ok(Vec::new()) };
        let found = tools.and_then(|tools| Ok((tools, servers()?)));
        Some(found.map(|(tools, servers)| IndexAnswer {
            candidates: self.directory.candidates(&tools, visibility),
            servers: self.directory.server_scores(servers, visibility),
            ..IndexAnswer::default()
        }))
    }

    /// Waits for running searches and removes the folders that the next generation doesn't use. Later searches return `None`.
    pub(super) fn retire(&self, next: &Self) {
        self.layers().filter(|layer| !next.uses(&layer.folder)).for_each(Layer::retire);
    }

    /// Searches with every text and merges the candidates by point.
    fn merged(
        &self,
        engines: &Engines<'_>,
        texts: &[IndexQueryText],
        filter: Option<&PointFilter>,
        limit: usize,
    ) -> Result<Merged, IndexError> {
        let mut merged = Merged::new(texts.len(), self.len(), 2 * limit * texts.len());
        let queries: Vec<Option<&[f32]>> = texts.iter().map(|text| self.usable(text)).collect();
        for (position, text) in texts.iter().enumerate() {
            if let Some(query) = queries[position] {
                merged.add_dense(position, engines.nearest(query, filter, limit)?);
            }
            let sparse = self.top().map(|layer| layer.terms.weighted(&text.sparse)).unwrap_or_default();
            if !sparse.indices.is_empty() {
                merged.add_lexical(position, engines.lexical(&sparse, filter, limit)?);
            }
        }
        for (position, query) in queries.into_iter().enumerate() {
            let Some(query) = query else { continue };
            let missing = merged.without_dense(position, |point| self.directory.is_embedded(point));
            if !missing.is_empty() {
                merged.add_dense(position, engines.cosines(query, &missing)?);
            }
        }
        Ok(merged)
    }

    /// The cosines of all visible servers with every text.
    fn servers(&self, engines: &Engines<'_>, texts: &[IndexQueryText], visibility: &Visibility) -> Result<Vec<Scored>, IndexError> {
        let visible = self.directory.visible_servers(visibility);
        let mut found = Vec::new();
        if visible.is_empty() {
            return Ok(found);
        }
        for query in texts.iter().filter_map(|text| self.usable(text)) {
            found.extend(engines.server_cosines(query, &visible)?);
        }
        Ok(found)
    }

    /// The dense vector of a text, if it is comparable with those of the documents.
    fn usable<'a>(&self, text: &'a IndexQueryText) -> Option<&'a [f32]> {
        let vector = text.dense.as_deref()?;
        let dimension = self.top().map_or(0, |layer| layer.dimension);
        let fits = self.comparable && dimension > 0 && vector.len() == dimension;
        (fits && vector.iter().all(|value| value.is_finite())).then_some(vector)
    }
}
