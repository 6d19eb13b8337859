//! What the definitions of the meta-tools cost, for each view of the catalog: they say what is behind them, so that they cost
//! nothing that a caller must not know of.

use std::collections::BTreeMap;
use std::sync::Arc;

use moka::sync::Cache;

use crate::domain::access::visibility::Visibility;
use crate::domain::catalog::catalog::Catalog;
use crate::domain::toolsets::mode::Mode;
use crate::service::catalog::refresh::CountTokens;
use crate::service::publishing::publish::Publish;

/// Views that are kept.
const KEPT: u64 = 1_000;

/// By the name of the meta-tool, in cl100k tokens.
pub type Costs = Arc<BTreeMap<&'static str, u32>>;

pub struct MetaTokens {
    count: CountTokens,
    /// By the version of the catalog and the view of it.
    known: Cache<(u64, Visibility), Costs>,
}

impl MetaTokens {
    #[must_use]
    pub fn new(count: CountTokens) -> Self {
        Self { count, known: Cache::new(KEPT) }
    }

    #[must_use]
    pub fn of(&self, catalog: &Catalog, visibility: &Visibility) -> Costs {
        self.known.get_with((catalog.version(), visibility.clone()), || {
            let mut tools = Publish::meta_tools(catalog, visibility, Mode::Smart);
            tools.extend(Publish::meta_tools(catalog, visibility, Mode::Dynamic));
            let definitions: Vec<String> = tools.iter().map(|tool| tool.function().to_string()).collect();
            Arc::new(tools.iter().map(|tool| tool.name).zip((self.count)(&definitions)).collect())
        })
    }
}
