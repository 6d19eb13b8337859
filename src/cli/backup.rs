//! `toolsieve backup`: writes a backup of the data folder to a single file.

use std::path::PathBuf;

use clap::Args;

use crate::adapters::backup::save;
use crate::adapters::signals::Stops;
use crate::cli::{Failure, Outcome, SourceArgs, print, runtime, stored};
use crate::settings::ServersSource;

#[derive(Args)]
pub(super) struct Backup {
    /// File to write, such as toolsieve.tar.gz
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    sources: SourceArgs,
}

impl Backup {
    pub(super) fn run(self) -> Outcome {
        let settings = self.sources.load(ServersSource::Nothing)?;
        let remedy = "back it up with pg_dump, for example: pg_dump --format=custom --schema=SCHEMA --file=FILE URL. Keep secrets.key too";
        stored::require_file(&settings, remedy)?;
        let runtime = runtime()?;
        let saved = runtime.block_on(async {
            let mut stops = Stops::listen().map_err(|error| Failure::failed(format!("error: signals can't be handled: {error}")))?;
            tokio::select! {
                saved = save(&settings.start.store.data_dir, &self.file, self.force) => saved.map_err(|error| {
                    let message = format!("error: {error}");
                    if error.is_invalid_use() { Failure::invalid(message) } else { Failure::failed(message) }
                }),
                _ = stops.next() => Err(Failure::failed("error: stopped by a signal: there is no backup")),
            }
        });
        // Otherwise, the end would wait for a thread that still writes.
        runtime.shutdown_background();
        let saved = saved?;
        let (bytes, parts) = (saved.bytes, saved.parts);
        print(&format!("{}: {bytes} bytes, verified (files: {parts})", self.file.display()))
    }
}
