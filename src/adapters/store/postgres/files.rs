//! Files that tools returned, in the database, so that every service on it can return them.
//!
//! If their total size exceeds the limit, expired files are deleted first, then the oldest.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use secrecy::{ExposeSecret, SecretSlice};
use sqlx::PgConnection;
use uuid::Uuid;

use super::{PostgresStore, one_at_a_time, text};
use crate::adapters::store::encoding::{from_millis, signed, to_millis};
use crate::service::ports::{FileStore, FileStoreError, StoreError, StoredFile};

/// The files in a database.
#[derive(Debug)]
pub(in crate::adapters::store) struct DatabaseFiles {
    pub(in crate::adapters::store) store: Arc<PostgresStore>,
    pub(in crate::adapters::store) max_file_bytes: u64,
    pub(in crate::adapters::store) max_total_bytes: u64,
}

#[async_trait]
impl FileStore for DatabaseFiles {
    async fn save(&self, id: Uuid, file: StoredFile) -> Result<(), FileStoreError> {
        let size = file.bytes.len() as u64;
        if size > self.max_file_bytes {
            return Err(FileStoreError::FileTooLarge);
        }
        let Some(room) = self.max_total_bytes.checked_sub(size) else { return Err(FileStoreError::TooLarge) };
        let file = &file;
        let save = || {
            async move |writer: &mut PgConnection| {
                // Otherwise two services would both use the same room.
                one_at_a_time(writer, "files").await?;
                // By the clock of the server: a service whose own clock is ahead would remove everybody's files.
                let now: i64 =
                    sqlx::query_scalar("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint").fetch_one(&mut *writer).await?;
                let delete = sqlx::query(
                    "DELETE FROM stored_file WHERE expires <= $1 OR id IN (SELECT id FROM (SELECT id, \
                     sum(size) OVER (ORDER BY expires DESC, id) AS newer FROM stored_file WHERE expires > $1) AS kept WHERE newer > $2)",
                );
                delete.bind(now).bind(signed(room)).execute(&mut *writer).await?;
                let insert =
                    sqlx::query("INSERT INTO stored_file (id, mime_type, name, expires, size, bytes) VALUES ($1, $2, $3, $4, $5, $6)");
                let insert = insert.bind(id.as_bytes().to_vec()).bind(text(&file.mime_type)).bind(file.name.as_deref().map(text));
                insert.bind(to_millis(file.expires)).bind(signed(size)).bind(&*file.bytes).execute(writer).await.map(drop)
            }
        };
        Ok(self.store.write("save a file", save).await?)
    }

    async fn read(&self, id: Uuid) -> Result<Option<StoredFile>, FileStoreError> {
        let query = sqlx::query_as("SELECT mime_type, name, expires, bytes FROM stored_file WHERE id = $1").bind(id.as_bytes().to_vec());
        let row: Option<(String, Option<String>, i64, Vec<u8>)> =
            self.store.read("read a file", query.fetch_optional(self.store.readers())).await?;
        let file =
            |(mime_type, name, expires, bytes)| StoredFile { mime_type, name, expires: from_millis(expires), bytes: Bytes::from(bytes) };
        Ok(row.map(file))
    }
}

impl PostgresStore {
    /// The key with which all services sign links. The first one gives the key of its folder, so that its links stay valid.
    pub(in crate::adapters::store) async fn link_key(&self, own: &SecretSlice<u8>) -> Result<SecretSlice<u8>, StoreError> {
        let key: Vec<u8> = self
            .durable("save the key of links", || {
                async move |writer: &mut PgConnection| {
                    let insert = sqlx::query("INSERT INTO link_key (key) VALUES ($1) ON CONFLICT DO NOTHING");
                    insert.bind(own.expose_secret()).execute(&mut *writer).await?;
                    sqlx::query_scalar("SELECT key FROM link_key").fetch_one(writer).await
                }
            })
            .await?;
        Ok(SecretSlice::from(key))
    }
}
