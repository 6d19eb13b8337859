//! Cuts the ranking where further tools are not worth their tokens.
//!
//! Uses only the ranking, best first, in one pass:
//!
//! 1. **gap**: a candidate stays while its fused score is within a distance of the best score. The distance is in standard
//!    deviations of the candidates, so it means the same for every message;
//! 2. **minimum** and **limit**: bounds on the number of tools;
//! 3. **coverage**: the best tool of every sentence stays, however low its overall rank, within the limit;
//! 4. **near duplicates**: only the first of several near duplicates stays (see `catalog::texts::near_duplicates`);
//! 5. **per server**: optionally, a maximum number of tools per server;
//! 6. **token budget**: a tool that exceeds the budget is skipped; smaller ones after it may still fit. The best tool always
//!    stays.

use crate::domain::text::named::named;

/// Maximum distance from the best fused score, for a message of one part.
///
/// Measured on six sets of messages: the project's own, tasks for several tools, and four external ones. Both gaps together
/// keep 6.6 of 10 tools on average and lose .007 of the recall of all ten; seven tools for every message lose .028.
pub const GAP: f32 = 1.5;
/// Like [`GAP`], for a message of several sentences or clauses, which may need several tools.
pub const GAP_OF_PARTS: f32 = 3.0;
/// The factor by which one step of `selection.strictness` changes the gap.
const STRICTNESS_FACTOR: f32 = 0.7;
/// Minimum number of tools, whatever their distance: the first ranks are often near duplicates.
pub const MINIMUM: usize = 3;
/// Maximum number of tools.
pub const LIMIT: usize = 10;

/// The properties of a ranked tool that affect the cut.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CutCandidate {
    /// The fused score. It descends along the ranking.
    pub fused: f32,
    /// Token count of the tool's definition.
    pub tokens: u32,
    /// A number that identifies the tool's server.
    pub server: u32,
    /// A number that identifies the tool's group of near duplicates.
    pub group: u32,
    /// Bit `i` is set if the tool is the best for text `i` (see `Ranked::leads`).
    pub leads: u32,
}

named! {
    /// The reason why a ranked tool was not selected.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum CutReason {
        /// The limit on the number of tools.
        Limit = "limit",
        /// The distance from the best score.
        FallOff = "fall_off",
        /// The token budget.
        Budget = "budget",
        /// A near duplicate of a better tool.
        Duplicate = "duplicate",
        /// The limit on the number of tools per server.
        PerServer = "per_server",
        /// The message needs no tool.
        Gate = "gate",
        /// A language model left the tool out.
        Judge = "judge",
    }
}

/// The distance from the best score at a strictness: `gap` at 0, less above, more below.
pub fn gap_at(gap: f32, strictness: f32) -> f32 {
    gap * STRICTNESS_FACTOR.powf(strictness)
}

/// The limits of a selection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CutParameters {
    pub gap: f32,
    pub minimum: usize,
    pub limit: usize,
    /// Maximum number of tokens of all kept definitions together.
    pub token_budget: Option<u32>,
    /// Maximum number of tools per server.
    pub per_server: Option<usize>,
}

impl Default for CutParameters {
    fn default() -> Self {
        Self { gap: GAP, minimum: MINIMUM, limit: LIMIT, token_budget: None, per_server: None }
    }
}

/// The positions in `ranked` of the tools to keep, ascending. Empty only if `ranked` is empty or the limit is 0.
pub fn cut(ranked: &[CutCandidate], parameters: &CutParameters) -> Vec<usize> {
    cut_noting(ranked, parameters, None)
}

/// Like [`cut`], and calls `note` with the position of each other tool and the reason.
pub fn cut_noting(ranked: &[CutCandidate], parameters: &CutParameters, note: Option<&mut dyn FnMut(usize, CutReason)>) -> Vec<usize> {
    let is_noted = note.is_some();
    let mut ignore = |_, _| {};
    let note = note.unwrap_or(&mut ignore);
    let Some(best) = ranked.first() else { return Vec::new() };
    let floor = best.fused - parameters.gap;
    let near = ranked.iter().enumerate().take_while(|(place, it)| *place < parameters.minimum || it.fused >= floor).count();
    // Keep the best tool and the leaders of the sentences first, so that neither limit nor budget removes them.
    let leads = |place: usize| place == 0 || ranked[place].leads != 0;
    let wanted = (0..ranked.len()).filter(|&place| leads(place)).chain((0..near).filter(|&place| !leads(place)));

    let mut kept: Vec<usize> = Vec::with_capacity(parameters.limit.min(ranked.len()));
    let mut tokens = 0_u32;
    for place in wanted {
        if kept.len() >= parameters.limit {
            if !is_noted {
                break;
            }
            note(place, CutReason::Limit);
            continue;
        }
        let candidate = &ranked[place];
        let sum = tokens.saturating_add(candidate.tokens);
        if kept.iter().any(|&other| ranked[other].group == candidate.group) {
            note(place, CutReason::Duplicate);
            continue;
        }
        let affordable = place == 0 || parameters.token_budget.is_none_or(|budget| sum <= budget);
        let room = parameters
            .per_server
            .is_none_or(|most| kept.iter().filter(|&&other| ranked[other].server == candidate.server).count() < most.max(1));
        if affordable && room {
            tokens = sum;
            kept.push(place);
        } else {
            note(place, if affordable { CutReason::PerServer } else { CutReason::Budget });
        }
    }
    if is_noted {
        (near..ranked.len()).filter(|&place| !leads(place)).for_each(|place| note(place, CutReason::FallOff));
    }
    kept.sort_unstable();
    kept
}

/// The positions of further tools of `server`, ascending: the next turns of a conversation mostly need tools of the best tool's
/// server. `kept` are all other chosen tools, in the ranking or beside it. Keeps at most `of_server` tools of the server in total. Limit,
/// token budget and near duplicates apply as in [`cut`].
pub fn companions(ranked: &[CutCandidate], kept: &[CutCandidate], parameters: &CutParameters, server: u32, of_server: usize) -> Vec<usize> {
    let most = parameters.per_server.map_or(of_server, |most| of_server.min(most.max(1)));
    let mut room = parameters.limit.saturating_sub(kept.len());
    room = room.min(most.saturating_sub(kept.iter().filter(|kept| kept.server == server).count()));
    let mut tokens = kept.iter().fold(0_u32, |sum, kept| sum.saturating_add(kept.tokens));
    let mut more: Vec<usize> = Vec::with_capacity(room);
    for (place, candidate) in ranked.iter().enumerate().filter(|(_, candidate)| candidate.server == server) {
        if more.len() >= room {
            break;
        }
        let sum = tokens.saturating_add(candidate.tokens);
        let is_affordable = parameters.token_budget.is_none_or(|budget| sum <= budget);
        let mut others = kept.iter().chain(more.iter().map(|&other| &ranked[other]));
        if is_affordable && !others.any(|other| other.group == candidate.group) {
            tokens = sum;
            more.push(place);
        }
    }
    more
}

#[cfg(test)]
mod tests {
    use super::{CutCandidate, CutParameters, companions};

    fn candidates(servers: &[u32]) -> Vec<CutCandidate> {
        (0..).zip(servers).map(|(group, &server)| CutCandidate { fused: 3.0, tokens: 100, server, group, leads: 0 }).collect()
    }

    #[test]
    fn more_of_the_best_ones_server_come_along() {
        let ranked = candidates(&[1, 2, 1, 3, 1, 1, 1]);
        let of = |parameters: CutParameters, of_server| companions(&ranked, &ranked[..3], &parameters, 1, of_server);
        let plain = CutParameters::default();
        assert_eq!(of(plain, 4), [4, 5]);
        assert_eq!(of(CutParameters { limit: 4, ..plain }, 4), [4], "the limit is for all");
        assert_eq!(of(CutParameters { token_budget: Some(450), ..plain }, 4), [4], "so is the budget");
        assert_eq!(of(CutParameters { per_server: Some(2), ..plain }, 4), [0; 0], "a server has its places already");
        assert_eq!(of(plain, 1), [0; 0]);
    }

    #[test]
    fn no_near_duplicate_comes_along() {
        let mut ranked = candidates(&[1, 1, 1]);
        ranked[1].group = 0;
        assert_eq!(companions(&ranked, &ranked[..1], &CutParameters::default(), 1, 8), [2]);
    }

    #[test]
    fn what_is_chosen_beside_the_ranking_counts_too() {
        let ranked = candidates(&[1, 1, 1, 1]);
        let beside = CutCandidate { group: 2, ..ranked[0] };
        let of = |per_server| companions(&ranked, &[ranked[0], beside], &CutParameters { per_server, ..CutParameters::default() }, 1, 8);
        assert_eq!(of(None), [1, 3], "no near duplicate of it");
        assert_eq!(of(Some(3)), [1]);
        assert_eq!(of(Some(2)), [0; 0]);
    }
}
