//! The service's own retrieval over catalogues of the moment, for the programs that show what the gate sees.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use tempfile::TempDir;
use toolsieve::adapters::embed::BuiltinEmbedder;
use toolsieve::adapters::embed::builtin::Encoder;
use toolsieve::adapters::index::{EmbeddedIndex, EmbeddedIndexOptions};
use toolsieve::adapters::store::SqliteStore;
use toolsieve::domain::access::principal::Principal;
use toolsieve::domain::catalog::catalog::Catalog;
use toolsieve::service::catalog::current::{CurrentCatalog, View};
use toolsieve::service::catalog::indexing::Indexing;
use toolsieve::service::ports::{Embedder, Store, ToolIndex};
use toolsieve::service::selection::retrieve::Retrieve;

pub(crate) type Failure = Box<dyn Error>;

/// An embedder with a store of its vectors.
pub(crate) struct Workshop {
    pub(crate) embedder: Arc<dyn Embedder>,
    store: Arc<dyn Store>,
    folder: TempDir,
}

impl Workshop {
    /// `weights` is a file that `toolsieve model import` made.
    pub(crate) async fn open(weights: &Path) -> Result<Self, Failure> {
        let folder = tempfile::tempdir()?;
        let store = Arc::new(SqliteStore::open(&folder.path().join("evidence.db")).await?);
        let embedder = Arc::new(BuiltinEmbedder::with(Encoder::from_bytes(fs::read(weights)?)?));
        Ok(Self { embedder, store, folder })
    }

    /// Ranks in this catalogue, with an index of this name.
    pub(crate) async fn indexed(&self, catalog: Catalog, name: &str) -> Result<(Retrieve, View), Failure> {
        let current = Arc::new(CurrentCatalog::default());
        current.swap(catalog);
        let options =
            EmbeddedIndexOptions { folder: self.folder.path().join(name), model: self.embedder.model().into(), progress: Arc::new(|_| {}) };
        let index: Arc<dyn ToolIndex> = EmbeddedIndex::open(options)?;
        let indexing = Indexing::new(Arc::clone(&current), Arc::clone(&self.store), index, Arc::clone(&self.embedder));
        indexing.update(&current.snapshot()).await;
        let retrieve = Retrieve::over(&indexing);
        retrieve.teach_gate(self.store.as_ref()).await;
        Ok((retrieve, current.view(&Principal::anyone())))
    }
}

pub(crate) fn lines(path: &Path) -> Result<Vec<Value>, Failure> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(text.lines().filter(|line| !line.trim().is_empty()).map(serde_json::from_str).collect::<Result<_, _>>()?)
}
