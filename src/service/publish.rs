//! Documents: which operations a caller sees, served from memory.

use std::sync::Arc;

use bytes::Bytes;
use moka::sync::Cache;

use crate::domain::canonical::Fingerprint;
use crate::domain::catalog::{Catalog, CatalogServer};
use crate::domain::document::{self, Heading, MetaTool, Mode};
use crate::domain::principal::Visibility;
use crate::domain::tool::ServerName;
use crate::service::current::CurrentCatalog;

/// Memory for composed documents, in bytes.
const CACHE_BYTES: u64 = 16 << 20;

/// Which part of the service a document describes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Face {
    /// `/openapi.json`: everything.
    Root,
    /// `/{server}/openapi.json`: one server, with paths below it.
    Server(ServerName),
}

/// A composed document.
#[derive(Clone, Debug)]
pub struct Document {
    /// OpenAPI 3.1 as JSON.
    pub body: Bytes,
    /// Strong entity tag (RFC 9110, section 8.8.3), with its quotes.
    pub etag: Arc<str>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    catalog: u64,
    visibility: Visibility,
    face: Face,
    mode: Mode,
}

pub struct Publish {
    current: Arc<CurrentCatalog>,
    secured: bool,
    documents: Cache<Key, Document>,
}

impl Publish {
    #[must_use]
    pub fn new(current: Arc<CurrentCatalog>, secured: bool) -> Self {
        let weight = |_: &Key, document: &Document| u32::try_from(document.body.len()).unwrap_or(u32::MAX);
        let documents = Cache::builder().max_capacity(CACHE_BYTES).weigher(weight).build();
        Self { current, secured, documents }
    }

    /// The document of a face for a caller who sees this much; `None` if there is no such face for them.
    #[must_use]
    pub fn document(&self, face: &Face, visibility: &Visibility, mode: Mode) -> Option<Document> {
        let catalog = self.current.snapshot();
        if let Face::Server(name) = face
            && (catalog.server(name.as_str()).is_none() || !visibility.servers.contains(name))
        {
            return None;
        }
        let key = Key { catalog: catalog.version(), visibility: visibility.clone(), face: face.clone(), mode };
        Some(self.documents.get_with(key, || self.compose(&catalog, face, visibility, mode)))
    }

    /// The meta-tools as this caller gets them.
    #[must_use]
    pub fn meta_tools(catalog: &Catalog, visibility: &Visibility) -> Vec<MetaTool> {
        let count = |server: &CatalogServer| server.tools.iter().filter(|tool| visibility.allows(tool)).count();
        document::meta_tools(catalog.servers().iter().map(|server| (server, count(server))))
    }

    fn compose(&self, catalog: &Catalog, face: &Face, visibility: &Visibility, mode: Mode) -> Document {
        let server = match face {
            Face::Root => None,
            Face::Server(name) => catalog.server(name.as_str()),
        };
        let mut items: Vec<String> = Self::meta_tools(catalog, visibility).iter().map(MetaTool::path_item).collect();
        if mode == Mode::Full {
            for tool in catalog.visible(visibility) {
                let path = match server {
                    Some(server) if tool.id.server != server.name => continue,
                    Some(_) => document::tool_path_on_server(tool),
                    None => document::tool_path(tool),
                };
                items.push(document::path_item(&path, &document::tool_operation(tool)));
            }
        }
        let description = server.map_or_else(|| "All tools behind Toolsieve".to_owned(), document::server_description);
        let heading = Heading {
            title: server.map_or("Toolsieve", |server| server.title.as_deref().unwrap_or(server.name.as_str())),
            version: server.and_then(|server| server.version.as_deref()).unwrap_or(env!("CARGO_PKG_VERSION")),
            description: &description,
            secured: self.secured,
            server: server.map(|server| server.name.as_str()),
        };
        let body = document::compose(&heading, items.iter().map(String::as_str));
        let etag = format!("\"{}\"", &Fingerprint::of_text(&body).to_string()[..32]);
        Document { body: body.into(), etag: etag.into() }
    }
}
