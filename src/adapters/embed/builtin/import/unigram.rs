//! Reads a Unigram tokenizer from `tokenizer.json`: the pieces with their scores, the normalisation and the special tokens.

use serde::Deserialize;
use serde_json::Value;

use super::super::tokenize::SpecialTokens;
use super::super::unigram::{Spaces, WORD_START};
use super::super::vocabulary::MAXIMUM_TOKENS;
use super::super::weights::ModelError;
use super::charsmap::Rules;
use super::folder::{Folder, TOKENIZER};
use super::{ImportError, require};

/// A Unigram tokenizer of a model folder.
pub(super) struct UnigramTokenizer {
    /// All tokens in order of id. An unused id has an empty text, which never matches.
    pub(super) tokens: Vec<String>,
    pub(super) special: SpecialTokens,
    pub(super) pieces: Pieces,
}

/// The part of a tokenizer that only Unigram tokenizers have.
pub(super) struct Pieces {
    /// One score per token. That of the unknown token is the score of an unknown character.
    pub(super) scores: Vec<f64>,
    pub(super) spaces: Spaces,
    pub(super) rules: Rules,
}

#[derive(Deserialize)]
struct Model {
    unk_id: Option<usize>,
    vocab: Vec<(String, f64)>,
    #[serde(default)]
    byte_fallback: bool,
}

/// How much worse an unknown character is than the worst token.
const UNKNOWN_PENALTY: f64 = 10.0;

const NORMALIZER: &str = "the normalizer in tokenizer.json";
const NORMALIZERS: &str = "Precompiled, Strip of the right side, and Replace of two or more spaces by one, in this order, are";
const PRE_TOKENIZER: &str = "the pre_tokenizer in tokenizer.json";
const PRE_TOKENIZERS: &str = "Metaspace with ▁ before every word, alone or after WhitespaceSplit, is";

/// Whether a tokenizer has Unigram pieces. Old files don't name the type.
pub(super) fn is_unigram(model: &Value) -> bool {
    model["type"].as_str().map_or_else(|| model["vocab"].is_array(), |kind| kind == "Unigram")
}

pub(super) fn read(folder: &Folder<'_>, mut tokenizer: Value) -> Result<UnigramTokenizer, ImportError> {
    let lowers = folder.optional("sentence_bert_config.json")?["do_lower_case"].as_bool().unwrap_or(false);
    require(!lowers, "do_lower_case in sentence_bert_config.json", &lowers, "with a Unigram tokenizer only false is")?;
    let model = serde_json::from_value(tokenizer["model"].take());
    let Model { unk_id, vocab, byte_fallback } = model.map_err(|source| ImportError::Json { file: folder.path(TOKENIZER), source })?;
    require(!byte_fallback, "byte_fallback in tokenizer.json", &byte_fallback, "only false is")?;
    if vocab.len() > MAXIMUM_TOKENS {
        return Err(ModelError::Shape("vocabulary size").into());
    }
    if vocab.iter().any(|(_, score)| !score.is_finite()) {
        return Err(ModelError::Shape("score of a token").into());
    }
    let unknown = unk_id.filter(|id| *id < vocab.len()).ok_or_else(|| ImportError::Token("unk_id".to_owned()))?;
    let least = vocab.iter().map(|(_, score)| *score).fold(f64::INFINITY, f64::min);
    let (mut tokens, mut scores): (Vec<String>, Vec<f64>) = vocab.into_iter().unzip();
    scores[unknown] = least - UNKNOWN_PENALTY;
    let (rules, spaces) = normalization(&tokenizer)?;
    let special = special(&tokenizer["post_processor"], unknown, tokens.len())?;
    for added in tokenizer["added_tokens"].as_array().into_iter().flatten() {
        let content = added["content"].as_str().unwrap_or_default();
        require(added["special"] == true, "an added token in tokenizer.json", &content, "only special ones are")?;
        tokens.iter_mut().filter(|token| *token == content).for_each(String::clear);
    }
    for id in [special.classify, special.separate, special.unknown] {
        tokens[id as usize].clear();
    }
    Ok(UnigramTokenizer { tokens, special, pieces: Pieces { scores, spaces, rules } })
}

/// A part of the pipeline and the parts that a `Sequence` contains.
fn steps<'a>(step: &'a Value, list: &str) -> Vec<&'a Value> {
    match step["type"].as_str() {
        None => Vec::new(),
        Some("Sequence") => step[list].as_array().into_iter().flatten().collect(),
        Some(_) => vec![step],
    }
}

fn normalization(tokenizer: &Value) -> Result<(Rules, Spaces), ImportError> {
    let normalizers = steps(&tokenizer["normalizer"], "normalizers");
    let mut rest = normalizers.as_slice();
    let mut step = |kind: &str| match rest {
        [first, others @ ..] if first["type"] == kind => {
            rest = others;
            Some(*first)
        }
        _ => None,
    };
    let rules = match step("Precompiled") {
        Some(step) => Rules::decode(step["precompiled_charsmap"].as_str().unwrap_or_default())?,
        None => Rules::default(),
    };
    let mut strip_end = false;
    if let Some(step) = step("Strip") {
        strip_end = step["strip_right"] == true;
        require(step["strip_left"] == false, NORMALIZER, &"Strip of the left side", NORMALIZERS)?;
    }
    let mut run = None;
    if let Some(step) = step("Replace") {
        require(step["pattern"]["Regex"] == " {2,}", NORMALIZER, &format!("Replace of {}", step["pattern"]), NORMALIZERS)?;
        run = match step["content"].as_str() {
            Some(" ") => Some(' '),
            Some("▁") => Some(WORD_START),
            _ => return Err(unsupported(NORMALIZER, &format!("Replace by {}", step["content"]), NORMALIZERS)),
        };
    }
    if let [next, ..] = rest {
        return Err(unsupported(NORMALIZER, next["type"].as_str().unwrap_or("unknown"), NORMALIZERS));
    }
    let split_all = pre_tokenizer(&tokenizer["pre_tokenizer"])?;
    // Without effect if all white space separates words anyway.
    if split_all && run != Some(WORD_START) {
        (run, strip_end) = (None, false);
    }
    Ok((rules, Spaces { split_all, strip_end, run }))
}

/// Whether any white space separates words.
fn pre_tokenizer(pre_tokenizer: &Value) -> Result<bool, ImportError> {
    let steps = steps(pre_tokenizer, "pretokenizers");
    let (split_all, metaspace) = match steps.as_slice() {
        [metaspace] => (false, *metaspace),
        [split, metaspace] if split["type"] == "WhitespaceSplit" => (true, *metaspace),
        _ => {
            let kinds: Vec<&str> = steps.iter().map(|step| step["type"].as_str().unwrap_or("unknown")).collect();
            return Err(unsupported(
                PRE_TOKENIZER,
                if kinds.is_empty() { "none".to_owned() } else { kinds.join(", ") }.as_str(),
                PRE_TOKENIZERS,
            ));
        }
    };
    let kind = metaspace["type"].as_str().unwrap_or("unknown");
    require(kind == "Metaspace", PRE_TOKENIZER, &kind, PRE_TOKENIZERS)?;
    let scheme = metaspace["prepend_scheme"].as_str().unwrap_or("always");
    // Without a split before it, the text is one part, so its first word is the first of every part.
    let prepends = metaspace["add_prefix_space"] != false && (scheme == "always" || (scheme == "first" && !split_all));
    let is_usual = prepends && metaspace["replacement"] == "▁" && metaspace["split"] != false;
    require(is_usual, PRE_TOKENIZER, metaspace, PRE_TOKENIZERS)?;
    Ok(split_all)
}

/// The special tokens that the post-processor puts around a text.
fn special(post_processor: &Value, unknown: usize, tokens: usize) -> Result<SpecialTokens, ImportError> {
    const WHAT: &str = "the post_processor in tokenizer.json";
    const SUPPORTED: &str = "only one token before and one after a text are";
    let kind = post_processor["type"].as_str().unwrap_or("none");
    let (before, after) = match kind {
        "RobertaProcessing" | "BertProcessing" => (&post_processor["cls"][1], &post_processor["sep"][1]),
        "TemplateProcessing" => {
            let id = |name: &Value| {
                let token = &post_processor["special_tokens"][name.as_str().unwrap_or_default()];
                if token["ids"].as_array().is_some_and(|ids| ids.len() == 1) { &token["ids"][0] } else { &Value::Null }
            };
            match post_processor["single"].as_array().map(Vec::as_slice) {
                Some([before, text, after]) if text["Sequence"]["id"] == "A" => {
                    (id(&before["SpecialToken"]["id"]), id(&after["SpecialToken"]["id"]))
                }
                _ => return Err(unsupported(WHAT, &post_processor["single"].to_string(), SUPPORTED)),
            }
        }
        _ => return Err(unsupported(WHAT, kind, SUPPORTED)),
    };
    let id = |value: &Value| {
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok()).filter(|id| (*id as usize) < tokens);
        id.ok_or_else(|| unsupported(WHAT, &value.to_string(), SUPPORTED))
    };
    let unknown = u32::try_from(unknown).map_err(|_| ModelError::Shape("vocabulary size"))?;
    Ok(SpecialTokens { classify: id(before)?, separate: id(after)?, unknown })
}

fn unsupported(what: &'static str, found: &str, supported: &'static str) -> ImportError {
    ImportError::Unsupported { what, found: found.to_owned(), supported }
}
