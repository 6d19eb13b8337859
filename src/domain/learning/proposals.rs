//! What is proposed from the tools that chats call: toolsets, and tools to keep always on offer.

use std::cmp::Reverse;
use std::sync::Arc;

use ahash::{HashMap, HashMapExt};
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
    let mut used: IndexMap<ToolId, IndexSet<Arc<str>>> = IndexMap::new();
    let mut chats: Vec<(Arc<str>, Vec<usize>)> = Vec::new();
    for memory in memories {
        memory.each(|person, tools| {
            let tools = tools.filter(|tool| tool.server.as_str().is_empty() || is_wanted(tool));
            let note = |tool: &ToolId| {
                let entry = used.entry(tool.clone());
                let place = entry.index();
                entry.or_default().insert(Arc::clone(person));
                place
            };
            chats.push((Arc::clone(person), tools.map(note).collect()));
        });
    }
    let is_group: Vec<bool> = used.keys().map(|tool| tool.server.as_str().is_empty()).collect();
    let mut counts = vec![0_usize; used.len()];
    let mut together: HashMap<(usize, usize), usize> = HashMap::new();
    for (_, tools) in &chats {
        for (place, &one) in tools.iter().enumerate() {
            counts[one] += 1;
            for &other in tools[place + 1..].iter().filter(|other| !is_group[one] && !is_group[**other]) {
                *together.entry((one.min(other), one.max(other))).or_default() += 1;
            }
        }
    }
    let share = |one: usize, other: usize| {
        let both = together.get(&(one.min(other), one.max(other))).copied().unwrap_or_default();
        both as f32 / counts[one].min(counts[other]).max(1) as f32
    };
    let mut pairs: Vec<((usize, usize), usize)> = together.iter().map(|(&pair, &count)| (pair, count)).collect();
    pairs.retain(|&((one, other), count)| count >= LEAST_PROPOSED && share(one, other) >= TOGETHER);
    pairs.sort_unstable_by_key(|&(pair, count)| (Reverse(count), pair));
    let mut sets: Vec<Vec<usize>> = Vec::new();
    for ((one, other), _) in pairs {
        let of = |tool: usize| sets.iter().position(|set| set.contains(&tool));
        match (of(one), of(other)) {
            (None, None) => sets.push(vec![one, other]),
            (Some(set), None) => join(&mut sets[set], other, share),
            (None, Some(set)) => join(&mut sets[set], one, share),
            (Some(_), Some(_)) => {}
        }
    }
    let proposed = sets.into_iter().map(|set| {
        let is_of_set = |(_, tools): &&(Arc<str>, Vec<usize>)| tools.iter().filter(|tool| set.contains(tool)).count() >= 2;
        let people: Vec<&Arc<str>> = chats.iter().filter(is_of_set).map(|(person, _)| person).collect();
        let distinct: IndexSet<&Arc<str>> = people.iter().copied().collect();
        let tools = set.iter().filter_map(|&tool| used.get_index(tool)).map(|(tool, _)| tool.clone()).collect();
        ProposedToolset { tools, chats: people.len(), people: distinct.len() }
    });
    let mut toolsets: Vec<ProposedToolset> = proposed.collect();
    toolsets.sort_by(|one, other| other.chats.cmp(&one.chats).then_with(|| one.tools.cmp(&other.tools)));
    toolsets.truncate(MOST_PROPOSALS);
    let frequent = |groups: bool, most: usize| {
        let wanted = used.iter().enumerate().filter(|(place, _)| is_group[*place] == groups && counts[*place] >= LEAST_PROPOSED);
        let mut found: Vec<Frequent> =
            wanted.map(|(place, (tool, people))| Frequent { tool: tool.clone(), chats: counts[place], people: people.len() }).collect();
        found.sort_by(|one, other| (other.people, other.chats).cmp(&(one.people, one.chats)).then_with(|| one.tool.cmp(&other.tool)));
        found.truncate(most);
        found
    };
    Proposals { toolsets, pins: frequent(false, PINS), loaded: frequent(true, MOST_PROPOSALS) }
}

/// Adds a tool to a set if it is mostly called together with its members.
fn join(set: &mut Vec<usize>, tool: usize, share: impl Fn(usize, usize) -> f32) {
    let mean = set.iter().map(|&member| share(member, tool)).sum::<f32>() / set.len() as f32;
    if set.len() < MEMBERS && mean >= TOGETHER {
        set.push(tool);
    }
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
