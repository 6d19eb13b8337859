//! Copies a store between a file and a PostgreSQL database.
//!
//! The copy is one transaction in the target. Every table is read again and compared before the commit. So the target contains
//! either everything or nothing, and an interrupted copy can be repeated.

use tokio::sync::mpsc;

use super::opened::OpenedStore;
use super::rows::StoreCopyError;

/// Number of batches of rows that wait for the target.
const WAITING: usize = 4;

/// Copies everything from one store to an empty one. Returns the number of rows per table.
///
/// # Errors
/// [`StoreCopyError`]. The target is then unchanged.
pub async fn copy(from: &OpenedStore, to: &OpenedStore) -> Result<Vec<(String, u64)>, StoreCopyError> {
    let (sender, receiver) = mpsc::channel(WAITING);
    let (tables, sent, received) = match (from, to) {
        (OpenedStore::Sqlite(from), OpenedStore::Postgres(to)) => {
            let tables = to.tables().await?;
            let (sent, received) = tokio::join!(from.export(&tables, sender), to.import(&tables, receiver));
            (tables, sent, received)
        }
        (OpenedStore::Postgres(from), OpenedStore::Sqlite(to)) => {
            if from.has_leader().await? {
                return Err(StoreCopyError::InUse);
            }
            let tables = from.tables().await?;
            let (sent, received) = tokio::join!(from.export(&tables, sender), to.import(&tables, receiver));
            (tables, sent, received)
        }
        _ => return Err(StoreCopyError::SameKind),
    };
    // The side that has failed first says why.
    let sums = match (sent, received) {
        (Err(error), Err(StoreCopyError::Stopped) | Ok(_)) | (_, Err(error)) => return Err(error),
        (Ok(()), Ok(sums)) => sums,
    };
    Ok(tables.into_iter().map(|table| table.name).zip(sums.into_iter().map(|sum| sum.rows)).collect())
}
