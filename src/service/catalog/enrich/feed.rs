//! What the index, the language model and the admin's routes tell each other.

use tokio::sync::watch;

/// Counts what has happened; whoever follows sees that there is news, not how much.
#[derive(Debug, Default)]
pub struct EnrichmentFeed {
    /// Whose texts are in force, beside an admin's.
    model: Option<String>,
    writings: watch::Sender<u64>,
    completions: watch::Sender<u64>,
}

impl EnrichmentFeed {
    /// With a model, what it writes counts.
    #[must_use]
    pub fn new(model: Option<String>) -> Self {
        Self { model, ..Self::default() }
    }

    #[must_use]
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// Says that there is something written that the index does not have.
    pub fn publish(&self) {
        self.writings.send_modify(|count| *count += 1);
    }

    /// Changes whenever something was written.
    #[must_use]
    pub fn writings(&self) -> watch::Receiver<u64> {
        self.writings.subscribe()
    }

    /// Says that the index holds the whole catalog, with everything that was written.
    pub fn complete(&self) {
        self.completions.send_modify(|count| *count += 1);
    }

    /// Changes whenever the index has become complete.
    #[must_use]
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
    fn who_comes_late_hears_of_a_complete_index() {
        let feed = EnrichmentFeed::default();
        assert!(!feed.completions().has_changed().unwrap());
        feed.complete();
        assert!(feed.completions().has_changed().unwrap());
        assert!(!feed.writings().has_changed().unwrap());
    }
}
