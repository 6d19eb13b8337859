//! The configured embedder, for commands that inspect or test it.

use std::time::{Duration, Instant};

use crate::adapters::embed::{self, EmbedderOpenError};
use crate::adapters::store::OpenedStore;
use crate::cli::retrieval::model_of_enrichment;
use crate::cli::{Failure, stored};
use crate::domain::catalog::catalog::Catalog;
use crate::service::catalog::enrich::in_use;
use crate::service::catalog::indexing::embedded;
use crate::settings::{BUILTIN_MODEL, EmbedderProvider, EmbedderSettings, Settings};

/// The text that a test embeds.
const MESSAGE: &str = "what time is it?";

/// Describes the embedder without sending a request.
///
/// # Errors
/// A configuration error if the model folder is unusable.
pub(super) fn described(settings: &EmbedderSettings) -> Result<String, Failure> {
    Ok(match &settings.provider {
        EmbedderProvider::Builtin => format!("built in, {BUILTIN_MODEL}"),
        EmbedderProvider::Folder(folder) => {
            let encoder = embed::read(folder).map_err(|error| Failure::invalid(format!("error: {error}")))?;
            let (dimension, tokens) = (encoder.dimension(), encoder.maximum_tokens());
            format!("the model in {}, {dimension} dimensions, {tokens} tokens", folder.path.display())
        }
        EmbedderProvider::Endpoint(endpoint) => {
            // The address's path may contain a key.
            let origin = url::Url::parse(&endpoint.base_url).map(|url| url.origin().ascii_serialization());
            format!("{} at {}", endpoint.model, origin.unwrap_or_default())
        }
    })
}

/// The result of a test of the embedder.
pub(super) struct Tried {
    pub(super) model: String,
    pub(super) dimension: usize,
    pub(super) took: Duration,
}

/// Embeds a test message in the same way as the service.
///
/// # Errors
/// The reason for a failed embedding.
pub(super) async fn tried(settings: &EmbedderSettings) -> Result<Tried, String> {
    let embedder = embed::open(settings).map_err(|error| error.to_string())?;
    let started = Instant::now();
    embedder.embed_queries(&[MESSAGE]).await.map_err(|error| error.to_string())?;
    Ok(Tried { model: embedder.model().to_owned(), dimension: embedder.dimension(), took: started.elapsed() })
}

/// Counts how many of these tools have vectors in the data folder. Returns `None` if there is no data folder.
///
/// # Errors
/// The model folder is unusable, or the database is unreadable.
pub(super) async fn embedded_tools(settings: &Settings, catalog: &Catalog) -> Result<Option<usize>, Failure> {
    let Some(store) = stored::opened(settings).await? else { return Ok(None) };
    let count = embedded_in(&store, settings, catalog).await;
    store.close().await;
    count.map(Some)
}

/// Counts how many of these tools have vectors in the store.
///
/// # Errors
/// The model folder is unusable, or the database is unreadable.
pub(super) async fn embedded_in(store: &OpenedStore, settings: &Settings, catalog: &Catalog) -> Result<usize, Failure> {
    let port = store.port();
    let model = embed::model(&settings.start.embedder).map_err(|error| match error {
        EmbedderOpenError::Folder { .. } => Failure::invalid(format!("error: {error}")),
        error => Failure::failed(format!("error: {error}")),
    })?;
    let failed = |error| Failure::failed(format!("error: {error}"));
    let (model_of_texts, of_files) = (model_of_enrichment(settings), &settings.live.tools.enrichments);
    let enrichments = in_use(catalog, &*port, model_of_texts.as_deref(), of_files).await.map_err(failed)?;
    embedded(catalog, &enrichments, &*port, &model).await.map_err(failed)
}
