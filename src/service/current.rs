//! What is in force at the moment: the catalog, and the settings that can change while the service runs.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::watch;

use crate::domain::catalog::Catalog;
use crate::settings::SelectionSettings;

/// The section `[selection]` as it is now.
pub type LiveSelection = Arc<ArcSwap<SelectionSettings>>;

/// Holds the present [`Catalog`]. Readers take a snapshot and keep it for the whole use case; a change swaps in a new
/// one and never touches theirs.
pub struct CurrentCatalog {
    catalog: ArcSwap<Catalog>,
    version: watch::Sender<u64>,
}

impl Default for CurrentCatalog {
    fn default() -> Self {
        let catalog = Catalog::default();
        let (version, _) = watch::channel(catalog.version());
        Self { catalog: ArcSwap::from_pointee(catalog), version }
    }
}

impl CurrentCatalog {
    #[must_use]
    pub fn snapshot(&self) -> Arc<Catalog> {
        self.catalog.load_full()
    }

    /// Tells of every change; holds the version of the catalog.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    pub fn swap(&self, catalog: Catalog) {
        let version = catalog.version();
        self.catalog.store(Arc::new(catalog));
        self.version.send_replace(version);
    }
}
