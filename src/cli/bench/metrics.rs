//! Metrics for the quality of one ranking.
//!
//! A message needs one tool from each of its G groups. The first tool of a group in the ranking is a hit. Recall@k is
//! the share of groups with a hit among the first k tools. Hit@k shows whether any group has one, and complete@k
//! whether all groups do. In nDCG@k, each hit has a gain of 1 with a logarithmic discount (Järvelin and Kekäläinen
//! 2002). MRR is the reciprocal rank of the first hit.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::cli::bench::data::Query;

/// The ranks of the hits, counted from 1. A tool that appears twice counts at its first rank.
pub(super) fn hits<'a>(groups: &[BTreeSet<String>], ranked: impl IntoIterator<Item = &'a str>) -> Vec<usize> {
    let mut open: Vec<&BTreeSet<String>> = groups.iter().collect();
    let mut seen = HashSet::new();
    let mut hits = Vec::new();
    for id in ranked {
        if open.is_empty() {
            break;
        }
        if seen.insert(id)
            && let Some(group) = open.iter().position(|group| group.contains(id))
        {
            open.remove(group);
            hits.push(seen.len());
        }
    }
    hits
}

pub(super) fn recall(hits: &[usize], groups: usize, k: usize) -> f64 {
    within(hits, k) as f64 / groups as f64
}

pub(super) fn hit(hits: &[usize], k: usize) -> f64 {
    f64::from(within(hits, k) > 0)
}

pub(super) fn complete(hits: &[usize], groups: usize, k: usize) -> f64 {
    f64::from(within(hits, k) == groups)
}

pub(super) fn ndcg(hits: &[usize], groups: usize, k: usize) -> f64 {
    let gain = |place: usize| (place as f64 + 1.0).log2().recip();
    let ideal: f64 = (1..=groups.min(k)).map(gain).sum();
    hits.iter().filter(|&&place| place <= k).map(|&place| gain(place)).sum::<f64>() / ideal
}

pub(super) fn reciprocal_rank(hits: &[usize]) -> f64 {
    hits.first().map_or(0.0, |&place| (place as f64).recip())
}

fn within(hits: &[usize], k: usize) -> usize {
    hits.iter().filter(|&&place| place <= k).count()
}

/// Replaces the tools of a message by their servers, and merges equal groups.
pub(super) fn of_servers(query: &Query, server_of: &HashMap<String, String>) -> Query {
    let mut groups: Vec<BTreeSet<String>> = Vec::new();
    for group in &query.groups {
        let servers: BTreeSet<String> = group.iter().filter_map(|id| server_of.get(id).cloned()).collect();
        // Two groups with the same first server count as one need.
        if !groups.iter().any(|known| *known == servers || known.first() == servers.first()) {
            groups.push(servers);
        }
    }
    Query { groups, ..query.clone() }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashMap};

    use super::{complete, hit, hits, ndcg, of_servers, recall, reciprocal_rank};
    use crate::cli::bench::data::Query;

    fn groups(groups: &[&[&str]]) -> Vec<BTreeSet<String>> {
        groups.iter().map(|group| group.iter().map(|id| (*id).to_owned()).collect()).collect()
    }

    fn near(one: f64, other: f64) {
        assert!((one - other).abs() < 1e-12, "{one} is not {other}");
    }

    #[test]
    fn figures_are_those_of_a_pencil() {
        // Needs a (or its near duplicate b) and c. The ranking is x a x b c: the second x and b only move c down.
        let groups = groups(&[&["a", "b"], &["c"]]);
        let hits = hits(&groups, ["x", "a", "x", "b", "c"]);
        assert_eq!(hits, [2, 4]);
        assert_eq!([1, 2, 3, 4].map(|k| recall(&hits, 2, k).to_bits()), [0.0, 0.5, 0.5, 1.0_f64].map(f64::to_bits));
        assert_eq!([1, 2].map(|k| hit(&hits, k).to_bits()), [0.0, 1.0_f64].map(f64::to_bits));
        assert_eq!([3, 4].map(|k| complete(&hits, 2, k).to_bits()), [0.0, 1.0_f64].map(f64::to_bits));
        near(reciprocal_rank(&hits), 0.5);
        // The hits are at ranks 2 and 4, with gains 1/log2(3) = 0.630930 and 1/log2(5) = 0.430677. The ideal sum is 1 +
        // 0.630930.
        near(ndcg(&hits, 2, 1), 0.0);
        near(ndcg(&hits, 2, 2), 0.630_929_753_571_457_4 / 1.630_929_753_571_457_4);
        near(ndcg(&hits, 2, 5), (0.630_929_753_571_457_4 + 0.430_676_558_073_393_05) / 1.630_929_753_571_457_4);
    }

    #[test]
    fn nothing_found_is_nothing() {
        let hits = hits(&groups(&[&["a"]]), ["x"]);
        assert!(hits.is_empty());
        for value in [recall(&hits, 1, 5), hit(&hits, 5), complete(&hits, 1, 5), ndcg(&hits, 1, 5), reciprocal_rank(&hits)] {
            near(value, 0.0);
        }
    }

    #[test]
    fn a_tool_that_serves_two_needs_serves_the_first_alone() {
        assert_eq!(hits(&groups(&[&["a"], &["a", "b"]]), ["a", "b"]), [1, 2]);
        assert_eq!(hits(&groups(&[&["a"], &["a"]]), ["a"]), [1]);
    }

    #[test]
    fn needs_of_one_server_are_one() {
        let server_of: HashMap<String, String> =
            [("a", "one"), ("b", "one"), ("c", "two")].map(|(tool, server)| (tool.to_owned(), server.to_owned())).into();
        let query = Query {
            id: "q".into(),
            text: "t".into(),
            groups: groups(&[&["a"], &["b"], &["c"]]),
            kind: String::new(),
            lang: String::new(),
            arguments: None,
        };
        assert_eq!(of_servers(&query, &server_of).groups, groups(&[&["one"], &["two"]]));
    }
}
