//! `toolsieve store`: copies the state between the data folder and a PostgreSQL database.

use std::fmt::Write as _;

use clap::{Args, Subcommand, ValueEnum};

use crate::adapters::data_dir::{self, DataDir};
use crate::adapters::store::{OpenedStore, StoreCopyError, copy};
use crate::cli::stored::failure;
use crate::cli::{Failure, Outcome, SourceArgs, print, runtime};
use crate::settings::{ServersSource, Settings};

#[derive(Subcommand)]
pub(super) enum Store {
    /// Copy everything to an empty store, and compare the copy with the original
    ///
    /// The settings name both: `store.data_dir` (--data-dir) and `store.url` (`DATABASE_URL`). Stop all services first. The original stays as
    /// it is, and an interrupted copy leaves the target empty. Files behind signed links are not copied.
    Copy(Copying),
}

#[derive(Args)]
pub(super) struct Copying {
    /// Where the state is now
    #[arg(long, value_enum)]
    from: Place,
    /// Where to copy it
    #[arg(long, value_enum)]
    to: Place,
    #[command(flatten)]
    sources: SourceArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Place {
    /// The file toolsieve.db in the data folder
    Folder,
    /// The PostgreSQL database
    Database,
}

impl Store {
    pub(super) fn run(self) -> Outcome {
        let Self::Copy(command) = self;
        let settings = command.sources.load(ServersSource::Nothing)?;
        let rows = runtime()?.block_on(command.copied(&settings))?;
        let total: u64 = rows.iter().map(|(_, rows)| rows).sum();
        let mut text = format!("{total} rows in {} tables copied and compared", rows.len());
        for (table, rows) in rows.iter().filter(|(_, rows)| *rows > 0) {
            let _ = write!(text, "\n{rows:>10}  {table}");
        }
        text.push_str("\nFiles that tools returned are not copied: the links to them no longer work");
        print(&text)
    }
}

impl Copying {
    async fn copied(&self, settings: &Settings) -> Result<Vec<(String, u64)>, Failure> {
        let failed = |error: StoreCopyError| {
            let message = format!("error: {error}");
            if matches!(error, StoreCopyError::NotEmpty { .. }) { Failure::invalid(message) } else { Failure::failed(message) }
        };
        if self.from == self.to {
            return Err(Failure::invalid("error: --from and --to are the same: choose folder for one and database for the other"));
        }
        let Some(postgres) = &settings.start.store.postgres else {
            let remedy = "set DATABASE_URL or store.url to the address of the PostgreSQL database";
            return Err(Failure::invalid(format!("error: there is no database: {remedy}")));
        };
        let folder = &settings.start.store.data_dir;
        if self.from == Place::Folder && !data_dir::database(folder).exists() {
            return Err(Failure::invalid(format!(
                "error: there is no toolsieve.db in {}: name the folder with --data-dir",
                folder.display()
            )));
        }
        // Locks the folder: a service that uses it would go on writing to the original.
        let data_dir = DataDir::open(folder).map_err(|error| Failure::failed(format!("error: {error}")))?;
        let file = OpenedStore::file(&data_dir.database()).await.map_err(|error| failure(&error))?;
        let database = OpenedStore::open(Some(postgres), folder).await.map_err(|error| failure(&error))?;
        let (from, to) = if self.from == Place::Folder { (&file, &database) } else { (&database, &file) };
        let copied = copy(from, to).await.map_err(failed);
        file.close().await;
        database.close().await;
        let adopted = data_dir.adopt_database();
        let copied = copied?;
        adopted.map_err(|error| {
            let folder = data_dir.path().display();
            Failure::failed(format!("error: everything is copied, but the owner of {folder} must own toolsieve.db in it too: {error}"))
        })?;
        Ok(copied)
    }
}
