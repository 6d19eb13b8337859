//! Lets admins read and change enrichments.

use std::sync::Arc;

use serde::Serialize;

use crate::domain::catalog::hidden_text::visible;
use crate::domain::catalog::tool::{Tool, ToolId};
use crate::domain::selection::enrichment::{Author, Enrichment, Written, is_used, key};
use crate::service::catalog::current::CurrentCatalog;
use crate::service::catalog::enrich::feed::EnrichmentFeed;
use crate::service::catalog::enrich::in_force;
use crate::service::ports::{EnrichmentStore, StoreError};

pub(crate) struct EnrichmentAdmin {
    pub current: Arc<CurrentCatalog>,
    pub store: Arc<dyn EnrichmentStore>,
    pub feed: Arc<EnrichmentFeed>,
}

/// The enrichment of one tool.
#[derive(Debug, Serialize)]
pub(crate) struct Entry {
    /// The published name of the tool.
    name: String,
    server: String,
    tool: String,
    /// The type of author: `model` or `admin`.
    source: &'static str,
    /// The name of the language model, if one is the author.
    model: Option<String>,
    function: String,
    tags: Vec<String>,
    queries: Vec<String>,
    /// Notes about the request that stored it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<&'static str>,
}

/// A page of the list of enrichments.
#[derive(Debug, Serialize)]
pub(crate) struct Page {
    enrichment: Vec<Entry>,
    /// Total number of tools with an enrichment.
    total: usize,
    /// Total number of tools.
    tools: usize,
    /// Whether searches use the texts of the language model. They always use those of admins.
    model_texts_used: bool,
    /// The offset of the next page, if there is one.
    next: Option<usize>,
}

impl Entry {
    /// Adds a note about the request.
    pub(crate) fn warn(&mut self, warning: &'static str) {
        self.warnings.push(warning);
    }
}

impl EnrichmentAdmin {
    /// Lists the tools with an enrichment, sorted by server and name.
    pub(crate) async fn list(&self, offset: usize, limit: usize) -> Result<Page, StoreError> {
        let catalog = self.current.snapshot();
        let mut written = in_force(&catalog, self.store.as_ref(), self.feed.model()).await?;
        let all: Vec<(&Arc<Tool>, Written)> = catalog.tools().iter().filter_map(|tool| Some((tool, written.remove(&key(tool))?))).collect();
        let total = all.len();
        let end = offset.saturating_add(limit);
        Ok(Page {
            enrichment: all.into_iter().skip(offset).take(limit).map(|(tool, written)| entry(tool, written)).collect(),
            total,
            tools: catalog.tools().len(),
            model_texts_used: is_used(total, catalog.tools().len()),
            next: Some(end).filter(|end| *end < total),
        })
    }

    /// The enrichment of a tool; `None` if the tool is unknown or has none.
    pub(crate) async fn get(&self, id: &ToolId) -> Result<Option<Entry>, StoreError> {
        let Some(tool) = self.tool(id) else { return Ok(None) };
        Ok(self.written(&tool).await?.map(|written| entry(&tool, written)))
    }

    /// Stores an admin's enrichment, which overrides those of models. `None` if the tool is unknown.
    pub(crate) async fn put(&self, id: &ToolId, enrichment: Enrichment) -> Result<Option<Entry>, StoreError> {
        let Some(tool) = self.tool(id) else { return Ok(None) };
        let written = Written { author: Author::Admin, enrichment };
        self.store.save_enrichment(&key(&tool), &written).await?;
        self.feed.publish();
        Ok(Some(entry(&tool, written)))
    }

    /// Deletes the enrichment in force. After an admin's is deleted, a model's applies again; after a model's, the model
    /// writes a new one. Returns whether there was one.
    pub(crate) async fn remove(&self, id: &ToolId) -> Result<bool, StoreError> {
        let Some(tool) = self.tool(id) else { return Ok(false) };
        let Some(written) = self.written(&tool).await? else { return Ok(false) };
        let removed = self.store.remove_enrichment(&key(&tool), &written.author).await?;
        self.feed.publish();
        Ok(removed)
    }

    fn tool(&self, id: &ToolId) -> Option<Arc<Tool>> {
        self.current.snapshot().tool(id).cloned()
    }

    async fn written(&self, tool: &Tool) -> Result<Option<Written>, StoreError> {
        let key = key(tool);
        Ok(self.store.enrichments(self.feed.model(), &[key]).await?.remove(&key))
    }
}

fn entry(tool: &Tool, Written { author, enrichment }: Written) -> Entry {
    let (source, model) = match author {
        Author::Admin => ("admin", None),
        Author::Model(name) => ("model", Some(name)),
    };
    Entry {
        name: tool.operation_id.as_str().to_owned(),
        server: tool.id.server.to_string(),
        tool: visible(&tool.id.name),
        source,
        model,
        function: enrichment.function,
        tags: enrichment.tags,
        queries: enrichment.queries,
        warnings: Vec::new(),
    }
}
