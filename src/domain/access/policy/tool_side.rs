//! The conditions of one rule on tools, for rules that are evaluated one by one.

use crate::domain::access::rule::Rule;
use crate::domain::access::rule::pattern::{Patterns, ToolPatterns};
use crate::domain::catalog::hints::{self, ToolHints};
use crate::domain::catalog::tool::{OperationId, ToolId};

/// A rule's conditions on tools.
#[derive(Debug)]
pub(super) struct ToolSide {
    pub(super) servers: Patterns,
    tools: ToolPatterns,
    tags: Patterns,
    pub(super) toolsets: Patterns,
    /// For each combination of hints, whether the annotations match.
    hints: Vec<bool>,
}

impl ToolSide {
    pub(super) fn of(rule: &Rule) -> Self {
        Self {
            servers: Patterns::new(&rule.servers),
            tools: ToolPatterns::new(&rule.tools, rule.effect.reach()),
            tags: Patterns::new(&rule.tags),
            toolsets: Patterns::new(&rule.toolsets),
            hints: (0..hints::COMBINATIONS).map(|hints| hints::hold(&rule.annotations, hints)).collect(),
        }
    }

    /// Whether all conditions on the tool itself match. Toolset conditions are checked elsewhere.
    pub(super) fn fits(&self, id: &ToolId, published: &OperationId, hints: &ToolHints) -> bool {
        self.hints[hints.combination()]
            && self.servers.hold([id.server.as_str()])
            && self.tools.hold(id, published)
            && self.tags.hold(hints.tags())
    }
}
