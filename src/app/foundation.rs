//! What all parts of the service are built on: the settings, and what the start opens.

use std::sync::Arc;
use std::time::Instant;

use super::background::{Tasks, export_spans};
use super::{StartError, installation, progress};
use crate::adapters::data_dir::DataDir;
use crate::adapters::files::FileFolder;
use crate::adapters::index::{AnnouncedIndex, EmbeddedIndex, EmbeddedIndexOptions, RemoteIndex, RemoteIndexOptions, Spread, Timing};
use crate::adapters::store::OpenedStore;
use crate::adapters::{embed, telemetry};
use crate::domain::access::signature::Signer;
use crate::service::catalog::current::CurrentCatalog;
use crate::service::execution::files::Files;
use crate::service::leading::Leading;
use crate::service::ports::{Embedder, FileStore, IndexError, Store, ToolIndex, Tracer};
use crate::service::records::metrics::{CacheKind, Meters};
use crate::settings::{LiveSettings, QdrantSettings, StartSettings};

/// The settings, and what they open.
pub(super) struct Foundation<'a> {
    /// When the start began.
    pub started: Instant,
    pub start: &'a StartSettings,
    /// Includes the servers of the API.
    pub live: &'a LiveSettings,
    pub data_dir: &'a DataDir,
    pub store: Arc<dyn Store>,
    pub leading: Leading,
    pub meters: Arc<Meters>,
    pub tracer: Option<Arc<dyn Tracer>>,
    pub embedder: Arc<dyn Embedder>,
    pub index: Arc<dyn ToolIndex>,
    /// The files behind signed links, and the signer of links; `None` without a public URL, because the links need one.
    pub links: Option<(Arc<Files>, Signer)>,
    pub current: Arc<CurrentCatalog>,
}

impl<'a> Foundation<'a> {
    pub(super) async fn open(
        started: Instant,
        (start, live): (&'a StartSettings, &'a LiveSettings),
        data_dir: &'a DataDir,
        database: &OpenedStore,
        tasks: &mut Tasks,
    ) -> Result<Self, StartError> {
        let store = database.port();
        let meters = Arc::new(Meters::new(start.metrics.per_tool));
        let (tracer, span_export) = telemetry::open(&start.telemetry, &meters).map_err(StartError::Client)?.unzip();
        tasks.add(export_spans(span_export, tasks.stop()));
        let embedder = embed::open_metered(&start.embedder, meters.cache(CacheKind::Vectors))?;
        let index = open_index(start, data_dir, embedder.model())?;
        let links = links(data_dir, start, database).await?;
        let (leading, current) = (Leading::of(store.leads()), Arc::new(CurrentCatalog::new(live.selection.clone())));
        Ok(Self { started, start, live, data_dir, store, leading, meters, tracer, embedder, index, links, current })
    }

    /// The URL at which callers reach the service, without a slash at its end.
    pub(super) fn public_url(&self) -> Option<String> {
        self.start.http.public_url.as_ref().map(|url| url.as_str().trim_end_matches('/').to_owned())
    }
}

/// Opens the store, which must belong to the data folder.
pub(super) async fn open_store(start: &StartSettings, data_dir: &DataDir) -> Result<OpenedStore, StartError> {
    let database = OpenedStore::open(start.store.postgres.as_ref(), &data_dir.database()).await?;
    database.make_shrinkable().await;
    database.set_mark(installation::settled(&database, data_dir.installation()).await?);
    database.end_claims().await;
    Ok(database)
}

fn open_index(settings: &StartSettings, data_dir: &DataDir, model: &str) -> Result<Arc<dyn ToolIndex>, StartError> {
    let progress = progress::indexing();
    let Some(qdrant) = settings.index.qdrant.clone() else {
        let options = EmbeddedIndexOptions { folder: data_dir.index(), model: model.into(), progress };
        let index = EmbeddedIndex::open(options).map_err(|error| match error {
            IndexError::Io(source) => StartError::IndexFolder { folder: data_dir.index(), source },
            error => StartError::Index(error),
        })?;
        return Ok(Arc::new(AnnouncedIndex::over(index)));
    };
    let QdrantSettings { urls, api_key, timeout, prefix, shards, replicas } = qdrant;
    let timing = Timing { search: timeout, ..Timing::default() };
    let options = RemoteIndexOptions { urls, api_key, prefix, spread: Spread { shards, replicas }, timing, progress };
    Ok(Arc::new(AnnouncedIndex::over(RemoteIndex::open(options)?)))
}

async fn links(data_dir: &DataDir, start: &StartSettings, store: &OpenedStore) -> Result<Option<(Arc<Files>, Signer)>, StartError> {
    let Some(public_url) = &start.http.public_url else { return Ok(None) };
    let settings = &start.files;
    let unusable = |source| StartError::Folder { folder: data_dir.files(), source };
    let folder = FileFolder::open(data_dir.files(), settings.max_total_bytes).map_err(unusable)?;
    let own_key = folder.signing_key().map_err(unusable)?;
    let shared = store.shared_files(&own_key, (settings.max_file_bytes, settings.max_total_bytes)).await;
    let (files, key) = shared.map_err(StartError::LinkKey)?.unwrap_or_else(|| (Arc::new(folder) as Arc<dyn FileStore>, own_key));
    let signer = Signer::new(key);
    Ok(Some((Arc::new(Files::new(files, signer.clone(), public_url, settings.lifetime)), signer)))
}
