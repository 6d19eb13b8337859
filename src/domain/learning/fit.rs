//! Learns from mistakes: how far each message of one person pulls its tools up and down.
//!
//! The pulls are the coefficients of a kernel softmax regression whose starting point is the ranking without learning. A message whose
//! tool came first by far anyway pulls hardly at all, and one whose tool was missed pulls strongly: its tool up, and the tools that came
//! before it down. The kernel is the dot product of two messages after what all of them have in common was subtracted.
//!
//! How much the ranking without learning is trusted differs between organisations, so it is measured: each message is predicted from the
//! ones before it, for several degrees of trust, and the best degree is used. If none predicts better than no learning, learning from
//! these messages doesn't help.

use super::stake::Stake;

/// How much a score of plain relevance weighs against pulls, and what predictions are assumed to gain by it before there are any. With
/// the first evidence, pulls are moderate.
const TRUSTS: [(f32, f32); 4] = [(0.7, 0.0), (1.2, 0.0), (2.0, 0.25), (4.0, 0.1)];
/// The degree of trust before anything is measured.
const FIRST_TRUST: f32 = 2.0;
/// The gain from which learning helps. A smaller one may be chance.
const LEAST_GAIN: f32 = 0.005;
/// How many standard errors the gain must be above that: with a confidence of 84 %, learning helps.
const CONFIDENCE: f32 = 1.0;
/// Number of imagined predictions that gain what is assumed.
const ASSUMED: f32 = 5.0;
/// The least share of later messages that need a tool that was used before. At first, all tools are new, which says nothing about messages
/// that need one of them again.
const AGAIN: f32 = 0.5;
/// The pull of a message that was predicted with a probability of 0.
const STRENGTH: f32 = 2.0;
/// How far pulls approach their aim in the first pass over the messages, and in each later one.
const RATES: [f32; 6] = [0.5, 0.3, 0.3, 0.3, 0.3, 0.3];
/// The share of the mean message that is subtracted from all messages.
const COMMON: f32 = 0.7;
/// With this number of messages, half of that share is subtracted, because their mean is less certain.
const FEW: f32 = 20.0;
/// The similarity of messages that have nothing in common. So tools that are used often rank a little higher everywhere.
const BIAS: f32 = 0.05;
/// Maximum number of predictions that are measured: the newest half of the messages, or this many.
const MEASURED: usize = 256;
/// The sharpness of predictions when they are measured. Each ranking is measured with the sharpness that suits it best. Otherwise, a
/// ranking would gain merely because it is less sure of itself.
const SHARPNESS: [f32; 4] = [0.4, 0.8, 1.5, 3.0];
/// The place of the usual sharpness.
const USUAL: usize = 2;
/// The share of predictions that are expected to fail, because people sometimes call a wrong tool. Bounds what one of them counts.
const CHANCE: f32 = 0.2;
/// The score of an imaginary rival, for messages with no known tools but the used ones, whose score is 0.
const RIVAL: f32 = 1.0;

/// What all pulls of a scope have in common.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fit {
    /// What all messages have in common.
    centre: Vec<f32>,
    square: f32,
    trust: f32,
    gain: f32,
    /// The gain's standard error.
    error: f32,
}

/// What predictions gain by learning.
#[derive(Clone, Copy)]
struct Measured {
    /// With the usual sharpness. Decides between degrees of trust.
    merit: f32,
    /// Each ranking with the sharpness that suits it best. Decides whether learning helps.
    gain: f32,
    /// The standard error of `gain`.
    error: f32,
}

impl Measured {
    fn least(&self) -> f32 {
        least(self.gain, self.error)
    }

    fn of(predictions: &[Prediction], assumed: f32) -> Self {
        let [with, without] = [0, 1].map(|side| {
            let total = |at: &usize| predictions.iter().map(|one| one.likelihoods[side][*at]).sum::<f32>();
            (0..SHARPNESS.len()).max_by(|one, other| total(one).total_cmp(&total(other))).unwrap_or_default()
        });
        let ((merit, _), (gain, error)) = (gain(predictions, (USUAL, USUAL), assumed), gain(predictions, (with, without), assumed));
        Self { merit, gain, error }
    }
}

/// One message, predicted from those before it.
struct Prediction {
    /// Whether one of the tools that it used was used before.
    is_again: bool,
    /// The log likelihoods with and without learning, for each sharpness.
    likelihoods: [[f32; SHARPNESS.len()]; 2],
}

/// What predictions gain with these places of the sharpness, with and without learning, and the standard error. Messages that used a tool
/// again and the others are measured apart, and weighted by the share that is expected later.
fn gain(predictions: &[Prediction], (with, without): (usize, usize), assumed: f32) -> (f32, f32) {
    let part = |is_again: bool, assumed: f32| {
        let those = predictions.iter().filter(|one| one.is_again == is_again);
        let gains = those.map(|one| one.likelihoods[0][with] - one.likelihoods[1][without]);
        let (count, sum, squares) =
            gains.fold((0.0, assumed, 0.0), |(count, sum, squares), gain| (count + 1.0, sum + gain, squares + gain * gain));
        let total: f32 = count + ASSUMED;
        let mean = sum / total;
        (count, mean, (squares / total - mean * mean).max(0.0) / total)
    };
    let ((again, of_again, variance_again), (new, of_new, variance_new)) = (part(true, assumed), part(false, 0.0));
    let share = (again / (again + new).max(1.0)).max(AGAIN);
    let rest = 1.0 - share;
    (share * of_again + rest * of_new, (share * share * variance_again + rest * rest * variance_new).sqrt())
}

/// One message, as it is learned from.
pub(super) struct Lesson<'a> {
    pub(super) vector: &'a [i8],
    pub(super) scale: f32,
    pub(super) stakes: &'a [Stake],
    /// For each stake, the weight of the evidence for it, or against it if negative.
    pub(super) weights: Vec<f32>,
}

impl Default for Fit {
    fn default() -> Self {
        let gain = TRUSTS.iter().map(|(_, assumed)| assumed / ASSUMED).fold(0.0, f32::max);
        Self { centre: Vec::new(), square: 0.0, trust: FIRST_TRUST, gain, error: 0.0 }
    }
}

impl Fit {
    /// Learns from messages in the order of time. Returns the pulls of each message.
    pub(super) fn of(lessons: &[Lesson<'_>], dimension: usize, tools: usize) -> (Self, Vec<Vec<f32>>) {
        let centre = centre(lessons, dimension);
        let square = centre.iter().map(|value| value * value).sum();
        let (mut surest, mut best): (Option<Measured>, Option<(f32, Learner)>) = (None, None);
        for (trust, assumed) in TRUSTS {
            let mut learner = Learner::new(trust, dimension, tools, lessons.len());
            let measured = learner.measured(lessons, &centre, assumed);
            if surest.as_ref().is_none_or(|known: &Measured| measured.least() > known.least()) {
                surest = Some(measured);
            }
            if best.as_ref().is_none_or(|(known, _)| measured.merit > *known) {
                best = Some((measured.merit, learner));
            }
        }
        let Some((Measured { gain, error, .. }, (_, mut learner))) = surest.zip(best) else { return (Self::default(), Vec::new()) };
        for rate in &RATES[1..] {
            learner.pass(lessons, &centre, *rate);
        }
        (Self { centre, square, trust: learner.trust, gain, error }, learner.pulls)
    }

    /// By how much learning predicts better than no learning, as a mean difference of log likelihoods.
    pub(super) fn gain(&self) -> f32 {
        self.gain
    }

    /// The standard error of [`Self::gain`].
    pub(super) fn error(&self) -> f32 {
        self.error
    }

    /// Whether learning predicts better than no learning.
    pub(super) fn helps(&self) -> bool {
        least(self.gain, self.error) >= LEAST_GAIN
    }

    /// The product of a message's vector with the centre.
    pub(super) fn offset(&self, vector: &[i8], scale: f32) -> f32 {
        self.centre.iter().zip(vector).map(|(centre, value)| centre * f32::from(*value)).sum::<f32>() * scale
    }

    /// How much a pull counts between two messages, by their cosine and offsets.
    pub(super) fn kernel(&self, cosine: f32, offsets: f32) -> f32 {
        (cosine - offsets + self.square + BIAS) / self.trust
    }

    /// The pulls of one more message, by how far the others move its tools and by its kernel with itself.
    pub(super) fn settled(&self, lesson: &Lesson<'_>, deltas: &[f32], itself: f32) -> Vec<f32> {
        let mut pulls = vec![0.0; deltas.len()];
        for rate in RATES {
            let moved: Vec<f32> = deltas.iter().zip(&pulls).map(|(delta, pull)| delta + itself * pull).collect();
            approach(&mut pulls, &lesson.aims(&moved, self.trust), rate);
        }
        pulls
    }
}

impl Lesson<'_> {
    /// The scores of the stakes without learning. Tools that were not among the best come last.
    pub(super) fn plain(&self) -> Vec<f32> {
        let lowest = self.stakes.iter().filter_map(|stake| stake.score()).reduce(f32::min).unwrap_or_default();
        self.stakes.iter().map(|stake| stake.score().unwrap_or(lowest - 0.01)).collect()
    }

    /// The scores of the stakes, and of the imagined rival if nothing is known about other tools.
    fn scores(&self, deltas: &[f32]) -> Vec<f32> {
        let lowest = self.stakes.iter().filter_map(|stake| stake.score()).reduce(f32::min);
        let scores = self.stakes.iter().zip(deltas).map(|(stake, delta)| stake.score().or(lowest).unwrap_or(0.0) + delta);
        scores.chain(lowest.is_none().then_some(RIVAL)).collect()
    }

    /// What each pull should be: positive for used tools, as far as they weren't expected; negative for the others.
    fn aims(&self, deltas: &[f32], trust: f32) -> Vec<f32> {
        let expected = softmax(&self.scores(deltas), trust);
        let total = self.positive();
        let importance = total.min(1.0);
        let aim = |(weight, expected): (&f32, &f32)| {
            let wanted = if total > 0.0 { importance * (weight.max(0.0) / total - expected) } else { 0.0 };
            STRENGTH * (wanted + weight.min(0.0) * expected)
        };
        self.weights.iter().zip(&expected).map(aim).collect()
    }

    /// The tools with evidence for them.
    fn used(&self) -> impl Iterator<Item = usize> {
        self.stakes.iter().zip(&self.weights).filter(|(_, weight)| **weight > 0.0).map(|(stake, _)| stake.tool())
    }

    fn positive(&self) -> f32 {
        self.weights.iter().map(|weight| weight.max(0.0)).sum()
    }

    /// How likely the used tools are. Never near 0, because some uses are mistakes.
    /// One number for each sharpness.
    fn log_likelihoods(&self, deltas: &[f32]) -> [f32; SHARPNESS.len()] {
        let scores = self.scores(deltas);
        SHARPNESS.map(|sharpness| {
            let expected = softmax(&scores, sharpness);
            let used: f32 = self.weights.iter().zip(&expected).filter(|(weight, _)| **weight > 0.0).map(|(_, expected)| expected).sum();
            ((1.0 - CHANCE) * used + CHANCE / 8.0).ln()
        })
    }

    fn centred(&self, centre: &[f32]) -> Vec<f32> {
        self.vector.iter().zip(centre).map(|(value, centre)| f32::from(*value) * self.scale - centre).collect()
    }
}

/// Learns pulls. For each tool, keeps the sum of all vectors by their pulls, so that a pass over all messages takes linear time.
struct Learner {
    trust: f32,
    dimension: usize,
    /// For each tool, its place in `sums` and `totals`.
    places: Vec<Option<usize>>,
    sums: Vec<f32>,
    totals: Vec<f32>,
    pulls: Vec<Vec<f32>>,
}

impl Learner {
    fn new(trust: f32, dimension: usize, tools: usize, lessons: usize) -> Self {
        let (places, pulls) = (vec![None; tools], Vec::with_capacity(lessons));
        Self { trust, dimension, places, sums: Vec::new(), totals: Vec::new(), pulls }
    }

    /// The first pass. Returns what the predictions gain: each message is predicted before it is learned from.
    fn measured(&mut self, lessons: &[Lesson<'_>], centre: &[f32], assumed: f32) -> Measured {
        let from = lessons.len() - lessons.len().div_ceil(2).min(MEASURED);
        let (mut measured, mut used) = (Vec::new(), vec![false; self.places.len()]);
        for (place, lesson) in lessons.iter().enumerate() {
            let vector = lesson.centred(centre);
            let deltas = self.deltas(lesson, &vector);
            if place >= from && lesson.positive() > 0.0 {
                let likelihoods = [lesson.log_likelihoods(&deltas), lesson.log_likelihoods(&vec![0.0; deltas.len()])];
                measured.push(Prediction { is_again: lesson.used().any(|tool| used[tool]), likelihoods });
            }
            lesson.used().for_each(|tool| used[tool] = true);
            self.pulls.push(vec![0.0; deltas.len()]);
            self.learn(place, lesson, (&vector, &deltas), RATES[0]);
        }
        Measured::of(&measured, assumed)
    }

    fn pass(&mut self, lessons: &[Lesson<'_>], centre: &[f32], rate: f32) {
        for (place, lesson) in lessons.iter().enumerate() {
            let vector = lesson.centred(centre);
            let deltas = self.deltas(lesson, &vector);
            self.learn(place, lesson, (&vector, &deltas), rate);
        }
    }

    /// How far all messages so far move the tools of this one.
    fn deltas(&self, lesson: &Lesson<'_>, vector: &[f32]) -> Vec<f32> {
        let delta = |stake: &Stake| {
            self.places[stake.tool()].map_or(0.0, |place| {
                let sum = &self.sums[place * self.dimension..(place + 1) * self.dimension];
                let product: f32 = sum.iter().zip(vector).map(|(one, other)| one * other).sum();
                (product + BIAS * self.totals[place]) / self.trust
            })
        };
        lesson.stakes.iter().map(delta).collect()
    }

    fn learn(&mut self, place: usize, lesson: &Lesson<'_>, (vector, deltas): (&[f32], &[f32]), rate: f32) {
        let aims = lesson.aims(deltas, self.trust);
        let before = self.pulls[place].clone();
        approach(&mut self.pulls[place], &aims, rate);
        for (at, stake) in lesson.stakes.iter().enumerate() {
            let change = self.pulls[place][at] - before[at];
            let known = &mut self.places[stake.tool()];
            let sum = *known.get_or_insert_with(|| {
                self.sums.resize(self.sums.len() + self.dimension, 0.0);
                self.totals.push(0.0);
                self.totals.len() - 1
            });
            self.totals[sum] += change;
            let sum = &mut self.sums[sum * self.dimension..(sum + 1) * self.dimension];
            sum.iter_mut().zip(vector).for_each(|(sum, value)| *sum += change * value);
        }
    }
}

/// What predictions gain at least, very probably.
fn least(gain: f32, error: f32) -> f32 {
    gain - CONFIDENCE * error
}

fn approach(pulls: &mut [f32], aims: &[f32], rate: f32) {
    pulls.iter_mut().zip(aims).for_each(|(pull, aim)| *pull += rate * (aim - *pull));
}

fn centre(lessons: &[Lesson<'_>], dimension: usize) -> Vec<f32> {
    let mut centre = vec![0.0; dimension];
    for lesson in lessons {
        centre.iter_mut().zip(lesson.vector).for_each(|(sum, value)| *sum += f32::from(*value) * lesson.scale);
    }
    let factor = COMMON / (lessons.len() as f32 + FEW);
    centre.into_iter().map(|sum| sum * factor).collect()
}

fn softmax(scores: &[f32], sharpness: f32) -> Vec<f32> {
    let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let exponents: Vec<f32> = scores.iter().map(|score| (sharpness * (score - most)).exp()).collect();
    let total: f32 = exponents.iter().sum();
    exponents.into_iter().map(|one| one / total).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Fit, Lesson, STRENGTH};
    use crate::domain::learning::stake::Stake;

    fn lesson<'a>(vector: &'a [i8], stakes: &'a [Stake], used: usize) -> Lesson<'a> {
        let weights = stakes.iter().map(|stake| if stake.tool() == used { 1.0 } else { 0.0 }).collect();
        Lesson { vector, scale: 0.01, stakes, weights }
    }

    fn stakes(scores: &[f32]) -> Box<[Stake]> {
        Stake::joined(&[], &scores.iter().copied().enumerate().collect::<Vec<_>>(), std::iter::empty())
    }

    #[test]
    fn mistakes_pull_and_hits_hardly_do() {
        let stakes = stakes(&[3.0, 1.0, 0.0]);
        let (_, hit) = Fit::of(&[lesson(&[100, 0], &stakes, 0)], 2, 3);
        let (_, miss) = Fit::of(&[lesson(&[100, 0], &stakes, 1)], 2, 3);
        assert!(hit[0].iter().all(|pull| pull.abs() < 0.2), "{hit:?}");
        assert!(miss[0][1] > 0.5 && miss[0][0] < -0.5 && miss[0][2].abs() < 0.2, "{miss:?}");
    }

    #[test]
    fn a_habit_that_the_ranking_misses_is_trusted_more_and_chance_is_not() {
        let (stakes, vectors) = (stakes(&[1.0, 0.8]), [[100_i8, 0], [90, 40], [95, 20], [99, -10]]);
        let fit = |used: &dyn Fn(usize) -> usize| {
            let lessons: Vec<Lesson<'_>> = (0..40).map(|at| lesson(&vectors[at % 4], &stakes, used(at))).collect();
            Fit::of(&lessons, 2, 2).0
        };
        let (habit, chance) = (fit(&|_| 1), fit(&|at| usize::from(at * at * 7 % 11 < 5)));
        assert!(habit.gain() > 0.2 && habit.trust < 2.0, "{habit:?}");
        assert!(chance.gain() < habit.gain() / 4.0, "{chance:?}");
    }

    /// Each tool was used once, where another one came first. Nothing could be predicted, and much can be learned.
    #[test]
    fn first_uses_of_tools_count() {
        let lists: Vec<Box<[Stake]>> = (0..30).map(|at| Stake::joined(&[], &[(at, 1.0), (30 + at, 0.8)], std::iter::empty())).collect();
        let vectors: Vec<Vec<i8>> = (0..30).map(|at| (0..32).map(|place| if place == at { 100 } else { 20 }).collect()).collect();
        let lessons: Vec<Lesson<'_>> =
            lists.iter().zip(&vectors).enumerate().map(|(at, (list, vector))| lesson(vector, list, 30 + at)).collect();
        let (fit, pulls) = Fit::of(&lessons, 32, 60);
        assert!(fit.helps() && fit.trust <= 2.0, "{fit:?}");
        assert!(pulls.iter().all(|pulls| pulls[1] > 0.3), "{pulls:?}");
    }

    proptest! {
        #[test]
        fn pulls_are_bounded(
            vectors in prop::collection::vec(prop::collection::vec(-127_i8..=127, 4), 1..12),
            scores in prop::collection::vec(-3.0_f32..6.0, 0..4),
            used in prop::collection::vec((0_usize..4, -1.5_f32..1.5), 12),
        ) {
            let stakes: Vec<Box<[Stake]>> = used.iter().map(|(tool, _)| {
                Stake::joined(&[], &scores.iter().copied().enumerate().collect::<Vec<_>>(), std::iter::once(*tool))
            }).collect();
            let lessons: Vec<Lesson<'_>> = vectors.iter().zip(&stakes).zip(&used).map(|((vector, stakes), (tool, weight))| Lesson {
                vector, scale: 1.0 / 127.0, stakes,
                weights: stakes.iter().map(|stake| if stake.tool() == *tool { *weight } else { 0.0 }).collect(),
            }).collect();
            let (fit, pulls) = Fit::of(&lessons, 4, 4);
            prop_assert!(fit.gain().is_finite());
            prop_assert_eq!(pulls.len(), lessons.len());
            for pull in pulls.iter().flatten() {
                prop_assert!(pull.abs() <= 1.5 * STRENGTH + 1e-3, "{}", pull);
            }
        }
    }
}
