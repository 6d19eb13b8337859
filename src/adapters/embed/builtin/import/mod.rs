//! Converts a sentence-transformers folder into a weights file: at startup for a folder in the settings, or by
//! `toolsieve model import DIR`.
//!
//! Reads `config.json`, `model.safetensors`, `tokenizer.json` or `vocab.txt` and `1_Pooling/config.json`, and optionally
//! `modules.json`, `sentence_bert_config.json`, `tokenizer_config.json` and `config_sentence_transformers.json`. The result
//! depends only on these files, the name and the prompts. An unsupported feature causes an error, so the vectors never
//! differ unnoticed.

mod charsmap;
mod folder;
mod tensors;
mod parts;
mod unigram;
mod tokenizer;

use std::{fmt, io, path::Path};

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{
    linear::Activation,
    unigram::UnigramConfig,
    vocabulary,
    weights::{self, Config, ModelError, Pooling, Prompts, TokenizerKind, WordFormat},
};
use folder::{Folder, Modules};
use tensors::Tensors;
use tokenizer::Tokenizer;

/// The reason why a folder can't be imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// A file is missing or unreadable.
    #[error("can't read {file}: {source}")]
    Read {
        /// The file's path in the folder.
        file: String,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// A JSON file has unexpected content.
    #[error("can't parse {file}: {source}")]
    Json {
        /// The file's path in the folder.
        file: String,
        /// The reason.
        #[source]
        source: serde_json::Error,
    },
    /// The weights are in an unsupported format.
    #[error("{0}")]
    Weights(&'static str),
    /// The tensors can't be read.
    #[error("model.safetensors is damaged or incomplete ({0}); copy it again, or, from a checkout of Git LFS, run `git lfs pull`")]
    Tensors(#[source] safetensors::SafeTensorError),
    /// A tensor is missing, or has a wrong shape, an unsupported type or a non-finite value.
    #[error("model.safetensors does not fit config.json: tensor {name}: {problem}")]
    Tensor {
        /// The tensor's name.
        name: String,
        /// The problem with the tensor.
        problem: String,
    },
    /// The model needs a feature that this encoder lacks.
    #[error("unsupported model: {what} is {found}, {supported} supported")]
    Unsupported {
        /// The name of the setting.
        what: &'static str,
        /// The value of the setting.
        found: String,
        /// The supported values of the setting.
        supported: &'static str,
    },
    /// The vocabulary is only in the format of `SentencePiece`.
    #[error(
        "there is no tokenizer.json; write it from the SentencePiece model: AutoTokenizer.from_pretrained(folder).save_pretrained(folder)"
    )]
    Vocabulary,
    /// The character map of a Unigram tokenizer can't be read.
    #[error("the precompiled_charsmap in tokenizer.json is damaged: {0}")]
    Charsmap(&'static str),
    /// The vocabulary lacks a token.
    #[error("the vocabulary lacks the token {0}")]
    Token(String),
    /// The sizes of the model are unsupported.
    #[error("unsupported model: {0}")]
    Model(#[from] ModelError),
}

#[derive(serde::Deserialize)]
struct BertConfig {
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    intermediate_size: usize,
    max_position_embeddings: usize,
    /// Number of unused position embeddings at the start.
    #[serde(skip)]
    first_position: usize,
    #[serde(default = "usual_epsilon")]
    layer_norm_eps: f32,
    #[serde(default = "usual_activation")]
    hidden_act: String,
}

fn usual_epsilon() -> f32 {
    1e-12
}

fn usual_activation() -> String {
    "gelu".to_owned()
}

/// Prefixes that override those in the folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromptOverrides {
    pub query: Option<String>,
    pub document: Option<String>,
}

/// Converts a model folder into the bytes of a weights file, named after the folder.
///
/// # Errors
/// A file is missing, or the model is not a sentence encoder of the BERT family.
pub fn import(folder: &Path) -> Result<Vec<u8>, ImportError> {
    let name = folder.file_name().map_or_else(|| "model".into(), |name| name.to_string_lossy());
    import_named(folder, &name, WordFormat::Int8)
}

/// Converts a model folder into the bytes of a weights file; `name` becomes the start of the model's id, `words` is the format of the
/// word embeddings.
///
/// # Errors
/// Like [`import`].
pub fn import_named(folder: &Path, name: &str, words: WordFormat) -> Result<Vec<u8>, ImportError> {
    import_prompted(folder, name, &PromptOverrides::default(), words)
}

/// Converts a model folder into the bytes of a weights file, with prefixes that override those in the folder.
///
/// # Errors
/// Like [`import`].
pub(super) fn import_prompted(folder: &Path, name: &str, overrides: &PromptOverrides, words: WordFormat) -> Result<Vec<u8>, ImportError> {
    let modules = Modules::read(folder)?;
    let (bert, activation) = architecture(&modules.transformer)?;
    let Tokenizer { tokens, special, normalization, unigram } = Tokenizer::read(&modules.transformer)?;
    let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
    let tables = vocabulary::build(&tokens);
    let unigram = unigram.map(|pieces| (pieces.rules.tables(), pieces));
    let tokenizer = unigram.as_ref().map_or(TokenizerKind::WordPiece, |(rules, pieces)| {
        TokenizerKind::Unigram(UnigramConfig {
            spaces: pieces.spaces,
            sequences: rules.count,
            sequence_bytes: rules.sequences.text.len(),
            replacement_bytes: rules.text.len(),
        })
    });
    let prompts = prompts(&modules.root, overrides)?;
    let pooling = pooling(&modules.pooling, &prompts)?;
    let bytes = modules.transformer.tensors()?;
    let config = Config {
        name: name.to_owned(),
        source: weights::hexadecimal(&Sha256::digest(&bytes)),
        hidden: bert.hidden_size,
        layers: bert.num_hidden_layers,
        heads: bert.num_attention_heads,
        intermediate: bert.intermediate_size,
        positions: positions(&modules.transformer, &bert)?,
        epsilon: bert.layer_norm_eps,
        pooling,
        prompts,
        tokens: tokens.len(),
        token_bytes: tables.text.len(),
        longest_token: tables.longest,
        special,
        activation,
        normalization,
        tokenizer,
        words,
    };
    config.check()?;
    let tensors = Tensors::new(&bytes)?;
    weights::assemble(&config, |layout, file| {
        tables.write(&layout.tokens, file);
        if let (Some((rules, pieces)), Some(layout)) = (&unigram, &layout.unigram) {
            rules.write(&layout.charsmap, file);
            let scores = file[layout.scores.clone()].as_chunks_mut().0;
            scores.iter_mut().zip(&pieces.scores).for_each(|(target, score)| *target = score.to_le_bytes());
        }
        parts::write(&tensors, &config, bert.first_position, layout, file)
    })
}

fn require(holds: bool, what: &'static str, found: &dyn fmt::Display, supported: &'static str) -> Result<(), ImportError> {
    if holds { Ok(()) } else { Err(ImportError::Unsupported { what, found: found.to_string(), supported }) }
}

fn architecture(folder: &Folder<'_>) -> Result<(BertConfig, Activation), ImportError> {
    const FILE: &str = "config.json";
    let config: Value = folder.json(FILE)?;
    // Check this before the sizes, because other architectures have other names for those.
    let kind = config["model_type"].as_str().unwrap_or("not given");
    let is_roberta = ["roberta", "xlm-roberta", "camembert"].contains(&kind);
    require(kind == "bert" || is_roberta, "model_type in config.json", &kind, "only bert, roberta, xlm-roberta and camembert are")?;
    // RoBERTa counts positions from the one after the padding token's id.
    let padding = config["pad_token_id"].as_u64().unwrap_or(1);
    let first_position = if is_roberta { usize::try_from(padding).unwrap_or(usize::MAX).saturating_add(1) } else { 0 };
    let positions = config["position_embedding_type"].as_str().unwrap_or("absolute");
    require(positions == "absolute", "position_embedding_type in config.json", &positions, "only absolute is")?;
    let mut bert: BertConfig = serde_json::from_value(config).map_err(|source| ImportError::Json { file: folder.path(FILE), source })?;
    bert.first_position = first_position;
    let activation = match bert.hidden_act.as_str() {
        // The last three approximate the first with the hyperbolic tangent, with a difference of less than 0.0005. Activations
        // are quantised to steps of about 0.02.
        "gelu" | "gelu_python" | "gelu_new" | "gelu_fast" | "gelu_pytorch_tanh" => Activation::Gelu,
        "relu" => Activation::Relu,
        other => {
            return Err(ImportError::Unsupported {
                what: "hidden_act in config.json",
                found: other.to_owned(),
                supported: "gelu, gelu_new and relu are",
            });
        }
    };
    Ok((bert, activation))
}

/// The maximum number of tokens that the model was trained for.
fn positions(folder: &Folder<'_>, bert: &BertConfig) -> Result<usize, ImportError> {
    let limit = |value: &Value| value.as_u64().and_then(|limit| usize::try_from(limit).ok());
    let own = limit(&folder.optional("sentence_bert_config.json")?["max_seq_length"]);
    let tokenizer = limit(&folder.optional("tokenizer_config.json")?["model_max_length"]);
    Ok(own.or(tokenizer).unwrap_or(usize::MAX).min(bert.max_position_embeddings.saturating_sub(bert.first_position)))
}

fn pooling(folder: &Folder<'_>, prompts: &Prompts) -> Result<Pooling, ImportError> {
    let settings: Value = folder.json("config.json")?;
    let counts_prompt = settings["include_prompt"].as_bool().unwrap_or(true) || (prompts.query.is_empty() && prompts.document.is_empty());
    require(counts_prompt, "include_prompt in the pooling's config.json", &false, "with a prefix only true is")?;
    let by_switches = [
        ("pooling_mode_mean_tokens", Some(Pooling::Mean)),
        ("pooling_mode_cls_token", Some(Pooling::First)),
        ("pooling_mode_max_tokens", Some(Pooling::Max)),
        ("pooling_mode_mean_sqrt_len_tokens", None),
        ("pooling_mode_weightedmean_tokens", None),
        ("pooling_mode_lasttoken", None),
    ];
    let by_name = match settings["pooling_mode"].as_str() {
        Some("mean") => Some(Some(Pooling::Mean)),
        Some("cls") => Some(Some(Pooling::First)),
        Some("max") => Some(Some(Pooling::Max)),
        Some(_) => Some(None),
        None => None,
    };
    let switched = by_switches.iter().filter(|(name, _)| settings[*name].as_bool().unwrap_or(false)).map(|(_, pooling)| *pooling);
    let modes: Vec<Option<Pooling>> = by_name.map_or_else(|| switched.collect(), |mode| vec![mode]);
    match modes.as_slice() {
        [Some(pooling)] => Ok(*pooling),
        _ => Err(ImportError::Unsupported {
            what: "pooling",
            found: settings.to_string(),
            supported: "one of mean, first token and maximum is",
        }),
    }
}

fn prompts(folder: &Folder<'_>, overrides: &PromptOverrides) -> Result<Prompts, ImportError> {
    let settings = folder.optional("config_sentence_transformers.json")?;
    let default = settings["default_prompt_name"].as_str().unwrap_or_default();
    let own = |names: &[&str]| {
        // Newer library releases list every known prompt name; most prompts are empty.
        let mut found = names.iter().chain([&default]).filter_map(|name| settings["prompts"][name].as_str());
        found.find(|prompt| !prompt.is_empty()).unwrap_or_default().to_owned()
    };
    let PromptOverrides { query, document } = overrides.clone();
    Ok(Prompts { query: query.unwrap_or_else(|| own(&["query"])), document: document.unwrap_or_else(|| own(&["document", "passage"])) })
}
