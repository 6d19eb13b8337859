//! Near duplicates: tools of different servers that do the same.
//!
//! Two servers for one purpose list tools with nearly the same words, and both would match the same message. Tools are near
//! duplicates if the Jaccard index over the words of their names, descriptions and parameter names is at least [`ALIKE`].
//! Only tools with equal terms in their names, or in their descriptions, are compared, which keeps it cheap for thousands
//! of tools. The relation is transitive: groups are the connected components.

use std::collections::{BTreeSet, HashMap};

use ahash::RandomState;

use super::ToolText;
use crate::domain::text::analysis::Analyzer;

/// The Jaccard index from which two tools are near duplicates.
pub(crate) const ALIKE: f32 = 0.7;

/// If more tools than this share a name or a description, each is compared with the first ones only.
const MOST_COMPARED: usize = 64;

/// The groups of near duplicates.
#[derive(Debug, Default)]
pub struct NearDuplicates {
    /// Per tool, the first tool of its group; itself without a near duplicate.
    first: Vec<u32>,
}

impl NearDuplicates {
    /// Computes the groups. Groups are identified by position.
    pub fn of<'a>(analyzer: &Analyzer, tools: impl Iterator<Item = ToolText<'a>>) -> Self {
        let mut words: Vec<BTreeSet<u32>> = Vec::new();
        let mut servers: Vec<&str> = Vec::new();
        let mut alike: HashMap<Vec<u32>, Vec<usize>, RandomState> = HashMap::default();
        for (place, tool) in tools.enumerate() {
            let name = analyzer.terms(tool.name);
            let description = analyzer.terms(tool.description);
            let parameters = tool.parameters.iter().flat_map(|(name, _)| analyzer.terms(name));
            words.push(name.iter().copied().chain(description.iter().copied()).chain(parameters).collect());
            servers.push(tool.server);
            for key in [name, description] {
                if !key.is_empty() {
                    alike.entry(key).or_default().push(place);
                }
            }
        }
        let mut duplicates = Self { first: (0..).take(words.len()).collect() };
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
        duplicates
    }

    /// The group of the tool at this position, identified by its first member.
    pub fn group(&self, place: u32) -> u32 {
        self.first.get(place as usize).copied().unwrap_or(place)
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

fn jaccard(one: &BTreeSet<u32>, other: &BTreeSet<u32>) -> f32 {
    let common = one.intersection(other).count() as f32;
    common / (one.len() as f32 + other.len() as f32 - common).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::super::ToolText;
    use super::NearDuplicates;
    use crate::domain::text::analysis::Analyzer;

    fn groups(tools: &[(&'static str, &'static str, &'static str)]) -> Vec<u32> {
        let text = |&(server, name, description): &(&'static str, &'static str, &'static str)| ToolText {
            server,
            name,
            description,
            ..ToolText::default()
        };
        let duplicates = NearDuplicates::of(&Analyzer::default(), tools.iter().map(text));
        (0..).take(tools.len()).map(|place| duplicates.group(place)).collect()
    }

    const SEARCH: &str = "Searches the web and returns titles, addresses and snippets of the best pages";

    #[test]
    fn tools_of_other_servers_with_the_same_words_are_one_group() {
        let found = groups(&[
            ("one", "web_search", SEARCH),
            ("two", "webSearch", "Searches the web; returns titles, addresses, snippets of best pages."),
            ("three", "lookup", SEARCH),
            ("two", "read_page", "Reads a page"),
        ]);
        assert_eq!(found, [0, 0, 0, 3]);
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
    fn there_may_be_none() {
        assert!(groups(&[]).is_empty());
        assert_eq!(NearDuplicates::default().group(7), 7);
    }
}
