//! Checks that the store belongs to the data folder, at the start and for `toolsieve doctor`.

use uuid::Uuid;

use super::StartError;
use crate::adapters::installation::{AccessMark, InstallationFile};
use crate::adapters::store::OpenedStore;
use crate::domain::installation::{Installation, Mismatch, settle};
use crate::service::ports::{Store, StoreError};

/// Gives the store and the data folder the same installation id. Returns the mark that must be set
/// when the first access rule or key is stored.
///
/// # Errors
/// [`StartError`] if the store doesn't belong to the folder, or if one of them can't be read.
pub(super) async fn settled(opened: &OpenedStore, file: InstallationFile) -> Result<AccessMark, StartError> {
    let store = opened.port();
    let store = store.as_ref();
    let folder = read(&file)?;
    let (stored, has) = stored(store).await.map_err(StartError::Keys)?;
    let is_database = matches!(opened, OpenedStore::Postgres(_));
    let settled = |stored| settle(stored, has, folder, Uuid::new_v4).map_err(|reason| other(is_database, &file, reason));
    let mut installation = settled(stored)?;
    // A full disk doesn't prevent the start. A failed write is repeated when the first rule or key is created, or at
    // the next start. The folder never claims more data than the store contains.
    let claimed = if stored.is_some() { Ok(installation.id) } else { store.claim_installation(installation.id).await };
    if let Ok(id) = claimed {
        // Several services may start on a new store at once. The first one's id applies.
        installation = settled(Some(id))?;
    }
    let written = match claimed {
        Ok(_) if folder == Some(installation) => Ok(()),
        Ok(_) => file.write(&installation).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    if let Err(error) = &written {
        tracing::warn!(error, file = %file.path().display(), "could not write the id of the installation");
    }
    Ok(AccessMark::new(file, installation.id, written.is_ok() && installation.had_rules_or_keys))
}

/// Checks that a start would find the right store, and changes nothing. Without tables, there is no store yet. `is_database` tells whether
/// the store is a database.
///
/// # Errors
/// The same as for [`settled`].
pub(crate) async fn check_installation(store: Option<&dyn Store>, is_database: bool, file: &InstallationFile) -> Result<(), StartError> {
    let folder = read(file)?;
    let (id, has) = match store {
        Some(store) => stored(store).await.map_err(StartError::Keys)?,
        None => (None, false),
    };
    settle(id, has, folder, Uuid::new_v4).map(drop).map_err(|reason| other(is_database, file, reason))
}

fn read(file: &InstallationFile) -> Result<Option<Installation>, StartError> {
    file.read().map_err(|source| StartError::Installation { file: file.path().to_owned(), source })
}

fn other(is_database: bool, file: &InstallationFile, reason: Mismatch) -> StartError {
    let file = file.path().to_owned();
    if is_database { StartError::OtherDatabase { file, reason } } else { StartError::OtherStore { file, reason } }
}

async fn stored(store: &dyn Store) -> Result<(Option<Uuid>, bool), StoreError> {
    Ok((store.installation().await?, has_access(store).await?))
}

/// Whether the store contains data that restricts access. Rules in the settings refer to stored tags and toolsets,
/// approvals are the baseline for changed definitions, and servers may be switched off.
async fn has_access(store: &dyn Store) -> Result<bool, StoreError> {
    Ok(store.policy().await?.is_some()
        || !store.api_keys().await?.is_empty()
        || !store.toolsets().await?.is_empty()
        || !store.servers().await?.is_empty()
        || store.tool_overrides().await?.iter().any(|stored| stored.written.is_some())
        || store.definitions().await?.iter().any(|stored| stored.approved.is_some()))
}
