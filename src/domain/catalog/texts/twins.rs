//! Tools of different servers that do the same.
//!
//! Two servers for one job list tools of nearly the same words, and a message that needs one of them would be sent both.
//! Tools count as near duplicates where at least [`ALIKE`] of the words of their names, descriptions and parameters'
//! names are common (Jaccard's index); only tools of like names or of equal descriptions are compared, so that it costs
//! little for thousands. Being one's near duplicate is passed on: the groups are the connected components.

use std::collections::{BTreeSet, HashMap};

use ahash::RandomState;

use super::ToolText;
use crate::domain::text::analysis::Analyzer;

/// Share of common words from which on two tools are near duplicates.
pub const ALIKE: f32 = 0.7;

/// More tools of one name than this are not compared with each other, but each with the first ones.
const MOST_COMPARED: usize = 64;

/// Which tools are near duplicates of which others.
#[derive(Debug, Default)]
pub struct Twins {
    /// For each tool the first one of its group; itself where it has no twin.
    first: Vec<u32>,
}

impl Twins {
    /// The groups among these tools, which are named by their places.
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
        let mut twins = Self { first: (0..).take(words.len()).collect() };
        for places in alike.values() {
            for (at, &one) in places.iter().enumerate() {
                for &other in places[..at].iter().take(MOST_COMPARED) {
                    if servers[one] != servers[other] && jaccard(&words[one], &words[other]) >= ALIKE {
                        twins.join(one, other);
                    }
                }
            }
        }
        for place in 0..twins.first.len() {
            twins.first[place] = twins.root(place);
        }
        twins
    }

    /// The group of the tool at this place, named by its first member. Equal groups are near duplicates.
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
    use super::Twins;
    use crate::domain::text::analysis::Analyzer;

    fn groups(tools: &[(&'static str, &'static str, &'static str)]) -> Vec<u32> {
        let text = |&(server, name, description): &(&'static str, &'static str, &'static str)| ToolText {
            server,
            name,
            description,
            ..ToolText::default()
        };
        let twins = Twins::of(&Analyzer::default(), tools.iter().map(text));
        (0..).take(tools.len()).map(|place| twins.group(place)).collect()
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
    fn a_common_name_alone_is_not_enough_and_one_server_has_no_twins() {
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
        assert_eq!(Twins::default().group(7), 7);
    }
}
