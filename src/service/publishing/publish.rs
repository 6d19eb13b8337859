//! Composes the documents with the operations that a caller sees, and caches them in memory.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use moka::sync::Cache;

use crate::domain::access::visibility::Visibility;
use crate::domain::catalog::catalog::{Catalog, CatalogServer};
use crate::domain::catalog::tool::{OperationId, ServerName, Tool};
use crate::domain::publishing::address::Address;
use crate::domain::publishing::document::{self, Heading};
use crate::domain::publishing::layout::{Layout, Naming};
use crate::domain::publishing::mcpo;
use crate::domain::publishing::meta_tools::{MetaTool, MetaToolDefinition, summarize_servers, summarize_toolsets};
use crate::domain::text::canonical::Fingerprint;
use crate::domain::toolsets::loading::Groups;
use crate::domain::toolsets::mode::Mode;
use crate::service::catalog::current::{CurrentCatalog, View};
use crate::service::records::metrics::CacheMeter;

/// Size of the cache for documents, in bytes.
const CACHE_BYTES: u64 = 16 << 20;

/// The part of the service that a document describes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DocumentOf {
    /// `/openapi.json`: all servers, or the single server that is published at `/`.
    Root,
    /// `/{server}/openapi.json`: one server, with paths relative to it.
    Server(ServerName),
}

#[derive(Clone, Debug)]
pub struct Document {
    /// The OpenAPI 3.1 document as JSON.
    pub body: Bytes,
    /// Strong entity tag with quotes (RFC 9110, section 8.8.3).
    pub etag: Arc<str>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    catalog: u64,
    visibility: Visibility,
    address: Address,
    part: DocumentOf,
    mode: Mode,
    bound: Bound,
}

/// Tools published in addition to those of the address: first the pinned ones, then the loaded ones, in this order.
pub type Bound = Arc<[OperationId]>;

/// Options that apply to all documents.
#[derive(Clone, Debug, Default)]
pub struct PublishOptions {
    /// Whether calls require a key.
    pub secured: bool,
    pub layout: Layout,
    /// Title, version and description of the root document, if configured.
    pub title: Option<String>,
    pub version: Option<String>,
    pub description: Option<String>,
    /// The maximum number of tools in a document; `None`: any number.
    pub max_tools: Option<usize>,
}

/// A document would have more tools than documents may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyTools {
    pub tools: usize,
    pub max_tools: usize,
}

pub struct Publish {
    current: Arc<CurrentCatalog>,
    options: PublishOptions,
    documents: Cache<Key, Document>,
    meter: CacheMeter,
}

impl Publish {
    pub fn new(current: Arc<CurrentCatalog>, options: PublishOptions) -> Self {
        let weight = |_: &Key, document: &Document| u32::try_from(document.body.len()).unwrap_or(u32::MAX);
        let documents = Cache::builder().max_capacity(CACHE_BYTES).weigher(weight).build();
        Self { current, options, documents, meter: CacheMeter::default() }
    }

    /// Counts cache hits and misses with this meter.
    #[must_use]
    pub fn with_meter(self, meter: CacheMeter) -> Self {
        Self { meter, ..self }
    }

    pub fn layout(&self) -> &Layout {
        &self.options.layout
    }

    /// The document of a part of the service at an address. `None` if the caller can't see that part.
    pub fn document(&self, address: &Address, part: &DocumentOf, visibility: &Visibility, mode: Mode) -> Option<Document> {
        self.cached(&self.current.snapshot(), visibility, address, part, mode, &Bound::default())
    }

    /// Whether a document would have too many tools. Documents with too many are large, and take long to compose.
    ///
    /// # Errors
    /// [`TooManyTools`]
    pub fn check_size(&self, view: &View, address: &Address, part: &DocumentOf, mode: Mode, bound: &Bound) -> Result<(), TooManyTools> {
        let Some(max_tools) = self.options.max_tools.filter(|most| view.catalog.tools().len() > *most) else { return Ok(()) };
        let tools = Self::listed(&view.catalog, address, &view.visibility, mode, bound);
        let tools = match &*self.part(part) {
            DocumentOf::Root => tools.len(),
            DocumentOf::Server(name) => tools.iter().filter(|tool| tool.id.server == *name).count(),
        };
        if tools > max_tools { Err(TooManyTools { tools, max_tools }) } else { Ok(()) }
    }

    /// Like [`Self::document`], for a request's view and with bound tools.
    pub fn document_with(&self, view: &View, address: &Address, part: &DocumentOf, mode: Mode, bound: &Bound) -> Option<Document> {
        self.cached(&view.catalog, &view.visibility, address, part, mode, bound)
    }

    fn cached(
        &self,
        catalog: &Catalog,
        visibility: &Visibility,
        address: &Address,
        part: &DocumentOf,
        mode: Mode,
        bound: &Bound,
    ) -> Option<Document> {
        let part = &*self.part(part);
        if let DocumentOf::Server(name) = part
            && !catalog.server(name.as_str()).is_some_and(|server| visibility.shows(server))
        {
            return None;
        }
        let key = Key {
            catalog: catalog.version(),
            visibility: visibility.clone(),
            address: address.clone(),
            part: part.clone(),
            mode,
            bound: Arc::clone(bound),
        };
        if let Some(known) = self.documents.get(&key) {
            self.meter.hits(1);
            return Some(known);
        }
        self.meter.misses(1);
        Some(self.documents.get_with(key, || self.compose(catalog, address, part, visibility, mode, bound)))
    }

    /// What is published at this part of the service.
    fn part<'a>(&self, part: &'a DocumentOf) -> Cow<'a, DocumentOf> {
        match (part, &self.options.layout.single) {
            (DocumentOf::Root, Some(single)) => Cow::Owned(DocumentOf::Server(single.clone())),
            (part, _) => Cow::Borrowed(part),
        }
    }

    /// The meta-tools for this caller in documents of this mode.
    pub fn meta_tools(catalog: &Catalog, visibility: &Visibility, mode: Mode) -> Vec<MetaToolDefinition> {
        let count = |server: &CatalogServer| server.tools.iter().filter(|tool| visibility.allows(tool)).count();
        let servers = summarize_servers(catalog.servers().iter().map(|server| (server, count(server))));
        let names_toolsets = MetaTool::LoadToolset.is_in(mode);
        let toolsets = if names_toolsets { summarize_toolsets(Groups::visible(catalog, visibility).known()) } else { String::new() };
        MetaTool::ALL.iter().filter(|tool| tool.is_in(mode)).map(|tool| tool.definition(&servers, &toolsets)).collect()
    }

    /// The tools that an address lists in this mode: its own tools, followed by the bound ones.
    pub fn listed<'a>(catalog: &'a Catalog, address: &Address, visibility: &Visibility, mode: Mode, bound: &Bound) -> Vec<&'a Arc<Tool>> {
        let mut tools: Vec<&Arc<Tool>> = Vec::new();
        if mode == Mode::Full || *address != Address::Whole {
            tools.extend(catalog.visible(visibility).filter(|tool| address.shows(tool, visibility, mode)));
        }
        let mut known: HashSet<&OperationId> = tools.iter().map(|tool| &tool.operation_id).collect();
        let more = bound.iter().filter_map(|name| catalog.operation(name.as_str())).filter(|tool| visibility.allows(tool));
        tools.extend(more.filter(|tool| known.insert(&tool.operation_id)));
        tools
    }

    fn compose(
        &self,
        catalog: &Catalog,
        address: &Address,
        part: &DocumentOf,
        visibility: &Visibility,
        mode: Mode,
        bound: &Bound,
    ) -> Document {
        let server = match part {
            DocumentOf::Root => None,
            DocumentOf::Server(name) => catalog.server(name.as_str()),
        };
        let naming = server.map_or(Naming::Flat, |_| self.options.layout.naming);
        let mut items = Vec::new();
        if naming == Naming::Flat || mode != Mode::Full {
            items.extend(Self::meta_tools(catalog, visibility, mode).iter().map(MetaToolDefinition::path_item));
        }
        let tools: Vec<&Tool> = Self::listed(catalog, address, visibility, mode, bound)
            .into_iter()
            .map(AsRef::as_ref)
            .filter(|tool| server.is_none_or(|server| tool.id.server == server.name))
            .collect();
        if !tools.is_empty() {
            let prefix = &self.options.layout.prefix;
            let path = |tool: &Tool| match server {
                Some(_) => document::tool_path_on_server(tool),
                None => format!("{prefix}{}", document::tool_path(tool)),
            };
            match naming {
                Naming::Flat => items.extend(tools.iter().map(|tool| document::path_item(&path(tool), &document::tool_operation(tool)))),
                Naming::Mcpo => items.extend(mcpo_items(&tools)),
            }
        }
        let options = &self.options;
        let description = match server {
            Some(server) => self.description(server),
            None => self.description_of_address(address),
        };
        let layout = options.layout.below(&address.prefix());
        let base = match server {
            Some(server) => layout.server(&server.name),
            None => layout.root_path,
        };
        let title_of_address = match address {
            Address::Toolset(name) => name.as_str(),
            Address::Whole | Address::Session(_) => options.title.as_deref().unwrap_or("Toolsieve"),
        };
        let heading = Heading {
            title: server.map_or(title_of_address, |server| self.title(server)),
            version: server.map_or(options.version.as_deref(), |server| server.version.as_deref()).unwrap_or(match naming {
                Naming::Flat => env!("CARGO_PKG_VERSION"),
                Naming::Mcpo => "1.0",
            }),
            description: &description,
            secured: options.secured,
            base: Some(base.as_str()).filter(|base| !base.is_empty()),
        };
        let body = document::compose(&heading, items.iter().map(String::as_str));
        let etag = format!("\"{}\"", Fingerprint::of_text(&body).digits(32));
        Document { body: body.into(), etag: etag.into() }
    }

    fn title<'a>(&'a self, server: &'a CatalogServer) -> &'a str {
        let own = match self.options.layout.naming {
            Naming::Flat => server.title.as_deref(),
            Naming::Mcpo => server.program.as_deref().or(self.options.title.as_deref()),
        };
        own.filter(|title| !title.is_empty()).unwrap_or(server.name.as_str())
    }

    fn description_of_address(&self, address: &Address) -> String {
        match address {
            Address::Whole => self.options.description.clone().unwrap_or_else(|| "All tools behind Toolsieve".to_owned()),
            Address::Toolset(name) => {
                let toolsets = self.current.toolsets();
                let own = toolsets.get(name).map(|definition| definition.description.clone()).filter(|text| !text.is_empty());
                own.unwrap_or_else(|| format!("The tools of the toolset {name}"))
            }
            Address::Session(_) => "The tools of a session".to_owned(),
        }
    }

    fn description(&self, server: &CatalogServer) -> String {
        match self.options.layout.naming {
            Naming::Flat => document::server_description(server),
            Naming::Mcpo => match server.instructions.as_deref().filter(|text| !text.is_empty()) {
                Some(instructions) => instructions.to_owned(),
                None => format!("{} MCP Server", self.title(server)),
            },
        }
    }
}

/// The path items of a server's tools, with mcpo's names.
fn mcpo_items(tools: &[&Tool]) -> Vec<String> {
    let names: Vec<&str> = tools.iter().map(|tool| &*tool.id.name).collect();
    let items = tools.iter().zip(mcpo::operation_ids(&names)).map(|(tool, id)| {
        let mut operation = document::tool_operation(tool);
        if let Some(operation) = operation.as_object_mut() {
            operation.insert("operationId".into(), id.into());
            operation.insert("summary".into(), mcpo::summary(&tool.label).into());
        }
        document::path_item(&document::tool_path_on_server(tool), &operation)
    });
    items.collect()
}
