//! Orders search results so that repetitions come last.
//!
//! No result is dropped, so a search returns as many tools as requested if there are that many.

use std::collections::{HashMap, HashSet};

use ahash::RandomState;

use crate::domain::selection::relevance::fusion::Ranked;

/// The properties of a ranked tool that affect its order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrangeCandidate {
    pub server: u32,
    /// Equal for near duplicates; see [`NearDuplicates`](crate::domain::catalog::texts::NearDuplicates).
    pub group: u32,
    /// Whether the tool matches the intent of the search.
    pub is_meant: bool,
}

/// Distance within which two scores between 0 and 1 count as equal: they look the same with two digits.
const TIE: f32 = 0.005;

/// Moves tools that the caller can call at once before equally good ones that need a sign-in first. Equally good are tools with the same
/// score, and near duplicates. `group` is equal for near duplicates. The scores keep their order.
pub(crate) fn prefer_ready(ranked: &mut [Ranked<u32>], group: impl Fn(u32) -> u32, is_ready: impl Fn(u32) -> bool) {
    let mut start = 0;
    while let Some(first) = ranked.get(start).map(Ranked::score) {
        let tied = ranked[start..].iter().take_while(|tool| first - tool.score() < TIE).count().max(1);
        let run = &mut ranked[start..start + tied];
        let scores: Vec<f32> = run.iter().map(|tool| tool.fused).collect();
        run.sort_by_key(|tool| !is_ready(tool.key));
        run.iter_mut().zip(scores).for_each(|(tool, fused)| tool.fused = fused);
        start += tied;
    }
    prefer_better(ranked, group, |one, other| is_ready(one) && !is_ready(other));
}

/// Moves the better one of near duplicates to the first place of its group. `group` is equal for near duplicates; `is_better` compares
/// two of them. The scores keep their order; of two equal ones, the first becomes the smallest bit greater, so that it stays the first when
/// the tools are sorted again. The better one also leads the texts that the other one led, so that the cut keeps the better one.
pub(crate) fn prefer_better(ranked: &mut [Ranked<u32>], group: impl Fn(u32) -> u32, is_better: impl Fn(u32, u32) -> bool) {
    let mut first_of: HashMap<u32, usize, RandomState> = HashMap::default();
    for place in 0..ranked.len() {
        let first = *first_of.entry(group(ranked[place].key)).or_insert(place);
        if first == place {
            continue;
        }
        let (one, other) = (ranked[place].key, ranked[first].key);
        let is_moved = is_better(one, other);
        if is_moved {
            let worse = ranked[place].fused;
            let better = ranked[first].fused.max(worse.next_up());
            ranked.swap(first, place);
            (ranked[first].fused, ranked[place].fused) = (better, worse);
        }
        if is_moved || is_better(other, one) {
            ranked[first].leads |= std::mem::take(&mut ranked[place].leads);
        }
    }
}

/// The result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Arranged {
    /// Positions in the ranking.
    pub order: Vec<usize>,
    /// Number of tools at the start that didn't move down.
    pub in_place: usize,
}

/// The reason why a tool moves down. Later variants move further.
#[derive(Clone, Copy)]
enum Rank {
    First,
    OverTheCap,
    NotMeant,
    Duplicate,
}

/// Orders tools that are sorted best first. `per_server` tools of each server come before its further tools.
pub(crate) fn arrange(found: &[ArrangeCandidate], per_server: Option<usize>) -> Arranged {
    let mut groups: HashSet<u32, RandomState> = HashSet::default();
    let mut of_server: HashMap<u32, usize, RandomState> = HashMap::default();
    let mut of_rank: [Vec<usize>; 4] = Default::default();
    for (place, tool) in found.iter().enumerate() {
        let rank = if !tool.is_meant {
            Rank::NotMeant
        } else if !groups.insert(tool.group) {
            Rank::Duplicate
        } else {
            let count = of_server.entry(tool.server).or_default();
            *count += 1;
            if per_server.is_some_and(|most| *count > most) { Rank::OverTheCap } else { Rank::First }
        };
        of_rank[rank as usize].push(place);
    }
    Arranged { in_place: of_rank[Rank::First as usize].len(), order: of_rank.concat() }
}

#[cfg(test)]
mod preference {
    use super::{Ranked, prefer_better, prefer_ready};
    use crate::domain::selection::relevance::cut::{CutCandidate, CutParameters, cut};

    fn ranked(tools: &[(u32, f32)]) -> Vec<Ranked<u32>> {
        tools.iter().map(|&(key, fused)| Ranked { key, fused, ..Ranked::default() }).collect()
    }

    fn keys(ranked: &[Ranked<u32>]) -> Vec<u32> {
        ranked.iter().map(|tool| tool.key).collect()
    }

    #[test]
    fn a_ready_tool_wins_a_tie_and_only_a_tie() {
        let mut tools = ranked(&[(1, 4.0), (2, 4.0), (3, 1.0), (4, 0.0)]);
        prefer_ready(&mut tools, |key| key, |key| key == 2 || key == 4);
        assert_eq!(keys(&tools), [2, 1, 3, 4]);
    }

    #[test]
    fn a_ready_near_duplicate_takes_the_place_of_one_that_needs_a_sign_in() {
        let mut tools = ranked(&[(1, 4.0), (2, 2.0), (3, 1.0)]);
        prefer_ready(&mut tools, |key| key % 2, |key| key != 1);
        assert_eq!(keys(&tools), [3, 2, 1]);
        let scores: Vec<f32> = tools.iter().map(|tool| tool.fused).collect();
        assert_eq!(scores, [4.0, 2.0, 1.0], "the scores stay in order");
    }

    #[test]
    fn the_better_of_near_duplicates_comes_first() {
        let mut tools = ranked(&[(1, 4.0), (2, 2.0), (3, 1.0), (5, 0.5)]);
        prefer_better(&mut tools, |key| key % 2, |one, other| one == 5 && other == 1);
        assert_eq!(keys(&tools), [5, 2, 3, 1]);
        let scores: Vec<f32> = tools.iter().map(|tool| tool.fused).collect();
        assert_eq!(scores, [4.0, 2.0, 1.0, 0.5], "the scores stay in order");
        let mut tied = ranked(&[(1, 4.0), (3, 4.0)]);
        prefer_better(&mut tied, |key| key % 2, |one, _| one == 3);
        tied.sort_by(|one, other| other.fused.total_cmp(&one.fused).then(one.key.cmp(&other.key)));
        assert_eq!(keys(&tied), [3, 1], "also after sorting by score and key");
    }

    /// Regression test: the cut kept the tool that needs a sign-in, because it was the best one for a clause.
    #[test]
    fn the_better_of_near_duplicates_leads_what_the_other_one_led() {
        for (one, other, leads) in [(1, 3, [0, 4, 0]), (1, 3, [0, 0, 4]), (3, 1, [0, 0, 4]), (3, 1, [0, 4, 2])] {
            let mut tools = ranked(&[(2, 4.0), (one, 2.0), (other, 1.0)]);
            tools.iter_mut().zip(leads).for_each(|(tool, leads)| tool.leads = leads);
            prefer_ready(&mut tools, |key| key % 2, |key| key != 1);
            let candidate = |tool: &Ranked<u32>| CutCandidate {
                fused: tool.fused,
                tokens: 1,
                server: tool.key,
                group: tool.key % 2,
                leads: tool.leads,
            };
            let candidates: Vec<CutCandidate> = tools.iter().map(candidate).collect();
            let kept = cut(&candidates, &CutParameters::default());
            assert_eq!(kept.iter().map(|&place| tools[place].key).collect::<Vec<_>>(), [2, 3], "{one} leads {leads:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ArrangeCandidate, Arranged, arrange};

    fn found(tools: &[(u32, u32, bool)]) -> Vec<ArrangeCandidate> {
        tools.iter().map(|&(server, group, is_meant)| ArrangeCandidate { server, group, is_meant }).collect()
    }

    #[test]
    fn near_duplicates_go_behind() {
        let arranged = arrange(&found(&[(0, 0, true), (1, 0, true), (2, 2, true), (3, 0, true)]), None);
        assert_eq!(arranged, Arranged { order: vec![0, 2, 1, 3], in_place: 2 });
    }

    #[test]
    fn over_the_cap_a_server_waits_for_the_others() {
        let ranked = found(&[(0, 0, true), (0, 1, true), (0, 2, true), (1, 3, true)]);
        assert_eq!(arrange(&ranked, Some(1)), Arranged { order: vec![0, 3, 1, 2], in_place: 2 });
        assert_eq!(arrange(&ranked, None), Arranged { order: vec![0, 1, 2, 3], in_place: 4 });
    }

    #[test]
    fn what_is_not_meant_fills_up_the_rest() {
        let ranked = found(&[(0, 0, false), (1, 1, true), (2, 1, true), (3, 3, true)]);
        assert_eq!(arrange(&ranked, None).order, [1, 3, 0, 2]);
    }
}
