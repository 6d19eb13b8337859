//! Decides whether a ranking has a clear winner.

use super::fusion::Ranked;

/// The minimum lead of a clear ranking, in standard deviations of the candidates' scores.
///
/// On 2,500 of the project's own messages over 30 catalogs at once (1,105 tools), 65 % have a smaller lead. The first tool is
/// the right one in 26 % of these and in 68 % of the others. For some messages, the right tool has rank 11 to 30, where a
/// model that sees 30 tools can find it; 80 % of those have a smaller lead. With 0.3, the two shares are 45 % and 58 %; with
/// 1.0, 79 % and 91 %. The effect of a language model was not measured.
pub(crate) const MARGIN: f32 = 0.6;

/// Whether the best candidate leads the second by less than `MARGIN`. `ranked` is sorted best first. A single candidate is
/// never ambiguous.
pub fn is_ambiguous<K>(ranked: &[Ranked<K>]) -> bool {
    matches!(ranked, [first, second, ..] if first.fused - second.fused < MARGIN)
}

#[cfg(test)]
mod tests {
    use super::super::fusion::Ranked;
    use super::{MARGIN, is_ambiguous};

    #[test]
    fn a_lead_decides() {
        let ranking = |scores: &[f32]| -> Vec<Ranked<u32>> {
            (0..).zip(scores).map(|(key, &fused)| Ranked { key, fused, ..Ranked::default() }).collect()
        };
        assert!(is_ambiguous(&ranking(&[3.0, 3.0, 0.0])));
        assert!(is_ambiguous(&ranking(&[3.0, 3.0 - 0.9 * MARGIN])));
        assert!(!is_ambiguous(&ranking(&[3.0, 3.0 - 1.1 * MARGIN])));
        assert!(!is_ambiguous(&ranking(&[3.0])) && !is_ambiguous(&ranking(&[])));
    }
}
