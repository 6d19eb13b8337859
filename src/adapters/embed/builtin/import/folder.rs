//! Locates the files of a model folder with the help of `modules.json`.

use std::io;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{ImportError, require};

pub(super) const TOKENIZER: &str = "tokenizer.json";
const TENSORS: &str = "model.safetensors";
/// Names of weights files in unsupported formats.
const SHARDED: &str = "model.safetensors.index.json";
const PICKLED: &str = "pytorch_model.bin";

/// A part of a sentence-transformers folder.
#[derive(Clone)]
pub(super) struct Folder<'a> {
    root: &'a Path,
    /// The path of the part relative to the root; empty for the root itself.
    part: String,
}

/// The locations of a model's parts.
pub(super) struct Modules<'a> {
    pub(super) root: Folder<'a>,
    pub(super) transformer: Folder<'a>,
    pub(super) pooling: Folder<'a>,
}

impl<'a> Modules<'a> {
    pub(super) fn read(root: &'a Path) -> Result<Self, ImportError> {
        if !root.is_dir() {
            let source = io::Error::new(io::ErrorKind::NotFound, "there is no such folder");
            return Err(ImportError::Read { file: root.display().to_string(), source });
        }
        let part = |part: &str| Folder { root, part: part.to_owned() };
        let mut modules = Self { root: part(""), transformer: part(""), pooling: part("1_Pooling") };
        for module in modules.root.optional("modules.json")?.as_array().into_iter().flatten() {
            let kind = module["type"].as_str().unwrap_or_default();
            let path = module["path"].as_str().unwrap_or_default();
            match kind.rsplit('.').next().unwrap_or_default() {
                "Transformer" => modules.transformer = part(path),
                "Pooling" => modules.pooling = part(path),
                // No module is needed, because vectors are always normalised to unit length.
                "Normalize" => {}
                _ => require(false, "a module in modules.json", &kind, "only Transformer, Pooling and Normalize are")?,
            }
        }
        Ok(modules)
    }
}

impl Folder<'_> {
    /// The file's path relative to the root, for messages.
    pub(super) fn path(&self, file: &str) -> String {
        if self.part.is_empty() { file.to_owned() } else { format!("{}/{file}", self.part) }
    }

    pub(super) fn has(&self, file: &str) -> bool {
        self.root.join(self.path(file)).exists()
    }

    pub(super) fn read(&self, file: &str) -> Result<Vec<u8>, ImportError> {
        std::fs::read(self.root.join(self.path(file))).map_err(|source| ImportError::Read { file: self.path(file), source })
    }

    pub(super) fn json<T: DeserializeOwned>(&self, file: &str) -> Result<T, ImportError> {
        serde_json::from_slice(&self.read(file)?).map_err(|source| ImportError::Json { file: self.path(file), source })
    }

    /// Reads an optional JSON file; `null` if it does not exist.
    pub(super) fn optional(&self, file: &str) -> Result<Value, ImportError> {
        match self.json(file) {
            Err(ImportError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(Value::Null),
            other => other,
        }
    }

    /// Reads the weights, in the only supported format.
    pub(super) fn tensors(&self) -> Result<Vec<u8>, ImportError> {
        if !self.has(TENSORS) && self.has(SHARDED) {
            return Err(ImportError::Weights(
                "the weights are split into several files; save the model again as one file: save_pretrained(folder, max_shard_size=\"100GB\")",
            ));
        }
        if !self.has(TENSORS) && self.has(PICKLED) {
            return Err(ImportError::Weights(
                "there is only pytorch_model.bin, which is a program and is never run here; save the model again as \
                 model.safetensors: save_pretrained(folder, safe_serialization=True)",
            ));
        }
        self.read(TENSORS)
    }
}
