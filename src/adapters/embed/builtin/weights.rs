//! The weights file: a header, then sections that are used in place.
//!
//! ```text
//! 0    8   magic "toolsive"
//! 8    4   version, little endian
//! 12   4   length of the configuration in bytes, little endian
//! 16   32  SHA-256 of everything from byte 48 on
//! 48   …   configuration, JSON
//! …        sections, each on a multiple of 64 bytes, in the order of `Layout`
//! ```
//!
//! The matrices are stored in kernel order (panels of 32 outputs × 4 inputs, int8), the vocabulary as a hash table. So a file
//! compiled into the binary stays mapped from it. Only the scales, sums and biases of the matrices are copied to the heap, about
//! 0.5 MB for 12 layers of 384. All lengths follow from the configuration, so there is no table of offsets to validate.
//!
//! Version 2 adds Unigram tokenizers, version 3 word embeddings of four bits. A file has the lowest version that describes it, so that
//! earlier releases can read it.

use std::{borrow::Cow, ops::Range};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    attention::{COLUMNS, Heads},
    charsmap::CharsmapLayout,
    float::PANEL,
    linear::Activation,
    quantize::WORD_BLOCK,
    tokenize::{Normalization, SpecialTokens},
    unigram::{UnigramConfig, UnigramLayout},
    vocabulary::{self, TableLayout},
};

pub(super) const MAGIC: &[u8; 8] = b"toolsive";
/// The version of files with a `WordPiece` tokenizer.
const WORD_PIECE_VERSION: u32 = 1;
/// The version of files with a Unigram tokenizer.
const UNIGRAM_VERSION: u32 = 2;
/// The version of files with word embeddings of four bits.
const FOUR_BIT_VERSION: u32 = 3;
/// The offset at which the hashed part starts.
const HASHED_FROM: usize = 48;
const ALIGNMENT: usize = 64;

/// The reason why a weights file can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The file doesn't start with the magic bytes.
    #[error("not a weights file of this service; make one with `toolsieve model import`")]
    NotWeights,
    /// The file was written by another version of the importer.
    #[error("weights file has version {0}, this program reads versions {WORD_PIECE_VERSION} to {FOUR_BIT_VERSION}; import the model again")]
    Version(u32),
    /// The file's length contradicts its configuration.
    #[error("weights file has {found} bytes, {expected} expected")]
    Length {
        /// Length according to the configuration, in bytes.
        expected: usize,
        /// Actual length in bytes.
        found: usize,
    },
    /// The checksum doesn't match.
    #[error("weights file is damaged: its checksum does not match")]
    Checksum,
    /// The configuration can't be read.
    #[error("weights file has an unreadable configuration")]
    Configuration(#[source] serde_json::Error),
    /// The configuration contains a value out of range.
    #[error("weights file has an impossible {0}")]
    Shape(&'static str),
    /// The requested code path needs instructions that this CPU lacks.
    #[error("this processor lacks the instructions of the {0} code path")]
    Kernel(&'static str),
}

/// Combines the vectors of a text's tokens into one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pooling {
    /// The mean of all tokens' vectors.
    Mean,
    /// The vector of the first token.
    First,
    /// The element-wise maximum over all tokens' vectors.
    Max,
}

/// Prefixes that some models need, such as `query: `; usually empty. They count towards the length of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prompts {
    /// Prefix for queries.
    pub query: String,
    /// Prefix for documents.
    pub document: String,
}

/// The sizes of a model and its metadata, as stored in the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Config {
    pub(super) name: String,
    /// SHA-256 of the imported `model.safetensors`.
    pub(super) source: String,
    pub(super) hidden: usize,
    pub(super) layers: usize,
    pub(super) heads: usize,
    pub(super) intermediate: usize,
    pub(super) positions: usize,
    pub(super) epsilon: f32,
    pub(super) pooling: Pooling,
    pub(super) prompts: Prompts,
    pub(super) tokens: usize,
    pub(super) token_bytes: usize,
    pub(super) longest_token: usize,
    pub(super) special: SpecialTokens,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) activation: Activation,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) normalization: Normalization,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) tokenizer: TokenizerKind,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) words: WordFormat,
}

/// The format of the word embeddings. They are looked up and not multiplied, so fewer bits only save space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WordFormat {
    /// One byte per value, and a float32 factor per token.
    #[default]
    Int8,
    /// Four bits per value, and a float16 factor per 32 values: `Q4_0` of the GGML library.
    FourBit,
}

/// The algorithm that splits words into tokens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum TokenizerKind {
    /// BERT's tokenizer, with the configuration's `normalization`.
    #[default]
    WordPiece,
    /// The tokenizer of XLM-R.
    Unigram(UnigramConfig),
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The sizes in the file: the model's own, padded for the kernels.
#[derive(Clone, Copy)]
pub(super) struct Widths {
    /// Length of a token's vector.
    pub(super) row: usize,
    /// Total length of a token's heads.
    pub(super) mixed: usize,
    pub(super) heads: Heads,
    /// Length of the wide part of a layer.
    pub(super) wide: usize,
}

impl Config {
    pub(super) fn widths(&self) -> Widths {
        let heads = Heads { count: self.heads, size: (self.hidden / self.heads).next_multiple_of(COLUMNS) };
        Widths {
            row: self.hidden.next_multiple_of(PANEL),
            mixed: (heads.count * heads.size).next_multiple_of(PANEL),
            heads,
            wide: self.intermediate.next_multiple_of(PANEL),
        }
    }

    pub(super) fn unigram(&self) -> Option<&UnigramConfig> {
        match &self.tokenizer {
            TokenizerKind::WordPiece => None,
            TokenizerKind::Unigram(unigram) => Some(unigram),
        }
    }

    /// Validates all sizes, so that later arithmetic can't overflow and every size suits the kernels.
    pub(super) fn check(&self) -> Result<(), ModelError> {
        let checks = [
            ("hidden size", (1..=4096).contains(&self.hidden)),
            ("number of layers", (1..=64).contains(&self.layers)),
            ("number of heads", self.heads > 0 && self.hidden.is_multiple_of(self.heads)),
            ("intermediate size", (1..=16384).contains(&self.intermediate)),
            ("number of positions", (4..=8192).contains(&self.positions)),
            ("layer norm epsilon", self.epsilon.is_finite() && self.epsilon > 0.0),
            ("vocabulary size", (1..=vocabulary::MAXIMUM_TOKENS).contains(&self.tokens)),
            ("vocabulary text", self.token_bytes <= 1 << 28 && self.longest_token <= vocabulary::LONGEST_TOKEN),
            ("table of normalisation", self.unigram().is_none_or(UnigramConfig::is_sound)),
            (
                "special token",
                [self.special.classify, self.special.separate, self.special.unknown].iter().all(|id| (*id as usize) < self.tokens),
            ),
        ];
        checks.iter().find(|(_, holds)| !holds).map_or(Ok(()), |(what, _)| Err(ModelError::Shape(what)))
    }
}

/// The location of a matrix with its scales, sums and biases.
#[derive(Clone, Debug)]
pub(super) struct MatrixLayout {
    pub(super) inputs: usize,
    pub(super) panels: Range<usize>,
    pub(super) scales: Range<usize>,
    pub(super) sums: Range<usize>,
    pub(super) bias: Range<usize>,
}

/// The location of a layer norm's factors and offsets.
#[derive(Clone, Debug)]
pub(super) struct NormLayout {
    pub(super) factors: Range<usize>,
    pub(super) offsets: Range<usize>,
}

/// The location of a transformer layer.
#[derive(Clone, Debug)]
pub(super) struct LayerLayout {
    pub(super) attend: MatrixLayout,
    pub(super) project: MatrixLayout,
    pub(super) attention_norm: NormLayout,
    pub(super) expand: MatrixLayout,
    pub(super) contract: MatrixLayout,
    pub(super) output_norm: NormLayout,
}

/// The location of every section, in bytes from the start of the file.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) tokens: TableLayout,
    /// Word embeddings, one row per token (`WordFormat`).
    pub(super) words: Range<usize>,
    /// Factors of the word embeddings.
    pub(super) word_scales: Range<usize>,
    /// Position embeddings: float32, one row per position, with the embedding of token type 0 added.
    pub(super) positions: Range<usize>,
    pub(super) embedding_norm: NormLayout,
    pub(super) layers: Vec<LayerLayout>,
    pub(super) unigram: Option<UnigramLayout>,
    pub(super) length: usize,
}

struct Cursor(usize);

impl Cursor {
    fn bytes(&mut self, length: usize) -> Range<usize> {
        let start = self.0.next_multiple_of(ALIGNMENT);
        self.0 = start + length;
        start..self.0
    }

    fn floats(&mut self, count: usize) -> Range<usize> {
        self.bytes(count * 4)
    }

    fn table(&mut self, tokens: usize, text: usize) -> TableLayout {
        TableLayout { offsets: self.bytes((tokens + 1) * 4), slots: self.bytes(vocabulary::slot_count(tokens) * 4), text: self.bytes(text) }
    }

    fn norm(&mut self, width: usize) -> NormLayout {
        NormLayout { factors: self.floats(width), offsets: self.floats(width) }
    }

    fn matrix(&mut self, inputs: usize, outputs: usize) -> MatrixLayout {
        MatrixLayout {
            inputs,
            panels: self.bytes(inputs * outputs),
            scales: self.floats(outputs),
            sums: self.floats(outputs),
            bias: self.floats(outputs),
        }
    }
}

impl Layout {
    /// Computes the sections of a file with a valid configuration. `header` is the length of the configuration, in bytes.
    pub(super) fn new(config: &Config, header: usize) -> Self {
        let mut cursor = Cursor(HASHED_FROM + header);
        let hidden = config.hidden;
        let Widths { row, mixed, wide, .. } = config.widths();
        let tokens = cursor.table(config.tokens, config.token_bytes);
        let (words, word_scales) = match config.words {
            WordFormat::Int8 => (cursor.bytes(config.tokens * row), cursor.floats(config.tokens)),
            WordFormat::FourBit => (cursor.bytes(config.tokens * row / 2), cursor.bytes(config.tokens * (row / WORD_BLOCK) * 2)),
        };
        let positions = cursor.floats(config.positions * row);
        let embedding_norm = cursor.norm(hidden);
        let layers = (0..config.layers)
            .map(|_| LayerLayout {
                attend: cursor.matrix(row, 3 * mixed),
                project: cursor.matrix(mixed, row),
                attention_norm: cursor.norm(hidden),
                expand: cursor.matrix(row, wide),
                contract: cursor.matrix(wide, row),
                output_norm: cursor.norm(hidden),
            })
            .collect();
        let unigram = config.unigram().map(|unigram| UnigramLayout {
            scores: cursor.bytes(config.tokens * 8),
            charsmap: CharsmapLayout {
                sequences: cursor.table(unigram.sequences, unigram.sequence_bytes),
                replacement_offsets: cursor.bytes((unigram.sequences + 1) * 4),
                replacement_text: cursor.bytes(unigram.replacement_bytes),
                ascii: cursor.bytes(128),
            },
        });
        Self { tokens, words, word_scales, positions, embedding_norm, layers, unigram, length: cursor.0 }
    }
}

/// A weights file with a valid header and length.
pub(super) struct Weights {
    pub(super) bytes: Cow<'static, [u8]>,
    pub(super) config: Config,
    pub(super) layout: Layout,
    /// The first 12 hexadecimal digits of the checksum.
    pub(super) digest: String,
}

impl Weights {
    /// Reads the header. `verify` hashes the whole file, and so reads all of it into memory.
    pub(super) fn read(bytes: Cow<'static, [u8]>, verify: bool) -> Result<Self, ModelError> {
        let Some((head, rest)) = bytes.split_first_chunk::<HASHED_FROM>() else {
            return Err(ModelError::NotWeights);
        };
        if &head[..8] != MAGIC {
            return Err(ModelError::NotWeights);
        }
        let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        if !(WORD_PIECE_VERSION..=FOUR_BIT_VERSION).contains(&number(8)) {
            return Err(ModelError::Version(number(8)));
        }
        let header = number(12) as usize;
        let text = rest.get(..header).ok_or(ModelError::Length { expected: HASHED_FROM + header, found: bytes.len() })?;
        let config: Config = serde_json::from_slice(text).map_err(ModelError::Configuration)?;
        config.check()?;
        let layout = Layout::new(&config, header);
        if layout.length != bytes.len() {
            return Err(ModelError::Length { expected: layout.length, found: bytes.len() });
        }
        if verify && Sha256::digest(rest)[..] != head[16..] {
            return Err(ModelError::Checksum);
        }
        let digest = hexadecimal(&head[16..22]);
        Ok(Self { bytes, config, layout, digest })
    }

    /// A copy of a section as float32 numbers.
    pub(super) fn floats(&self, range: &Range<usize>) -> Vec<f32> {
        self.chunks(range).iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    }

    /// A section as four-byte numbers, without a copy.
    pub(super) fn chunks(&self, range: &Range<usize>) -> &[[u8; 4]] {
        self.bytes[range.clone()].as_chunks::<4>().0
    }
}

/// Creates a file: writes the header, and calls `fill` to write the sections to the layout's locations.
pub(super) fn assemble<E: From<ModelError>>(config: &Config, fill: impl FnOnce(&Layout, &mut [u8]) -> Result<(), E>) -> Result<Vec<u8>, E> {
    config.check()?;
    let text = serde_json::to_vec(config).map_err(ModelError::Configuration)?;
    let layout = Layout::new(config, text.len());
    let mut bytes = vec![0; layout.length];
    bytes[..8].copy_from_slice(MAGIC);
    let version = match (config.words, config.unigram()) {
        (WordFormat::FourBit, _) => FOUR_BIT_VERSION,
        (WordFormat::Int8, Some(_)) => UNIGRAM_VERSION,
        (WordFormat::Int8, None) => WORD_PIECE_VERSION,
    };
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    let length = u32::try_from(text.len()).map_err(|_| ModelError::Shape("name"))?;
    bytes[12..16].copy_from_slice(&length.to_le_bytes());
    bytes[HASHED_FROM..HASHED_FROM + text.len()].copy_from_slice(&text);
    fill(&layout, &mut bytes)?;
    let digest = Sha256::digest(&bytes[HASHED_FROM..]);
    bytes[16..HASHED_FROM].copy_from_slice(&digest);
    Ok(bytes)
}

pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string can't fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
