//! Turns text into terms for lexical search.
//!
//! Words are split at identifier boundaries (`snake_case`, `kebab-case`, `camelCase`, `HTTPServer`, letters next to digits) and
//! folded (`folding`). Function words are dropped, and the rest is stemmed. Runs of scripts without spaces (Han, Kana, Hangul,
//! Thai and their neighbours) become overlapping bigrams.
//!
//! Tools and messages meet in terms that don't depend on the language of either: English stems for the Latin script, one stemmer
//! for each other script. A word has a variant besides this term in two cases. In a text whose language is sure, its stem in this
//! language is a variant. For a product's name in another script, the Latin name is a variant (`names`). A wrong guess of the
//! language therefore costs only variants and words that look like its function words.
//!
//! A term is a `u32`: the 64-bit FNV-1a hash of its UTF-8 form, folded to 32 bits by exclusive or. The hash is implemented
//! here because terms are stored in indexes and must be the same in every build. Two words may share a term and then count
//! as the same word. With 20,000 different words, the chance of any collision is 5 %, which is acceptable.
//!
//! Synonyms and spelling correction are absent on purpose: they apply only to messages (see `lexical`).

use std::borrow::Cow;

use rust_stemmers::{Algorithm, Stemmer};

use super::folding::{clean, fold};
use super::language::{Language, is_english_function_word, stem_by_script};
use super::names;
use super::words::{Segment, segments};

/// A term of a text.
#[derive(Debug, Clone, Copy)]
pub struct Token<'a> {
    pub term: u32,
    pub kind: TokenKind<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind<'a> {
    /// A folded word.
    Word(&'a str),
    /// Several characters of a script without spaces.
    Gram,
    /// A single Han character of a longer run.
    Character,
    /// Another form of the word before it.
    Variant,
}

impl TokenKind<'_> {
    /// Whether the token is a part of the text itself. The others repeat a part in another form.
    pub fn is_part(self) -> bool {
        matches!(self, Self::Word(_) | Self::Gram)
    }
}

/// Turns text into terms. Cheap to create, stateless, shareable between threads.
pub struct Analyzer {
    stemmer: Option<Stemmer>,
}

impl Analyzer {
    /// Compares words unchanged, except for their spelling.
    pub fn unstemmed() -> Self {
        Self { stemmer: None }
    }

    /// Calls `emit` with every token of a text in this language, in order, with repetitions.
    pub fn for_each_token(&self, text: &str, language: Option<Language>, mut emit: impl FnMut(Token<'_>)) {
        let language = language.filter(|language| *language != Language::English);
        let text = clean(text);
        let mut word = String::new();
        for segment in segments(&text) {
            match segment {
                Segment::Word(run) | Segment::Compound(run) => {
                    fold(run, &mut word);
                    let dropped = is_english_function_word(&word) || language.is_some_and(|language| language.has_function_word(&word));
                    if !dropped {
                        self.word(run, &word, language, &mut emit);
                    }
                }
                Segment::Unspaced(run) => {
                    grams(run, &mut emit);
                    names::english_in_run(run, |_, english| self.variants(english, &mut emit));
                }
            }
        }
    }

    /// Emits the term of a word and its variants.
    fn word(&self, run: &str, word: &str, language: Option<Language>, emit: &mut impl FnMut(Token<'_>)) {
        let Some(stemmer) = self.stemmer.as_ref().filter(|_| word.len() <= LONGEST_STEMMED) else {
            emit(Token { term: term(word), kind: TokenKind::Word(word) });
            return;
        };
        if !word.is_ascii() {
            let own = stem_by_script(word).map_or_else(|| term(word), |stem| term(&stem));
            emit(Token { term: own, kind: TokenKind::Word(word) });
            if let Some(english) = names::english_for_word(word) {
                self.variants(english, emit);
            }
            return;
        }
        let stem = stemmer.stem(word);
        emit(Token { term: term(&stem), kind: TokenKind::Word(word) });
        if let Some(language) = language.filter(|_| !word.bytes().all(|byte| byte.is_ascii_digit())) {
            let mut variant = String::new();
            let accented = if run.is_ascii() { Cow::Borrowed(word) } else { Cow::Owned(lower(run)) };
            if let Some(of_language) = language.stem(&accented) {
                fold(&of_language, &mut variant);
                if variant != stem {
                    emit(Token { term: term(&variant), kind: TokenKind::Variant });
                }
            }
        }
    }

    /// Emits the terms of English words as variants.
    fn variants(&self, english: &str, emit: &mut impl FnMut(Token<'_>)) {
        for word in english.split(' ') {
            emit(Token { term: self.term_of(word), kind: TokenKind::Variant });
        }
    }

    /// The term of a folded word as tools in English have it.
    pub(in crate::domain) fn term_of(&self, word: &str) -> u32 {
        self.stemmer.as_ref().map_or_else(|| term(word), |stemmer| term(&stemmer.stem(word)))
    }

    /// The terms of the parts of `text`, in order, with repetitions and without variants.
    pub fn terms(&self, text: &str) -> Vec<u32> {
        let mut terms = Vec::new();
        self.for_each_token(text, None, |token| terms.extend(token.kind.is_part().then_some(token.term)));
        terms
    }
}

impl Default for Analyzer {
    fn default() -> Self {
        Self { stemmer: Some(Stemmer::create(Algorithm::English)) }
    }
}

/// Minimum length of a beginning that counts as a word.
const SHORTEST_BEGINNING: usize = 4;
/// Minimum length of a beginning that any word may follow.
const LONG_BEGINNING: usize = 6;
/// Maximum length of what follows a shorter beginning.
const LONGEST_ENDING: usize = 5;
/// Maximum length of stemmed words. Longer words are identifiers or data.
const LONGEST_STEMMED: usize = 64;

/// The word in lower case, with its accents. In lower case, the Turkish `İ` has a dot above the dot of the `i`.
fn lower(word: &str) -> String {
    word.chars().flat_map(char::to_lowercase).filter(|character| *character != '\u{0307}').collect()
}

/// Emits the overlapping bigrams of a run, and its single Han characters. Two Hiragana are mostly a grammatical ending, so they
/// are no bigram. (40 messages to servers in Chinese and Japanese, R@1: .53 with all bigrams, .55 without those of Hiragana,
/// .63 with single characters too.)
fn grams(run: &str, emit: &mut impl FnMut(Token<'_>)) {
    let mut characters = run.char_indices().peekable();
    while let Some((start, first)) = characters.next() {
        let end = start + first.len_utf8();
        if end == run.len() && start > 0 {
            break;
        }
        let Some(&(_, second)) = characters.peek() else {
            emit(Token { term: term(run), kind: TokenKind::Gram });
            break;
        };
        if !(is_hiragana(first) && is_hiragana(second)) {
            emit(Token { term: term(&run[start..end + second.len_utf8()]), kind: TokenKind::Gram });
        }
    }
    if run.chars().nth(1).is_some() {
        for (start, character) in run.char_indices().filter(|(_, character)| is_han(*character)) {
            emit(Token { term: term(&run[start..start + character.len_utf8()]), kind: TokenKind::Character });
        }
    }
}

fn is_hiragana(character: char) -> bool {
    matches!(character, '\u{3041}'..='\u{309F}')
}

fn is_han(character: char) -> bool {
    matches!(u32::from(character), 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xF900..=0xFAFF | 0x20000..=0x323AF)
}

/// The terms of the beginnings of a folded word, longest first: a name in front of a case ending (`trellossa`) or of another word
/// (`githubrepository`). They are not stemmed, because a stem is mostly a beginning itself.
pub fn beginnings(word: &str) -> impl Iterator<Item = u32> {
    let mut terms = [0; LONGEST_STEMMED];
    let length = if word.is_ascii() && word.len() <= LONGEST_STEMMED { word.len() } else { 0 };
    let mut hash = FNV_BASIS;
    for (term, byte) in terms.iter_mut().zip(word.bytes()) {
        hash = fnv(hash, byte);
        *term = folded(hash);
    }
    let is_likely = move |end: &usize| *end >= LONG_BEGINNING || length - end <= LONGEST_ENDING;
    (SHORTEST_BEGINNING..length).rev().filter(is_likely).map(move |end| terms[end - 1])
}

/// 64-bit FNV-1a (Fowler, Noll, Vo; offset basis and prime as published), folded to 32 bits.
pub(super) fn term(word: &str) -> u32 {
    folded(word.bytes().fold(FNV_BASIS, fnv))
}

const FNV_BASIS: u64 = 0xcbf2_9ce4_8422_2325;

fn fnv(hash: u64, byte: u8) -> u64 {
    (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
}

fn folded(hash: u64) -> u32 {
    u32::try_from((hash >> 32) ^ (hash & u64::from(u32::MAX))).unwrap_or(u32::MAX)
}
