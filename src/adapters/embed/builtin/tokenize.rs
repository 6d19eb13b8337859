//! BERT's `WordPiece` tokenizer, which reads the vocabulary tables of the weights file in place.
//!
//! Sources: Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers" (2019), and Wu et al., "Google's Neural
//! Machine Translation System" (2016) for `WordPiece`. Written here because the `tokenizers` crate needs several MB for maps and
//! tens of microseconds per query. A test checks that both return the same tokens. Special tokens in a text (`[SEP]`) are
//! ordinary characters, so that no text can control the model.

use unicode_categories::UnicodeCategories;
use unicode_normalization::UnicodeNormalization;

use super::vocabulary::{PrefixHash, Vocabulary};

/// Maximum length of a word, in characters. As in BERT, longer words are unknown.
pub(super) const LONGEST_WORD: usize = 100;

/// The ids of `[CLS]`, `[SEP]` and the unknown word, or of the tokens that other models use instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct SpecialTokens {
    pub(super) classify: u32,
    pub(super) separate: u32,
    pub(super) unknown: u32,
}

/// Normalisation before splitting. The default is that of uncased BERT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct Normalization {
    /// Whether to keep upper case.
    pub(super) keep_case: bool,
    /// Whether to keep accents and composed characters.
    pub(super) keep_accents: bool,
    /// Whether to treat consecutive Chinese characters as one word.
    pub(super) join_ideographs: bool,
}

/// Buffers that texts reuse.
#[derive(Default)]
pub(super) struct WordBuffers {
    word: Vec<u8>,
    hashes: Vec<PrefixHash>,
}

/// Appends the ids of `text` to `ids`, framed by `[CLS]` and `[SEP]`: at most `limit` ids in total. The rest of the text is
/// ignored. Returns the number of added ids, at least 2.
pub(super) fn tokenize(
    text: &str,
    vocabulary: Vocabulary<'_>,
    special: SpecialTokens,
    normalization: Normalization,
    limit: usize,
    buffers: &mut WordBuffers,
    ids: &mut Vec<u32>,
) -> usize {
    let Normalization { keep_case, keep_accents, join_ideographs } = normalization;
    let before = ids.len();
    ids.push(special.classify);
    buffers.word.clear();
    let mut words = Words { vocabulary, special, end: before + limit.max(2) - 1, ids, buffers, characters: 0 };
    if text.is_ascii() {
        let kept = text.bytes().filter(|byte| !is_removed(char::from(*byte)));
        if keep_case {
            words.read(kept.map(char::from));
        } else {
            words.read(kept.map(|byte| byte.to_ascii_lowercase().into()));
        }
    } else {
        let spaced = text.chars().filter(|character| !is_removed(*character)).flat_map(|character| {
            let (around, middle) = if !join_ideographs && is_ideograph(character) { (Some(' '), character) } else { (None, character) };
            around.into_iter().chain([middle]).chain(around)
        });
        let is_kept = |character: &char| !is_accent(*character);
        match (keep_accents, keep_case) {
            (false, false) => words.read(spaced.nfd().filter(is_kept).flat_map(char::to_lowercase)),
            (false, true) => words.read(spaced.nfd().filter(is_kept)),
            (true, false) => words.read(spaced.flat_map(char::to_lowercase)),
            (true, true) => words.read(spaced),
        }
    }
    ids.push(special.separate);
    ids.len() - before
}

/// The state of one text's tokenisation.
struct Words<'a, 'b> {
    vocabulary: Vocabulary<'a>,
    special: SpecialTokens,
    ids: &'b mut Vec<u32>,
    /// The maximum length of `ids`.
    end: usize,
    buffers: &'b mut WordBuffers,
    characters: usize,
}

impl Words<'_, '_> {
    fn read(&mut self, normalized: impl Iterator<Item = char>) {
        for character in normalized {
            if character.is_whitespace() {
                self.finish_word();
            } else if is_punctuation(character) {
                self.finish_word();
                self.push(character);
                self.finish_word();
            } else {
                self.push(character);
            }
            if self.ids.len() >= self.end {
                return;
            }
        }
        self.finish_word();
    }

    fn push(&mut self, character: char) {
        self.characters += 1;
        if self.characters <= LONGEST_WORD {
            self.buffers.word.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }

    /// Splits the current word greedily into the longest pieces of the vocabulary.
    fn finish_word(&mut self) {
        if self.characters == 0 {
            return;
        }
        let first = self.ids.len();
        let WordBuffers { word, hashes } = &mut *self.buffers;
        let mut rest = word.as_slice();
        if self.characters > LONGEST_WORD {
            self.ids.push(self.special.unknown);
            rest = &[];
        }
        while !rest.is_empty() {
            let continuation = rest.len() < word.len();
            let Some((id, length)) = longest_piece(self.vocabulary, rest, continuation, hashes) else {
                self.ids.truncate(first);
                self.ids.push(self.special.unknown);
                break;
            };
            self.ids.push(id);
            rest = &rest[length..];
        }
        self.ids.truncate(self.end);
        word.clear();
        self.characters = 0;
    }
}

/// The id and the length in bytes of the longest token at the start of `rest`.
fn longest_piece(vocabulary: Vocabulary<'_>, rest: &[u8], continuation: bool, hashes: &mut Vec<PrefixHash>) -> Option<(u32, usize)> {
    let longest = rest.len().min(vocabulary.longest());
    let mut hash = PrefixHash::start(continuation);
    hashes.clear();
    hashes.extend(rest[..longest].iter().map(|byte| {
        hash = hash.push(*byte);
        hash
    }));
    // No token equals a prefix that ends inside a character, because tokens are valid UTF-8.
    (1..=longest).rev().find_map(|length| {
        let id = vocabulary.find(&rest[..length], continuation, hashes[length - 1])?;
        Some((id, length))
    })
}

/// Whether normalisation removes a character: control, format and private-use characters, NUL and U+FFFD.
fn is_removed(character: char) -> bool {
    match character {
        '\t' | '\n' | '\r' => false,
        '\0' | '\u{fffd}' => true,
        _ if character.is_ascii() => character.is_ascii_control(),
        _ => !character.is_alphanumeric() && character.is_other(),
    }
}

fn is_accent(character: char) -> bool {
    character >= '\u{300}' && character.is_mark_nonspacing()
}

fn is_punctuation(character: char) -> bool {
    if character.is_ascii() { character.is_ascii_punctuation() } else { !character.is_alphanumeric() && character.is_punctuation() }
}

/// Whether a character is Chinese and thus a separate word. Kana and hangul are not.
fn is_ideograph(character: char) -> bool {
    matches!(character,
        '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}'
        | '\u{20000}'..='\u{2a6df}' | '\u{2a700}'..='\u{2b73f}' | '\u{2b740}'..='\u{2b81f}'
        | '\u{2b920}'..='\u{2ceaf}' | '\u{2f800}'..='\u{2fa1f}')
}
