//! What was learned, by tool: for the pages of administrators and of the callers themselves. No text of a message is kept, so none is
//! shown.

use std::collections::BTreeMap;
use std::time::SystemTime;

use crate::domain::catalog::tool::ToolId;
use crate::domain::learning::evidence::{EvidenceKind, Minute};
use crate::domain::learning::scope::{Audience, Scope};
use crate::service::learning::learn::Learning;

/// The evidence on a tool, over several scopes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LearnedTool {
    pub tool: ToolId,
    /// Number of pieces by kind. A use counts once, although it may count in several scopes.
    pub kinds: BTreeMap<EvidenceKind, usize>,
    /// Number of callers with evidence on the tool. Evidence whose callers' own scopes were forgotten has none.
    pub callers: usize,
    /// The time of the oldest piece.
    pub since: SystemTime,
    /// The time of the newest piece.
    pub newest: SystemTime,
}

impl LearnedTool {
    /// Number of pieces of evidence.
    pub fn pieces(&self) -> usize {
        self.kinds.values().sum()
    }
}

#[derive(Default)]
struct Sum {
    /// Pieces in the callers' own scopes.
    own: BTreeMap<EvidenceKind, usize>,
    /// Pieces that count for all callers of a key.
    shared: BTreeMap<EvidenceKind, usize>,
    callers: usize,
    /// The own scope that was counted last. The evidence of a scope comes in one run.
    last: Option<Scope>,
    since: Option<Minute>,
    newest: Minute,
}

impl Learning {
    /// The evidence on each tool over all scopes, most evidence first.
    pub fn tools(&self) -> Vec<LearnedTool> {
        self.tools_in(|_| true)
    }

    /// The evidence of a scope, most evidence first.
    pub fn tools_of(&self, scope: &Scope) -> Vec<LearnedTool> {
        self.tools_in(|known| known == scope)
    }

    /// The times of the oldest and the newest piece of evidence in a scope; `None` if there is none.
    pub fn span(&self, scope: &Scope) -> Option<(SystemTime, SystemTime)> {
        let mut span: Option<(Minute, Minute)> = None;
        self.memories.with(scope, |memory| {
            memory.evidence(|_, _, at| {
                let (oldest, newest) = span.unwrap_or((at, at));
                span = Some((oldest.min(at), newest.max(at)));
            });
        });
        span.map(|(oldest, newest)| (oldest.time(), newest.time()))
    }

    fn tools_in(&self, is_wanted: impl Fn(&Scope) -> bool) -> Vec<LearnedTool> {
        let mut sums: BTreeMap<ToolId, Sum> = BTreeMap::new();
        self.memories.evidence(is_wanted, |scope, tool, kind, at| {
            if !sums.contains_key(tool) {
                sums.insert(tool.clone(), Sum::default());
            }
            let Some(sum) = sums.get_mut(tool) else { return };
            match &scope.audience {
                Audience::Caller(_) => {
                    *sum.own.entry(kind).or_default() += 1;
                    if sum.last.as_ref() != Some(scope) {
                        sum.callers += 1;
                        sum.last = Some(scope.clone());
                    }
                }
                Audience::All => *sum.shared.entry(kind).or_default() += 1,
                Audience::Group(_) => {}
            }
            sum.since = Some(sum.since.map_or(at, |since| since.min(at)));
            sum.newest = sum.newest.max(at);
        });
        let mut tools: Vec<LearnedTool> = sums.into_iter().map(|(tool, sum)| sum.of(tool)).collect();
        tools.sort_by_key(|tool| std::cmp::Reverse(tool.pieces()));
        tools
    }
}

impl Sum {
    fn of(self, tool: ToolId) -> LearnedTool {
        let mut kinds = self.own;
        for (kind, count) in self.shared {
            let known = kinds.entry(kind).or_default();
            *known = count.max(*known);
        }
        let since = self.since.unwrap_or(self.newest).time();
        LearnedTool { tool, kinds, callers: self.callers, since, newest: self.newest.time() }
    }
}
