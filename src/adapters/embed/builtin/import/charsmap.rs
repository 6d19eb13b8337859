//! Reads `SentencePiece`'s precompiled character map: a trie of sequences and the text of their replacements.
//!
//! The map starts with the trie's length in bytes as a little-endian number. The trie is a double array of four-byte units
//! (Yata, Kubo et al., "Darts-clone"): a unit contains the byte that leads to it, whether a value follows, and the offset of its
//! children. A value is an offset into the text, where the replacement ends with a zero byte.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};

use super::super::charsmap::{CharsmapLayout, LONGEST_SEQUENCE};
use super::super::vocabulary::{self, Tables};
use super::ImportError;

/// The sequences that normalisation replaces, with their replacements.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Rules(BTreeMap<String, String>);

/// The tables of rules, ready to be written to the file.
pub(super) struct RuleTables {
    pub(super) sequences: Tables,
    pub(super) count: usize,
    offsets: Vec<u8>,
    pub(super) text: Vec<u8>,
    ascii: Vec<u8>,
}

impl Rules {
    /// Decodes a base64 text. Leaves out sequences that the tokenizer can't find: longer ones, and continuations of others.
    pub(super) fn decode(text: &str) -> Result<Self, ImportError> {
        let damaged = ImportError::Charsmap;
        let bytes = STANDARD.decode(text).map_err(|_| damaged("it is not base64"))?;
        let (length, rest) = bytes.split_first_chunk().ok_or(damaged("it is too short"))?;
        let (trie, replacements) = rest.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or(damaged("its trie is too short"))?;
        let units = trie.as_chunks().0.iter().map(|unit| Unit(u32::from_le_bytes(*unit))).collect();
        let mut trie = Trie { units, visited: 0, found: Vec::new() };
        let root = trie.units.first().ok_or(damaged("its trie is empty"))?.offset();
        trie.visit(root, &mut Vec::new())?;
        let mut rules = BTreeMap::new();
        for (sequence, value) in trie.found {
            let sequence = String::from_utf8(sequence).map_err(|_| damaged("a sequence is not UTF-8"))?;
            let replacement = replacements.get(value..).ok_or(damaged("a replacement is missing"))?;
            let replacement = replacement.split(|byte| *byte == 0).next().unwrap_or_default();
            let replacement = str::from_utf8(replacement).map_err(|_| damaged("a replacement is not UTF-8"))?;
            rules.insert(sequence, replacement.to_owned());
        }
        Ok(Self(rules))
    }

    pub(super) fn tables(&self) -> RuleTables {
        let sequences: Vec<&str> = self.0.keys().map(String::as_str).collect();
        let (mut text, mut offsets) = (Vec::new(), vec![0; 4]);
        for replacement in self.0.values() {
            text.extend_from_slice(replacement.as_bytes());
            offsets.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
        }
        let ascii = (0..128u8).map(|byte| u8::from(self.0.contains_key(char::from(byte).encode_utf8(&mut [0; 4])))).collect();
        RuleTables { sequences: vocabulary::build(&sequences), count: sequences.len(), offsets, text, ascii }
    }
}

impl RuleTables {
    pub(super) fn write(&self, layout: &CharsmapLayout, file: &mut [u8]) {
        self.sequences.write(&layout.sequences, file);
        file[layout.replacement_offsets.clone()].copy_from_slice(&self.offsets);
        file[layout.replacement_text.clone()].copy_from_slice(&self.text);
        file[layout.ascii.clone()].copy_from_slice(&self.ascii);
    }
}

#[derive(Clone, Copy)]
struct Unit(u32);

impl Unit {
    fn has_value(self) -> bool {
        self.0 >> 8 & 1 == 1
    }

    fn value(self) -> usize {
        (self.0 & 0x7fff_ffff) as usize
    }

    /// Whether the byte leads to this unit.
    fn is(self, byte: u8) -> bool {
        self.0 & 0x8000_00ff == u32::from(byte)
    }

    fn offset(self) -> usize {
        ((self.0 >> 10) << ((self.0 & 0x200) >> 6)) as usize
    }
}

struct Trie {
    units: Vec<Unit>,
    visited: usize,
    found: Vec<(Vec<u8>, usize)>,
}

impl Trie {
    /// Collects the shortest sequences below a node.
    fn visit(&mut self, node: usize, sequence: &mut Vec<u8>) -> Result<(), ImportError> {
        for byte in 1..=u8::MAX {
            let at = node ^ usize::from(byte);
            let Some(unit) = self.units.get(at).copied().filter(|unit| unit.is(byte)) else { continue };
            self.visited += 1;
            // Each unit has one parent, unless the map is damaged.
            if self.visited > self.units.len() {
                return Err(ImportError::Charsmap("its trie is no tree"));
            }
            let child = at ^ unit.offset();
            sequence.push(byte);
            if unit.has_value() {
                let value = self.units.get(child).ok_or(ImportError::Charsmap("a value is missing"))?.value();
                self.found.push((sequence.clone(), value));
            } else if sequence.len() < LONGEST_SEQUENCE {
                self.visit(child, sequence)?;
            }
            sequence.pop();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A map from the given units and text.
    fn map(units: &[u32], text: &[u8]) -> String {
        let length = u32::try_from(units.len() * 4).unwrap();
        let units = units.iter().flat_map(|unit| unit.to_le_bytes());
        STANDARD.encode(length.to_le_bytes().into_iter().chain(units).chain(text.iter().copied()).collect::<Vec<u8>>())
    }

    /// The trie of the sequence "a", whose value is the unit `at`.
    fn trie(units: usize, at: u32) -> Vec<u32> {
        let mut trie = vec![0; units];
        let a = 1 ^ 0x61;
        trie[0] = 1 << 10;
        trie[a as usize] = 0x61 | 1 << 8 | (a ^ at) << 10;
        trie
    }

    #[test]
    fn sequences_get_the_replacements_at_their_values() {
        let mut units = trie(256, 2);
        units[2] = 1 << 31 | 3;
        let Rules(rules) = Rules::decode(&map(&units, b"no\0yes\0")).unwrap();
        assert_eq!(rules.into_iter().collect::<Vec<_>>(), [("a".to_owned(), "yes".to_owned())]);
        let tables = Rules::decode(&map(&units, b"no\0yes\0")).unwrap().tables();
        assert_eq!((tables.count, tables.text.as_slice()), (1, b"yes".as_slice()));
        assert_eq!(tables.ascii.iter().position(|byte| *byte == 1), Some(usize::from(b'a')));
    }

    #[test]
    fn damaged_maps_are_errors() {
        let problem = |map: &str| Rules::decode(map).unwrap_err().to_string();
        let mut far = trie(256, 2);
        far[2] = 1 << 31 | 9;
        let mut loops = vec![0u32; 256];
        // Every byte leads back to the root.
        for byte in 1..=255u32 {
            loops[byte as usize] = byte | byte << 10;
        }
        let cases = [
            ("%".to_owned(), "not base64"),
            (STANDARD.encode([1, 2]), "too short"),
            (STANDARD.encode([8, 0, 0, 0, 1, 2, 3, 4]), "trie is too short"),
            (map(&[], b"x"), "trie is empty"),
            (map(&trie(256, 300), b"x"), "a value is missing"),
            (map(&far, b"no\0"), "a replacement is missing"),
            (map(&trie(256, 2), b"\xff"), "a replacement is not UTF-8"),
            (map(&loops, b"x"), "no tree"),
        ];
        for (map, wanted) in cases {
            assert!(problem(&map).contains(wanted), "{wanted}: {}", problem(&map));
        }
    }

    proptest! {
        #[test]
        fn no_map_makes_it_panic(units in prop::collection::vec(any::<u32>(), 0..600), text in any::<Vec<u8>>()) {
            if let Ok(rules) = Rules::decode(&map(&units, &text)) {
                prop_assert!(rules.tables().count <= units.len());
            }
        }
    }
}
