//! Announces new tools to the index before their texts are embedded.

use std::collections::HashMap;
use std::sync::Arc;

use ahash::RandomState;
use tokio_util::sync::CancellationToken;

use crate::domain::catalog::catalog::Catalog;
use crate::domain::catalog::tool::ToolId;
use crate::domain::selection::enrichment::Enrichments;
use crate::domain::selection::relevance::SparseVector;
use crate::domain::text::canonical::Fingerprint;
use crate::service::catalog::indexing::Indexing;
use crate::service::ports::IndexDocument;

/// Caches term weights by tool and version, so that only new tools are tokenized. Enrichments are not part of the version.
type Words = HashMap<(ToolId, Fingerprint), SparseVector, RandomState>;

impl Indexing {
    /// Follows the catalog, the policy and the enrichments in the index until `stop`. Combines changes that arrive together. Words
    /// of enrichments are announced too, because an announcement ends once the index contains the same words.
    pub(super) async fn announce_changes(&self, stop: &CancellationToken) {
        let mut changes = self.current.changes();
        changes.mark_changed();
        let mut enriched = self.enrichments.subscribe();
        let mut words = Words::default();
        loop {
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                changed = enriched.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    words.clear();
                }
                () = stop.cancelled() => return,
            }
            let enrichments = Arc::clone(&enriched.borrow());
            let catalog = self.current.snapshot();
            catalog.learn_texts(self.lexical.analyzer());
            self.index.announce(self.documents(&catalog, &enrichments, &mut words));
            // Let waiting tasks run, such as the index itself.
            tokio::task::yield_now().await;
        }
    }

    fn documents(&self, catalog: &Catalog, enrichments: &Enrichments, words: &mut Words) -> Vec<IndexDocument> {
        let classes = self.current.classes();
        let mut known = std::mem::take(words);
        let documents = catalog.tools().iter().map(|tool| {
            let key = (tool.id.clone(), tool.version);
            let sparse = known.remove(&key).unwrap_or_else(|| self.words(tool, enrichments));
            words.insert(key, sparse.clone());
            IndexDocument { tool: tool.id.clone(), class: classes.of(tool).unwrap_or_default(), dense: Vec::new(), sparse }
        });
        documents.collect()
    }
}
