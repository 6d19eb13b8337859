//! The vocabulary in the weights file: text, offsets and a hash table, all read in place. The sequences that normalisation replaces
//! are stored in the same way.
//!
//! A `HashMap` of 30,522 strings would need about 3 MB of heap. A table written at import needs none, and no construction at
//! startup.

use std::ops::Range;

/// The low bits of a slot contain the token's id plus one, the high bits a part of its hash.
const ID_BITS: u32 = 20;
const ID_MASK: u32 = (1 << ID_BITS) - 1;
/// Maximum number of tokens, so that their ids fit in a slot.
pub(super) const MAXIMUM_TOKENS: usize = ID_MASK as usize - 1;

/// Maximum length of a token, in bytes: a word of 100 characters.
pub(super) const LONGEST_TOKEN: usize = 400;

const START: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// The FNV-1a hash of a growing prefix, so that one pass hashes all prefixes of a word.
#[derive(Clone, Copy)]
pub(super) struct PrefixHash(u64);

impl PrefixHash {
    /// The hash before the first byte. For a continuation, it includes the `##`.
    pub(super) fn start(continuation: bool) -> Self {
        let empty = Self(START);
        if continuation { empty.push(b'#').push(b'#') } else { empty }
    }

    pub(super) fn push(self, byte: u8) -> Self {
        Self((self.0 ^ u64::from(byte)).wrapping_mul(PRIME))
    }

    #[expect(clippy::cast_possible_truncation, reason = "only the lower bits count")]
    fn slot(self, mask: usize) -> usize {
        (self.0 ^ (self.0 >> 29)) as usize & mask
    }

    fn tag(self) -> u32 {
        ((self.0 >> 52) as u32) << ID_BITS
    }
}

/// The location of a vocabulary's tables, in bytes from the start of the file.
#[derive(Clone, Debug)]
pub(super) struct TableLayout {
    pub(super) offsets: Range<usize>,
    pub(super) slots: Range<usize>,
    pub(super) text: Range<usize>,
}

/// A view of the tables in the file.
#[derive(Clone, Copy)]
pub(super) struct Vocabulary<'a> {
    text: &'a [u8],
    /// Little-endian offsets into `text`, one more than there are tokens.
    offsets: &'a [[u8; 4]],
    /// Little-endian slots. Their number is a power of two; zero is an empty slot.
    slots: &'a [[u8; 4]],
    longest: usize,
}

impl<'a> Vocabulary<'a> {
    pub(super) fn new(bytes: &'a [u8], layout: &TableLayout, longest: usize) -> Self {
        let words = |range: &Range<usize>| bytes[range.clone()].as_chunks::<4>().0;
        Self { text: &bytes[layout.text.clone()], offsets: words(&layout.offsets), slots: words(&layout.slots), longest }
    }

    /// Length of the longest token, including `##`, in bytes.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// Finds the id of the token `piece`, or `##piece` for a continuation, by its hash.
    pub(super) fn find(&self, piece: &[u8], continuation: bool, hash: PrefixHash) -> Option<u32> {
        let mask = self.slots.len().checked_sub(1)?;
        let mut slot = hash.slot(mask);
        // A damaged table may have no empty slot, so the search is limited to its size.
        for _ in 0..self.slots.len() {
            let entry = u32::from_le_bytes(self.slots[slot]);
            if entry == 0 {
                return None;
            }
            if entry & !ID_MASK == hash.tag() {
                let id = (entry & ID_MASK) - 1;
                if self.is(id as usize, piece, continuation) {
                    return Some(id);
                }
            }
            slot = (slot + 1) & mask;
        }
        None
    }

    /// All tokens in order of id.
    pub(super) fn tokens(self) -> impl Iterator<Item = &'a str> {
        (0..).map_while(move |id| self.token(id)).map(|token| str::from_utf8(token).unwrap_or_default())
    }

    fn is(&self, id: usize, piece: &[u8], continuation: bool) -> bool {
        match self.token(id) {
            Some(text) if continuation => text.strip_prefix(b"##") == Some(piece),
            Some(text) => text == piece,
            None => false,
        }
    }

    fn token(&self, id: usize) -> Option<&'a [u8]> {
        let (start, end) = (self.offsets.get(id)?, self.offsets.get(id + 1)?);
        self.text.get(u32::from_le_bytes(*start) as usize..u32::from_le_bytes(*end) as usize)
    }
}

/// The three tables of a vocabulary, ready to be written to the file.
pub(super) struct Tables {
    pub(super) text: Vec<u8>,
    pub(super) offsets: Vec<u8>,
    pub(super) slots: Vec<u8>,
    pub(super) longest: usize,
}

/// The number of slots for this many tokens. At most half of the slots are used.
pub(super) fn slot_count(tokens: usize) -> usize {
    (tokens * 2).next_power_of_two()
}

impl Tables {
    pub(super) fn write(&self, layout: &TableLayout, file: &mut [u8]) {
        file[layout.offsets.clone()].copy_from_slice(&self.offsets);
        file[layout.slots.clone()].copy_from_slice(&self.slots);
        file[layout.text.clone()].copy_from_slice(&self.text);
    }
}

/// Builds the tables for at most [`MAXIMUM_TOKENS`] tokens, in order of id. If two tokens are equal, lookups find the later one,
/// as in other implementations.
pub(super) fn build(tokens: &[&str]) -> Tables {
    let mask = slot_count(tokens.len()) - 1;
    let mut slots = vec![0u32; mask + 1];
    let mut text = Vec::new();
    let mut offsets = vec![0; 4];
    for (id, token) in (0u32..).zip(tokens) {
        let hash = token.bytes().fold(PrefixHash::start(false), PrefixHash::push);
        let mut slot = hash.slot(mask);
        while slots[slot] != 0 && tokens[(slots[slot] & ID_MASK) as usize - 1] != *token {
            slot = (slot + 1) & mask;
        }
        slots[slot] = hash.tag() | (id + 1);
        text.extend_from_slice(token.as_bytes());
        offsets.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
    }
    Tables {
        text,
        offsets,
        slots: slots.iter().flat_map(|slot| slot.to_le_bytes()).collect(),
        longest: tokens.iter().map(|token| token.len()).max().unwrap_or(0),
    }
}
