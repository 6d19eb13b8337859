//! One ranking from two kinds of evidence.
//!
//! The index is asked twice for every text that is searched for (the message, and the sentences of a long one): for the
//! candidates with the best cosines and for those with the best BM25 scores. A [`Candidates`] gathers both kinds of
//! answer by key; [`Candidates::missing_dense`] names the cosines that only the lexical list knew nothing of and that
//! the caller should still compute; a lexical score that is missing is 0. [`Candidates::fuse`] then normalises each
//! kind to z-scores over the union, per text, and adds them with a weight; a long message's score is half its own and
//! half its best sentence's.
//!
//! Measured on the project's retrieval sets (mean R@5): reciprocal rank fusion with k = 60 .708, k = 5 .734, min-max
//! .737, z-scores .743. Rank fusions over the sentences, and taking turns between them, lose.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;

/// Weight of the dense half, the lexical half has the rest. With the stock weights .65 to .7 are equally good; with the
/// fine-tuned ones .8 (macro R@5 .831 and R@1 .716 against .827 and .709 at .65, on samples of two of the four sets).
pub const DENSE_WEIGHT: f32 = 0.8;
/// Weight of a long message's best sentence; the whole message has the rest. .5 to .7 are equally good for messages with
/// one request, more is better for those with several (R@5 .904 at .5, .909 at .6, .919 at .7).
pub const SENTENCE_WEIGHT: f32 = 0.6;
/// Candidates to ask the index for, for the whole message and per kind of evidence. With 50 macro R@5 is .003 lower.
pub const CANDIDATES_PER_LIST: usize = 100;
/// Candidates to ask the index for, for each sentence and per kind of evidence. More than 30 gain nothing.
pub const SENTENCE_CANDIDATES_PER_LIST: usize = 30;

/// Slope of the readable score, per standard deviation.
pub const SCORE_SLOPE: f32 = 1.35;
/// The fused score at which every second candidate is the wanted tool.
pub const SCORE_MIDDLE: f32 = 4.05;

/// The weights of a fusion, each between 0 and 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FusionParameters {
    pub dense_weight: f32,
    pub sentence_weight: f32,
}

impl Default for FusionParameters {
    fn default() -> Self {
        Self { dense_weight: DENSE_WEIGHT, sentence_weight: SENTENCE_WEIGHT }
    }
}

/// A candidate with its place in the ranking.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ranked<K> {
    pub key: K,
    /// Weighted sum of z-scores: 0 is the average candidate, the best is usually between 2 and 5.
    pub fused: f32,
    /// Best raw cosine over the texts, where there is one.
    pub dense: Option<f32>,
    /// Best raw BM25 score over the texts.
    pub lexical: f32,
    /// Bit `i` is set if this is the best candidate for text `i` (0 is the whole message).
    pub leads: u32,
}

impl<K> Ranked<K> {
    /// `fused` as a number between 0 and 1 for people to read, see [`readable_score`].
    pub fn score(&self) -> f32 {
        readable_score(self.fused)
    }
}

/// Maps a fused score to a number between 0 and 1, keeping the order: the share of the candidates with such a score that
/// were the wanted tool, as a logistic curve fitted to 4,289 messages in catalogues of 20 to 1,898 tools. 0.5 is
/// therefore a strong match, and ranks far below the first are near 0.
pub fn readable_score(fused: f32) -> f32 {
    (1.0 + (SCORE_SLOPE * (SCORE_MIDDLE - fused)).exp()).recip()
}

/// What is known of the candidates of one message, by key. At most 32 texts.
#[derive(Debug, Clone)]
pub struct Candidates<K> {
    texts: usize,
    rows: HashMap<K, usize>,
    keys: Vec<K>,
    /// Row-major, a candidate's texts beside each other.
    dense: Vec<Option<f32>>,
    lexical: Vec<f32>,
}

impl<K: Copy + Eq + Hash + Ord> Candidates<K> {
    /// For `texts` searched texts, the first of which is the whole message.
    pub fn new(texts: usize) -> Self {
        let texts = texts.max(1);
        Self { texts, rows: HashMap::new(), keys: Vec::new(), dense: Vec::new(), lexical: Vec::new() }
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Notes a cosine (-1 to 1); of several for one tool and text the best stays. A number that is not finite and a text
    /// beyond the last are ignored.
    pub fn add_dense(&mut self, text: usize, key: K, cosine: f32) {
        if text >= self.texts || !cosine.is_finite() {
            return;
        }
        let at = self.row(key) * self.texts + text;
        let cell = &mut self.dense[at];
        *cell = Some(cell.map_or(cosine, |known| known.max(cosine)));
    }

    /// Notes a BM25 score (0 or more), under the same conditions.
    pub fn add_lexical(&mut self, text: usize, key: K, score: f32) {
        if text >= self.texts || !score.is_finite() {
            return;
        }
        let at = self.row(key) * self.texts + text;
        let cell = &mut self.lexical[at];
        *cell = cell.max(score);
    }

    /// The pairs of text and key for which no cosine has been noted yet.
    pub fn missing_dense(&self) -> impl Iterator<Item = (usize, K)> {
        let texts = self.texts;
        self.dense.iter().enumerate().filter(|(_, cosine)| cosine.is_none()).map(move |(at, _)| (at % texts, self.keys[at / texts]))
    }

    fn row(&mut self, key: K) -> usize {
        match self.rows.entry(key) {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => {
                let row = self.keys.len();
                entry.insert(row);
                self.keys.push(key);
                self.dense.resize(self.dense.len() + self.texts, None);
                self.lexical.resize(self.lexical.len() + self.texts, 0.0);
                row
            }
        }
    }

    /// All candidates, best first; equal scores in the order of their keys, so the result does not depend on the order
    /// in which the evidence came in.
    ///
    /// A candidate without a cosine (its tool is not embedded yet) is given its lexical z-score in the place of the
    /// dense one. Without any cosine at all the ranking is the lexical one.
    pub fn fuse(&self, parameters: &FusionParameters) -> Vec<Ranked<K>> {
        let rows = self.keys.len();
        // Sums of floats depend on the order of the summands; the keys give one that does not depend on the caller.
        let mut order: Vec<usize> = (0..rows).collect();
        order.sort_unstable_by_key(|&row| self.keys[row]);
        let mut fused = vec![0.0; rows];
        let mut best_sentence = vec![f32::NEG_INFINITY; if self.texts > 1 { rows } else { 0 }];
        let mut leads = vec![0_u32; rows];
        for text in 0..self.texts {
            let dense = Scale::of(order.iter().filter_map(|&row| self.dense[row * self.texts + text]));
            let lexical = Scale::of(order.iter().map(|&row| self.lexical[row * self.texts + text]));
            let mut leader: Option<(f32, usize)> = None;
            for &row in &order {
                let at = row * self.texts + text;
                let lexical_z = lexical.z(self.lexical[at]);
                let dense_z = self.dense[at].map_or(lexical_z, |cosine| dense.z(cosine));
                let score = parameters.dense_weight * dense_z + (1.0 - parameters.dense_weight) * lexical_z;
                if text == 0 {
                    fused[row] = score;
                } else {
                    best_sentence[row] = best_sentence[row].max(score);
                }
                if leader.is_none_or(|(best, _)| score > best) {
                    leader = Some((score, row));
                }
            }
            if let Some((_, row)) = leader {
                leads[row] |= u32::try_from(text).ok().and_then(|text| 1_u32.checked_shl(text)).unwrap_or(0);
            }
        }
        let share = parameters.sentence_weight;
        for (whole, sentence) in fused.iter_mut().zip(&best_sentence) {
            *whole = (1.0 - share) * *whole + share * sentence;
        }
        let mut ranked: Vec<Ranked<K>> = (0..rows).map(|row| self.ranked(row, fused[row], leads[row])).collect();
        ranked.sort_unstable_by(|a, b| b.fused.total_cmp(&a.fused).then(a.key.cmp(&b.key)));
        ranked
    }

    fn ranked(&self, row: usize, fused: f32, leads: u32) -> Ranked<K> {
        let cells = row * self.texts..(row + 1) * self.texts;
        Ranked {
            key: self.keys[row],
            fused,
            dense: self.dense[cells.clone()].iter().flatten().copied().reduce(f32::max),
            lexical: self.lexical[cells].iter().copied().fold(0.0, f32::max),
            leads,
        }
    }
}

/// Mean and inverse standard deviation of a column. All equal: every z-score is 0.
struct Scale {
    mean: f32,
    inverse: f32,
}

impl Scale {
    fn of(values: impl Iterator<Item = f32> + Clone) -> Self {
        let (count, sum) = values.clone().fold((0.0_f32, 0.0), |(count, sum), value| (count + 1.0, sum + value));
        let mean = if count > 0.0 { sum / count } else { 0.0 };
        let squares: f32 = values.map(|value| (value - mean) * (value - mean)).sum();
        let deviation = (squares / count.max(1.0)).sqrt();
        Self { mean, inverse: if deviation > 1e-6 { deviation.recip() } else { 0.0 } }
    }

    fn z(&self, value: f32) -> f32 {
        (value - self.mean) * self.inverse
    }
}
