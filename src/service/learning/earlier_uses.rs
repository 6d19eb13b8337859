//! Counts of what was learned with another embedding model.

use std::collections::{HashMap, HashSet};

use parking_lot::RwLock;

use crate::domain::catalog::tool::ToolId;
use crate::domain::learning::scope::{Audience, Scope};
use crate::service::ports::{EarlierUse, Forgotten};

/// For each caller's own scope, the number of messages that led to a tool.
#[derive(Default)]
pub(super) struct EarlierUses {
    counts: RwLock<HashMap<Scope, HashMap<ToolId, u32>>>,
}

impl EarlierUses {
    /// Counts what isn't learned again.
    pub(super) fn count(&self, uses: &[EarlierUse]) {
        let mut counts: HashMap<Scope, HashMap<ToolId, u32>> = HashMap::new();
        let mut seen: HashSet<(&str, &ToolId)> = HashSet::new();
        for one in uses.iter().filter(|one| one.evidence.kind.weight() > 0.0) {
            if seen.insert((&one.message, &one.evidence.tool))
                && let Some(own) = one.scopes.iter().find(|scope| scope.is_own())
            {
                *counts.entry(own.clone()).or_default().entry(one.evidence.tool.clone()).or_default() += 1;
            }
        }
        *self.counts.write() = counts;
    }

    pub(super) fn forget(&self, forgotten: &Forgotten) {
        let mut counts = self.counts.write();
        counts.retain(|scope, _| {
            let is_callers =
                matches!((forgotten, &scope.audience), (Forgotten::Caller(id), Audience::Caller(own)) if **own == *id.as_str());
            !is_callers && !forgotten.has_scope(scope) && *forgotten != Forgotten::All
        });
        if let Forgotten::Tool(tool) = forgotten {
            for of_scope in counts.values_mut() {
                of_scope.remove(tool);
            }
        }
    }

    /// The counts of a scope; `None` if there are none.
    pub(super) fn of(&self, scope: &Scope) -> Option<HashMap<ToolId, u32>> {
        self.counts.read().get(scope).cloned()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.counts.read().is_empty()
    }
}
