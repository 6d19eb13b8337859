//! What is proposed from the tools that chats call: toolsets, and tools to keep always on offer.

use std::cmp::Reverse;
use std::sync::Arc;

use ahash::HashMap;
use indexmap::{IndexMap, IndexSet};

use super::co_use::CoUse;
use crate::domain::catalog::tool::ToolId;

/// Number of chats from which a proposal is made.
const LEAST_PROPOSED: usize = 3;
/// Maximum number of tools to pin.
const PINS: usize = 5;
/// Maximum number of tools of a proposed toolset.
const MEMBERS: usize = 12;
/// The mean share of the chats with the rarer tool in which both must have been called.
const TOGETHER: f32 = 0.5;
/// Maximum number of proposed toolsets, and of listed groups.
const MOST_PROPOSALS: usize = 20;

/// What is proposed from the tools that were called together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Proposals {
    /// Tools that are mostly called in the same chats, the most frequent first.
    pub toolsets: Vec<ProposedToolset>,
    /// The most frequent tools, the first ones to keep always on offer.
    pub pins: Vec<Frequent>,
    /// Groups that chats and sessions loaded, the most frequent first.
    pub loaded: Vec<Frequent>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ProposedToolset {
    pub tools: Vec<ToolId>,
    /// Number of chats that called at least two of the tools.
    pub chats: usize,
    /// Number of people in these chats.
    pub people: usize,
}

/// A tool or a group.
#[derive(Clone, Debug, PartialEq)]
pub struct Frequent {
    /// For a group, the server is empty, and the tool is the group's name.
    pub tool: ToolId,
    pub chats: usize,
    pub people: usize,
}

/// A group that was loaded, as it is remembered beside the tools of a chat. No server has an empty name.
pub fn loaded_group(name: &str) -> ToolId {
    ToolId::new("", name)
}

/// The proposals from all chats of these memories, which must not have chats in common. `is_wanted` leaves out tools.
pub fn proposals<'a>(memories: impl Iterator<Item = &'a CoUse>, is_wanted: impl Fn(&ToolId) -> bool) -> Proposals {
    let calls = Calls::of(memories, is_wanted);
    let mut toolsets: Vec<ProposedToolset> = calls.sets().iter().map(|set| calls.toolset(set)).collect();
    toolsets.sort_by(|one, other| other.chats.cmp(&one.chats).then_with(|| one.tools.cmp(&other.tools)));
    toolsets.truncate(MOST_PROPOSALS);
    Proposals { toolsets, pins: calls.frequent(false, PINS), loaded: calls.frequent(true, MOST_PROPOSALS) }
}

/// The calls in the chats of all memories. Tools are their places in `used`.
#[derive(Default)]
struct Calls {
    /// The tools and groups, with the people who used them.
    used: IndexMap<ToolId, IndexSet<Arc<str>>>,
    /// The person and the tools of each chat.
    chats: Vec<(Arc<str>, Vec<usize>)>,
    /// Number of chats with each tool.
    counts: Vec<usize>,
    /// Number of chats with both of two tools.
    together: HashMap<(usize, usize), usize>,
}

impl Calls {
    fn of<'a>(memories: impl Iterator<Item = &'a CoUse>, is_wanted: impl Fn(&ToolId) -> bool) -> Self {
        let mut all = Self::default();
        for memory in memories {
            memory.each(|person, tools| {
                let tools = tools.filter(|tool| is_group(tool) || is_wanted(tool));
                let note = |tool: &ToolId| {
                    let entry = all.used.entry(tool.clone());
                    let place = entry.index();
                    entry.or_default().insert(Arc::clone(person));
                    place
                };
                let tools = tools.map(note).collect();
                all.chats.push((Arc::clone(person), tools));
            });
        }
        all.counts = vec![0; all.used.len()];
        let is_tool: Vec<bool> = all.used.keys().map(|tool| !is_group(tool)).collect();
        for (_, tools) in &all.chats {
            for (place, &one) in tools.iter().enumerate() {
                all.counts[one] += 1;
                for &other in tools[place + 1..].iter().filter(|other| is_tool[one] && is_tool[**other]) {
                    *all.together.entry(pair(one, other)).or_default() += 1;
                }
            }
        }
        all
    }

    /// The share of the chats with the rarer tool that have both.
    fn share(&self, one: usize, other: usize) -> f32 {
        let both = self.together.get(&pair(one, other)).copied().unwrap_or_default();
        both as f32 / self.counts[one].min(self.counts[other]).max(1) as f32
    }

    /// Sets of tools that are mostly called together. The most frequent pairs begin sets, and others join them.
    fn sets(&self) -> Vec<Vec<usize>> {
        let mut pairs: Vec<((usize, usize), usize)> = self.together.iter().map(|(&pair, &count)| (pair, count)).collect();
        pairs.retain(|&((one, other), count)| count >= LEAST_PROPOSED && self.share(one, other) >= TOGETHER);
        pairs.sort_unstable_by_key(|&(pair, count)| (Reverse(count), pair));
        let mut sets: Vec<Vec<usize>> = Vec::new();
        for ((one, other), _) in pairs {
            let of = |tool: usize| sets.iter().position(|set| set.contains(&tool));
            match (of(one), of(other)) {
                (None, None) => sets.push(vec![one, other]),
                (Some(set), None) => self.join(&mut sets[set], other),
                (None, Some(set)) => self.join(&mut sets[set], one),
                (Some(_), Some(_)) => {}
            }
        }
        sets
    }

    /// Adds a tool to a set if it is mostly called together with its members.
    fn join(&self, set: &mut Vec<usize>, tool: usize) {
        let mean = set.iter().map(|&member| self.share(member, tool)).sum::<f32>() / set.len() as f32;
        if set.len() < MEMBERS && mean >= TOGETHER {
            set.push(tool);
        }
    }

    fn toolset(&self, set: &[usize]) -> ProposedToolset {
        let is_of_set = |(_, tools): &&(Arc<str>, Vec<usize>)| tools.iter().filter(|tool| set.contains(tool)).count() >= 2;
        let people: Vec<&Arc<str>> = self.chats.iter().filter(is_of_set).map(|(person, _)| person).collect();
        let distinct: IndexSet<&Arc<str>> = people.iter().copied().collect();
        let tools = set.iter().filter_map(|&tool| self.used.get_index(tool)).map(|(tool, _)| tool.clone()).collect();
        ProposedToolset { tools, chats: people.len(), people: distinct.len() }
    }

    /// The most frequent tools, or the most frequent groups.
    fn frequent(&self, groups: bool, most: usize) -> Vec<Frequent> {
        let counted = self.used.iter().zip(&self.counts).filter(|((tool, _), count)| is_group(tool) == groups && **count >= LEAST_PROPOSED);
        let mut found: Vec<Frequent> =
            counted.map(|((tool, people), count)| Frequent { tool: tool.clone(), chats: *count, people: people.len() }).collect();
        found.sort_by(|one, other| (other.people, other.chats).cmp(&(one.people, one.chats)).then_with(|| one.tool.cmp(&other.tool)));
        found.truncate(most);
        found
    }
}

fn is_group(tool: &ToolId) -> bool {
    tool.server.as_str().is_empty()
}

fn pair(one: usize, other: usize) -> (usize, usize) {
    (one.min(other), one.max(other))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Proposals, loaded_group, proposals};
    use crate::domain::catalog::tool::ToolId;
    use crate::domain::learning::co_use::{CoUse, MOST_CHATS};
    use crate::domain::learning::evidence::Minute;

    fn tool(name: &str) -> ToolId {
        ToolId::new("server", name)
    }

    fn memory(person: &str, chats: usize, tools: &[ToolId]) -> CoUse {
        let mut memory = CoUse::of_one();
        for number in 0..chats {
            for tool in tools {
                memory.add(&number.to_string(), &Arc::from(person), tool, Minute(1), MOST_CHATS);
            }
        }
        memory
    }

    #[test]
    fn tools_that_are_called_together_become_a_toolset() {
        let memories = [
            memory("a", 2, &[tool("search"), tool("create"), tool("close")]),
            memory("b", 2, &[tool("create"), tool("search")]),
            memory("c", 9, &[tool("weather")]),
            memory("d", 2, &[tool("mail"), tool("weather")]),
            memory("e", 3, &[loaded_group("dev"), tool("close")]),
        ];
        let Proposals { toolsets, pins, loaded } = proposals(memories.iter(), |_| true);
        assert_eq!(toolsets.len(), 1, "{toolsets:?}");
        assert_eq!((&toolsets[0].tools, toolsets[0].chats, toolsets[0].people), (&vec![tool("search"), tool("create")], 4, 2));
        let names: Vec<(&str, usize, usize)> = pins.iter().map(|pin| (&*pin.tool.name, pin.chats, pin.people)).collect();
        assert_eq!(names, [("weather", 11, 2), ("close", 5, 2), ("create", 4, 2), ("search", 4, 2)]);
        assert_eq!((loaded.len(), &loaded[0].tool, loaded[0].chats), (1, &loaded_group("dev"), 3));
        let without = proposals(memories.iter(), |wanted| *wanted != tool("search"));
        assert!(without.toolsets.is_empty() && without.pins.iter().all(|pin| pin.tool != tool("search")));
    }

    #[test]
    fn a_tool_that_is_rarely_there_does_not_join() {
        let mut all = memory("a", 10, &[tool("one"), tool("two")]);
        for number in 0..10 {
            let tools = [tool("three"), tool(if number < 6 { "one" } else { "four" })];
            for tool in &tools {
                all.add(&format!("x{number}"), &Arc::from("a"), tool, Minute(1), MOST_CHATS);
            }
        }
        let found = proposals([&all].into_iter(), |_| true).toolsets;
        assert_eq!(found[0].tools, [tool("one"), tool("two")], "three is called with one, and never with two");
    }
}
