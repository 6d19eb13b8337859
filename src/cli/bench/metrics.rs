//! Quality of one ranking.
//!
//! A message needs G groups; a group is hit by the first of its tools. Recall@k is the share of the groups hit in the
//! first k, hit@k whether any is, complete@k whether all are, nDCG@k has a gain of 1 for the first hit of each group
//! and a logarithmic discount (Järvelin and Kekäläinen 2002), MRR is one over the place of the first hit.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::cli::bench::data::Query;

/// The ranks, from 1, of the first hit of each group. A duplicate counts at its first rank.
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

/// The message with servers instead of tools; merges equal groups.
pub(super) fn of_servers(query: &Query, server_of: &HashMap<String, String>) -> Query {
    let mut groups: Vec<BTreeSet<String>> = Vec::new();
    for group in &query.groups {
        let servers: BTreeSet<String> = group.iter().filter_map(|id| server_of.get(id).cloned()).collect();
        // Two groups that begin with one server name one need.
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
        // Needed: a or its near duplicate b, and c. Ranked: x a x b c. The second x and the near duplicate change nothing but c's place.
        let groups = groups(&[&["a", "b"], &["c"]]);
        let hits = hits(&groups, ["x", "a", "x", "b", "c"]);
        assert_eq!(hits, [2, 4]);
        assert_eq!([1, 2, 3, 4].map(|k| recall(&hits, 2, k).to_bits()), [0.0, 0.5, 0.5, 1.0_f64].map(f64::to_bits));
        assert_eq!([1, 2].map(|k| hit(&hits, k).to_bits()), [0.0, 1.0_f64].map(f64::to_bits));
        assert_eq!([3, 4].map(|k| complete(&hits, 2, k).to_bits()), [0.0, 1.0_f64].map(f64::to_bits));
        near(reciprocal_rank(&hits), 0.5);
        // Gains at 2 and 4: 1/log2(3) = 0.630930, 1/log2(5) = 0.430677; the ideal is 1 + 0.630930.
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
        let query = Query { id: "q".into(), text: "t".into(), groups: groups(&[&["a"], &["b"], &["c"]]), kind: String::new() };
        assert_eq!(of_servers(&query, &server_of).groups, groups(&[&["one"], &["two"]]));
    }
}
