//! The chat's set: what a chat was offered stays offered.
//!
//! A provider's prompt cache lives as long as the tools array keeps its prefix, so tools are appended in stable
//! order. Over the budget the oldest that were never called go first.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::domain::principal::PrincipalId;
use crate::domain::tool::ToolId;

/// How many tools a chat keeps.
pub const DEFAULT_CHAT_BUDGET: usize = 24;

/// A chat belongs to a principal: the same id under another key is another chat.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChatKey {
    pub principal: PrincipalId,
    pub chat: String,
}

/// The tools of one chat, in the order in which they were first offered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatSet {
    tools: Vec<ChatTool>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatTool {
    pub tool: ToolId,
    /// Whether the chat called it: called tools stay.
    pub called: bool,
}

impl ChatSet {
    #[must_use]
    pub fn tools(&self) -> &[ChatTool] {
        &self.tools
    }

    #[must_use]
    pub fn contains(&self, tool: &ToolId) -> bool {
        self.tools.iter().any(|entry| entry.tool == *tool)
    }

    /// Appends what is new, marks what was called, and drops over the budget. Returns the dropped tools.
    ///
    /// Dropped are the oldest that were neither called nor offered by this very update, then the last of those
    /// offered; called tools stay even when they alone exceed the budget.
    pub fn update(&mut self, offered: &[ToolId], called: &HashSet<ToolId>, budget: usize) -> Vec<ToolId> {
        for entry in &mut self.tools {
            entry.called |= called.contains(&entry.tool);
        }
        for tool in offered {
            if !self.contains(tool) {
                self.tools.push(ChatTool { tool: tool.clone(), called: called.contains(tool) });
            }
        }
        let mut excess = self.tools.len().saturating_sub(budget);
        let mut dropped = Vec::new();
        self.tools.retain(|entry| {
            let keep = excess == 0 || entry.called || offered.contains(&entry.tool);
            if !keep {
                excess -= 1;
                dropped.push(entry.tool.clone());
            }
            keep
        });
        while excess > 0
            && let Some(last) = self.tools.iter().rposition(|entry| !entry.called)
        {
            excess -= 1;
            dropped.push(self.tools.remove(last).tool);
        }
        dropped
    }

    /// Removes tools at once.
    pub fn remove(&mut self, tools: &HashSet<ToolId>) {
        self.tools.retain(|entry| !tools.contains(&entry.tool));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::ChatSet;
    use crate::domain::tool::ToolId;

    fn ids(names: &[&str]) -> Vec<ToolId> {
        names.iter().map(|name| ToolId::new("s", *name)).collect()
    }

    fn names(set: &ChatSet) -> Vec<&str> {
        set.tools().iter().map(|entry| &*entry.tool.name).collect()
    }

    #[test]
    fn what_was_offered_stays_in_its_order() {
        let mut set = ChatSet::default();
        set.update(&ids(&["a", "b"]), &HashSet::new(), 24);
        let dropped = set.update(&ids(&["c", "a"]), &HashSet::new(), 24);
        assert_eq!(names(&set), ["a", "b", "c"]);
        assert!(dropped.is_empty());
    }

    #[test]
    fn over_the_budget_the_oldest_never_called_go_first() {
        let mut set = ChatSet::default();
        set.update(&ids(&["a", "b", "c"]), &HashSet::new(), 3);
        let called: HashSet<ToolId> = ids(&["a"]).into_iter().collect();
        let dropped = set.update(&ids(&["d"]), &called, 3);
        assert_eq!(names(&set), ["a", "c", "d"]);
        assert_eq!(dropped, ids(&["b"]));
    }

    #[test]
    fn called_tools_stay_even_over_the_budget() {
        let mut set = ChatSet::default();
        let all = ids(&["a", "b", "c"]);
        let dropped = set.update(&all, &all.iter().cloned().collect(), 2);
        assert_eq!(names(&set), ["a", "b", "c"]);
        assert!(dropped.is_empty());
    }

    #[test]
    fn one_message_never_exceeds_the_budget_with_tools_that_nobody_called() {
        let mut set = ChatSet::default();
        set.update(&ids(&["a", "b", "c", "d"]), &HashSet::new(), 2);
        assert_eq!(names(&set), ["a", "b"]);
    }
}
