//! `toolsieve model import`: converts a model to a weights file.

use std::fs;
use std::path::PathBuf;

use clap::Subcommand;

use crate::adapters::embed::builtin::{self, WordFormat};
use crate::cli::{Failure, Outcome};

#[derive(Subcommand)]
pub(super) enum Model {
    /// Quantise a model folder (model.safetensors, config.json, tokenizer.json) to int8
    Import {
        /// Folder that contains a BERT or XLM-R model in sentence-transformers format
        folder: PathBuf,
        /// Path of the weights file to write
        #[arg(short, long, default_value = "model.int8.bin")]
        output: PathBuf,
        /// Name of the model, which becomes a part of its id [default: the folder's name]
        #[arg(long)]
        name: Option<String>,
        /// Store the embeddings of the vocabulary's pieces in four bits, for a smaller file
        #[arg(long)]
        four_bit_pieces: bool,
    },
}

impl Model {
    pub(super) fn run(self) -> Outcome {
        let Self::Import { folder, output, name, four_bit_pieces } = self;
        let words = if four_bit_pieces { WordFormat::FourBit } else { WordFormat::Int8 };
        let name = name.or_else(|| Some(folder.file_name()?.to_string_lossy().into_owned())).unwrap_or_else(|| "model".into());
        let weights = builtin::import_named(&folder, &name, words)
            .map_err(|error| Failure::failed(format!("error: {}: {error}", folder.display())))?;
        fs::write(&output, &weights).map_err(|error| Failure::failed(format!("error: {}: {error}", output.display())))?;
        println!("{}: {} bytes", output.display(), weights.len());
        Ok(())
    }
}
