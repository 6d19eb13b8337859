//! Section `[embedder]`: the built-in model, a model in a folder, or an endpoint.

use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;
use url::Url;

use crate::settings::values::{Reader, plain_url};

/// The settings in section `[embedder]`.
#[derive(Clone, Debug)]
pub struct EmbedderSettings {
    pub provider: EmbedderProvider,
}

#[derive(Clone, Debug)]
pub enum EmbedderProvider {
    /// The model that is compiled into the binary, [`BUILTIN_MODEL`].
    Builtin,
    /// A model in a sentence-transformers folder.
    Folder(FolderSettings),
    /// An OpenAI-compatible API.
    Endpoint(EndpointSettings),
}

/// Prefixes for texts. `None` means the model's own prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prefixes {
    pub query: Option<String>,
    pub passage: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderSettings {
    pub path: PathBuf,
    pub prefixes: Prefixes,
}

#[derive(Clone, Debug)]
pub struct EndpointSettings {
    /// The base URL; the service appends `/embeddings`.
    pub base_url: String,
    pub model: String,
    /// The API key. Endpoints on this machine often need none.
    pub api_key: Option<SecretString>,
    pub dialect: Dialect,
    /// The vector length to request; `None` means the model's default.
    pub dimensions: Option<usize>,
    pub prefixes: Prefixes,
    /// How long a message may wait for its embedding.
    pub timeout: Duration,
    /// Maximum number of texts per request.
    pub batch: usize,
}

/// The request format of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// The `openai` format, with `dimensions`. Queries and passages are sent in the same way.
    OpenAi,
    /// The `voyage` format, with `output_dimension`, and with `input_type` to distinguish queries from passages.
    Voyage,
}

/// The name of the model whose weights are compiled into the binary.
pub const BUILTIN_MODEL: &str = "toolsieve-e5";
/// The built-in models of earlier versions. Their names still mean the built-in model.
const FORMER_MODELS: [&str; 2] = ["toolsieve-minilm", "all-minilm-l6-v2"];

impl EmbedderSettings {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        // Reads all settings, so that mistakes in unused settings are reported too.
        let model = reader.text("embedder.model");
        let prefixes = Prefixes { query: prefix(reader, "embedder.query_prefix"), passage: prefix(reader, "embedder.passage_prefix") };
        let folder = reader.optional_text("embedder.folder");
        let url = url(reader);
        let endpoint = EndpointSettings {
            base_url: url.as_ref().map(|url| url.as_str().trim_end_matches('/').to_owned()).unwrap_or_default(),
            model: model.clone(),
            api_key: reader.header_key("embedder.api_key", "copy the key from the provider again"),
            dialect: dialect(reader, url.as_ref()),
            dimensions: Some(reader.whole("embedder.dimensions", 0..=8192)).filter(|dimensions| *dimensions > 0),
            prefixes: prefixes.clone(),
            timeout: reader.milliseconds("embedder.timeout_ms", 10..=60_000),
            batch: reader.whole("embedder.batch", 1..=2048),
        };
        let is_url_given = reader.optional_text("embedder.url").is_some();
        let provider = match reader.text("embedder.provider").as_str() {
            "auto" if folder.is_some() && is_url_given => {
                let remedy = "set only one of them, or choose with embedder.provider: \"folder\" or \"endpoint\"";
                reader.problem("embedder.folder", "embedder.url is also set", remedy);
                EmbedderProvider::Builtin
            }
            "auto" => match (folder, is_url_given) {
                (Some(folder), _) => in_folder(folder, prefixes),
                (None, true) => at_endpoint(reader, endpoint),
                (None, false) => builtin(reader, &model),
            },
            "builtin" => builtin(reader, &model),
            "folder" => in_folder(
                folder.unwrap_or_else(|| {
                    reader.problem("embedder.folder", "missing", "write the path of a sentence-transformers folder");
                    String::new()
                }),
                prefixes,
            ),
            "endpoint" => {
                if !is_url_given {
                    reader.problem("embedder.url", "missing", "write an address such as \"https://api.openai.com/v1\"");
                }
                at_endpoint(reader, endpoint)
            }
            _ => {
                reader.problem("embedder.provider", "unknown provider", "write \"auto\", \"builtin\", \"folder\" or \"endpoint\"");
                if is_url_given { EmbedderProvider::Builtin } else { builtin(reader, &model) }
            }
        };
        Self { provider }
    }
}

fn in_folder(path: String, prefixes: Prefixes) -> EmbedderProvider {
    EmbedderProvider::Folder(FolderSettings { path: path.into(), prefixes })
}

fn at_endpoint(reader: &mut Reader<'_>, endpoint: EndpointSettings) -> EmbedderProvider {
    if endpoint.model.is_empty() || endpoint.model == BUILTIN_MODEL {
        let remedy = "write the name of a model that embedder.url has, such as \"text-embedding-3-small\"";
        reader.problem("embedder.model", "no model for this URL", remedy);
    }
    EmbedderProvider::Endpoint(endpoint)
}

fn builtin(reader: &mut Reader<'_>, name: &str) -> EmbedderProvider {
    if FORMER_MODELS.contains(&name) {
        let message = format!("this model is no longer built in; {BUILTIN_MODEL:?} is used");
        reader.warning("embedder.model", message, "remove the setting; for another model, set embedder.folder or embedder.url");
    } else if name != BUILTIN_MODEL {
        let remedy = format!("write {BUILTIN_MODEL:?}; the model of an endpoint needs embedder.url, one of a folder embedder.folder alone");
        reader.problem("embedder.model", "not a built-in model", remedy);
    }
    EmbedderProvider::Builtin
}

/// Reads a prefix. A text of only spaces means no prefix, even if the model has its own.
fn prefix(reader: &mut Reader<'_>, key: &str) -> Option<String> {
    let text = reader.optional_text(key)?;
    Some(if text.trim().is_empty() { String::new() } else { text })
}

fn url(reader: &mut Reader<'_>) -> Option<Url> {
    const KEY: &str = "embedder.url";
    let text = reader.optional_text(KEY)?;
    let url = plain_url(&text);
    if url.is_none() {
        // The message omits the URL, because it may contain a password.
        let remedy = "write it as https://host/v1, without user, query and fragment; /embeddings is appended";
        reader.problem(KEY, "not a plain http or https address", remedy);
    }
    url
}

fn dialect(reader: &mut Reader<'_>, url: Option<&Url>) -> Dialect {
    match reader.text("embedder.dialect").as_str() {
        "auto" if url.and_then(Url::host_str).is_some_and(|host| host.ends_with("voyageai.com")) => Dialect::Voyage,
        "auto" | "openai" => Dialect::OpenAi,
        "voyage" => Dialect::Voyage,
        _ => {
            reader.problem("embedder.dialect", "unknown dialect", "write \"auto\", \"openai\" or \"voyage\"");
            Dialect::OpenAi
        }
    }
}
