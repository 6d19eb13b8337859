//! Lets admins read and change enrichments.

use std::sync::Arc;

use serde::Serialize;

use crate::domain::access::management::{ManagedBy, ManagedInFile};
use crate::domain::catalog::hidden_text::visible;
use crate::domain::catalog::tool::{Tool, ToolId};
use crate::domain::selection::enrichment::{Author, Enrichment, Written, is_used, key};
use crate::service::catalog::current::CurrentCatalog;
use crate::service::catalog::enrich::feed::EnrichmentFeed;
use crate::service::catalog::enrich::in_force;
use crate::service::paging::next_offset;
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
    /// The type of author: `model`, `admin` or `file`.
    source: &'static str,
    /// The name of the language model, if one is the author.
    model: Option<String>,
    /// Where the enrichment is managed; `null` if a language model is the author.
    managed_by: Option<ManagedBy>,
    function: String,
    tags: Vec<String>,
    queries: Vec<String>,
    /// Notes about the request that stored it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<&'static str>,
}

/// Why an enrichment was not changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EnrichmentError {
    #[error(transparent)]
    OfFile(#[from] ManagedInFile),
    #[error(transparent)]
    Store(#[from] StoreError),
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
        let of_files = self.feed.of_files();
        let mut written = in_force(&catalog, self.store.as_ref(), self.feed.model(), &of_files).await?;
        let all: Vec<(&Arc<Tool>, Written)> = catalog.tools().iter().filter_map(|tool| Some((tool, written.remove(&key(tool))?))).collect();
        let total = all.len();
        Ok(Page {
            enrichment: all.into_iter().skip(offset).take(limit).map(|(tool, written)| self.entry(tool, written)).collect(),
            total,
            tools: catalog.tools().len(),
            model_texts_used: is_used(total, catalog.tools().len()),
            next: next_offset(offset, limit, total),
        })
    }

    /// The enrichment of a tool; `None` if the tool is unknown or has none.
    pub(crate) async fn get(&self, id: &ToolId) -> Result<Option<Entry>, StoreError> {
        let Some(tool) = self.tool(id) else { return Ok(None) };
        Ok(self.written(&tool).await?.map(|written| self.entry(&tool, written)))
    }

    /// Stores an admin's enrichment, which overrides those of models. `None` if the tool is unknown.
    pub(crate) async fn put(&self, id: &ToolId, enrichment: Enrichment) -> Result<Option<Entry>, EnrichmentError> {
        self.feed.check_given(id)?;
        let Some(tool) = self.tool(id) else { return Ok(None) };
        let written = Written { author: Author::Admin, enrichment };
        self.store.save_enrichment(&key(&tool), &written).await?;
        self.publish();
        Ok(Some(self.entry(&tool, written)))
    }

    /// Deletes the enrichment in force. After an admin's is deleted, a model's applies again; after a model's, the model
    /// writes a new one. Returns whether there was one.
    pub(crate) async fn remove(&self, id: &ToolId) -> Result<bool, EnrichmentError> {
        self.feed.check_given(id)?;
        let Some(tool) = self.tool(id) else { return Ok(false) };
        let Some(written) = self.written(&tool).await? else { return Ok(false) };
        let removed = self.store.remove_enrichment(&key(&tool), &written.author).await?;
        self.publish();
        Ok(removed)
    }

    /// Searches use the stored texts as soon as possible, even if the index has just been built.
    pub(crate) fn publish(&self) {
        self.feed.publish();
        self.current.hurry();
    }

    fn tool(&self, id: &ToolId) -> Option<Arc<Tool>> {
        self.current.snapshot().tool(id).cloned()
    }

    async fn written(&self, tool: &Tool) -> Result<Option<Written>, StoreError> {
        if let Some(enrichment) = self.feed.of_files().get(&tool.id) {
            return Ok(Some(Written { author: Author::Admin, enrichment: enrichment.clone() }));
        }
        let key = key(tool);
        Ok(self.store.enrichments(self.feed.model(), &[key]).await?.remove(&key))
    }

    fn entry(&self, tool: &Tool, Written { author, enrichment }: Written) -> Entry {
        let (source, model, managed_by) = match author {
            Author::Admin if self.feed.check_given(&tool.id).is_err() => ("file", None, Some(ManagedBy::File)),
            Author::Admin => ("admin", None, Some(ManagedBy::Api)),
            Author::Model(name) => ("model", Some(name), None),
        };
        Entry {
            name: tool.operation_id.as_str().to_owned(),
            server: tool.id.server.to_string(),
            tool: visible(&tool.id.name),
            source,
            model,
            managed_by,
            function: enrichment.function,
            tags: enrichment.tags,
            queries: enrichment.queries,
            warnings: Vec::new(),
        }
    }
}
