//! From a sentence-transformers folder to the weights file: `toolsieve model import DIR`.
//!
//! Reads `config.json`, `model.safetensors`, `vocab.txt` and `1_Pooling/config.json`, and where they exist
//! `modules.json`, `sentence_bert_config.json`, `tokenizer_config.json` and
//! `config_sentence_transformers.json`. The result depends on nothing but these files and the name. What the
//! encoder can't do is an error here, never a silent difference later.

use std::{fmt, fs, io, path::Path};

use safetensors::{Dtype, SafeTensors};
use serde::de::DeserializeOwned;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{
    quantize::{pack_matrix, quantize_symmetric},
    tokenize::SpecialTokens,
    vocabulary,
    weights::{self, Config, MatrixLayout, ModelError, NormLayout, Pooling, Prompts},
};

/// Why a folder can't be imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// A file is missing or unreadable.
    #[error("can't read {file}")]
    Read {
        /// Its path inside the folder.
        file: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A JSON file isn't what it should be.
    #[error("can't understand {file}")]
    Json {
        /// Its path inside the folder.
        file: &'static str,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// The tensors can't be read.
    #[error("can't understand model.safetensors")]
    Tensors(#[source] safetensors::SafeTensorError),
    /// A tensor is missing, has another shape than the configuration says, an unknown type or a value that
    /// isn't finite.
    #[error("tensor {name}: {problem}")]
    Tensor {
        /// Its name.
        name: String,
        /// What is wrong.
        problem: String,
    },
    /// The model needs something that this encoder doesn't do.
    #[error("unsupported model: {what} is {found}, {supported} supported")]
    Unsupported {
        /// The setting.
        what: &'static str,
        /// Its value.
        found: String,
        /// What would do.
        supported: &'static str,
    },
    /// `vocab.txt` lacks a token.
    #[error("vocab.txt lacks the token {0}")]
    Token(&'static str),
    /// The sizes don't fit the encoder.
    #[error("unsupported model")]
    Model(#[from] ModelError),
}

#[derive(serde::Deserialize)]
struct BertConfig {
    model_type: String,
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    intermediate_size: usize,
    max_position_embeddings: usize,
    layer_norm_eps: f32,
    hidden_act: String,
    #[serde(default)]
    position_embedding_type: Option<String>,
}

/// Turns a model folder into the bytes of a weights file, named after the folder.
///
/// # Errors
/// When a file is missing or the model is of another kind than a BERT sentence encoder.
pub fn import(folder: &Path) -> Result<Vec<u8>, ImportError> {
    let name = folder.file_name().map_or_else(|| "model".into(), |name| name.to_string_lossy());
    import_named(folder, &name)
}

/// Turns a model folder into the bytes of a weights file; `name` becomes the start of the model's id.
///
/// # Errors
/// As [`import`].
pub fn import_named(folder: &Path, name: &str) -> Result<Vec<u8>, ImportError> {
    let bert: BertConfig = json(folder, "config.json")?;
    check_architecture(folder, &bert)?;
    let vocabulary = read(folder, "vocab.txt")?;
    let vocabulary = String::from_utf8_lossy(&vocabulary);
    let tokens: Vec<&str> = vocabulary.lines().collect();
    if tokens.len() > vocabulary::MAXIMUM_TOKENS {
        return Err(ModelError::Shape("vocabulary size").into());
    }
    let tables = vocabulary::build(&tokens);
    let id = |token: &'static str| {
        let place = tokens.iter().rposition(|other| *other == token).ok_or(ImportError::Token(token))?;
        u32::try_from(place).map_err(|_| ImportError::Token(token))
    };
    let bytes = read(folder, "model.safetensors")?;
    let config = Config {
        name: name.to_owned(),
        source: weights::hexadecimal(&Sha256::digest(&bytes)),
        hidden: bert.hidden_size,
        layers: bert.num_hidden_layers,
        heads: bert.num_attention_heads,
        intermediate: bert.intermediate_size,
        positions: positions(folder, &bert)?,
        epsilon: bert.layer_norm_eps,
        pooling: pooling(folder)?,
        prompts: prompts(folder)?,
        tokens: tokens.len(),
        token_bytes: tables.text.len(),
        longest_token: tables.longest,
        special: SpecialTokens { classify: id("[CLS]")?, separate: id("[SEP]")?, unknown: id("[UNK]")? },
    };
    config.check()?;
    let tensors = Tensors::new(&bytes)?;
    let parts = Parts::read(&tensors, &config)?;
    let file = weights::assemble(&config, |layout, file| {
        file[layout.token_offsets.clone()].copy_from_slice(&tables.offsets);
        file[layout.token_slots.clone()].copy_from_slice(&tables.slots);
        file[layout.token_text.clone()].copy_from_slice(&tables.text);
        let mut scales = Vec::with_capacity(config.tokens);
        let rows = file[layout.words.clone()].chunks_exact_mut(config.hidden);
        for (row, target) in parts.words.chunks_exact(config.hidden).zip(rows) {
            let (scale, bytes) = quantize_symmetric(row);
            scales.push(scale);
            for (byte, target) in bytes.iter().zip(target) {
                *target = byte.cast_unsigned();
            }
        }
        put(&mut file[layout.word_scales.clone()], &scales);
        put(&mut file[layout.positions.clone()], &parts.positions);
        parts.embedding_norm.write(&layout.embedding_norm, file);
        for (layer, layout) in parts.layers.iter().zip(&layout.layers) {
            layer.attend.write(&layout.attend, file);
            layer.project.write(&layout.project, file);
            layer.attention_norm.write(&layout.attention_norm, file);
            layer.expand.write(&layout.expand, file);
            layer.contract.write(&layout.contract, file);
            layer.output_norm.write(&layout.output_norm, file);
        }
    })?;
    Ok(file)
}

/// A linear layer as trained: `[outputs, inputs]` and one bias per output.
struct Linear {
    weights: Vec<f32>,
    bias: Vec<f32>,
}

impl Linear {
    fn write(&self, layout: &MatrixLayout, file: &mut [u8]) {
        let packed = pack_matrix(&self.weights, layout.inputs);
        file[layout.panels.clone()].copy_from_slice(&packed.panels);
        put(&mut file[layout.scales.clone()], &packed.scales);
        put(&mut file[layout.sums.clone()], &packed.sums);
        put(&mut file[layout.bias.clone()], &self.bias);
    }
}

struct Norm {
    factors: Vec<f32>,
    offsets: Vec<f32>,
}

impl Norm {
    fn write(&self, layout: &NormLayout, file: &mut [u8]) {
        put(&mut file[layout.factors.clone()], &self.factors);
        put(&mut file[layout.offsets.clone()], &self.offsets);
    }
}

struct Layer {
    attend: Linear,
    project: Linear,
    attention_norm: Norm,
    expand: Linear,
    contract: Linear,
    output_norm: Norm,
}

/// All numbers of the model in float32.
struct Parts {
    words: Vec<f32>,
    positions: Vec<f32>,
    embedding_norm: Norm,
    layers: Vec<Layer>,
}

impl Parts {
    fn read(tensors: &Tensors<'_>, config: &Config) -> Result<Self, ImportError> {
        let (hidden, wide) = (config.hidden, config.intermediate);
        let words = tensors.get("embeddings.word_embeddings.weight", &[config.tokens, hidden])?;
        let mut positions = tensors.rows("embeddings.position_embeddings.weight", config.positions, hidden)?;
        let kind = tensors.rows("embeddings.token_type_embeddings.weight", 1, hidden)?;
        for row in positions.chunks_exact_mut(hidden) {
            row.iter_mut().zip(&kind).for_each(|(value, kind)| *value += kind);
        }
        let layer = |index: usize| {
            let name = |part: &str| format!("encoder.layer.{index}.{part}");
            let mut attend = tensors.linear(&name("attention.self.query"), hidden, hidden)?;
            let factor = 1.0 / ((hidden / config.heads) as f32).sqrt();
            attend.weights.iter_mut().chain(&mut attend.bias).for_each(|value| *value *= factor);
            for part in ["attention.self.key", "attention.self.value"] {
                let other = tensors.linear(&name(part), hidden, hidden)?;
                attend.weights.extend(other.weights);
                attend.bias.extend(other.bias);
            }
            Ok(Layer {
                attend,
                project: tensors.linear(&name("attention.output.dense"), hidden, hidden)?,
                attention_norm: tensors.norm(&name("attention.output.LayerNorm"), hidden)?,
                expand: tensors.linear(&name("intermediate.dense"), wide, hidden)?,
                contract: tensors.linear(&name("output.dense"), hidden, wide)?,
                output_norm: tensors.norm(&name("output.LayerNorm"), hidden)?,
            })
        };
        Ok(Self {
            words,
            positions,
            embedding_norm: tensors.norm("embeddings.LayerNorm", hidden)?,
            layers: (0..config.layers).map(layer).collect::<Result<_, ImportError>>()?,
        })
    }
}

/// The tensors of a file, with or without the `bert.` in front of their names.
struct Tensors<'a> {
    file: SafeTensors<'a>,
    prefix: &'static str,
}

impl<'a> Tensors<'a> {
    fn new(bytes: &'a [u8]) -> Result<Self, ImportError> {
        let file = SafeTensors::deserialize(bytes).map_err(ImportError::Tensors)?;
        let prefix = if file.names().iter().any(|name| name.starts_with("bert.")) { "bert." } else { "" };
        Ok(Self { file, prefix })
    }

    /// A tensor of exactly this shape.
    fn get(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, ImportError> {
        let name = format!("{}{name}", self.prefix);
        let problem = |problem: String| ImportError::Tensor { name: name.clone(), problem };
        let tensor = self.file.tensor(&name).map_err(|_| problem("missing".to_owned()))?;
        if tensor.shape() != shape {
            return Err(problem(format!("shape {:?}, {shape:?} expected", tensor.shape())));
        }
        let values: Vec<f32> = match tensor.dtype() {
            Dtype::F32 => tensor.data().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
            Dtype::F16 => tensor.data().as_chunks().0.iter().map(|bytes| half(u16::from_le_bytes(*bytes))).collect(),
            other => return Err(problem(format!("type {other:?}, F32 or F16 expected"))),
        };
        if values.iter().all(|value| value.is_finite()) { Ok(values) } else { Err(problem("not finite".to_owned())) }
    }

    /// The first `rows` rows of a tensor that may have more.
    fn rows(&self, name: &str, rows: usize, width: usize) -> Result<Vec<f32>, ImportError> {
        let all = self.file.tensor(&format!("{}{name}", self.prefix)).ok();
        let all = all.and_then(|tensor| tensor.shape().first().copied()).unwrap_or(0).max(rows);
        let mut values = self.get(name, &[all, width])?;
        values.truncate(rows * width);
        Ok(values)
    }

    fn linear(&self, name: &str, outputs: usize, inputs: usize) -> Result<Linear, ImportError> {
        Ok(Linear {
            weights: self.get(&format!("{name}.weight"), &[outputs, inputs])?,
            bias: self.get(&format!("{name}.bias"), &[outputs])?,
        })
    }

    fn norm(&self, name: &str, width: usize) -> Result<Norm, ImportError> {
        Ok(Norm { factors: self.get(&format!("{name}.weight"), &[width])?, offsets: self.get(&format!("{name}.bias"), &[width])? })
    }
}

/// IEEE 754 binary16 to binary32.
fn half(bits: u16) -> f32 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from((bits >> 10) & 31), f32::from(bits & 1023));
    sign * match exponent {
        0 => fraction * 2f32.powi(-24),
        31 if fraction > 0.0 => f32::NAN,
        31 => f32::INFINITY,
        _ => (1024.0 + fraction) * 2f32.powi(exponent - 25),
    }
}

fn put(target: &mut [u8], values: &[f32]) {
    for (target, value) in target.as_chunks_mut::<4>().0.iter_mut().zip(values) {
        *target = value.to_le_bytes();
    }
}

fn read(folder: &Path, file: &'static str) -> Result<Vec<u8>, ImportError> {
    fs::read(folder.join(file)).map_err(|source| ImportError::Read { file, source })
}

fn json<T: DeserializeOwned>(folder: &Path, file: &'static str) -> Result<T, ImportError> {
    serde_json::from_slice(&read(folder, file)?).map_err(|source| ImportError::Json { file, source })
}

/// A file that needn't exist; `null` without it.
fn optional(folder: &Path, file: &'static str) -> Result<Value, ImportError> {
    match json(folder, file) {
        Err(ImportError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(Value::Null),
        other => other,
    }
}

fn require(holds: bool, what: &'static str, found: &dyn fmt::Display, supported: &'static str) -> Result<(), ImportError> {
    if holds { Ok(()) } else { Err(ImportError::Unsupported { what, found: found.to_string(), supported }) }
}

fn check_architecture(folder: &Path, bert: &BertConfig) -> Result<(), ImportError> {
    require(bert.model_type == "bert", "model_type", &bert.model_type, "only bert is")?;
    require(bert.hidden_act == "gelu", "hidden_act", &bert.hidden_act, "only gelu is")?;
    let positions = bert.position_embedding_type.as_deref().unwrap_or("absolute");
    require(positions == "absolute", "position_embedding_type", &positions, "only absolute is")?;
    let tokenizer = optional(folder, "tokenizer_config.json")?;
    for (what, expected) in [("do_lower_case", true), ("tokenize_chinese_chars", true), ("strip_accents", true)] {
        let value = &tokenizer[what];
        require(value.is_null() || *value == expected, what, value, "only uncased WordPiece is")?;
    }
    for module in optional(folder, "modules.json")?.as_array().into_iter().flatten() {
        let kind = module["type"].as_str().unwrap_or_default();
        let last = kind.rsplit('.').next().unwrap_or_default();
        let known = matches!(last, "Transformer" | "Pooling" | "Normalize");
        require(known, "a module", &kind, "Transformer, Pooling and Normalize are")?;
    }
    Ok(())
}

/// The number of tokens the model was made for.
fn positions(folder: &Path, bert: &BertConfig) -> Result<usize, ImportError> {
    let limit = optional(folder, "sentence_bert_config.json")?["max_seq_length"].as_u64();
    let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    Ok(limit.min(bert.max_position_embeddings))
}

fn pooling(folder: &Path) -> Result<Pooling, ImportError> {
    let settings: Value = json(folder, "1_Pooling/config.json")?;
    let mode = |name: &str| settings[name].as_bool().unwrap_or(false);
    let modes = (
        mode("pooling_mode_mean_tokens"),
        mode("pooling_mode_cls_token"),
        mode("pooling_mode_max_tokens")
            || mode("pooling_mode_mean_sqrt_len_tokens")
            || mode("pooling_mode_weightedmean_tokens")
            || mode("pooling_mode_lasttoken"),
    );
    match modes {
        (true, false, false) => Ok(Pooling::Mean),
        (false, true, false) => Ok(Pooling::First),
        _ => Err(ImportError::Unsupported {
            what: "pooling",
            found: settings.to_string(),
            supported: "either the mean or the first token is",
        }),
    }
}

fn prompts(folder: &Path) -> Result<Prompts, ImportError> {
    let settings = optional(folder, "config_sentence_transformers.json")?;
    let prompt = |names: &[&str]| {
        let found = names.iter().find_map(|name| settings["prompts"][name].as_str());
        found.unwrap_or_default().to_owned()
    };
    Ok(Prompts { query: prompt(&["query"]), document: prompt(&["document", "passage"]) })
}
