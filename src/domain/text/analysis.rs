//! Turns text into terms for lexical search.
//!
//! Words are split at identifier boundaries (`snake_case`, `kebab-case`, `camelCase`, `HTTPServer`, letters next to
//! digits), normalised (NFKC, accents folded, lower case), filtered for English stop words, and stemmed. Scripts without
//! spaces (Han, Kana, Hangul, Thai and their neighbours) become overlapping bigrams.
//!
//! A term is a `u32`: the 64-bit FNV-1a hash of its UTF-8 form, folded to 32 bits by exclusive or. The hash is implemented
//! here because terms are stored in indexes and must be the same in every build. Two words may share a term and then count
//! as the same word. With 20,000 different words, the chance of any collision is 5 %, which is acceptable.
//!
//! Synonyms and spelling correction are absent on purpose: they apply only to messages (see `lexical`).

use std::borrow::Cow;

use rust_stemmers::{Algorithm, Stemmer};
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfkc_quick};

use super::words::{Segment, segments};

/// Turns text into terms. Cheap to create, stateless, shareable between threads. Stemmer and stop words are English: tools are
/// described in English, and words on an English list carry little in other languages.
pub struct Analyzer {
    stemmer: Option<Stemmer>,
}

impl Analyzer {
    /// Compares words unchanged.
    pub fn unstemmed() -> Self {
        Self { stemmer: None }
    }

    /// Calls `emit` with every term of `text`, in order, with repetitions.
    pub fn for_each_term(&self, text: &str, mut emit: impl FnMut(u32)) {
        self.for_each_word(text, |_, term| emit(term));
    }

    /// Calls `emit` with every term of `text` and its lowercase word. The word is `None` for bigrams.
    pub fn for_each_word(&self, text: &str, mut emit: impl FnMut(Option<&str>, u32)) {
        let text = normalise(text);
        let mut word = String::new();
        for segment in segments(&text) {
            match segment {
                Segment::Word(run) | Segment::Compound(run) => {
                    lowercase_into(run, &mut word);
                    if !is_stop_word(&word) {
                        emit(Some(&word), self.word_term(&word));
                    }
                }
                Segment::Unspaced(run) => bigrams(run, &mut |term| emit(None, term)),
            }
        }
    }

    fn word_term(&self, word: &str) -> u32 {
        match &self.stemmer {
            Some(stemmer) if word.len() <= LONGEST_STEMMED => term(&stemmer.stem(word)),
            _ => term(word),
        }
    }

    /// The terms of `text`, in order, with repetitions.
    pub fn terms(&self, text: &str) -> Vec<u32> {
        let mut terms = Vec::new();
        self.for_each_term(text, |term| terms.push(term));
        terms
    }
}

impl Default for Analyzer {
    fn default() -> Self {
        Self { stemmer: Some(Stemmer::create(Algorithm::English)) }
    }
}

/// Maximum length of stemmed words. Longer words are identifiers or data.
const LONGEST_STEMMED: usize = 64;

fn lowercase_into(text: &str, word: &mut String) {
    word.clear();
    if text.is_ascii() {
        word.push_str(text);
        word.make_ascii_lowercase();
    } else {
        word.extend(text.chars().flat_map(char::to_lowercase));
    }
}

fn bigrams(run: &str, emit: &mut impl FnMut(u32)) {
    let mut ends = run.char_indices().map(|(at, character)| at + character.len_utf8());
    let Some(mut middle) = ends.next() else { return };
    let mut start = 0;
    if middle == run.len() {
        emit(term(run));
    }
    for end in ends {
        emit(term(&run[start..end]));
        start = middle;
        middle = end;
    }
}

/// NFKC with folded accents of Latin, Greek and Cyrillic letters, so that `Café` and `cafe` are one word.
fn normalise(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        return Cow::Borrowed(text);
    }
    let folds = text.chars().any(|character| matches!(u32::from(character), 0x00C0..=0x06FF | 0x1E00..=0x1FFF));
    if !folds && is_nfkc_quick(text.chars()) == IsNormalized::Yes {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.nfkd().filter(|character| !matches!(u32::from(*character), 0x0300..=0x036F)).nfc().collect())
}

/// 64-bit FNV-1a (Fowler, Noll, Vo; offset basis and prime as published), folded to 32 bits.
fn term(word: &str) -> u32 {
    let hash = word.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    let folded = (hash >> 32) ^ (hash & u64::from(u32::MAX));
    u32::try_from(folded).unwrap_or(u32::MAX)
}

/// English function words and polite words of requests, sorted for binary search. Words that occur in tool names (`time`, `now`,
/// `next`, `all`, `list`) are absent.
#[rustfmt::skip]
const STOP_WORDS: &[&str] = &[
    "a", "about", "after", "again", "also", "am", "an", "and", "any", "are", "aren", "as", "at", "be", "because",
    "been", "before", "being", "both", "but", "by", "can", "cannot", "could", "couldn", "d", "did", "didn", "do",
    "does", "doesn", "doing", "don", "during", "each", "few", "for", "from", "further", "give", "had", "hadn", "has",
    "hasn", "have", "haven", "having", "he", "her", "here", "hers", "herself", "him", "himself", "his", "how", "i",
    "if", "in", "into", "is", "isn", "it", "its", "itself", "just", "let", "like", "ll", "m", "may", "me", "might",
    "mine", "more", "most", "must", "my", "myself", "need", "no", "nor", "not", "of", "off", "on", "only", "or",
    "other", "our", "ours", "ourselves", "out", "over", "own", "please", "pls", "re", "s", "same", "shall", "she",
    "should", "shouldn", "so", "some", "such", "t", "than", "that", "the", "their", "theirs", "them", "themselves",
    "then", "there", "these", "they", "this", "those", "through", "to", "too", "under", "until", "up", "us", "ve",
    "very", "want", "was", "wasn", "we", "were", "weren", "what", "when", "where", "which", "while", "who", "whom",
    "whose", "why", "will", "with", "won", "would", "wouldn", "you", "your", "yours", "yourself", "yourselves",
];

fn is_stop_word(word: &str) -> bool {
    STOP_WORDS.binary_search(&word).is_ok()
}
