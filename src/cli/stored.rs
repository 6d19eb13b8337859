//! The store of the settings, for commands that read it.

use crate::adapters::data_dir;
use crate::adapters::store::{OpenedStore, StoreOpenError};
use crate::cli::Failure;
use crate::settings::Settings;

/// Opens the store as it is, because a service may be using it. Returns `None` if there is nothing in it yet.
///
/// # Errors
/// The store can't be opened, or a service of this version would migrate it.
pub(super) async fn present(settings: &Settings) -> Result<Option<OpenedStore>, StoreOpenError> {
    let store = &settings.start.store;
    OpenedStore::open_present(store.postgres.as_ref(), &data_dir::database(&store.data_dir)).await
}

/// The same as [`present`], for commands that an error ends.
pub(super) async fn opened(settings: &Settings) -> Result<Option<OpenedStore>, Failure> {
    present(settings).await.map_err(|error| failure(&error))
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
