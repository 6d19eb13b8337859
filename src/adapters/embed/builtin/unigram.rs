//! The Unigram tokenizer of `SentencePiece` with the word splitting of XLM-R, which reads the tables of the weights file in place.
//!
//! Sources: Kudo, "Subword Regularization" (2018) for the model, and the `tokenizers` crate for the details: float64 scores, the
//! longest piece of several with equal scores, a score for unknown characters, and one token for consecutive ones. A test checks
//! that both return the same tokens. Special tokens in a text are ordinary characters, so that no text can control the model.
//!
//! The best path of a word is found with the Viterbi algorithm. The path's start is final once all paths share it. So a long word
//! needs little memory, and its rest is ignored as soon as the text has enough tokens.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::{
    charsmap::{Charsmap, CharsmapLayout},
    tokenize::SpecialTokens,
    vocabulary::{MAXIMUM_TOKENS, PrefixHash, Vocabulary},
};

/// The start of a word.
pub(super) const WORD_START: char = '▁';

/// Number of bytes of a word after which the common start of its paths becomes tokens.
const WINDOW: usize = 1024;
/// Maximum number of bytes that a buffer keeps for the next text.
const KEPT: usize = 1 << 16;

/// A tokenizer's settings and the sizes of its tables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct UnigramConfig {
    pub(super) spaces: Spaces,
    /// Number of sequences that normalisation replaces.
    pub(super) sequences: usize,
    pub(super) sequence_bytes: usize,
    pub(super) replacement_bytes: usize,
}

/// The handling of white space, after the replacements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Spaces {
    /// Whether any white space separates words. Otherwise each space starts a word, and other white space is part of a word.
    pub(super) split_all: bool,
    /// Whether white space at the end of the text is removed.
    pub(super) strip_end: bool,
    /// The character that replaces a run of spaces.
    pub(super) run: Option<char>,
}

impl UnigramConfig {
    pub(super) fn is_sound(&self) -> bool {
        self.sequences <= MAXIMUM_TOKENS && self.sequence_bytes <= 1 << 24 && self.replacement_bytes <= 1 << 24
    }
}

/// The location of a Unigram tokenizer's sections, in bytes from the start of the file.
#[derive(Clone, Debug)]
pub(super) struct UnigramLayout {
    /// Logarithms of the tokens' probabilities: float64, one per token. The unknown token has the score of an unknown character.
    pub(super) scores: Range<usize>,
    pub(super) charsmap: CharsmapLayout,
}

/// A view of a tokenizer in the file.
#[derive(Clone, Copy)]
pub(super) struct Unigram<'a> {
    pub(super) vocabulary: Vocabulary<'a>,
    pub(super) charsmap: Charsmap<'a>,
    /// Little-endian float64 numbers.
    scores: &'a [[u8; 8]],
    special: SpecialTokens,
    spaces: Spaces,
}

/// The best path to a place in a word.
#[derive(Clone, Copy)]
struct Node {
    score: f64,
    /// The last token of the path.
    id: u32,
    /// Length of that token in bytes; zero if no path is known.
    length: u32,
}

const UNREACHED: Node = Node { score: 0.0, id: 0, length: 0 };

/// Buffers that texts reuse.
#[derive(Default)]
pub(super) struct PathBuffers {
    /// The part of the word that is not yet tokens.
    word: Vec<u8>,
    /// One node per byte of `word`, and one more.
    nodes: Vec<Node>,
    /// White space that is removed unless a character follows.
    held: String,
}

impl<'a> Unigram<'a> {
    pub(super) fn new(
        bytes: &'a [u8],
        layout: &UnigramLayout,
        vocabulary: Vocabulary<'a>,
        special: SpecialTokens,
        config: &UnigramConfig,
    ) -> Self {
        let scores = bytes[layout.scores.clone()].as_chunks::<8>().0;
        Self { vocabulary, charsmap: Charsmap::new(bytes, &layout.charsmap), scores, special, spaces: config.spaces }
    }

    /// Appends the ids of `text` to `ids`, framed by the special tokens: at most `limit` ids in total. The rest of the text is
    /// ignored. Returns the number of added ids, at least 2.
    pub(super) fn tokenize(self, text: &str, limit: usize, buffers: &mut PathBuffers, ids: &mut Vec<u32>) -> usize {
        let before = ids.len();
        ids.push(self.special.classify);
        let PathBuffers { word, nodes, held } = buffers;
        word.clear();
        nodes.clear();
        held.clear();
        let word = Word { model: self, text: word, nodes, begun: false, next: 0, threshold: WINDOW, after_unknown: false };
        let mut words = Words { word, ids, end: before + limit.max(2) - 1, spaces: 0, held };
        self.charsmap.normalize(text, |character| {
            words.normalized(character);
            words.ids.len() < words.end
        });
        words.finish();
        ids.push(self.special.separate);
        buffers.word.shrink_to(KEPT);
        buffers.nodes.shrink_to(KEPT / size_of::<Node>());
        buffers.held.shrink_to(KEPT);
        ids.len() - before
    }

    fn score(self, id: u32) -> Option<f64> {
        self.scores.get(id as usize).map(|bytes| f64::from_le_bytes(*bytes))
    }
}

/// The state of one text's tokenisation.
struct Words<'a, 'b> {
    word: Word<'a, 'b>,
    ids: &'b mut Vec<u32>,
    /// The maximum length of `ids`.
    end: usize,
    /// Length of the current run of spaces.
    spaces: usize,
    held: &'b mut String,
}

impl Words<'_, '_> {
    /// Reads a normalised character. Removes white space at the end of the text.
    fn normalized(&mut self, character: char) {
        if self.word.model.spaces.strip_end {
            if character.is_whitespace() {
                self.held.push(character);
                return;
            }
            let held = std::mem::take(self.held);
            held.chars().for_each(|character| self.stripped(character));
            *self.held = held;
            self.held.clear();
        }
        self.stripped(character);
    }

    /// Replaces runs of spaces.
    fn stripped(&mut self, character: char) {
        if character == ' ' && self.word.model.spaces.run.is_some() {
            self.spaces += 1;
            return;
        }
        self.end_run();
        self.collapsed(character);
    }

    fn end_run(&mut self) {
        match self.spaces {
            0 => {}
            1 => self.collapsed(' '),
            _ => self.collapsed(self.word.model.spaces.run.unwrap_or(' ')),
        }
        self.spaces = 0;
    }

    /// Splits the text into words.
    fn collapsed(&mut self, character: char) {
        let split_all = self.word.model.spaces.split_all;
        if split_all && character.is_whitespace() {
            self.finish_word();
        } else if character == WORD_START || (!split_all && character == ' ') {
            self.finish_word();
            self.word.push(WORD_START);
        } else {
            if !self.word.begun {
                self.word.push(WORD_START);
            }
            self.word.push(character);
            if self.word.text.len() >= self.word.threshold {
                self.word.advance(false);
                self.word.settle_common(self.ids);
                self.ids.truncate(self.end);
            }
        }
    }

    fn finish_word(&mut self) {
        if self.word.begun {
            self.word.finish(self.ids);
            self.ids.truncate(self.end);
        }
    }

    fn finish(&mut self) {
        if self.ids.len() < self.end {
            self.end_run();
            self.finish_word();
        }
    }
}

/// The current word, or its part that is not yet tokens.
struct Word<'a, 'b> {
    model: Unigram<'a>,
    text: &'b mut Vec<u8>,
    nodes: &'b mut Vec<Node>,
    begun: bool,
    /// The first place from which paths are not yet continued.
    next: usize,
    /// Length at which the common start of the paths is searched.
    threshold: usize,
    /// Whether the last token is the unknown token.
    after_unknown: bool,
}

impl Word<'_, '_> {
    fn push(&mut self, character: char) {
        self.begun = true;
        self.text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    }

    /// Continues the paths by one token from every place, or, if the word is not `complete`, from the places where the longest
    /// token would still fit.
    fn advance(&mut self, complete: bool) {
        let Self { model, text, nodes, .. } = self;
        let (vocabulary, unknown) = (model.vocabulary, model.special.unknown);
        let unknown_score = model.score(unknown).unwrap_or_default();
        let stop = if complete { text.len() } else { text.len().saturating_sub(vocabulary.longest().max(4)) };
        nodes.resize(text.len() + 1, UNREACHED);
        while self.next < stop {
            let start = self.next;
            let (here, rest) = (nodes[start].score, &text[start..]);
            let width = width(rest[0]);
            let mut single = false;
            let mut hash = PrefixHash::start(false);
            for (length, byte) in (1..=vocabulary.longest()).zip(rest) {
                hash = hash.push(*byte);
                if length < width || rest.get(length).is_some_and(|byte| is_continuation(*byte)) {
                    continue;
                }
                if let Some(id) = vocabulary.find(&rest[..length], false, hash)
                    && let Some(score) = model.score(id)
                {
                    nodes[start + length].offer(here + score, id, length);
                    single |= length == width;
                }
            }
            let width = width.min(rest.len());
            if !single {
                nodes[start + width].offer(here + unknown_score, unknown, width);
            }
            self.next += width;
        }
    }

    /// Turns the common start of all paths into tokens.
    fn settle_common(&mut self, ids: &mut Vec<u32>) {
        let reached = (self.next..self.nodes.len()).filter(|place| self.nodes[*place].length > 0 || *place == 0);
        let common = reached.reduce(|one, other| self.common(one, other)).unwrap_or(0);
        self.settle(common, ids);
        self.threshold = WINDOW.max(2 * self.text.len());
    }

    /// The last place that the paths to two places share.
    fn common(&self, mut one: usize, mut other: usize) -> usize {
        while one != other {
            let last = if one > other { &mut one } else { &mut other };
            *last -= (self.nodes[*last].length as usize).clamp(1, *last);
        }
        one
    }

    /// Turns the path to a place into tokens.
    fn settle(&mut self, place: usize, ids: &mut Vec<u32>) {
        let first = ids.len();
        let mut at = place;
        while at > 0 {
            let node = self.nodes[at];
            ids.push(node.id);
            at -= (node.length as usize).clamp(1, at);
        }
        ids[first..].reverse();
        let mut kept = first;
        for index in first..ids.len() {
            let id = ids[index];
            let is_unknown = id == self.model.special.unknown;
            if !(is_unknown && self.after_unknown) {
                ids[kept] = id;
                kept += 1;
            }
            self.after_unknown = is_unknown;
        }
        ids.truncate(kept);
        self.text.drain(..place);
        self.nodes.drain(..place);
        self.next -= place;
    }

    fn finish(&mut self, ids: &mut Vec<u32>) {
        self.advance(true);
        self.settle(self.text.len(), ids);
        self.nodes.clear();
        (self.begun, self.next, self.threshold, self.after_unknown) = (false, 0, WINDOW, false);
    }
}

impl Node {
    #[expect(clippy::cast_possible_truncation, reason = "tokens are much shorter")]
    fn offer(&mut self, score: f64, id: u32, length: usize) {
        if self.length == 0 || score > self.score {
            *self = Self { score, id, length: length as u32 };
        }
    }
}

/// Length in bytes of the character that starts with this byte.
fn width(first: u8) -> usize {
    match first {
        0..0x80 => 1,
        0x80..0xe0 => 2,
        0xe0..0xf0 => 3,
        _ => 4,
    }
}

fn is_continuation(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokenizers::{Model, models};

    use super::super::vocabulary::{self, TableLayout, Tables};
    use super::*;

    const SPECIAL: SpecialTokens = SpecialTokens { classify: 0, separate: 1, unknown: 2 };
    const NO_LIMIT: usize = 1 << 30;

    /// A tokenizer in a file without other sections.
    struct File {
        bytes: Vec<u8>,
        tokens: TableLayout,
        layout: UnigramLayout,
        longest: usize,
    }

    impl File {
        /// Writes these pieces and their scores after the three special tokens.
        fn new(pieces: &[(String, f64)]) -> Self {
            let least = pieces.iter().map(|(_, score)| *score).fold(0.0, f64::min);
            let tokens: Vec<&str> = ["", "", ""].into_iter().chain(pieces.iter().map(|(piece, _)| piece.as_str())).collect();
            let scores = [0.0, 0.0, least - 10.0].into_iter().chain(pieces.iter().map(|(_, score)| *score));
            let mut bytes = Vec::new();
            let mut add = |section: &[u8]| {
                bytes.extend_from_slice(section);
                bytes.len() - section.len()..bytes.len()
            };
            let mut table =
                |tables: &Tables| TableLayout { offsets: add(&tables.offsets), slots: add(&tables.slots), text: add(&tables.text) };
            let built = vocabulary::build(&tokens);
            let (tokens, sequences) = (table(&built), table(&vocabulary::build(&[])));
            let layout = UnigramLayout {
                scores: add(&scores.flat_map(f64::to_le_bytes).collect::<Vec<u8>>()),
                charsmap: CharsmapLayout {
                    sequences,
                    replacement_offsets: add(&[0; 4]),
                    replacement_text: add(&[]),
                    ascii: add(&[0; 128]),
                },
            };
            Self { bytes, tokens, layout, longest: built.longest }
        }

        fn ids(&self, text: &str, limit: usize, buffers: &mut PathBuffers) -> Vec<u32> {
            let spaces = Spaces { split_all: true, strip_end: false, run: None };
            let config = UnigramConfig { spaces, sequences: 0, sequence_bytes: 0, replacement_bytes: 0 };
            let vocabulary = Vocabulary::new(&self.bytes, &self.tokens, self.longest);
            let mut ids = Vec::new();
            let count = Unigram::new(&self.bytes, &self.layout, vocabulary, SPECIAL, &config).tokenize(text, limit, buffers, &mut ids);
            assert_eq!(count, ids.len());
            ids
        }
    }

    /// The ids according to the `tokenizers` crate.
    fn expected(pieces: &[(String, f64)], word: &str) -> Vec<u32> {
        let special = [("<s>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)].map(|(piece, score)| (piece.to_owned(), score));
        let model = models::unigram::Unigram::from(special.into_iter().chain(pieces.iter().cloned()).collect(), Some(2), false).unwrap();
        let tokens = model.tokenize(&format!("▁{word}")).unwrap();
        [0].into_iter().chain(tokens.iter().map(|token| token.id)).chain([1]).collect()
    }

    fn pieces(pieces: &[(&str, f64)]) -> Vec<(String, f64)> {
        pieces.iter().map(|(piece, score)| ((*piece).to_owned(), *score)).collect()
    }

    #[test]
    fn the_best_path_wins_and_the_longer_piece_of_equal_ones() {
        let pieces = pieces(&[("▁", -1.0), ("a", -2.0), ("b", -2.0), ("ab", -4.0), ("▁a", -3.5), ("bb", -3.0)]);
        let file = File::new(&pieces);
        let mut buffers = PathBuffers::default();
        for (text, ids) in
            [("ab", vec![0, 3, 6, 1]), ("abb", vec![0, 3, 4, 8, 1]), ("xx", vec![0, 3, 2, 1]), ("axxb", vec![0, 3, 4, 2, 5, 1])]
        {
            assert_eq!(expected(&pieces, text), ids, "{text}");
            assert_eq!(file.ids(text, NO_LIMIT, &mut buffers), ids, "{text}");
        }
        assert_eq!(file.ids("ab b\tx", NO_LIMIT, &mut buffers), [0, 3, 6, 3, 5, 3, 2, 1]);
        assert_eq!(file.ids("ab b\tx", 5, &mut buffers), [0, 3, 6, 3, 1]);
    }

    #[test]
    fn paths_that_share_no_start_need_the_whole_word() {
        // Every piece has eight letters, so eight paths never meet.
        let pieces = pieces(&[("▁", -1.0), ("a", -5.0), ("aaaaaaaa", -6.0)]);
        let file = File::new(&pieces);
        for length in [1_000, 1_024, 5_000, 20_003] {
            let word = "a".repeat(length);
            assert!(file.ids(&word, NO_LIMIT, &mut PathBuffers::default()) == expected(&pieces, &word), "{length}");
        }
    }

    #[test]
    fn buffers_are_small_after_a_long_word() {
        let file = File::new(&pieces(&[("▁", -1.0), ("a", -5.0), ("aaaaaaaa", -6.0)]));
        let mut buffers = PathBuffers::default();
        file.ids(&"a".repeat(300_000), NO_LIMIT, &mut buffers);
        assert!(buffers.word.capacity() <= KEPT && buffers.nodes.capacity() <= KEPT / size_of::<Node>());
    }

    #[test]
    fn unknown_characters_are_one_token_across_windows() {
        let file = File::new(&pieces(&[("▁", -1.0), ("a", -5.0)]));
        let ids = file.ids(&format!("{}a{}", "x".repeat(5_000), "é".repeat(3_000)), NO_LIMIT, &mut PathBuffers::default());
        assert_eq!(ids, [0, 3, 2, 4, 2, 1]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn long_words_have_the_tokens_of_the_tokenizers_crate(
            own in prop::collection::vec(("[ab明é▁]{1,6}", -40..0i32), 1..60),
            parts in prop::collection::vec(("[abc明é🙂]{1,5}", 1..400usize), 1..6),
            limit in 3..400usize,
        ) {
            // Halves, so that different paths are equally good.
            let pieces: Vec<(String, f64)> = own.into_iter().map(|(piece, score)| (piece, f64::from(score) / 2.0)).collect();
            let word: String = parts.iter().map(|(part, times)| part.repeat(*times)).collect();
            let file = File::new(&pieces);
            let mut buffers = PathBuffers::default();
            let ids = file.ids(&word, NO_LIMIT, &mut buffers);
            prop_assert_eq!(&ids, &expected(&pieces, &word));
            let mut start = ids[..ids.len().min(limit) - 1].to_vec();
            start.push(1);
            prop_assert_eq!(file.ids(&word, limit, &mut buffers), start);
        }
    }
}
