//! Runs the service's search and selection on a given catalog in this process, without servers, a network address or
//! chats. The index is in a temporary folder, and no events are recorded.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::adapters::data_dir::{DataDir, DataDirError};
use crate::adapters::embed;
use crate::adapters::index::{EmbeddedIndex, EmbeddedIndexOptions};
use crate::adapters::store::OpenedStore;
use crate::app;
use crate::cli::{Failure, stored};
use crate::domain::catalog::catalog::Catalog;
use crate::domain::selection::enrichment::Enrichments;
use crate::domain::selection::relevance::{FusionParameters, Gate, LexicalModel, LexicalParameters, SparseVector};
use crate::domain::text::analysis::Analyzer;
use crate::domain::text::canonical::Fingerprint;
use crate::service::catalog::current::CurrentCatalog;
use crate::service::catalog::enrich::feed::EnrichmentFeed;
use crate::service::catalog::enrich::in_force;
use crate::service::catalog::indexing::{Indexing, OnProgress};
use crate::service::learning::learn::Learning;
use crate::service::ports::{Embedder, IndexAnswer, IndexContents, IndexError, IndexQuery, IndexQueryText, IndexState, Store, ToolIndex};
use crate::service::selection::retrieve::Retrieve;
use crate::service::selection::select::Select;
use crate::settings::Settings;

/// Number of vectors from a tool's name and description. These vectors come first. Every tool in a catalog has a description.
const OWN: usize = 2;

/// Which parts of the retrieval to use. By default, these are the same as in the service.
#[derive(Clone)]
#[expect(clippy::struct_excessive_bools, reason = "one switch for each part")]
pub(super) struct Recipe {
    pub(super) settings: Settings,
    pub(super) fusion: FusionParameters,
    pub(super) lexical: LexicalParameters,
    /// Whether to stem words.
    pub(super) stems: bool,
    pub(super) vectors: Vectors,
    /// Whether to search by words.
    pub(super) words: bool,
    /// Whether to use the enrichments by admins and the language model.
    pub(super) enrichment: bool,
    /// Whether to correct misspelt words.
    pub(super) corrections: bool,
    /// What use has taught.
    pub(super) learning: Option<Learning>,
}

/// Which of a tool's vectors to search.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Vectors {
    All,
    /// Only the vector of the server name, tool name and description.
    Full,
    /// Only the vector of the tool name and the first sentence.
    Short,
    None,
}

impl Recipe {
    pub(super) fn of(settings: &Settings) -> Self {
        Self {
            settings: settings.clone(),
            fusion: FusionParameters::default(),
            lexical: LexicalParameters::default(),
            stems: true,
            vectors: Vectors::All,
            words: true,
            enrichment: true,
            corrections: true,
            learning: None,
        }
    }

    pub(super) fn lexical(&self) -> LexicalModel {
        let analyzer = if self.stems { Analyzer::default() } else { Analyzer::unstemmed() };
        let lexical = LexicalModel::new(analyzer, self.lexical);
        if self.corrections { lexical } else { lexical.without_corrections() }
    }
}

/// Search and selection over an indexed catalog.
pub(super) struct Retrieval {
    pub(super) retrieve: Arc<Retrieve>,
    pub(super) select: Select,
    // Last, so that the folder outlives everything that uses it.
    _folder: Scratch,
}

impl Retrieval {
    /// Indexes the catalog, and returns once all tools are searchable.
    pub(super) async fn start(
        current: &Arc<CurrentCatalog>,
        recipe: &Recipe,
        vectors: Arc<dyn Store>,
        on_progress: OnProgress,
    ) -> Result<Self, Failure> {
        let folder = Scratch::new()?;
        let embedder = open_embedder(&recipe.settings)?;
        let options =
            EmbeddedIndexOptions { folder: folder.path.join("index"), model: embedder.model().into(), progress: Arc::new(|_| {}) };
        let index = EmbeddedIndex::open(options).map_err(|error| Failure::failed(format!("error: {error}")))?;
        let index: Arc<dyn ToolIndex> = Arc::new(Parts { index, vectors: recipe.vectors, words: recipe.words });
        let enrichment = Arc::new(EnrichmentFeed::new(model_of_enrichment(&recipe.settings)));
        enrichment.configure(&recipe.settings.live);
        let indexing = Indexing {
            lexical: Arc::new(recipe.lexical()),
            on_progress,
            enrichment,
            uses_enrichment: recipe.enrichment,
            unused_retention: recipe.settings.start.store.unused_retention,
            ..Indexing::new(Arc::clone(current), Arc::clone(&vectors), index, embedder)
        };
        if !indexing.update(&current.snapshot()).await {
            return Err(Failure::failed("error: the tools could not be indexed"));
        }
        current.set_settings(recipe.settings.live.selection.clone());
        let retrieve = Arc::new(Retrieve::over(&indexing).with_fusion(recipe.fusion).with_learning(recipe.learning.clone()));
        retrieve.teach_gate(vectors.as_ref()).await;
        let chats = open(&folder.path.join("chats.db")).await?;
        // Stopped before any event: these requests are not usage.
        let stop = CancellationToken::new();
        stop.cancel();
        let select = app::select(current, &retrieve, &chats, &recipe.settings.start, &stop);
        let select = select.map_err(|error| Failure::failed(format!("error: {error}")))?;
        Ok(Self { retrieve, select, _folder: folder })
    }
}

/// Name of the language model that describes tools, if one is configured.
pub(super) fn model_of_enrichment(settings: &Settings) -> Option<String> {
    settings.start.llm.enrichment.as_ref().map(|enrichment| enrichment.endpoint.model.clone())
}

/// Opens the configured embedder.
pub(super) fn open_embedder(settings: &Settings) -> Result<Arc<dyn Embedder>, Failure> {
    embed::open(&settings.start.embedder).map_err(|error| Failure::failed(format!("error: {error}")))
}

async fn open(path: &Path) -> Result<Arc<dyn Store>, Failure> {
    Ok(OpenedStore::open(None, path).await.map_err(|error| stored::failure(&error))?.port())
}

/// Where the vectors are stored: in a database, in a data folder that this process locks, or in a temporary folder.
pub(super) struct VectorStore {
    pub(super) store: Arc<dyn Store>,
    /// Whether a running service uses the data folder, so that this process must not change it.
    pub(super) in_use: bool,
    _lock: Option<DataDir>,
    _folder: Option<Scratch>,
}

impl VectorStore {
    /// Stores vectors in a temporary folder.
    pub(super) async fn passing() -> Result<Self, Failure> {
        let folder = Scratch::new()?;
        let store = open(&folder.path.join("vectors.db")).await?;
        Ok(Self { store, in_use: false, _lock: None, _folder: Some(folder) })
    }

    /// Stores vectors in a data folder, and locks the folder.
    pub(super) async fn of(data_dir: &Path) -> Result<Self, Failure> {
        let lock = DataDir::open(data_dir).map_err(|error| Failure::failed(format!("error: {error}")))?;
        let store = open(&lock.database()).await?;
        Ok(Self { store, in_use: false, _lock: Some(lock), _folder: None })
    }

    /// Stores vectors in the store of a service. If a service uses the folder, copies this catalog's vectors to a temporary
    /// folder.
    pub(super) async fn beside_a_service(settings: &Settings, opened: &OpenedStore, catalog: &Catalog) -> Result<Self, Failure> {
        let database = opened.port();
        if let OpenedStore::Postgres(_) = opened {
            return Ok(Self { store: database, in_use: false, _lock: None, _folder: None });
        }
        match DataDir::open(&settings.start.store.data_dir) {
            Err(DataDirError::InUse { .. }) => {}
            Err(error) => return Err(Failure::failed(format!("error: {error}"))),
            Ok(lock) => {
                let store = open(&lock.database()).await?;
                return Ok(Self { store, in_use: false, _lock: Some(lock), _folder: None });
            }
        }
        let error = |error| Failure::failed(format!("error: {error}"));
        let embedder = open_embedder(settings)?;
        let model = model_of_enrichment(settings);
        let written = in_force(catalog, &*database, model.as_deref(), &settings.live.tools.enrichments).await.map_err(error)?;
        let enrichments = Enrichments::of(written.clone(), catalog.tools().len());
        let texts = catalog.tools().iter().flat_map(|tool| enrichments.passages(tool));
        let texts = texts.chain(Gate::example_texts().map(str::to_owned));
        let texts: Vec<Fingerprint> = texts.map(|text| Fingerprint::of_text(&text)).collect();
        let vectors: Vec<_> = database.vectors(embedder.model(), &texts).await.map_err(error)?.into_iter().collect();
        let copy = Self::passing().await?;
        copy.store.save_vectors(embedder.model(), &vectors).await.map_err(error)?;
        for (tool, written) in &written {
            copy.store.save_enrichment(tool, written).await.map_err(error)?;
        }
        Ok(Self { in_use: true, ..copy })
    }
}

/// A temporary folder, deleted on drop.
struct Scratch {
    path: PathBuf,
}

impl Scratch {
    fn new() -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("toolsieve-{}", Uuid::now_v7()));
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&path).map_err(|error| Failure::failed(format!("error: {}: {error}", path.display())))?;
        Ok(Self { path })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // If this fails, the system deletes the folder with its other temporary files.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// An index without the parts of the retrieval that are switched off.
struct Parts {
    index: Arc<EmbeddedIndex>,
    vectors: Vectors,
    words: bool,
}

#[async_trait]
impl ToolIndex for Parts {
    async fn replace(&self, mut contents: IndexContents) -> Result<(), IndexError> {
        for document in &mut contents.documents {
            match self.vectors {
                Vectors::All => {}
                Vectors::Full => document.dense.truncate(1),
                Vectors::Short => {
                    document.dense.truncate(OWN);
                    document.dense.drain(..document.dense.len().saturating_sub(1));
                }
                Vectors::None => document.dense.clear(),
            }
        }
        self.index.replace(contents).await
    }

    async fn search(&self, request: &IndexQuery<'_>) -> Result<IndexAnswer, IndexError> {
        if self.words {
            return self.index.search(request).await;
        }
        let texts: Vec<IndexQueryText> =
            request.texts.iter().map(|text| IndexQueryText { dense: text.dense.clone(), sparse: SparseVector::default() }).collect();
        self.index.search(&IndexQuery { texts: &texts, ..request.clone() }).await
    }

    fn state(&self) -> IndexState {
        self.index.state()
    }
}
