//! `toolsieve restore`: restores a backup into a data folder.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;

use crate::adapters::backup::restore;
use crate::cli::{Failure, Outcome, SourceArgs, print, runtime, stored};
use crate::settings::ServersSource;

#[derive(Args)]
pub(super) struct Restore {
    /// File that `toolsieve backup` has written
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Restore into a folder that is not empty: move its former data to the folder before-restore-TIME in it
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    sources: SourceArgs,
}

impl Restore {
    pub(super) fn run(self) -> Outcome {
        let settings = self.sources.load(ServersSource::Nothing)?;
        let remedy = "restore it with pg_restore, for example: pg_restore --clean --if-exists --dbname=URL FILE. To use a backup of a data \
                      folder, restore it into a folder without DATABASE_URL, and copy it with toolsieve store copy";
        stored::require_file(&settings, remedy)?;
        let folder = &settings.start.store.data_dir;
        let restored = runtime()?.block_on(restore(&self.file, folder, self.force)).map_err(|error| {
            let message = format!("error: {error}");
            if error.is_invalid_use() { Failure::invalid(message) } else { Failure::failed(message) }
        })?;
        let mut text = match restored.made {
            Some((at, program)) => format!("{}: restored the backup of {at} (toolsieve {program})", folder.display()),
            None => format!("{}: restored the database", folder.display()),
        };
        if let Some(aside) = restored.aside {
            let _ = write!(text, "\nThe former data is in {}. Delete it when you no longer need it.", aside.display());
        }
        if restored.is_other_installation {
            text.push_str("\nThe former data belonged to another installation: make sure that this is the right backup.");
        }
        print(&text)
    }
}
