//! Finds near duplicates: tools of different servers that do the same.
//!
//! Servers for the same purpose list tools with nearly the same words, which match the same messages. Tools are near duplicates
//! if the Jaccard index over the words of their names, descriptions and parameter names is at least [`ALIKE`]. For speed, only
//! tools with equal terms in their names, or in their descriptions, are compared. The relation is transitive: groups are the
//! connected components.

use std::collections::HashMap;

use ahash::RandomState;

use super::ToolText;
use crate::domain::text::analysis::Analyzer;

/// The minimum Jaccard index of near duplicates.
pub(crate) const ALIKE: f32 = 0.7;

/// Maximum number of comparisons per tool within a group that shares a name or a description.
const MOST_COMPARED: usize = 64;

/// Groups of tools that are near duplicates.
#[derive(Debug, Default)]
pub struct NearDuplicates {
    /// For each tool, the first tool of its group; the tool itself if it has no near duplicate.
    first: Vec<u32>,
    /// The members of groups with several tools, by their first one.
    members: HashMap<u32, Vec<u32>, RandomState>,
}

impl NearDuplicates {
    /// Computes the groups. Tools are identified by their position in `tools`.
    pub fn of<'a>(analyzer: &Analyzer, tools: impl Iterator<Item = ToolText<'a>>) -> Self {
        // Sorted and without repetitions.
        let mut words: Vec<Box<[u32]>> = Vec::new();
        let mut servers: Vec<&str> = Vec::new();
        let mut alike: HashMap<Vec<u32>, Vec<usize>, RandomState> = HashMap::default();
        for (place, tool) in tools.enumerate() {
            let name = analyzer.terms(tool.name);
            let description = analyzer.terms(tool.description);
            let parameters = tool.parameters.iter().flat_map(|(name, _)| analyzer.terms(name));
            let mut of_tool: Vec<u32> = name.iter().copied().chain(description.iter().copied()).chain(parameters).collect();
            of_tool.sort_unstable();
            of_tool.dedup();
            words.push(of_tool.into());
            servers.push(tool.server);
            for key in [name, description] {
                if !key.is_empty() {
                    alike.entry(key).or_default().push(place);
                }
            }
        }
        let mut duplicates = Self { first: (0..).take(words.len()).collect(), members: HashMap::default() };
        for places in alike.values() {
            for (at, &one) in places.iter().enumerate() {
                for &other in places[..at].iter().take(MOST_COMPARED) {
                    if servers[one] != servers[other] && jaccard(&words[one], &words[other]) >= ALIKE {
                        duplicates.join(one, other);
                    }
                }
            }
        }
        for place in 0..duplicates.first.len() {
            duplicates.first[place] = duplicates.root(place);
        }
        for (place, &first) in (0..).zip(&duplicates.first).filter(|(place, first)| place != *first) {
            duplicates.members.entry(first).or_insert_with(|| vec![first]).push(place);
        }
        duplicates
    }

    /// The group of the tool at this position, identified by its first member.
    pub fn group(&self, place: u32) -> u32 {
        self.first.get(place as usize).copied().unwrap_or(place)
    }

    /// The positions of all tools of a group, in order. Empty if it has only one.
    pub fn of_group(&self, group: u32) -> &[u32] {
        self.members.get(&group).map_or(&[], Vec::as_slice)
    }

    fn root(&self, place: usize) -> u32 {
        let mut at = self.first[place];
        while self.first[at as usize] != at {
            at = self.first[at as usize];
        }
        at
    }

    fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.root(one), self.root(other));
        let (first, later) = (one.min(other), one.max(other));
        self.first[later as usize] = first;
    }
}

/// The Jaccard index of two sorted lists without repetitions.
fn jaccard(one: &[u32], other: &[u32]) -> f32 {
    let (mut left, mut right, mut common) = (0, 0, 0);
    while let (Some(first), Some(second)) = (one.get(left), other.get(right)) {
        left += usize::from(first <= second);
        right += usize::from(second <= first);
        common += usize::from(first == second);
    }
    common as f32 / ((one.len() + other.len() - common) as f32).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::super::ToolText;
    use super::{NearDuplicates, jaccard};
    use crate::domain::text::analysis::Analyzer;

    fn near_duplicates(tools: &[(&'static str, &'static str, &'static str)]) -> NearDuplicates {
        let text = |&(server, name, description): &(&'static str, &'static str, &'static str)| ToolText {
            server,
            name,
            description,
            ..ToolText::default()
        };
        NearDuplicates::of(&Analyzer::default(), tools.iter().map(text))
    }

    fn groups(tools: &[(&'static str, &'static str, &'static str)]) -> Vec<u32> {
        let duplicates = near_duplicates(tools);
        (0..).take(tools.len()).map(|place| duplicates.group(place)).collect()
    }

    const SEARCH: &str = "Searches the web and returns titles, addresses and snippets of the best pages";

    #[test]
    fn tools_of_other_servers_with_the_same_words_are_one_group() {
        let tools = [
            ("one", "web_search", SEARCH),
            ("two", "read_page", "Reads a page"),
            ("two", "webSearch", "Searches the web; returns titles, addresses, snippets of best pages."),
            ("three", "lookup", SEARCH),
        ];
        assert_eq!(groups(&tools), [0, 1, 0, 0]);
        let duplicates = near_duplicates(&tools);
        assert_eq!(duplicates.of_group(0), [0, 2, 3]);
        assert!(duplicates.of_group(1).is_empty());
    }

    #[test]
    fn a_common_name_alone_is_not_enough_and_one_server_has_no_near_duplicates() {
        let found = groups(&[
            ("jira", "search", "Finds tickets by a query in JQL"),
            ("mail", "search", "Finds messages in a mailbox by sender, subject and date"),
            ("mail", "search_2", "Finds messages in a mailbox by sender, subject and date"),
        ]);
        assert_eq!(found, [0, 1, 2]);
    }

    #[test]
    fn the_jaccard_index_is_the_share_of_common_words() {
        for (one, other, share) in
            [(&[1, 2, 3][..], &[2, 3, 4][..], 0.5), (&[1], &[1], 1.0), (&[1, 5], &[2, 3], 0.0), (&[], &[7], 0.0), (&[], &[], 0.0)]
        {
            assert_eq!((jaccard(one, other), jaccard(other, one)), (share, share), "{one:?} {other:?}");
        }
    }

    #[test]
    fn there_may_be_none() {
        assert!(groups(&[]).is_empty());
        assert_eq!(NearDuplicates::default().group(7), 7);
    }
}
