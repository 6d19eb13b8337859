//! Fuses dense and lexical scores into one ranking.
//!
//! For every search text (the message, and the sentences of a long one), the index returns the candidates with the best cosines
//! and those with the best BM25 scores. [`Candidates`] collects both by key; a missing lexical score is 0. For each text,
//! [`Candidates::fuse`] normalises each kind of score to z-scores over all candidates and adds them with a weight. The score of a
//! long message combines those of the whole message and of its best sentence. A message of several sentences or clauses is ranked
//! for coverage: a tool for an uncovered part precedes another tool for a covered part.
//!
//! Mean R@5 on the project's retrieval sets: reciprocal rank fusion with k = 60 .708, k = 5 .734, min-max .737, z-scores .743.
//! Rank fusion over the sentences, and round-robin between them, are worse.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;

use super::message::MessageParts;
use crate::domain::text::language::{Language, is_arabic};

/// Weight of the dense score; the lexical score has the rest.
pub(crate) const DENSE_WEIGHT: f32 = 0.8;
/// The share of the lexical weight that remains in an English message, which the built-in model reads best. With .7, the dense weight
/// is .85 instead of .8: R@1 / R@5 rise from .66 / .88 to .69 / .91 for 120 messages and 598 tools, and nDCG@5 from .605 to .615 for
/// tasks with several tools. With .4, `metatool` loses .018 of R@5, and `mcpzero` .018 of R@1. In Ukrainian, Finnish and Arabic messages,
/// R@5 would fall.
const ENGLISH_LEXICAL_SHARE: f32 = 0.7;
/// The same for Arabic and Finnish messages, in which vectors alone find the fewest tools (R@5 .68). With 1.7, the dense weight is .7: R@5
/// rises from .70 to .74 and from .76 to .79 for 120 messages and 598 tools, and stays .84 for 44 other Arabic ones and 1,898 tools. In the
/// other languages, .7 lowers it.
const LEXICAL_SHARE_OF_WEAK_LANGUAGES: f32 = 1.7;
/// Weight of a long message's best sentence; the whole message has the rest. In 21 languages, the mean R@5 is .807 at .3 and .789
/// at .6; the macro R@5 of the development sets is .805 and .808.
pub(crate) const SENTENCE_WEIGHT: f32 = 0.3;
/// Weight of a message together with earlier turns, if it depends on them; the message alone has the rest. With .6, the right tool is
/// among those sent in .89 of 115 held-out last turns of dialogues, with .5 in .86, with .3 in .77.
pub(crate) const CONTEXT_WEIGHT: f32 = 0.6;
/// Weight of the coverage gain, relative to 1 for the whole message: how well a tool matches a part of the message that no
/// higher-ranked tool covers. On 269 tasks for several tools (1,898 tools), R@5 / R@10 / complete@10 are .55 / .70 / .42 without
/// coverage and .58 / .72 / .42 with .5 or .75. With .75, sets of single requests lose .005 of R@1.
pub(crate) const COVERAGE_WEIGHT: f32 = 0.5;
/// Weight of the match with a tool's server (a z-score over the servers), in a message of several parts. On the same tasks, R@10
/// rises from .69 to .70 and complete@10 from .39 to .42. Messages of one part would not gain, and their R@1 over 293 servers
/// would fall by .007.
pub(crate) const SERVER_WEIGHT: f32 = 0.1;
/// Number of top positions that are ranked for coverage.
const COVERED: usize = 20;

/// Slope of [`readable_score`], per standard deviation.
pub(crate) const SCORE_SLOPE: f32 = 1.35;
/// The fused score at which half of the candidates are the right tool.
pub(crate) const SCORE_MIDDLE: f32 = 4.05;

/// The weights of the fusion, each between 0 and 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FusionParameters {
    pub dense_weight: f32,
    pub sentence_weight: f32,
    pub context_weight: f32,
    pub coverage_weight: f32,
    pub server_weight: f32,
}

impl Default for FusionParameters {
    fn default() -> Self {
        Self {
            dense_weight: DENSE_WEIGHT,
            sentence_weight: SENTENCE_WEIGHT,
            context_weight: CONTEXT_WEIGHT,
            coverage_weight: COVERAGE_WEIGHT,
            server_weight: SERVER_WEIGHT,
        }
    }
}

impl FusionParameters {
    /// The weights for this message.
    #[must_use]
    pub fn for_message(self, text: &str) -> Self {
        let share = match Language::of(text) {
            Some(Language::English) => ENGLISH_LEXICAL_SHARE,
            Some(Language::Finnish) => LEXICAL_SHARE_OF_WEAK_LANGUAGES,
            None if is_arabic(text) => LEXICAL_SHARE_OF_WEAK_LANGUAGES,
            _ => return self,
        };
        let lexical_weight = (1.0 - self.dense_weight) * share;
        Self { dense_weight: self.dense_weight / (self.dense_weight + lexical_weight), ..self }
    }
}

/// A candidate with its scores.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Ranked<K> {
    pub key: K,
    /// Weighted sum of z-scores. The average candidate has 0; the best usually has 2 to 5.
    pub fused: f32,
    /// The same for the whole message alone, without its other texts.
    pub alone: f32,
    /// The best cosine over all texts, if any.
    pub dense: Option<f32>,
    /// The best BM25 score over all texts.
    pub lexical: f32,
    /// The cosine with the whole message, if any.
    pub dense_alone: Option<f32>,
    /// The BM25 score of the whole message.
    pub lexical_alone: f32,
    /// Bit `i` is set if this is the best candidate for text `i`. Text 0 is the whole message.
    pub leads: u32,
}

impl<K> Ranked<K> {
    /// The fused score as a number between 0 and 1, see [`readable_score`].
    pub fn score(&self) -> f32 {
        readable_score(self.fused)
    }

    /// Raises the fused score, the cosine and the BM25 score to those of the same candidate for another query.
    pub fn raise(&mut self, other: &Self) {
        self.fused = self.fused.max(other.fused);
        self.dense = self.dense.into_iter().chain(other.dense).reduce(f32::max);
        self.lexical = self.lexical.max(other.lexical);
    }
}

/// Maps a fused score to a number between 0 and 1, keeping the order: the probability that a candidate with this score is the
/// right tool. The logistic curve was fitted to 4,289 messages in catalogs of 20 to 1,898 tools. So 0.5 is a strong match, and
/// low ranks are near 0.
pub fn readable_score(fused: f32) -> f32 {
    (1.0 + (SCORE_SLOPE * (SCORE_MIDDLE - fused)).exp()).recip()
}

/// Collects the scores of all candidates for one message. Supports at most 32 search texts.
#[derive(Debug, Clone)]
pub struct Candidates<K> {
    texts: usize,
    parts: MessageParts,
    rows: HashMap<K, usize>,
    keys: Vec<K>,
    /// A matrix in row-major order: one row per candidate, one column per text.
    dense: Vec<Option<f32>>,
    lexical: Vec<f32>,
    /// For each candidate, the score of its server, which does not depend on the text.
    prior: Vec<f32>,
}

impl<K: Copy + Eq + Hash + Ord> Candidates<K> {
    /// Creates an empty collection for this number of search texts. The first is the whole message; `parts` is the kind of the
    /// others.
    pub fn new(texts: usize, parts: MessageParts) -> Self {
        let texts = texts.max(1);
        Self { texts, parts, rows: HashMap::new(), keys: Vec::new(), dense: Vec::new(), lexical: Vec::new(), prior: Vec::new() }
    }

    /// Adds a cosine (-1 to 1). The best one per candidate and text counts. Ignores non-finite numbers and texts out of range.
    pub fn add_dense(&mut self, text: usize, key: K, cosine: f32) {
        if text >= self.texts || !cosine.is_finite() {
            return;
        }
        let at = self.row(key) * self.texts + text;
        let cell = &mut self.dense[at];
        *cell = Some(cell.map_or(cosine, |known| known.max(cosine)));
    }

    /// Adds a BM25 score (0 or more), with the same rules as [`Self::add_dense`].
    pub fn add_lexical(&mut self, text: usize, key: K, score: f32) {
        if text >= self.texts || !score.is_finite() {
            return;
        }
        let at = self.row(key) * self.texts + text;
        let cell = &mut self.lexical[at];
        *cell = cell.max(score);
    }

    /// Sets how well the message matches each candidate's server, as a z-score.
    pub fn set_prior(&mut self, prior_of: impl Fn(K) -> f32) {
        for (prior, key) in self.prior.iter_mut().zip(&self.keys) {
            *prior = Some(prior_of(*key)).filter(|prior| prior.is_finite()).unwrap_or(0.0);
        }
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
                self.prior.push(0.0);
                row
            }
        }
    }

    /// Ranks all candidates, best first. Ties are ordered by key, so the result does not depend on the order of insertion.
    ///
    /// A candidate without a cosine (its tool is not embedded yet) uses its lexical z-score instead. Without any cosine,
    /// the ranking is lexical.
    pub fn fuse(&self, parameters: &FusionParameters) -> Vec<Ranked<K>> {
        // Sort rows by key, because floating-point sums depend on the order of the summands.
        let mut rows: Vec<usize> = (0..self.keys.len()).collect();
        rows.sort_unstable_by_key(|&row| self.keys[row]);
        let scores: Vec<Vec<f32>> = (0..self.texts).map(|text| self.scores(text, &rows, parameters.dense_weight)).collect();
        let leads = leads(&rows, &scores);
        let (whole, parts) = (&scores[0], &scores[1..]);
        let share = match self.parts {
            MessageParts::Sentences => parameters.sentence_weight,
            MessageParts::Context => parameters.context_weight,
            MessageParts::None | MessageParts::Clauses => 0.0,
        };
        let has_parts = parts.len() > 1 && self.parts != MessageParts::Context;
        let best_part = |row: usize| parts.iter().map(|of_part| of_part[row]).reduce(f32::max).unwrap_or(whole[row]);
        let mut fused: Vec<f32> = whole
            .iter()
            .enumerate()
            .map(|(row, score)| (1.0 - share) * score + if share > 0.0 { share * best_part(row) } else { 0.0 })
            .collect();
        if has_parts {
            for (score, prior) in fused.iter_mut().zip(&self.prior) {
                *score += parameters.server_weight * prior;
            }
        }
        rows.sort_by(|&one, &other| fused[other].total_cmp(&fused[one]));
        if has_parts {
            cover(&mut rows, &mut fused, parts, parameters.coverage_weight);
        }
        rows.into_iter().map(|row| self.ranked(row, fused[row], whole[row], leads[row])).collect()
    }

    /// A candidate's cosine with each text, and how well the message matches its server (a z-score). For explanations.
    pub fn evidence(&self, key: K) -> Option<(&[Option<f32>], f32)> {
        let row = *self.rows.get(&key)?;
        Some((&self.dense[row * self.texts..(row + 1) * self.texts], self.prior[row]))
    }

    /// For one text, the weighted sum of each candidate's z-scores.
    fn scores(&self, text: usize, rows: &[usize], dense_weight: f32) -> Vec<f32> {
        let at = |row: usize| row * self.texts + text;
        let dense = Scale::of(rows.iter().filter_map(|&row| self.dense[at(row)]));
        let lexical = Scale::of(rows.iter().map(|&row| self.lexical[at(row)]));
        let score = |row: usize| {
            let lexical_z = lexical.z(self.lexical[at(row)]);
            let dense_z = self.dense[at(row)].map_or(lexical_z, |cosine| dense.z(cosine));
            dense_weight * dense_z + (1.0 - dense_weight) * lexical_z
        };
        (0..rows.len()).map(score).collect()
    }

    fn ranked(&self, row: usize, fused: f32, alone: f32, leads: u32) -> Ranked<K> {
        // What a message may answer is evidence for a tool, not that one is needed.
        let texts = if self.parts == MessageParts::Context { self.texts.min(2) } else { self.texts };
        let cells = row * self.texts..row * self.texts + texts;
        Ranked {
            key: self.keys[row],
            fused,
            alone,
            dense_alone: self.dense[cells.start],
            lexical_alone: self.lexical[cells.start],
            dense: self.dense[cells.clone()].iter().flatten().copied().reduce(f32::max),
            lexical: self.lexical[cells].iter().copied().fold(0.0, f32::max),
            leads,
        }
    }
}

/// For each candidate, a bit mask of the texts for which it is the best. `rows` is in tie-breaking order.
fn leads(rows: &[usize], scores: &[Vec<f32>]) -> Vec<u32> {
    let mut leads = vec![0; rows.len()];
    for (text, of_text) in (0..u32::BITS).zip(scores) {
        let best = rows.iter().copied().reduce(|best, row| if of_text[row] > of_text[best] { row } else { best });
        if let Some(row) = best {
            leads[row] |= 1 << text;
        }
    }
    leads
}

/// Ranks for coverage. Each position goes to the candidate with the largest gain: its own score plus that for the part of the
/// message that it matches best. The weight of that part then drops (greedy, like maximal marginal relevance: Carbonell and
/// Goldstein 1998). `rows` stays sorted by `fused`, which becomes the weighted mean of both scores.
fn cover(rows: &mut [usize], fused: &mut [f32], parts: &[Vec<f32>], weight: f32) {
    let mut asks = vec![weight; parts.len()];
    let best = |row: usize, asks: &[f32]| {
        let fits = parts.iter().zip(asks).map(|(of_part, asks)| asks * of_part[row].max(0.0));
        fits.enumerate().reduce(|best, part| if part.1 > best.1 { part } else { best }).unwrap_or_default()
    };
    let value = |row: usize, fused: &[f32], asks: &[f32]| (fused[row] + best(row, asks).1) / (1.0 + weight);
    let covered = rows.len().min(COVERED);
    for place in 0..covered {
        let values = rows[place..].iter().map(|&row| value(row, fused, &asks)).enumerate();
        let Some((ahead, score)) = values.reduce(|best, one| if one.1 > best.1 { one } else { best }) else { return };
        rows[place..=place + ahead].rotate_right(1);
        let row = rows[place];
        let (met, _) = best(row, &asks);
        asks[met] *= 0.5;
        fused[row] = score;
    }
    for &row in &rows[covered..] {
        fused[row] = value(row, fused, &asks);
    }
    rows[covered..].sort_by(|&one, &other| fused[other].total_cmp(&fused[one]));
}

/// Bonus for tools of servers that the chat uses, in standard deviations: enough to break near ties.
pub const PREFERENCE: f32 = 0.05;

/// Like [`PREFERENCE`], for a message that depends on earlier turns and is thus more often about the same server. (24 chats of
/// ten turns over 1,087 tools: the definitions change in 56 turns with .05, in 52 with .25, in 50 with .45, and a suitable tool
/// is offered equally often. In longer chats, more than .25 offers it less often.)
pub const PREFERENCE_IN_CONTEXT: f32 = 0.25;

/// By how much a tool that is put first is above the next one.
const ABOVE: f32 = 0.01;

/// Adds `preference` to the scores of preferred candidates, which puts them first in near ties.
pub fn prefer<K: Copy + Ord>(ranked: &mut [Ranked<K>], preference: f32, is_preferred: impl Fn(K) -> bool) {
    for candidate in ranked.iter_mut() {
        if is_preferred(candidate.key) {
            candidate.fused += preference;
        }
    }
    sort(ranked);
}

/// Puts the best candidate for the message alone first. The others for the message alone follow it at the distance of their scores, unless
/// their present score is higher. Only those that `may_rise` do.
pub fn raise_to_alone<K: Copy + Ord>(ranked: &mut [Ranked<K>], may_rise: impl Fn(K) -> bool) {
    let top = ranked.iter().map(|ranked| ranked.fused).fold(f32::NEG_INFINITY, f32::max);
    let alone = ranked.iter().filter(|ranked| may_rise(ranked.key)).map(|ranked| ranked.alone).fold(f32::NEG_INFINITY, f32::max);
    let shift = (top - alone).max(0.0) + ABOVE;
    for candidate in ranked.iter_mut().filter(|candidate| may_rise(candidate.key)) {
        candidate.fused = candidate.fused.max(candidate.alone + shift);
    }
    sort(ranked);
}

/// Puts these keys first, in their order, even if they are no candidates yet.
pub fn raise<K: Copy + Ord + Default>(ranked: &mut Vec<Ranked<K>>, keys: &[K]) {
    let top = ranked.iter().map(|ranked| ranked.fused).fold(0.0, f32::max);
    for (after, &key) in keys.iter().rev().enumerate() {
        let fused = top + ABOVE * (after + 1) as f32;
        match ranked.iter_mut().find(|ranked| ranked.key == key) {
            Some(candidate) => candidate.fused = fused,
            // It shares its name with the query.
            None => ranked.push(Ranked { key, fused, lexical: 1.0, lexical_alone: 1.0, ..Ranked::default() }),
        }
    }
    sort(ranked);
}

/// Sorts candidates, best first. Ties are ordered by key.
pub(super) fn sort<K: Copy + Ord>(ranked: &mut [Ranked<K>]) {
    ranked.sort_unstable_by(|a, b| b.fused.total_cmp(&a.fused).then(a.key.cmp(&b.key)));
}

/// The z-scores of the values. If all values are equal, all z-scores are 0.
pub fn z_scores(values: &[f32]) -> Vec<f32> {
    let scale = Scale::of(values.iter().copied());
    values.iter().map(|&value| scale.z(value)).collect()
}

/// The mean and the inverse standard deviation of a column. If all values are equal, every z-score is 0.
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

#[cfg(test)]
mod tests {
    use super::{Ranked, raise_to_alone};

    #[test]
    fn the_best_for_the_message_alone_comes_first_if_it_may() {
        let ranked = |key, fused, alone| Ranked { key, fused, alone, ..Ranked::<u32>::default() };
        let mut all = [ranked(1, 2.5, 0.2), ranked(2, 1.7, 1.9), ranked(3, 1.5, 2.4), ranked(4, 0.1, 1.0)];
        raise_to_alone(&mut all, |key| key != 3);
        assert_eq!(all.map(|ranked| ranked.key), [2, 1, 4, 3]);
        raise_to_alone(&mut all, |_| true);
        assert_eq!(all[0].key, 3);
        raise_to_alone::<u32>(&mut [], |_| true);
    }
}
