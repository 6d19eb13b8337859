//! Notifications between the index, the language model that enriches tools, and the admin routes. Also holds the enrichments in
//! the settings file.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::watch;

use crate::domain::access::management::ManagedInFile;
use crate::domain::catalog::hidden_text::visible;
use crate::domain::catalog::tool::ToolId;
use crate::domain::selection::enrichment::Enrichment;
use crate::settings::LiveSettings;

/// Enrichments in the settings file. They take precedence over all others.
pub(crate) type FileEnrichments = BTreeMap<ToolId, Enrichment>;

/// Notifies receivers of new enrichments and of a complete index. They learn that something changed, but not how often.
#[derive(Debug, Default)]
pub struct EnrichmentFeed {
    /// The language model whose enrichments search uses, in addition to those of admins.
    model: Option<String>,
    of_files: ArcSwap<FileEnrichments>,
    /// The name of the settings file.
    file: ArcSwap<String>,
    writings: watch::Sender<u64>,
    completions: watch::Sender<u64>,
}

impl EnrichmentFeed {
    /// `model` is the language model whose enrichments search uses.
    pub fn new(model: Option<String>) -> Self {
        Self { model, ..Self::default() }
    }

    /// Applies changed settings.
    pub fn configure(&self, live: &LiveSettings) {
        self.file.store(Arc::new(live.file.to_string()));
        if **self.of_files.load() != live.tools.enrichments {
            self.of_files.store(Arc::new(live.tools.enrichments.clone()));
            self.publish();
        }
    }

    pub fn of_files(&self) -> Arc<FileEnrichments> {
        self.of_files.load_full()
    }

    /// Checks that no file defines the enrichment of this tool.
    ///
    /// # Errors
    /// [`ManagedInFile`]
    pub fn check_given(&self, tool: &ToolId) -> Result<(), ManagedInFile> {
        if !self.of_files.load().contains_key(tool) {
            return Ok(());
        }
        let file: Arc<str> = self.file.load().as_str().into();
        Err(ManagedInFile::new(format_args!("the text for searches of {}", visible(&tool.to_string())), &file))
    }

    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// Reports an enrichment that is not in the index yet.
    pub fn publish(&self) {
        self.writings.send_modify(|count| *count += 1);
    }

    /// A receiver that is notified of new enrichments.
    pub fn writings(&self) -> watch::Receiver<u64> {
        self.writings.subscribe()
    }

    /// Reports that the index contains the whole catalog with all enrichments.
    pub fn complete(&self) {
        self.completions.send_modify(|count| *count += 1);
    }

    /// A receiver that is notified when the index has become complete.
    pub fn completions(&self) -> watch::Receiver<u64> {
        let mut completions = self.completions.subscribe();
        if *completions.borrow() > 0 {
            completions.mark_changed();
        }
        completions
    }
}

#[cfg(test)]
mod tests {
    use super::EnrichmentFeed;

    #[test]
    fn a_late_receiver_gets_the_complete_index() {
        let feed = EnrichmentFeed::default();
        assert!(!feed.completions().has_changed().unwrap());
        feed.complete();
        assert!(feed.completions().has_changed().unwrap());
        assert!(!feed.writings().has_changed().unwrap());
    }
}
