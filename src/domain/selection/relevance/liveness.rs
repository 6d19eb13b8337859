//! Ranks tools of available servers ahead of those of unavailable ones.

use std::collections::HashMap;

use super::fusion::{Ranked, sort};

/// Penalty for a tool whose server is down, in standard deviations. It moves the tool behind about equally good ones but does not
/// hide the only match.
pub(crate) const DOWN: f32 = 0.5;

/// Moves tools of unavailable servers down. An available near duplicate takes the rank of such a tool. `group`
/// identifies groups of near duplicates.
pub fn living_first(ranked: &mut [Ranked<u32>], is_down: impl Fn(u32) -> bool, group: impl Fn(u32) -> u32) {
    // For each group, the best unavailable tool and the best available one.
    let mut of_groups: HashMap<u32, (usize, Option<usize>)> = HashMap::new();
    for (place, candidate) in ranked.iter().enumerate() {
        if is_down(candidate.key) {
            of_groups.entry(group(candidate.key)).or_insert((place, None));
        }
    }
    if of_groups.is_empty() {
        return;
    }
    for (place, candidate) in ranked.iter().enumerate() {
        if !is_down(candidate.key)
            && let Some((_, living)) = of_groups.get_mut(&group(candidate.key))
        {
            living.get_or_insert(place);
        }
    }
    for (dead, living) in of_groups.into_values() {
        if let Some(living) = living.filter(|living| *living > dead) {
            let (fused, leads) = (ranked[dead].fused, ranked[dead].leads);
            ranked[dead].fused = ranked[living].fused;
            ranked[dead].leads = 0;
            ranked[living].fused = fused;
            ranked[living].leads |= leads;
        }
    }
    for candidate in ranked.iter_mut().filter(|candidate| is_down(candidate.key)) {
        candidate.fused -= DOWN;
    }
    sort(ranked);
}

#[cfg(test)]
mod tests {
    use super::{DOWN, Ranked, living_first};

    fn ranked(scores: &[(u32, f32, u32)]) -> Vec<Ranked<u32>> {
        scores.iter().map(|&(key, fused, leads)| Ranked { key, fused, leads, ..Ranked::default() }).collect()
    }

    fn order(ranked: &[Ranked<u32>]) -> Vec<u32> {
        ranked.iter().map(|ranked| ranked.key).collect()
    }

    #[test]
    fn a_living_duplicate_takes_the_place_of_a_dead_one() {
        let mut tools = ranked(&[(0, 4.0, 1), (1, 3.0, 2), (2, 0.2, 0)]);
        // Tools 0 and 2 are near duplicates; 0 is down.
        living_first(&mut tools, |key| key == 0, |key| key % 2);
        assert_eq!(order(&tools), [2, 1, 0]);
        assert_eq!((tools[0].fused, tools[0].leads, tools[2].leads), (4.0, 1, 0));
        assert!((tools[2].fused - (0.2 - DOWN)).abs() < 1e-6);
    }

    #[test]
    fn without_a_duplicate_it_goes_behind_what_fits_as_well_and_stays_first_where_nothing_does() {
        let mut tools = ranked(&[(0, 3.1, 1), (1, 3.0, 0), (2, 1.0, 0)]);
        living_first(&mut tools, |key| key == 0, |key| key);
        assert_eq!(order(&tools), [1, 0, 2]);
        let mut tools = ranked(&[(0, 4.0, 1), (1, 3.0, 0)]);
        living_first(&mut tools, |key| key == 0, |key| key);
        assert_eq!((order(&tools), tools[0].leads), (vec![0, 1], 1));
    }

    #[test]
    fn where_all_answer_nothing_changes() {
        let before = ranked(&[(0, 1.0, 0), (1, 2.0, 1)]);
        let mut tools = before.clone();
        living_first(&mut tools, |_| false, |_| 0);
        assert_eq!(tools, before);
    }
}
