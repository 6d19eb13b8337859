//! Announces new tools to the index before their texts are embedded.

use std::collections::HashMap;

use ahash::RandomState;
use tokio_util::sync::CancellationToken;

use crate::domain::catalog::catalog::Catalog;
use crate::domain::catalog::tool::ToolId;
use crate::domain::selection::relevance::SparseVector;
use crate::domain::text::canonical::Fingerprint;
use crate::service::catalog::indexing::Indexing;
use crate::service::ports::IndexDocument;

/// Caches term weights by tool and version, so that only new tools are tokenized.
type Words = HashMap<(ToolId, Fingerprint), SparseVector, RandomState>;

impl Indexing {
    /// Follows the catalog and the policy until `stop`. Combines changes that arrive together.
    pub(super) async fn announce_changes(&self, stop: &CancellationToken) {
        let mut changes = self.current.changes();
        changes.mark_changed();
        let mut words = Words::default();
        loop {
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = stop.cancelled() => return,
            }
            let catalog = self.current.snapshot();
            catalog.learn_texts(self.lexical.analyzer());
            self.index.announce(self.documents(&catalog, &mut words));
            // Let waiting tasks run, such as the index itself.
            tokio::task::yield_now().await;
        }
    }

    fn documents(&self, catalog: &Catalog, words: &mut Words) -> Vec<IndexDocument> {
        let classes = self.current.classes();
        let mut known = std::mem::take(words);
        let documents = catalog.tools().iter().map(|tool| {
            let key = (tool.id.clone(), tool.version);
            let sparse = known.remove(&key).unwrap_or_else(|| self.lexical.document_vector(&tool.text()));
            words.insert(key, sparse.clone());
            IndexDocument { tool: tool.id.clone(), class: classes.of(tool).unwrap_or_default(), dense: Vec::new(), sparse }
        });
        documents.collect()
    }
}
