//! Section `[index]`: whether the vector index is embedded in this process or on a Qdrant cluster.

use std::time::Duration;

use secrecy::SecretString;
use url::Url;

use crate::settings::values::{Reader, plain_url};

/// Qdrant's default gRPC port.
const PORT: u16 = 6334;
/// Qdrant's default HTTP port, which people often use by mistake.
const HTTP_PORT: u16 = 6333;

/// The settings in section `[index]`.
#[derive(Clone, Debug)]
pub struct IndexSettings {
    /// The Qdrant cluster; `None` if the index is embedded.
    pub qdrant: Option<QdrantSettings>,
}

#[derive(Clone, Debug)]
pub struct QdrantSettings {
    /// One URL per node, each with scheme and port.
    pub urls: Vec<Url>,
    pub api_key: Option<SecretString>,
    /// Time limit for a search.
    pub timeout: Duration,
    /// Prefix for the names of collections.
    pub prefix: String,
    pub shards: u32,
    pub replicas: u32,
}

impl IndexSettings {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        let whole = |reader: &mut Reader<'_>, key| u32::try_from(reader.whole(key, 1..=1000)).unwrap_or(1);
        let settings = QdrantSettings {
            urls: urls(reader),
            api_key: api_key(reader),
            timeout: reader.milliseconds("index.qdrant_timeout_ms", 10..=60_000),
            prefix: prefix(reader),
            shards: whole(reader, "index.qdrant_shards"),
            replicas: whole(reader, "index.qdrant_replicas"),
        };
        if settings.urls.is_empty() && settings.api_key.is_some() {
            reader.warning("index.qdrant_api_key", "has no effect without a Qdrant address", "set index.qdrant_url or QDRANT_URL too");
        }
        Self { qdrant: Some(settings).filter(|settings| !settings.urls.is_empty()) }
    }
}

fn urls(reader: &mut Reader<'_>) -> Vec<Url> {
    const KEY: &str = "index.qdrant_url";
    let mut urls = Vec::new();
    let mut is_wrong = false;
    for text in reader.list(KEY) {
        let plain = plain_url(&text).filter(|url| matches!(url.path(), "" | "/"));
        let Some(mut url) = plain else {
            is_wrong = true;
            continue;
        };
        if url.port() == Some(HTTP_PORT) {
            reader.warning(KEY, "uses port 6333, Qdrant's HTTP port", "write the gRPC port, by default 6334");
        }
        // `Url` omits default ports, so the ports 80 and 443 must be searched for in the text.
        let names_port =
            url.port().is_some() || text.trim_end_matches('/').rsplit(':').next().is_some_and(|port| port.parse::<u16>().is_ok());
        is_wrong |= !names_port && url.set_port(Some(PORT)).is_err();
        urls.push(url);
    }
    if is_wrong {
        // The message omits the URL, because it may contain a password.
        reader.problem(
            KEY,
            "contains something that is not a plain http or https address",
            "write each node as http://qdrant:6334: scheme, host and gRPC port; the key goes into index.qdrant_api_key",
        );
    }
    urls
}

fn api_key(reader: &mut Reader<'_>) -> Option<SecretString> {
    let key = reader.optional_text("index.qdrant_api_key")?;
    if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        reader.problem(
            "index.qdrant_api_key",
            "contains a space, a line break or a non-ASCII character, which a header can't carry",
            "copy the key again",
        );
        return None;
    }
    Some(SecretString::from(key))
}

fn prefix(reader: &mut Reader<'_>) -> String {
    const KEY: &str = "index.qdrant_collection";
    let prefix = reader.text(KEY);
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if prefix.is_empty() || prefix.len() > 64 || !prefix.bytes().all(is_plain) {
        reader.problem(KEY, "not valid as a prefix of collection names", "write 1 to 64 letters, digits, - and _");
    }
    prefix
}
