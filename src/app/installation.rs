//! Whether the store is the one that belongs to the data folder.

use uuid::Uuid;

use super::StartError;
use crate::adapters::installation::{AccessMark, InstallationFile};
use crate::domain::installation::settle;
use crate::service::ports::{Store, StoreError};

/// Lets store and folder name the same installation, and returns what marks the folder once there is something to lose.
///
/// # Errors
/// [`StartError`]: the store is another one than the folder says, or one of them can't be read.
pub(super) async fn settled(store: &dyn Store, file: InstallationFile) -> Result<AccessMark, StartError> {
    let unreadable = |source| StartError::Installation { file: file.path().to_owned(), source };
    let folder = file.read().map_err(unreadable)?;
    let (stored, has) = stored(store).await.map_err(StartError::Keys)?;
    let installation =
        settle(stored, has, folder, Uuid::new_v4).map_err(|reason| StartError::OtherStore { file: file.path().to_owned(), reason })?;
    // A full disk keeps no service from starting. The folder never says more than the store: what fails here is done with the first
    // rule or key, or at the next start.
    let written = if stored == Some(installation.id) { Ok(()) } else { store.set_installation(installation.id).await };
    let written = match written {
        Ok(()) if folder == Some(installation) => Ok(()),
        Ok(()) => file.write(&installation).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    if let Err(error) = &written {
        tracing::warn!(error, file = %file.path().display(), "the id of the installation was not written");
    }
    Ok(AccessMark::new(file, installation.id, written.is_ok() && installation.had_rules_or_keys))
}

async fn stored(store: &dyn Store) -> Result<(Option<Uuid>, bool), StoreError> {
    Ok((store.installation().await?, has_access(store).await?))
}

/// Rules of the settings file match by tags and toolsets, and an approval is what a changed definition is held against: without them
/// less is blocked.
async fn has_access(store: &dyn Store) -> Result<bool, StoreError> {
    Ok(store.policy().await?.is_some()
        || !store.api_keys().await?.is_empty()
        || !store.toolsets().await?.is_empty()
        || store.tool_facts().await?.iter().any(|stored| stored.facts.is_some())
        || store.definitions().await?.iter().any(|stored| stored.approved.is_some()))
}
