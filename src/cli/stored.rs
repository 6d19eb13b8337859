//! The store of the settings, for commands that read it.

use crate::adapters::data_dir;
use crate::adapters::store::{OpenedStore, StoreOpenError};
use crate::cli::Failure;
use crate::settings::Settings;

/// Opens the store. Returns `None` if it is a file that doesn't exist yet.
pub(super) async fn opened(settings: &Settings) -> Result<Option<OpenedStore>, Failure> {
    let (postgres, file) = (settings.start.store.postgres.as_ref(), data_dir::database(&settings.start.store.data_dir));
    if postgres.is_none() && !file.exists() {
        return Ok(None);
    }
    OpenedStore::open(postgres, &file).await.map(Some).map_err(|error| failure(&error))
}

pub(super) fn failure(error: &StoreOpenError) -> Failure {
    let message = format!("error: {error}");
    if matches!(error, StoreOpenError::Postgres(error) if error.is_lasting()) {
        Failure::invalid(message)
    } else {
        Failure::failed(message)
    }
}

/// Refuses a command that is about the file, if the store is a database. `remedy` says what to use instead.
pub(super) fn require_file(settings: &Settings, remedy: &str) -> Result<(), Failure> {
    match settings.start.store.postgres {
        Some(_) => Err(Failure::invalid(format!("error: the state is in the PostgreSQL database of store.url (DATABASE_URL): {remedy}"))),
        None => Ok(()),
    }
}
