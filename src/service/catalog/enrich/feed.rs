//! Notifications between the index, the language model that enriches tools, and the admin routes.

use tokio::sync::watch;

/// Notifies receivers of new enrichments and of a complete index. They learn that something changed, but not how often.
#[derive(Debug, Default)]
pub struct EnrichmentFeed {
    /// The language model whose enrichments search uses, in addition to those of admins.
    model: Option<String>,
    writings: watch::Sender<u64>,
    completions: watch::Sender<u64>,
}

impl EnrichmentFeed {
    /// `model` is the language model whose enrichments search uses.
    pub fn new(model: Option<String>) -> Self {
        Self { model, ..Self::default() }
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
