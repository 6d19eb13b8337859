//! The result of a replay: whether learning from older messages would have helped the newer ones.

/// Minimum number of messages with a ranking and a used tool.
pub(crate) const NEEDED: usize = 40;
/// Maximum number of newer messages that are measured.
pub(super) const MEASURED: usize = 500;
/// How many standard errors the ranking must be better: with a probability of 95 %, it is.
const CONFIDENCE: f64 = 1.645;
/// The ranks that count.
const RANKS: usize = 5;

/// Number of parts in which the newer messages are also measured.
pub const PARTS: usize = 8;

/// What a replay measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Replayed {
    /// The mean nDCG@5 of the newer messages without learning.
    pub before: f64,
    /// The same, after learning from the older messages.
    pub after: f64,
    /// Both means for each part of the newer messages, oldest part first.
    pub curve: [(f64, f64); PARTS],
    pub verdict: Verdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Better,
    Worse,
    /// Better, but perhaps by chance.
    Unsure,
}

impl Replayed {
    /// `scores`: the nDCG@5 of each newer message without and with learning. There is at least one.
    pub(super) fn of(scores: &[(f64, f64)]) -> Self {
        let count = scores.len().max(1) as f64;
        let (before, after) = means(scores);
        let part = |at: usize| &scores[at * scores.len() / PARTS..(at + 1) * scores.len() / PARTS];
        let squares = scores.iter().map(|pair| (pair.1 - pair.0 - (after - before)).powi(2)).sum::<f64>() / count;
        let least = after - before - CONFIDENCE * (squares / count).sqrt();
        let verdict = match after - before {
            gain if gain < 0.0 => Verdict::Worse,
            _ if least > 0.0 => Verdict::Better,
            _ => Verdict::Unsure,
        };
        Self { before, after, curve: std::array::from_fn(|at| means(part(at))), verdict }
    }
}

fn means(scores: &[(f64, f64)]) -> (f64, f64) {
    let count = scores.len().max(1) as f64;
    let (before, after) = scores.iter().fold((0.0, 0.0), |sums, pair| (sums.0 + pair.0, sums.1 + pair.1));
    (before / count, after / count)
}

/// The nDCG@5 of a ranking: for each tool its score, and whether it was used.
pub(super) fn ndcg(scores: &[(f32, bool)]) -> f64 {
    let mut order: Vec<&(f32, bool)> = scores.iter().collect();
    order.sort_by(|one, other| other.0.total_cmp(&one.0));
    let discount = |place: usize| 1.0 / ((place + 2) as f64).log2();
    let gained: f64 = (0..RANKS).zip(order).filter(|(_, (_, is_used))| *is_used).map(|(place, _)| discount(place)).sum();
    let used = scores.iter().filter(|(_, is_used)| *is_used).count();
    if used == 0 { 0.0 } else { gained / (0..used.min(RANKS)).map(discount).sum::<f64>() }
}

#[cfg(test)]
mod tests {
    use super::{Replayed, Verdict, ndcg};

    #[test]
    fn rankings_are_measured_by_the_ranks_of_used_tools() {
        assert!((ndcg(&[(3.0, true), (2.0, false)]) - 1.0).abs() < 1e-9);
        assert!((ndcg(&[(3.0, false), (2.0, true)]) - 1.0 / 3.0_f64.log2()).abs() < 1e-9);
        assert!(ndcg(&[(3.0, false)]).abs() < 1e-9);
        let sixth: Vec<(f32, bool)> = (0..6_u8).map(|place| (-f32::from(place), place == 5)).collect();
        assert!(ndcg(&sixth).abs() < 1e-9);
    }

    #[test]
    fn only_a_clear_gain_is_better() {
        let verdict = |pairs: &[(f64, f64)]| Replayed::of(pairs).verdict;
        assert_eq!(verdict(&[(0.5, 0.6); 30]), Verdict::Better);
        assert_eq!(verdict(&[(0.5, 0.4); 30]), Verdict::Worse);
        assert_eq!(verdict(&[(0.5, 0.5); 30]), Verdict::Unsure);
        let rising: Vec<(f64, f64)> = (0..20).map(|at| (0.5, if at < 10 { 0.25 } else { 0.75 })).collect();
        let curve = Replayed::of(&rising).curve;
        assert_eq!((curve[0], curve[3], curve[4], curve[7]), ((0.5, 0.25), (0.5, 0.25), (0.5, 0.75), (0.5, 0.75)));
        let chance: Vec<(f64, f64)> = (0..30).map(|at| if at % 2 == 0 { (0.0, 1.0) } else { (0.9, 0.0) }).collect();
        assert_eq!(verdict(&chance), Verdict::Unsure);
    }
}
