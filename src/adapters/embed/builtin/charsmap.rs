//! Normalisation by `SentencePiece`'s character map, which the weights file contains as a table of sequences and replacements.
//!
//! Source: the behaviour of the `tokenizers` crate, for which the models were published. A grapheme cluster of less than six bytes
//! becomes the replacement of the shortest sequence at its start, and loses its other characters. Other clusters are replaced
//! character by character. A test checks that both return the same tokens.

use std::ops::Range;

use unicode_segmentation::UnicodeSegmentation;

use super::vocabulary::{PrefixHash, TableLayout, Vocabulary};

/// Maximum length of a sequence, in bytes. Longer clusters are not looked up as a whole.
pub(super) const LONGEST_SEQUENCE: usize = 5;

/// The location of the map's sections, in bytes from the start of the file.
#[derive(Clone, Debug)]
pub(super) struct CharsmapLayout {
    /// The sequences that normalisation replaces.
    pub(super) sequences: TableLayout,
    /// The offsets of their replacements: as many as there are sequences, and one more.
    pub(super) replacement_offsets: Range<usize>,
    pub(super) replacement_text: Range<usize>,
    /// One byte per ASCII character: 1 if normalisation replaces the character on its own, otherwise 0.
    pub(super) ascii: Range<usize>,
}

/// A view of the tables in the file.
#[derive(Clone, Copy)]
pub(super) struct Charsmap<'a> {
    sequences: Vocabulary<'a>,
    offsets: &'a [[u8; 4]],
    text: &'a [u8],
    ascii: &'a [u8],
}

impl<'a> Charsmap<'a> {
    pub(super) fn new(bytes: &'a [u8], layout: &CharsmapLayout) -> Self {
        let section = |range: &Range<usize>| &bytes[range.clone()];
        Self {
            sequences: Vocabulary::new(bytes, &layout.sequences, LONGEST_SEQUENCE),
            offsets: section(&layout.replacement_offsets).as_chunks::<4>().0,
            text: section(&layout.replacement_text),
            ascii: section(&layout.ascii),
        }
    }

    /// Passes the normalised characters of `text` to `take`, until it returns `false`.
    pub(super) fn normalize(self, text: &str, mut take: impl FnMut(char) -> bool) {
        let mut rest = text;
        while let Some(first) = rest.bytes().next() {
            // A cluster ends between two ASCII characters, except between CR and LF.
            let next = rest.as_bytes().get(1).copied().unwrap_or(0);
            if first.is_ascii() && next.is_ascii() && (first, next) != (b'\r', b'\n') {
                rest = &rest[1..];
                let goes_on = if self.ascii.get(usize::from(first)) == Some(&1) {
                    self.characters(first.into(), &mut take)
                } else {
                    take(first.into())
                };
                if !goes_on {
                    return;
                }
                continue;
            }
            let cluster = rest.graphemes(true).next().unwrap_or(rest);
            rest = &rest[cluster.len()..];
            let whole = if cluster.len() <= LONGEST_SEQUENCE { self.replacement(cluster) } else { None };
            let goes_on = match whole {
                Some(replacement) => replacement.chars().all(&mut take),
                None => cluster.chars().all(|character| self.characters(character, &mut take)),
            };
            if !goes_on {
                return;
            }
        }
    }

    fn characters(self, character: char, take: &mut impl FnMut(char) -> bool) -> bool {
        match self.replacement(character.encode_utf8(&mut [0; 4])) {
            Some(replacement) => replacement.chars().all(take),
            None => take(character),
        }
    }

    /// The replacement of the shortest sequence at the start of `cluster`.
    fn replacement(self, cluster: &str) -> Option<&'a str> {
        let mut hash = PrefixHash::start(false);
        for (length, byte) in (1..).zip(cluster.as_bytes()) {
            hash = hash.push(*byte);
            if cluster.is_char_boundary(length)
                && let Some(id) = self.sequences.find(&cluster.as_bytes()[..length], false, hash)
            {
                let id = id as usize;
                let (start, end) = (self.offsets.get(id)?, self.offsets.get(id + 1)?);
                let text = self.text.get(u32::from_le_bytes(*start) as usize..u32::from_le_bytes(*end) as usize)?;
                return str::from_utf8(text).ok();
            }
        }
        None
    }
}
