//! Raises and lowers the scores of tools by the votes of remembered messages.

use std::collections::{HashMap, HashSet};

use super::votes::Vote;
use crate::domain::selection::relevance::Ranked;
use crate::domain::selection::relevance::cut::{GAP, MINIMUM, gap_at};

/// The part of the best score's rise that the cut allows. With all of it, as many tools are sent as without learning. With half of it,
/// fewer are sent.
const ALLOWED: f32 = 0.5;
/// A tool that is lowered less than this isn't known to be wrong for messages like this one.
const LOWERED: f32 = -0.5;
/// The smallest change that is given as a reason.
const NOTABLE: f32 = 0.1;

/// What learning changed in a ranking.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Learned {
    /// For each changed tool, the change of its fused score.
    pub deltas: HashMap<u32, f32>,
    /// For each raised tool, the number of similar messages with evidence for it.
    pub messages: HashMap<u32, u32>,
    /// What the cut adds to the distance from the best score: a part of the best score's rise.
    pub allowance: f32,
    /// The tools that nearly the same message needed, so that this one needs them too.
    pub needed: HashSet<u32>,
}

/// Applies the votes, and sorts again. Keys are positions in the catalog. Tools that the search didn't return are added with the lowest
/// score of the ranking.
///
/// A habit also raises tools for messages that need another tool of the same product. So what matched best without learning keeps its place
/// in the cut: the first tool, and those after it that are about as good and not clearly lowered. Of near duplicates, which have the same
/// `group`, the one that now comes first keeps this place. `strictness` is that of the cut.
pub(crate) fn apply(ranked: &mut Vec<Ranked<u32>>, votes: &HashMap<u32, Vote>, strictness: f32, group: impl Fn(u32) -> u32) -> Learned {
    let Some((best, lowest)) = ranked.iter().map(|one| one.fused).fold(None, |range: Option<(f32, f32)>, score| {
        Some(range.map_or((score, score), |(best, lowest)| (best.max(score), lowest.min(score))))
    }) else {
        return Learned::default();
    };
    if votes.is_empty() {
        return Learned::default();
    }
    let least = best - gap_at(GAP, strictness);
    for (place, one) in ranked.iter_mut().take(MINIMUM).enumerate() {
        let is_lowered = votes.get(&one.key).is_some_and(|vote| vote.delta <= LOWERED);
        if place == 0 || (one.fused >= least && !is_lowered) {
            one.leads |= 1;
        }
    }
    let known: HashSet<u32> = ranked.iter().map(|one| one.key).collect();
    let missing = votes.iter().filter(|(key, vote)| vote.delta > 0.0 && !known.contains(*key));
    ranked.extend(missing.map(|(&key, _)| Ranked { key, fused: lowest, alone: lowest, ..Ranked::default() }));
    let mut learned = Learned::default();
    for one in ranked.iter_mut() {
        let Some(vote) = votes.get(&one.key) else { continue };
        one.fused += vote.delta;
        one.alone += vote.delta;
        learned.deltas.insert(one.key, vote.delta);
        if vote.is_certain && vote.delta > 0.0 {
            learned.needed.insert(one.key);
        }
        if vote.delta >= NOTABLE && vote.messages > 0 {
            learned.messages.insert(one.key, vote.messages);
        }
    }
    ranked.sort_unstable_by(|one, other| other.fused.total_cmp(&one.fused).then(one.key.cmp(&other.key)));
    for place in 1..ranked.len() {
        let better = |other: &usize| group(ranked[*other].key) == group(ranked[place].key);
        if ranked[place].leads & 1 != 0
            && let Some(better) = (0..place).find(better)
        {
            ranked[place].leads &= !1;
            ranked[better].leads |= 1;
        }
    }
    learned.allowance = ALLOWED * (ranked[0].fused - best).max(0.0);
    learned
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::apply;
    use crate::domain::learning::votes::Vote;
    use crate::domain::selection::relevance::Ranked;
    use crate::domain::selection::relevance::cut::{CutCandidate, CutParameters, GAP, cut};

    fn ranking(scores: &[f32]) -> Vec<Ranked<u32>> {
        let mut ranked: Vec<Ranked<u32>> = (0..).zip(scores).map(|(key, &fused)| Ranked { key, fused, ..Ranked::default() }).collect();
        ranked.sort_by(|one, other| other.fused.total_cmp(&one.fused));
        ranked
    }

    fn votes(votes: &[(u32, f32)]) -> HashMap<u32, Vote> {
        votes.iter().map(|&(key, sum)| (key, Vote { delta: sum, messages: 1, is_certain: false })).collect()
    }

    #[test]
    fn what_was_used_comes_first() {
        let mut ranked = ranking(&[3.0, 2.5, 1.0]);
        let learned = apply(&mut ranked, &votes(&[(1, 1.0)]), 0.0, |key| key);
        assert_eq!(ranked.iter().map(|one| one.key).collect::<Vec<_>>(), [1, 0, 2]);
        assert_eq!(learned.messages, HashMap::from([(1, 1)]));
        assert!((learned.allowance - 0.25).abs() < 1e-4, "{learned:?}");
    }

    #[test]
    fn a_tool_that_the_search_missed_is_added() {
        let mut ranked = ranking(&[3.0, 0.0]);
        apply(&mut ranked, &votes(&[(7, 0.9), (8, -0.9)]), 0.0, |key| key);
        assert_eq!(ranked.iter().map(|one| one.key).collect::<Vec<_>>(), [0, 7, 1]);
    }

    /// Regression test: a habit pushed a tool that the user had never used out of the selection.
    #[test]
    fn a_habit_hides_no_tool_that_matches_without_it() {
        let sheltered_at = |strictness: f32, scores: &[f32], changes: &[(u32, f32)]| {
            let mut ranked = ranking(scores);
            apply(&mut ranked, &votes(changes), strictness, |key| key);
            let mut keys: Vec<u32> = ranked.iter().filter(|one| one.leads != 0).map(|one| one.key).collect();
            keys.sort_unstable();
            keys
        };
        let sheltered = |scores: &[f32], changes: &[(u32, f32)]| sheltered_at(0.0, scores, changes);
        assert_eq!(sheltered(&[3.0, 2.8, 2.5, 2.4], &[(3, 2.2), (2, -0.4)]), [0, 1, 2]);
        assert_eq!(sheltered(&[3.0, 2.8, 2.5, 2.4], &[(3, 2.2), (2, -0.6)]), [0, 1], "known to be wrong");
        assert_eq!(sheltered(&[3.0, 1.4, 1.3], &[(2, 2.2), (0, -2.0)]), [0], "the others were far behind");
        let of_strictness = [-2.0, 0.0, 2.0].map(|strictness| sheltered_at(strictness, &[3.0, 2.8, 2.1], &[(2, 2.2)]).len());
        assert_eq!(of_strictness, [3, 3, 2], "as far as the cut reaches");
        assert!(sheltered(&[3.0, 2.8, 2.5], &[]).is_empty(), "without learning, the cut decides alone");
    }

    #[test]
    fn of_near_duplicates_the_one_that_is_used_keeps_the_place() {
        let mut ranked = ranking(&[3.0, 2.8, 2.5, 2.4]);
        // The tools 1 and 3 are near duplicates.
        apply(&mut ranked, &votes(&[(3, 0.5)]), 0.0, |key| if key == 3 { 1 } else { key });
        let leading: Vec<(u32, u32)> = ranked.iter().map(|one| (one.key, one.leads)).collect();
        assert_eq!(leading, [(0, 1), (3, 1), (1, 0), (2, 1)]);
    }

    #[test]
    fn without_votes_nothing_changes() {
        let mut ranked = ranking(&[3.0, 3.0, 0.0]);
        let before = ranked.clone();
        apply(&mut ranked, &HashMap::new(), 0.0, |key| key);
        assert_eq!(ranked, before);
        apply(&mut Vec::new(), &votes(&[(1, 1.0)]), 0.0, |key| key);
    }

    proptest! {
        /// What plain relevance puts first is pushed down at most, and what is about as good is still sent.
        #[test]
        fn the_best_matches_stay(
            scores in prop::collection::vec(-1.0_f32..5.0, 1..12),
            sums in prop::collection::vec((0_u32..14, -3.0_f32..3.0), 0..6),
        ) {
            let plain = ranking(&scores);
            let sent = |ranked: &[Ranked<u32>], gap: f32| -> Vec<u32> {
                let plain = CutCandidate { fused: 0.0, tokens: 1, server: 0, group: 0, leads: 0 };
                let candidate = |one: &Ranked<u32>| CutCandidate { fused: one.fused, group: one.key, leads: one.leads, ..plain };
                let candidates: Vec<CutCandidate> = ranked.iter().map(candidate).collect();
                let parameters = CutParameters { gap, minimum: 1, limit: 100, ..CutParameters::default() };
                cut(&candidates, &parameters).into_iter().map(|place| ranked[place].key).collect()
            };
            let mut ranked = plain.clone();
            let learned = apply(&mut ranked, &votes(&sums), 0.0, |key| key);
            let after = sent(&ranked, GAP + learned.allowance);
            prop_assert!(after.contains(&plain[0].key));
            for key in sent(&plain, GAP - learned.allowance - 1e-4) {
                let is_lowered = learned.deltas.get(&key).is_some_and(|delta| *delta < 0.0);
                prop_assert!(is_lowered || after.contains(&key), "{key}");
            }
        }
    }
}
