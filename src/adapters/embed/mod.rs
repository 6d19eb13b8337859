//! Embedders: implementations of the port with the local encoder and with endpoints.
//!
//! | module | job |
//! | --- | --- |
//! | `builtin` | the encoder: built-in models, and those of a folder |
//! | `local` | the port on top of `builtin` |
//! | `endpoint` | the port over an OpenAI-compatible API |
//! | `cached` | a cache of message vectors on top of either |

pub mod builtin;
mod cached;
mod endpoint;
mod local;

use std::path::PathBuf;
use std::sync::Arc;

pub use self::cached::CachedEmbedder;
pub use self::endpoint::{EndpointEmbedder, Timing};
pub use self::local::BuiltinEmbedder;

use crate::adapters::embed::builtin::{Encoder, ImportError, ModelError, PromptOverrides};
use crate::adapters::llm;
use crate::service::ports::Embedder;
use crate::service::records::metrics::CacheMeter;
use crate::settings::{EmbedderProvider, EmbedderSettings, FolderSettings};

/// Sizes of the caches, in bytes. A cache miss costs a millisecond locally, and a request with an endpoint.
const LOCAL_CACHE: u64 = 4 << 20;
const ENDPOINT_CACHE: u64 = 32 << 20;

/// The reason why the embedder can't be created.
#[derive(Debug, thiserror::Error)]
pub enum EmbedderOpenError {
    #[error("the built-in model: {0}")]
    Builtin(#[from] ModelError),
    /// A configuration error, including its remedy.
    #[error(
        "embedder.folder: {}: {source}. The folder must contain a BERT or XLM-R sentence encoder as saved by sentence-transformers. \
         Other models can be used over an OpenAI-compatible endpoint (embedder.url).",
        path.display()
    )]
    Folder {
        path: PathBuf,
        #[source]
        source: ImportError,
    },
    #[error("no HTTP client: {0}")]
    Client(#[from] reqwest::Error),
}

/// Creates the configured embedder, with a cache for messages. Call it within a runtime.
///
/// # Errors
/// [`EmbedderOpenError`]. An unavailable endpoint is not an error.
pub fn open(settings: &EmbedderSettings) -> Result<Arc<dyn Embedder>, EmbedderOpenError> {
    open_metered(settings, CacheMeter::default())
}

/// Like [`open()`], with metrics for the cache.
///
/// # Errors
/// Like [`open()`].
pub fn open_metered(settings: &EmbedderSettings, meter: CacheMeter) -> Result<Arc<dyn Embedder>, EmbedderOpenError> {
    let (embedder, bytes): (Arc<dyn Embedder>, u64) = match &settings.provider {
        EmbedderProvider::Builtin => (Arc::new(BuiltinEmbedder::new()?), LOCAL_CACHE),
        EmbedderProvider::Folder(folder) => (Arc::new(BuiltinEmbedder::with(read(folder)?)), LOCAL_CACHE),
        EmbedderProvider::Endpoint(endpoint) => {
            let client = llm::client_builder().build()?;
            (Arc::new(EndpointEmbedder::start(client, endpoint.clone(), Timing::default())), ENDPOINT_CACHE)
        }
    };
    Ok(Arc::new(CachedEmbedder::new(embedder, bytes).with_meter(meter)))
}

/// The id of the configured model, as in [`Embedder::model`]. Makes no request to an endpoint.
///
/// # Errors
/// Like [`open()`].
pub fn model(settings: &EmbedderSettings) -> Result<String, EmbedderOpenError> {
    Ok(match &settings.provider {
        EmbedderProvider::Builtin => Encoder::built_in()?.model_id().to_owned(),
        EmbedderProvider::Folder(folder) => read(folder)?.model_id().to_owned(),
        EmbedderProvider::Endpoint(endpoint) => endpoint::model_id(endpoint),
    })
}

/// Creates the encoder of a model folder.
///
/// # Errors
/// [`EmbedderOpenError::Folder`] if the folder can't be imported.
pub fn read(folder: &FolderSettings) -> Result<Encoder, EmbedderOpenError> {
    let FolderSettings { path, prefixes } = folder;
    // A path such as `.` has no file name.
    let whole = path.canonicalize().unwrap_or_else(|_| path.clone());
    let name = whole.file_name().map_or_else(|| "model".into(), |name| name.to_string_lossy());
    let prompts = PromptOverrides { query: prefixes.query.clone(), document: prefixes.passage.clone() };
    Encoder::from_folder(path, &name, &prompts).map_err(|source| EmbedderOpenError::Folder { path: path.clone(), source })
}
