//! Lexical search: tools and messages as sparse vectors whose dot product is a multi-field BM25.
//!
//! The formula is BM25F (Robertson and Zaragoza 2009, "The Probabilistic Relevance Framework: BM25 and Beyond", section
//! 3.6). A term's frequencies in the fields are weighted, divided by each field's length factor, added, and only then
//! saturated. The formula splits into three factors, each computed where its inputs are known:
//!
//! - here, for a tool: `tf · (k1 + 1) / (tf + k1)` with `tf = Σ_field weight · count / (1 - b + b · length / average)`;
//! - here, for a message: the frequency of the term;
//! - in the index: `idf = ln(1 + (N - n + 0.5) / (n + 0.5))` over its N points (Qdrant's `Modifier::Idf`).
//!
//! Vectors are computed tool by tool, so the average field lengths are constants instead of the catalog's own. That costs nothing
//! measurable: with the own averages of each set, mean R@5 is .707 instead of .711 over eight sets, and .791 instead of .789 over
//! the four real ones.

use super::synonyms::Synonyms;
use crate::domain::catalog::texts::ToolText;
use crate::domain::catalog::texts::vocabulary::Vocabulary;
use crate::domain::text::analysis::{Analyzer, TokenKind, beginnings};
use crate::domain::text::glossary::for_each_gloss;
use crate::domain::text::language::Language;

/// Weight of a synonym, relative to 1 for the word itself.
pub(crate) const SYNONYM_WEIGHT: f32 = 0.3;
/// Weight of the probable correction of a misspelt word.
pub(crate) const CORRECTION_WEIGHT: f32 = 0.7;

/// Weight of the English translation of a word, divided by the square root of the number of its translations. (1,500 training messages
/// in 15 languages, BM25 alone, mean R@5: .382 without translations, .529 with .6, .542 with .8, .539 with 1; .528 with .8 if divided by
/// the number itself.)
pub(crate) const GLOSS_WEIGHT: f32 = 0.8;

/// Weight of a single Han character of a message, relative to 1 for a word or a bigram.
pub(crate) const CHARACTER_WEIGHT: f32 = 0.1;

/// Term weights, sorted by term, without duplicates. `indices` and `values` have the same length.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SparseVector {
    pub indices: Vec<u32>,
    pub values: Vec<f32>,
}

impl SparseVector {
    pub fn is_empty(&self) -> bool {
        self.indices.is_empty()
    }

    /// The dot product over common terms, without idf.
    pub fn dot(&self, other: &Self) -> f32 {
        let (mut left, mut right, mut sum) = (0, 0, 0.0);
        while let (Some(a), Some(b)) = (self.indices.get(left), other.indices.get(right)) {
            match a.cmp(b) {
                std::cmp::Ordering::Less => left += 1,
                std::cmp::Ordering::Greater => right += 1,
                std::cmp::Ordering::Equal => {
                    sum += self.values[left] * other.values[right];
                    left += 1;
                    right += 1;
                }
            }
        }
        sum
    }

    /// The sum of both vectors.
    #[must_use]
    pub fn plus(self, other: &Self) -> Self {
        let of = |vector: &Self| vector.indices.iter().copied().zip(vector.values.iter().copied()).collect::<Vec<_>>();
        let mut terms = of(&self);
        terms.extend(of(other));
        Self::from_unsorted(terms)
    }

    /// Builds a vector from terms in any order. Adds the weights of equal terms.
    fn from_unsorted(mut terms: Vec<(u32, f32)>) -> Self {
        terms.sort_unstable_by_key(|&(term, _)| term);
        let mut vector = Self { indices: Vec::with_capacity(terms.len()), values: Vec::with_capacity(terms.len()) };
        for (term, value) in terms {
            match (vector.indices.last(), vector.values.last_mut()) {
                (Some(&last), Some(sum)) if last == term => *sum += value,
                _ => {
                    vector.indices.push(term);
                    vector.values.push(value);
                }
            }
        }
        vector
    }
}

/// The weight and the average length of a field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FieldParameters {
    pub weight: f32,
    /// Average number of terms.
    pub average_length: f32,
}

/// The constants of BM25F.
///
/// The weights were tuned on the project's retrieval sets (mean R@5 .709, against .696 with equal weights). `k1` and `b` are
/// the usual values of Robertson and Zaragoza. On these sets they hardly matter, nor do the average lengths within a factor
/// of 2.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LexicalParameters {
    /// Saturation of term frequencies.
    pub k1: f32,
    /// Influence of the field length, 0 to 1.
    pub b: f32,
    pub name: FieldParameters,
    /// The description and the title.
    pub description: FieldParameters,
    pub server: FieldParameters,
    /// Names and descriptions of all parameters.
    pub parameters: FieldParameters,
    /// Synonyms from an admin, weighted like the name. Not measured, because few tools have any.
    pub synonyms: FieldParameters,
}

impl Default for LexicalParameters {
    fn default() -> Self {
        Self {
            k1: 1.2,
            b: 0.75,
            name: FieldParameters { weight: 2.0, average_length: 4.0 },
            description: FieldParameters { weight: 1.0, average_length: 20.0 },
            server: FieldParameters { weight: 1.0, average_length: 1.5 },
            parameters: FieldParameters { weight: 0.3, average_length: 30.0 },
            synonyms: FieldParameters { weight: 2.0, average_length: 4.0 },
        }
    }
}

/// Builds the sparse vectors of tools and messages. Use the same model for both.
#[derive(Default)]
pub struct LexicalModel {
    analyzer: Analyzer,
    parameters: LexicalParameters,
    takes_words_as_they_are: bool,
}

impl LexicalModel {
    pub fn new(analyzer: Analyzer, parameters: LexicalParameters) -> Self {
        Self { analyzer, parameters, takes_words_as_they_are: false }
    }

    /// Disables spelling correction.
    #[must_use]
    pub fn without_corrections(self) -> Self {
        Self { takes_words_as_they_are: true, ..self }
    }

    /// A tool's vector: for each term, the saturated weighted frequency, between 0 and `k1 + 1`.
    pub fn document_vector(&self, tool: &ToolText<'_>) -> SparseVector {
        let parameters = &self.parameters;
        let language = tool.language();
        let mut terms = Vec::with_capacity(tool.description.len() / BYTES_PER_TERM + tool.parameters.len() * 8);
        self.add_field(&mut terms, language, parameters.name, [tool.name]);
        self.add_field(&mut terms, language, parameters.description, tool.title.into_iter().chain([tool.description]));
        self.add_field(&mut terms, language, parameters.server, [tool.server]);
        let texts = tool.parameters.iter().flat_map(|(name, description)| [&**name, &**description]);
        self.add_field(&mut terms, language, parameters.parameters, texts);
        self.add_field(&mut terms, language, parameters.synonyms, tool.synonyms.iter().map(String::as_str));
        let mut vector = SparseVector::from_unsorted(terms);
        for value in &mut vector.values {
            *value = *value * (parameters.k1 + 1.0) / (*value + parameters.k1);
        }
        vector
    }

    /// A message's vector of term frequencies. Empty if the message has only stop words and symbols.
    pub fn query_vector(&self, text: &str) -> SparseVector {
        let mut terms = Vec::with_capacity(text.len() / BYTES_PER_TERM);
        self.analyzer.for_each_token(text, Language::of(text), |token| terms.push((token.term, weight_of(token.kind))));
        SparseVector::from_unsorted(terms)
    }

    /// A message's vector, expanded with synonyms, with the English translations of its words, and with spelling corrections for words
    /// that no tool contains. The message's own words keep their weight.
    pub fn expanded_query_vector(&self, text: &str, synonyms: &Synonyms, vocabulary: &Vocabulary) -> SparseVector {
        let mut terms = Vec::with_capacity(text.len() / BYTES_PER_TERM);
        let mut meant: Vec<(u32, f32)> = Vec::new();
        let language = Language::of(text);
        let translated = self.add_translations(text, language, vocabulary, &mut meant);
        self.analyzer.for_each_token(text, language, |token| {
            let term = token.term;
            terms.push((term, weight_of(token.kind)));
            meant.extend(synonyms.of(term).iter().map(|&other| (other, SYNONYM_WEIGHT)));
            if let TokenKind::Word(word) = token.kind
                && !self.takes_words_as_they_are
                && !vocabulary.knows(term)
                && !translated.contains(&term)
            {
                // The stemmer knows the endings of English.
                let may_have_ending = language != Some(Language::English);
                let before_ending = || beginnings(word).find(|&beginning| vocabulary.knows(beginning));
                let other = vocabulary.nearest(word).or_else(|| may_have_ending.then(before_ending).flatten());
                meant.extend(other.map(|other| (other, CORRECTION_WEIGHT)));
            }
        });
        let mut original: Vec<u32> = terms.iter().map(|&(term, _)| term).collect();
        original.sort_unstable();
        meant.retain(|(term, _)| original.binary_search(term).is_err());
        // Remove duplicates; the larger weight wins.
        meant.sort_unstable_by(|one, other| one.0.cmp(&other.0).then(other.1.total_cmp(&one.1)));
        meant.dedup_by_key(|(term, _)| *term);
        terms.append(&mut meant);
        SparseVector::from_unsorted(terms)
    }

    /// Adds the terms of the English translations of a text's words. Returns the terms of the translated words. In a text of unknown
    /// language, a word that occurs in tools stands for itself.
    fn add_translations(&self, text: &str, language: Option<Language>, vocabulary: &Vocabulary, meant: &mut Vec<(u32, f32)>) -> Vec<u32> {
        let mut translated = Vec::new();
        for_each_gloss(text, language, |gloss| {
            let own = self.analyzer.term_of(gloss.word);
            if !gloss.is_sure && vocabulary.knows(own) {
                return;
            }
            let weight = GLOSS_WEIGHT / (gloss.alternatives as f32).sqrt();
            meant.extend(gloss.english.split('_').map(|word| (self.analyzer.term_of(word), weight)));
            translated.push(own);
        });
        translated
    }

    /// The analyzer for both messages and tools.
    pub fn analyzer(&self) -> &Analyzer {
        &self.analyzer
    }

    /// Adds the terms of a field, each weighted as one occurrence in a field of this length. A variant of a word has the word's
    /// weight, but doesn't lengthen the field.
    fn add_field<'a>(
        &self,
        terms: &mut Vec<(u32, f32)>,
        language: Option<Language>,
        field: FieldParameters,
        texts: impl IntoIterator<Item = &'a str>,
    ) {
        let start = terms.len();
        let mut length = 0_usize;
        for text in texts {
            self.analyzer.for_each_token(text, language, |token| {
                terms.push((token.term, 0.0));
                length += usize::from(token.kind.is_part());
            });
        }
        let b = self.parameters.b;
        let weight = field.weight / (1.0 - b + b * length as f32 / field.average_length);
        for (_, value) in &mut terms[start..] {
            *value = weight;
        }
    }
}

fn weight_of(kind: TokenKind<'_>) -> f32 {
    if kind == TokenKind::Character { CHARACTER_WEIGHT } else { 1.0 }
}

/// Estimated bytes per term, only for the initial allocation.
const BYTES_PER_TERM: usize = 6;
