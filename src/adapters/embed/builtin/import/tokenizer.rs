//! Reads the tokenizer of a model folder: `tokenizer.json` as written by the `tokenizers` library, or `vocab.txt`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::super::tokenize::{LONGEST_WORD, Normalization, SpecialTokens};
use super::super::vocabulary::MAXIMUM_TOKENS;
use super::super::weights::ModelError;
use super::folder::{Folder, TOKENIZER};
use super::unigram::{self, Pieces, UnigramTokenizer};
use super::{ImportError, require};

const VOCABULARY: &str = "vocab.txt";
/// Names of vocabularies in the format of `SentencePiece`.
const SENTENCE_PIECE: [&str; 3] = ["sentencepiece.bpe.model", "spiece.model", "tokenizer.model"];

/// The tokenizer's vocabulary and settings.
pub(super) struct Tokenizer {
    /// All tokens in order of id. An unused id has an empty text, which never matches.
    pub(super) tokens: Vec<String>,
    pub(super) special: SpecialTokens,
    pub(super) normalization: Normalization,
    /// The scores and rules of a Unigram tokenizer; `None` for `WordPiece`.
    pub(super) unigram: Option<Pieces>,
}

#[derive(Deserialize)]
struct WordPiece {
    continuing_subword_prefix: Option<String>,
    max_input_chars_per_word: Option<usize>,
    vocab: BTreeMap<String, usize>,
}

/// The normalisation settings that both formats have; `None` if unspecified.
#[derive(Default)]
struct Wanted {
    lowercase: Option<bool>,
    strip_accents: Option<bool>,
    split_ideographs: Option<bool>,
}

impl Tokenizer {
    pub(super) fn read(folder: &Folder<'_>) -> Result<Self, ImportError> {
        let settings = folder.optional("tokenizer_config.json")?;
        let mut wanted = Wanted::default();
        let tokens = match folder.optional(TOKENIZER)? {
            Value::Null => vocabulary(folder)?,
            tokenizer if unigram::is_unigram(&tokenizer["model"]) => {
                let UnigramTokenizer { tokens, special, pieces } = unigram::read(folder, tokenizer)?;
                return Ok(Self { tokens, special, normalization: Normalization::default(), unigram: Some(pieces) });
            }
            tokenizer => {
                model_kind(&tokenizer["model"])?;
                wanted = normalizer(&tokenizer["normalizer"])?;
                pre_tokenizer(&tokenizer["pre_tokenizer"])?;
                model(folder, tokenizer)?
            }
        };
        if tokens.len() > MAXIMUM_TOKENS {
            return Err(ModelError::Shape("vocabulary size").into());
        }
        // As in the library that wrote the file, its settings override the file.
        let setting = |name: &str, other: Option<bool>| settings[name].as_bool().or(other);
        let lowercase = setting("do_lower_case", wanted.lowercase).unwrap_or(true);
        let strip_accents = setting("strip_accents", wanted.strip_accents).unwrap_or(lowercase);
        let split = setting("tokenize_chinese_chars", wanted.split_ideographs).unwrap_or(true);
        // sentence-transformers itself applies this setting, before the tokenizer.
        let lowers = folder.optional("sentence_bert_config.json")?["do_lower_case"].as_bool().unwrap_or(false);
        let normalization = Normalization { keep_case: !(lowercase || lowers), keep_accents: !strip_accents, join_ideographs: !split };
        let id = |key: &str, default: &'static str| {
            let value = &settings[key];
            let token = value.as_str().or_else(|| value["content"].as_str()).unwrap_or(default);
            let place = tokens.iter().rposition(|other| other == token).and_then(|place| u32::try_from(place).ok());
            place.ok_or_else(|| ImportError::Token(token.to_owned()))
        };
        let special =
            SpecialTokens { classify: id("cls_token", "[CLS]")?, separate: id("sep_token", "[SEP]")?, unknown: id("unk_token", "[UNK]")? };
        Ok(Self { tokens, special, normalization, unigram: None })
    }
}

fn vocabulary(folder: &Folder<'_>) -> Result<Vec<String>, ImportError> {
    if !folder.has(VOCABULARY) && SENTENCE_PIECE.iter().any(|file| folder.has(file)) {
        return Err(ImportError::Vocabulary);
    }
    let bytes = folder.read(VOCABULARY)?;
    Ok(String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect())
}

fn normalizer(normalizer: &Value) -> Result<Wanted, ImportError> {
    let kind = normalizer["type"].as_str().unwrap_or("none");
    require(kind == "BertNormalizer", "the normalizer in tokenizer.json", &kind, "only BertNormalizer is")?;
    let cleans = normalizer["clean_text"].as_bool().unwrap_or(true);
    require(cleans, "clean_text in tokenizer.json", &cleans, "only true is")?;
    Ok(Wanted {
        lowercase: normalizer["lowercase"].as_bool(),
        strip_accents: normalizer["strip_accents"].as_bool(),
        split_ideographs: normalizer["handle_chinese_chars"].as_bool(),
    })
}

fn pre_tokenizer(pre_tokenizer: &Value) -> Result<(), ImportError> {
    let kind = pre_tokenizer["type"].as_str().unwrap_or("none");
    require(kind == "BertPreTokenizer", "the pre_tokenizer in tokenizer.json", &kind, "only BertPreTokenizer is")
}

/// Checks the model before the other parts, because these differ between models.
fn model_kind(model: &Value) -> Result<(), ImportError> {
    let kind = model["type"].as_str().unwrap_or("WordPiece");
    require(kind == "WordPiece", "the model in tokenizer.json", &kind, "only WordPiece and Unigram are")
}

fn model(folder: &Folder<'_>, mut tokenizer: Value) -> Result<Vec<String>, ImportError> {
    let model: WordPiece =
        serde_json::from_value(tokenizer["model"].take()).map_err(|source| ImportError::Json { file: folder.path(TOKENIZER), source })?;
    let prefix = model.continuing_subword_prefix.unwrap_or_else(|| "##".to_owned());
    require(prefix == "##", "continuing_subword_prefix in tokenizer.json", &prefix, "only ## is")?;
    let longest = model.max_input_chars_per_word.unwrap_or(LONGEST_WORD);
    require(longest == LONGEST_WORD, "max_input_chars_per_word in tokenizer.json", &longest, "only 100 is")?;
    let length = model.vocab.values().max().map_or(0, |last| last.saturating_add(1));
    if length > MAXIMUM_TOKENS {
        return Err(ModelError::Shape("vocabulary size").into());
    }
    let mut tokens = vec![String::new(); length];
    for (token, id) in model.vocab {
        tokens[id] = token;
    }
    Ok(tokens)
}
