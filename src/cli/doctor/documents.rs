//! The operations in a server's document: from Toolsieve, from a running mcpo, or as mcpo 0.0.20 would publish them.

use std::collections::BTreeMap;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use crate::adapters::proxies;
use crate::domain::access::visibility::Visibility;
use crate::domain::catalog::catalog::CatalogServer;
use crate::domain::catalog::tool::ServerName;
use crate::domain::publishing::address::Address;
use crate::domain::publishing::document;
use crate::domain::publishing::mcpo;
use crate::domain::toolsets::mode::Mode;
use crate::service::publishing::publish::{DocumentOf, Publish};

const TIMEOUT: Duration = Duration::from_secs(20);

/// The parts of an operation that callers and models see.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Operation {
    pub(super) id: String,
    pub(super) summary: String,
    /// The schema of the request body, with component references inlined.
    pub(super) body: Value,
}

/// Operations by their decoded paths.
pub(super) type Operations = BTreeMap<String, Operation>;

/// The operations that Toolsieve publishes for a server.
pub(super) fn ours(publish: &Publish, server: &ServerName) -> Result<Operations, String> {
    let document = publish
        .document(&Address::Whole, &DocumentOf::Server(server.clone()), &Visibility::default(), Mode::Full)
        .ok_or_else(|| "the server does not respond, so none of its tools are published".to_owned())?;
    serde_json::from_slice(&document.body).map(|document| operations(&document)).map_err(|error| error.to_string())
}

/// Fetches the operations that a running mcpo publishes for a server.
pub(super) async fn fetched(url: &str, server: &ServerName, key: Option<&SecretString>) -> Result<Operations, String> {
    let address = format!("{}/{}/openapi.json", url.trim_end_matches('/'), document::encoded(server.as_str()));
    let client = proxies::client_builder().timeout(TIMEOUT).build().map_err(|error| error.to_string())?;
    let mut request = client.get(&address);
    if let Some(key) = key {
        request = request.bearer_auth(key.expose_secret());
    }
    let response = request.send().await.map_err(|_| format!("{address} can't be reached; start mcpo, or correct --mcpo-url"))?;
    let status = response.status();
    if !status.is_success() {
        let hint = match status.as_u16() {
            401 | 403 => "; set mcpo's key with --mcpo-key",
            404 => "; correct --mcpo-url, or restart mcpo with this file",
            _ => "",
        };
        return Err(format!("{address} returned HTTP {status}{hint}"));
    }
    let text = response.bytes().await.map_err(|error| error.without_url().to_string())?;
    let document: Value = serde_json::from_slice(&text).map_err(|_| format!("{address} is not an OpenAPI document; correct --mcpo-url"))?;
    if !document.get("paths").is_some_and(Value::is_object) {
        return Err(format!("{address} is not an OpenAPI document; correct --mcpo-url"));
    }
    Ok(operations(&document))
}

/// Computes the operations that mcpo 0.0.20 would publish for these tools.
pub(super) fn computed(server: &CatalogServer) -> Result<Operations, String> {
    let operations = server.tools.iter().map(|tool| {
        let body = mcpo::schema::published(&tool.id.name, &tool.input.source.value())
            .map_err(|error| format!("mcpo publishes none of this server's tools, because of the schema of {}: {error}", tool.id.name))?;
        let operation = Operation {
            id: mcpo::their_operation_id(&tool.id.name),
            summary: mcpo::summary(&tool.id.name),
            body: body.unwrap_or_default(),
        };
        Ok((format!("/{}", tool.id.name), operation))
    });
    operations.collect()
}

fn operations(document: &Value) -> Operations {
    let paths = document.get("paths").and_then(Value::as_object).into_iter().flatten();
    let operations = paths.filter_map(|(path, item)| {
        let post = item.get("post")?;
        let text = |key: &str| post.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let schema = post.pointer("/requestBody/content/application~1json/schema").cloned().unwrap_or_default();
        let path = percent_decode_str(path).decode_utf8_lossy().into_owned();
        Some((path, Operation { id: text("operationId"), summary: text("summary"), body: inlined(&schema, document, 0) }))
    });
    operations.collect()
}

/// Inlines component references. A depth limit ends cycles.
fn inlined(schema: &Value, document: &Value, depth: usize) -> Value {
    const DEEPEST: usize = 24;
    match schema {
        Value::Object(keys) => {
            let mut out = serde_json::Map::new();
            let target = keys.get("$ref").and_then(Value::as_str).and_then(|reference| document.pointer(reference.strip_prefix('#')?));
            if let Some(target) = target.filter(|_| depth < DEEPEST)
                && let Value::Object(target) = inlined(target, document, depth + 1)
            {
                out.extend(target);
            }
            for (key, value) in keys.iter().filter(|(key, _)| *key != "$ref") {
                out.insert(key.clone(), inlined(value, document, depth));
            }
            Value::Object(out)
        }
        Value::Array(items) => items.iter().map(|item| inlined(item, document, depth)).collect(),
        other => other.clone(),
    }
}
