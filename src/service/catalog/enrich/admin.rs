//! Enrichments, for an admin to read and change.

use std::sync::Arc;

use serde::Serialize;

use crate::domain::catalog::hidden_text::visible;
use crate::domain::catalog::tool::{Tool, ToolId};
use crate::domain::selection::enrichment::{Author, Enrichment, Written, key};
use crate::service::catalog::current::CurrentCatalog;
use crate::service::catalog::enrich::feed::EnrichmentFeed;
use crate::service::catalog::enrich::in_force;
use crate::service::ports::{EnrichmentStore, StoreError};

pub(crate) struct EnrichmentAdmin {
    pub current: Arc<CurrentCatalog>,
    pub store: Arc<dyn EnrichmentStore>,
    pub feed: Arc<EnrichmentFeed>,
}

/// The enrichment in force for one tool.
#[derive(Debug, Serialize)]
pub(crate) struct Entry {
    /// The published name of the tool.
    name: String,
    server: String,
    tool: String,
    /// `model` or `admin`.
    source: &'static str,
    /// The language model that wrote it.
    model: Option<String>,
    context: String,
    queries: Vec<String>,
}

/// A page of the list.
#[derive(Debug, Serialize)]
pub(crate) struct Page {
    enrichment: Vec<Entry>,
    /// How many tools have an enrichment.
    total: usize,
    /// How many tools there are.
    tools: usize,
    /// The offset of the next page, if there is one.
    next: Option<usize>,
}

impl EnrichmentAdmin {
    /// The tools with an enrichment, ordered by server and name.
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
            next: Some(end).filter(|end| *end < total),
        })
    }

    /// `None`: there is no such tool, or it has no enrichment.
    pub(crate) async fn get(&self, id: &ToolId) -> Result<Option<Entry>, StoreError> {
        let Some(tool) = self.tool(id) else { return Ok(None) };
        Ok(self.written(&tool).await?.map(|written| entry(&tool, written)))
    }

    /// Writes as the admin, whose texts take precedence over every model's. `None`: there is no such tool.
    pub(crate) async fn put(&self, id: &ToolId, enrichment: Enrichment) -> Result<Option<Entry>, StoreError> {
        let Some(tool) = self.tool(id) else { return Ok(None) };
        let written = Written { author: Author::Admin, enrichment };
        self.store.save_enrichment(&key(&tool), &written).await?;
        self.feed.publish();
        Ok(Some(entry(&tool, written)))
    }

    /// Removes the enrichment in force: an admin's, so that a model's applies again, or else the model's, so that the model is
    /// asked again. Returns whether there was one.
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
        context: enrichment.context,
        queries: enrichment.queries,
    }
}
