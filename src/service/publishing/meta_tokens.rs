//! Token counts of the meta-tools' definitions, per view of the catalog. The definitions contain names of servers and toolsets,
//! so a total over all of them could reveal hidden ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use moka::sync::Cache;

use crate::domain::access::visibility::Visibility;
use crate::domain::catalog::catalog::Catalog;
use crate::domain::toolsets::mode::Mode;
use crate::service::catalog::refresh::CountTokens;
use crate::service::publishing::publish::Publish;

/// Maximum number of cached views.
const KEPT: u64 = 1_000;

/// Token counts (cl100k) by name of the meta-tool.
pub(crate) type Costs = Arc<BTreeMap<&'static str, u32>>;

pub struct MetaTokens {
    count: CountTokens,
    /// Cached counts by version of the catalog and visibility.
    known: Cache<(u64, Visibility), Costs>,
}

impl MetaTokens {
    pub fn new(count: CountTokens) -> Self {
        Self { count, known: Cache::new(KEPT) }
    }

    pub fn of(&self, catalog: &Catalog, visibility: &Visibility) -> Costs {
        self.known.get_with((catalog.version(), visibility.clone()), || {
            let mut tools = Publish::meta_tools(catalog, visibility, Mode::Smart);
            tools.extend(Publish::meta_tools(catalog, visibility, Mode::Dynamic));
            let definitions: Vec<String> = tools.iter().map(|tool| tool.function().to_string()).collect();
            Arc::new(tools.iter().map(|definition| definition.tool.name()).zip((self.count)(&definitions)).collect())
        })
    }
}
