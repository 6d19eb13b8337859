//! The chat's set: tools that were offered to a chat stay offered.
//!
//! A provider's prompt cache stays valid as long as the tools array keeps its prefix. So tools are appended in stable order, and
//! only if the message needs something that the set lacks. Over the budget, the oldest tools that were never called are removed.
//! Every removal invalidates the cache, so several tools are removed at once.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::domain::access::principal::{Principal, PrincipalId, PrincipalKind};
use crate::domain::catalog::tool::ToolId;

/// Separates the id of a key from the id of a chat. No HTTP header can contain it.
const SEPARATOR: char = '\n';

/// Identifies a chat. The same chat id under another principal is another chat, and so is the one of a user for whom another key acts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChatKey {
    pub principal: PrincipalId,
    /// The id of the chat. If a named key acts for a user, the id of the key comes first: users of different keys never meet, even if
    /// both are called alike.
    pub chat: String,
}

impl ChatKey {
    pub fn of(principal: &Principal, chat: &str) -> Self {
        let key = principal.key.as_ref().filter(|_| principal.kind == PrincipalKind::User);
        let chat = match key {
            Some(key) => format!("{}{SEPARATOR}{chat}", key.id.as_str()),
            // What comes first must not look like the id of a key, which is never empty.
            None if chat.contains(SEPARATOR) => format!("{SEPARATOR}{chat}"),
            None => chat.to_owned(),
        };
        Self { principal: principal.id.clone(), chat }
    }
}

/// The tools of one chat, in the order in which they were first offered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatSet {
    tools: Vec<ChatTool>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatTool {
    pub tool: ToolId,
    /// Whether the chat called the tool. Called tools are never removed for the budget.
    pub called: bool,
}

/// The tools that a message needs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted<'a> {
    /// Tools to add if the set lacks what the message needs, best first.
    pub offered: &'a [ToolId],
    /// Tools that match the message about as well as the best one. One of them in the set is enough; empty if there is no such
    /// need.
    pub one_of: &'a [ToolId],
    /// Tools that must all be in the set.
    pub all_of: &'a [ToolId],
}

impl ChatSet {
    pub fn tools(&self) -> &[ChatTool] {
        &self.tools
    }

    pub fn contains(&self, tool: &ToolId) -> bool {
        self.tools.iter().any(|entry| entry.tool == *tool)
    }

    /// Whether the set already contains what the message needs.
    pub fn serves(&self, wanted: &Wanted<'_>) -> bool {
        let any = wanted.one_of.is_empty() || wanted.one_of.iter().any(|tool| self.contains(tool));
        any && wanted.all_of.iter().all(|tool| self.contains(tool))
    }

    /// Appends called and offered tools. Over the budget, shrinks the set to two thirds of the budget and returns the removed
    /// tools. Calls are in conversation order.
    ///
    /// The oldest tools that were neither called nor offered by this update are removed. Called tools, and tools that the
    /// current message needs, stay even over the budget.
    pub fn update(&mut self, offered: &[ToolId], called: &[ToolId], budget: usize) -> Vec<ToolId> {
        for tool in called {
            match self.tools.iter_mut().find(|entry| entry.tool == *tool) {
                Some(entry) => entry.called = true,
                None => self.tools.push(ChatTool { tool: tool.clone(), called: true }),
            }
        }
        for tool in offered {
            if !self.contains(tool) {
                self.tools.push(ChatTool { tool: tool.clone(), called: false });
            }
        }
        let room = if self.tools.len() > budget { budget - budget / 3 } else { budget };
        let mut excess = self.tools.len().saturating_sub(room);
        let mut dropped = Vec::new();
        self.tools.retain(|entry| {
            let keep = excess == 0 || entry.called || offered.contains(&entry.tool);
            if !keep {
                excess -= 1;
                dropped.push(entry.tool.clone());
            }
            keep
        });
        dropped
    }

    /// Merges with a set that another process has stored: its tools in its order, then the tools that only this process has added. Both
    /// sets were made from `base`. A tool that one of them has removed goes, unless the other has called it for the first time since.
    pub fn merge_into(&mut self, stored: Self, base: &Self) {
        let ours = std::mem::replace(self, stored);
        self.tools.retain(|entry| ours.contains(&entry.tool) || !base.tools.contains(entry));
        for entry in ours.tools {
            match self.tools.iter_mut().find(|known| known.tool == entry.tool) {
                Some(known) => known.called |= entry.called,
                None if base.tools.contains(&entry) => {}
                None => self.tools.push(entry),
            }
        }
    }

    /// Removes these tools in one step.
    pub fn remove(&mut self, tools: &HashSet<ToolId>) {
        self.tools.retain(|entry| !tools.contains(&entry.tool));
    }
}

#[cfg(test)]
mod tests {
    use super::{ChatKey, ChatSet, Wanted};
    use crate::domain::access::api_key::{KeyId, Presented};
    use crate::domain::access::principal::{GroupTable, Principal, User};
    use crate::domain::catalog::tool::ToolId;
    use crate::domain::text::canonical::Fingerprint;

    fn ids(names: &[&str]) -> Vec<ToolId> {
        names.iter().map(|name| ToolId::new("s", *name)).collect()
    }

    fn names(set: &ChatSet) -> Vec<&str> {
        set.tools().iter().map(|entry| &*entry.tool.name).collect()
    }

    /// Regression test: a user of one trusted key met the chat of another key's user with the same id.
    #[test]
    fn users_of_two_keys_have_chats_of_their_own() {
        let trusted = |id: Option<&str>| {
            let key = id.map(|id| Presented { id: KeyId::new(id), hash: Fingerprint::of_text(id) });
            Principal { vouches: true, key, ..Principal::service_key() }
        };
        let anna = |id| trusted(id).on_behalf_of(User { id: "anna".into(), ..User::default() }, &GroupTable::default());
        let [unnamed, one, other] = [None, Some("k1"), Some("k2")].map(|id| ChatKey::of(&anna(id), "c"));
        assert!(unnamed != one && one != other && one.principal == other.principal, "{one:?} {other:?}");
        assert_eq!((unnamed.chat.as_str(), ChatKey::of(&trusted(Some("k1")), "c").chat.as_str()), ("c", "c"), "stored as before");
        assert_ne!(ChatKey::of(&anna(None), &one.chat), one, "whatever the chat is called");
        assert_ne!(ChatKey::of(&anna(None), "\nc"), ChatKey::of(&anna(None), "c"));
    }

    #[test]
    fn what_was_offered_stays_in_its_order() {
        let mut set = ChatSet::default();
        set.update(&ids(&["a", "b"]), &[], 24);
        let dropped = set.update(&ids(&["c", "a"]), &[], 24);
        assert_eq!(names(&set), ["a", "b", "c"]);
        assert!(dropped.is_empty());
    }

    #[test]
    fn over_the_budget_the_oldest_never_called_go_first() {
        let mut set = ChatSet::default();
        set.update(&ids(&["a", "b", "c"]), &[], 3);
        let dropped = set.update(&ids(&["d"]), &ids(&["a"]), 3);
        assert_eq!(names(&set), ["a", "d"]);
        assert_eq!(dropped, ids(&["b", "c"]));
    }

    /// Regression test: from the 24th tool on, a chat lost tools, and thereby the provider's prompt cache, with nearly every
    /// message.
    #[test]
    fn several_go_at_once_so_that_the_next_messages_have_room() {
        let mut set = ChatSet::default();
        let names: Vec<String> = (0..60).map(|number| format!("t{number:02}")).collect();
        let mut times = 0;
        for pair in names.chunks(2) {
            let offered: Vec<ToolId> = pair.iter().map(|name| ToolId::new("s", name.as_str())).collect();
            let dropped = set.update(&offered, &[], 24);
            assert!(set.tools().len() <= 24 && (dropped.is_empty() || dropped.len() > 8), "{dropped:?}");
            times += usize::from(!dropped.is_empty());
        }
        assert_eq!(times, 4, "of 18 messages over the budget");
    }

    #[test]
    fn a_set_serves_with_one_of_what_is_as_good_and_all_that_is_needed() {
        let mut set = ChatSet::default();
        assert!(set.serves(&Wanted::default()), "a message that needs nothing");
        set.update(&ids(&["a", "b"]), &[], 24);
        let (one, none, all) = (ids(&["x", "b"]), ids(&["x"]), ids(&["a", "x"]));
        assert!(set.serves(&Wanted { one_of: &one, ..Wanted::default() }));
        assert!(!set.serves(&Wanted { one_of: &none, ..Wanted::default() }));
        assert!(!set.serves(&Wanted { one_of: &one, all_of: &all, ..Wanted::default() }));
    }

    #[test]
    fn called_tools_stay_even_over_the_budget() {
        let mut set = ChatSet::default();
        let all = ids(&["a", "b", "c"]);
        let dropped = set.update(&all, &all, 2);
        assert_eq!(names(&set), ["a", "b", "c"]);
        assert!(dropped.is_empty());
    }

    #[test]
    fn a_chat_full_of_called_tools_still_gets_new_ones() {
        let mut set = ChatSet::default();
        let called = ids(&["a", "b"]);
        set.update(&called, &called, 2);
        let dropped = set.update(&ids(&["c", "d"]), &called, 2);
        assert_eq!(names(&set), ["a", "b", "c", "d"]);
        assert!(dropped.is_empty());
        let dropped = set.update(&ids(&["e"]), &called, 2);
        assert_eq!((names(&set), dropped), (vec!["a", "b", "e"], ids(&["c", "d"])), "what nobody called goes next time");
    }

    #[test]
    fn two_sets_of_one_chat_become_one() {
        let (mut ours, mut stored) = (ChatSet::default(), ChatSet::default());
        ours.update(&ids(&["a", "b"]), &[], 24);
        stored.update(&ids(&["a", "c"]), &ids(&["a"]), 24);
        ours.merge_into(stored, &ChatSet::default());
        assert_eq!(names(&ours), ["a", "c", "b"]);
        assert!(ours.tools()[0].called && !ours.tools()[2].called);
    }

    /// Regression test: a message at one replica restored the tools that another replica had just unloaded.
    #[test]
    fn what_one_of_two_sets_has_removed_stays_removed() {
        let mut base = ChatSet::default();
        base.update(&ids(&["a", "b", "c"]), &ids(&["a"]), 24);
        let (mut ours, mut stored) = (base.clone(), base.clone());
        ours.update(&ids(&["new here"]), &[], 24);
        ours.remove(&ids(&["c"]).into_iter().collect());
        stored.update(&ids(&["new there"]), &[], 24);
        stored.remove(&ids(&["a", "b"]).into_iter().collect());
        ours.merge_into(stored.clone(), &base);
        assert_eq!(names(&ours), ["new there", "new here"]);
        let merged = ours.clone();
        ours.merge_into(stored.clone(), &stored);
        assert_eq!(ours, merged, "without news, nothing changes");
    }

    #[test]
    fn a_first_call_outweighs_a_removal_by_the_other() {
        let mut base = ChatSet::default();
        base.update(&ids(&["a", "b"]), &[], 24);
        let (mut ours, mut stored) = (base.clone(), base.clone());
        ours.update(&[], &ids(&["a"]), 24);
        ours.remove(&ids(&["b"]).into_iter().collect());
        stored.update(&[], &ids(&["b"]), 24);
        stored.remove(&ids(&["a"]).into_iter().collect());
        ours.merge_into(stored, &base);
        assert_eq!(names(&ours), ["b", "a"]);
        assert!(ours.tools().iter().all(|entry| entry.called));
    }

    #[test]
    fn a_call_of_a_tool_that_was_never_offered_is_kept_too() {
        let mut set = ChatSet::default();
        set.update(&ids(&["a"]), &[], 24);
        set.update(&[], &ids(&["found"]), 24);
        assert_eq!(names(&set), ["a", "found"]);
    }
}
