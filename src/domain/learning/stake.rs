//! The tools that a remembered message moves, in eight bytes each.

/// The score of a tool that was not among the best.
const UNKNOWN: i16 = i16::MIN;
/// Scores and pulls are stored in thousandths.
const UNIT: f32 = 1_000.0;

/// What a message knows about a tool: its score without learning, and how far the message pulls it up (or down, if negative).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stake {
    tool: u32,
    score: i16,
    pull: i16,
}

impl Stake {
    fn new(tool: usize, score: Option<f32>) -> Self {
        Self { tool: u32::try_from(tool).unwrap_or(u32::MAX), score: score.map_or(UNKNOWN, stored), pull: 0 }
    }

    /// The stakes of a message: those that it has, otherwise its rivals, and the tools with evidence.
    pub(super) fn joined(known: &[Self], rivals: &[(usize, f32)], used: impl Iterator<Item = usize>) -> Box<[Self]> {
        let mut stakes = known.to_vec();
        if known.iter().all(|stake| stake.score == UNKNOWN) {
            for &(tool, score) in rivals {
                match stakes.iter_mut().find(|stake| stake.tool() == tool) {
                    Some(stake) => stake.score = stored(score),
                    None => stakes.push(Self::new(tool, Some(score))),
                }
            }
        }
        for tool in used {
            if stakes.iter().all(|stake| stake.tool() != tool) {
                stakes.push(Self::new(tool, None));
            }
        }
        stakes.into()
    }

    pub(super) fn tool(self) -> usize {
        self.tool as usize
    }

    /// `None` if the tool was not among the best ones.
    pub(super) fn score(self) -> Option<f32> {
        (self.score != UNKNOWN).then(|| f32::from(self.score) / UNIT)
    }

    pub(super) fn pull(self) -> f32 {
        f32::from(self.pull) / UNIT
    }

    pub(super) fn with_pull(self, pull: f32) -> Self {
        Self { pull: stored(pull), ..self }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "clamped to what fits")]
fn stored(value: f32) -> i16 {
    (value * UNIT).round().clamp(-f32::from(i16::MAX), f32::from(i16::MAX)) as i16
}

#[cfg(test)]
mod tests {
    use super::Stake;

    #[test]
    fn stakes_keep_their_first_scores_and_gain_used_tools() {
        let stakes = Stake::joined(&[], &[(3, 2.5), (4, 1.0)], [4, 9].into_iter());
        let shown = |stakes: &[Stake]| stakes.iter().map(|stake| (stake.tool(), stake.score())).collect::<Vec<_>>();
        assert_eq!(shown(&stakes), [(3, Some(2.5)), (4, Some(1.0)), (9, None)]);
        let later = Stake::joined(&stakes, &[(3, 0.0), (5, 0.0)], [3].into_iter());
        assert_eq!(shown(&later), shown(&stakes));
        let of_search = Stake::joined(&[], &[], [9].into_iter());
        assert_eq!(shown(&Stake::joined(&of_search, &[(9, 1.5)], [].into_iter())), [(9, Some(1.5))]);
    }

    #[test]
    fn values_out_of_range_are_clamped() {
        let stake = Stake::new(0, Some(1e9)).with_pull(-1e9);
        assert_eq!((stake.score(), stake.pull()), (Some(32.767), -32.767));
        assert!(Stake::new(0, Some(f32::NAN)).score().is_some_and(f32::is_finite));
    }
}
