//! Orders search results so that repetitions come last.
//!
//! No result is dropped, so a search returns as many tools as requested if there are that many.

use std::collections::HashMap;

/// The properties of a ranked tool that affect its order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrangeCandidate {
    pub server: u32,
    /// Equal for near duplicates; see [`NearDuplicates`](crate::domain::catalog::texts::NearDuplicates).
    pub group: u32,
    /// Whether the tool matches the intent of the search.
    pub is_meant: bool,
}

/// The result: positions in the ranking.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Arranged {
    pub order: Vec<usize>,
    /// For each tool with lower-ranked near duplicates, their positions, best first.
    pub duplicates: HashMap<usize, Vec<usize>>,
}

/// The reason why a tool moves down. Later variants move further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    First,
    OverTheCap,
    NotMeant,
    Duplicate,
}

/// Orders tools that are sorted best first. `per_server` tools of each server come before its further tools.
pub(crate) fn arrange(found: &[ArrangeCandidate], per_server: Option<usize>) -> Arranged {
    let mut arranged = Arranged::default();
    let mut first_of: HashMap<u32, usize> = HashMap::new();
    let mut of_server: HashMap<u32, usize> = HashMap::new();
    let mut ranks = Vec::with_capacity(found.len());
    for (place, tool) in found.iter().enumerate() {
        let rank = if !tool.is_meant {
            Rank::NotMeant
        } else if let Some(&first) = first_of.get(&tool.group) {
            arranged.duplicates.entry(first).or_default().push(place);
            Rank::Duplicate
        } else {
            first_of.insert(tool.group, place);
            let count = of_server.entry(tool.server).or_default();
            *count += 1;
            if per_server.is_some_and(|most| *count > most) { Rank::OverTheCap } else { Rank::First }
        };
        ranks.push(rank);
    }
    arranged.order = (0..found.len()).collect();
    arranged.order.sort_by_key(|&place| (ranks[place], place));
    arranged
}

#[cfg(test)]
mod tests {
    use super::{ArrangeCandidate, arrange};

    fn found(tools: &[(u32, u32, bool)]) -> Vec<ArrangeCandidate> {
        tools.iter().map(|&(server, group, is_meant)| ArrangeCandidate { server, group, is_meant }).collect()
    }

    #[test]
    fn near_duplicates_go_behind_and_are_named_with_the_first() {
        let arranged = arrange(&found(&[(0, 0, true), (1, 0, true), (2, 2, true), (3, 0, true)]), None);
        assert_eq!(arranged.order, [0, 2, 1, 3]);
        assert_eq!(arranged.duplicates.into_iter().collect::<Vec<_>>(), [(0, vec![1, 3])]);
    }

    #[test]
    fn over_the_cap_a_server_waits_for_the_others() {
        let ranked = found(&[(0, 0, true), (0, 1, true), (0, 2, true), (1, 3, true)]);
        assert_eq!(arrange(&ranked, Some(1)).order, [0, 3, 1, 2]);
        assert_eq!(arrange(&ranked, None).order, [0, 1, 2, 3]);
    }

    #[test]
    fn what_is_not_meant_fills_up_the_rest() {
        let ranked = found(&[(0, 0, false), (1, 1, true), (2, 1, true), (3, 3, true)]);
        assert_eq!(arrange(&ranked, None).order, [1, 3, 0, 2]);
    }
}
