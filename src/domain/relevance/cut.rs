//! How many of the ranked tools are worth their tokens.
//!
//! Works on the ranking alone, best first, in one pass:
//!
//! 1. **gap**: a candidate stays while its fused score is within a distance of the best one's. The distance is in
//!    standard deviations of the candidates, so it means the same for every message;
//! 2. **minimum** and **limit**: at least so many and at most so many tools;
//! 3. **coverage**: the best tool of every sentence stays, however far behind it is overall, within the limit;
//! 4. **near duplicates**: of tools that do the same (see `twins`) the first stays;
//! 5. **one server** may take only so many places, when that is asked for;
//! 6. **token budget**: a tool that would go over it is skipped, smaller ones after it may still fit; the best tool
//!    stays even when it alone is over.

/// Distance from the best fused score up to which tools stay, for a message of one part.
///
/// Over six sets of messages (the project's own, tasks for several tools, and four of other people) both gaps together keep
/// 6.6 tools of 10 on average and lose .007 of the recall of all ten; seven tools for every message lose .028.
pub const GAP: f32 = 1.5;
/// The same for a message of several sentences or clauses: it may ask for several tools.
pub const GAP_OF_PARTS: f32 = 3.0;
/// Tools that stay whatever their distance: near twins often share the first places.
pub const MINIMUM: usize = 3;
/// Tools that stay at most.
pub const LIMIT: usize = 10;

/// What the cut needs to know of one ranked tool.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CutCandidate {
    /// Fused score, descending over the ranking.
    pub fused: f32,
    /// Tokens of the tool's definition.
    pub tokens: u32,
    /// Any number that is the same for tools of one server.
    pub server: u32,
    /// Any number that is the same for near duplicates and no other tool's.
    pub twins: u32,
    /// Bit `i` is set if the tool is the best for text `i` (see `Ranked::leads`).
    pub leads: u32,
}

/// The limits of a selection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CutParameters {
    pub gap: f32,
    pub minimum: usize,
    pub limit: usize,
    /// Most tokens of all kept definitions together.
    pub token_budget: Option<u32>,
    /// Most tools of one server.
    pub per_server: Option<usize>,
}

impl Default for CutParameters {
    fn default() -> Self {
        Self { gap: GAP, minimum: MINIMUM, limit: LIMIT, token_budget: None, per_server: None }
    }
}

/// The places in `ranked` of the tools to keep, ascending. Empty only if `ranked` is or the limit is 0.
pub fn cut(ranked: &[CutCandidate], parameters: &CutParameters) -> Vec<usize> {
    let Some(best) = ranked.first() else { return Vec::new() };
    let floor = best.fused - parameters.gap;
    let near = ranked.iter().enumerate().take_while(|(place, it)| *place < parameters.minimum || it.fused >= floor).count();
    // The best tool and the sentences' leaders come first, so that neither limit nor budget pushes them out.
    let leads = |place: usize| place == 0 || ranked[place].leads != 0;
    let wanted = (0..ranked.len()).filter(|&place| leads(place)).chain((0..near).filter(|&place| !leads(place)));

    let mut kept: Vec<usize> = Vec::with_capacity(parameters.limit.min(ranked.len()));
    let mut tokens = 0_u32;
    for place in wanted {
        if kept.len() >= parameters.limit {
            break;
        }
        let candidate = &ranked[place];
        let sum = tokens.saturating_add(candidate.tokens);
        if kept.iter().any(|&other| ranked[other].twins == candidate.twins) {
            continue;
        }
        let affordable = place == 0 || parameters.token_budget.is_none_or(|budget| sum <= budget);
        let room = parameters
            .per_server
            .is_none_or(|most| kept.iter().filter(|&&other| ranked[other].server == candidate.server).count() < most.max(1));
        if affordable && room {
            tokens = sum;
            kept.push(place);
        }
    }
    kept.sort_unstable();
    kept
}
