//! `toolsieve model import`

use std::fs;
use std::path::PathBuf;

use clap::Subcommand;

use crate::adapters::embed::builtin;
use crate::cli::{Failure, Outcome};

#[derive(Subcommand)]
pub(super) enum Model {
    /// Quantise a folder with model.safetensors, config.json and vocab.txt to int8
    Import {
        /// A BERT-type sentence-transformers folder
        folder: PathBuf,
        /// The weights file to write
        #[arg(short, long, default_value = "model.int8.bin")]
        output: PathBuf,
    },
}

impl Model {
    pub(super) fn run(self) -> Outcome {
        let Self::Import { folder, output } = self;
        let weights = builtin::import(&folder).map_err(|error| Failure::failed(format!("error: {}: {error}", folder.display())))?;
        fs::write(&output, &weights).map_err(|error| Failure::failed(format!("error: {}: {error}", output.display())))?;
        println!("{}: {} bytes", output.display(), weights.len());
        Ok(())
    }
}
