//! `toolsieve backup`: copies the database to a single file.

use std::path::PathBuf;

use clap::Args;

use crate::adapters::data_dir;
use crate::adapters::store::{BackupError, back_up};
use crate::cli::{Failure, Outcome, SourceArgs, print, runtime};
use crate::settings::ServersSource;

#[derive(Args)]
pub(super) struct Backup {
    /// File to write; it must not exist yet
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    sources: SourceArgs,
}

impl Backup {
    pub(super) fn run(self) -> Outcome {
        let settings = self.sources.load(ServersSource::Nothing)?;
        let database = data_dir::database(&settings.start.store.data_dir);
        runtime()?.block_on(back_up(&database, &self.file)).map_err(|error| failure(&error))?;
        let size = std::fs::metadata(&self.file).map(|file| file.len()).unwrap_or_default();
        print(&format!("{}: {size} bytes", self.file.display()))
    }
}

fn failure(error: &BackupError) -> Failure {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
    let message = format!("error: {error}{cause}");
    match error {
        BackupError::Exists(_) | BackupError::NoDatabase(_) => Failure::invalid(message),
        BackupError::Write { .. } | BackupError::Copy { .. } => Failure::failed(message),
    }
}
