//! Caches computed values by hash: vectors of texts and token counts of definitions.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use sqlx::QueryBuilder;

use super::{CHUNK, Db, DbConnection, SqlStore};
use crate::adapters::store::encoding::{DAY, fingerprint_from_bytes, to_millis, vector_from_bytes, vector_to_bytes};
use crate::domain::text::canonical::Fingerprint;
use crate::service::ports::{ComputedStore, StoreError};

#[async_trait]
impl ComputedStore for SqlStore {
    /// Skips unreadable vectors, which are then computed again.
    async fn vectors(&self, model: &str, texts: &[Fingerprint]) -> Result<HashMap<Fingerprint, Arc<[f32]>>, StoreError> {
        let work = async {
            let mut found = HashMap::with_capacity(texts.len());
            for chunk in texts.chunks(CHUNK) {
                let mut query =
                    QueryBuilder::<Db>::new("SELECT text_hash, data FROM vector WHERE model = (SELECT id FROM model WHERE name = ");
                query.push_bind(model).push(") AND text_hash IN ");
                push_list(&mut query, chunk);
                let rows: Vec<(Vec<u8>, Vec<u8>)> = query.build_query_as().persistent(false).fetch_all(self.readers()).await?;
                found.extend(rows.into_iter().filter_map(|(hash, data)| fingerprint_from_bytes(&hash).zip(vector_from_bytes(&data))));
            }
            Ok(found)
        };
        self.read("read vectors", work).await
    }

    async fn save_vectors(&self, model: &str, vectors: &[(Fingerprint, Arc<[f32]>)]) -> Result<(), StoreError> {
        let save = || {
            async move |writer: &mut DbConnection| {
                let model = model_id(writer, model).await?;
                let now = to_millis(SystemTime::now());
                for chunk in ordered(vectors).chunks(CHUNK) {
                    let mut query = QueryBuilder::<Db>::new("INSERT INTO vector (model, text_hash, data, used_at) ");
                    query.push_values(chunk, |mut row, (text, vector)| {
                        row.push_bind(model).push_bind(text.as_bytes().as_slice()).push_bind(vector_to_bytes(vector)).push_bind(now);
                    });
                    query.push(" ON CONFLICT (model, text_hash) DO UPDATE SET data = excluded.data, used_at = excluded.used_at");
                    query.build().persistent(false).execute(&mut *writer).await?;
                }
                Ok(())
            }
        };
        self.write("save vectors", save).await
    }

    async fn token_counts(&self, definitions: &[Fingerprint]) -> Result<HashMap<Fingerprint, u32>, StoreError> {
        let work = async {
            let mut found = HashMap::with_capacity(definitions.len());
            for chunk in definitions.chunks(CHUNK) {
                let mut query = QueryBuilder::<Db>::new("SELECT definition_hash, tokens FROM token_count WHERE definition_hash IN ");
                push_list(&mut query, chunk);
                let rows: Vec<(Vec<u8>, i64)> = query.build_query_as().persistent(false).fetch_all(self.readers()).await?;
                found.extend(rows.into_iter().filter_map(|(hash, tokens)| fingerprint_from_bytes(&hash).zip(u32::try_from(tokens).ok())));
            }
            Ok(found)
        };
        self.read("read token counts", work).await
    }

    async fn save_token_counts(&self, counts: &[(Fingerprint, u32)]) -> Result<(), StoreError> {
        let save = || {
            async move |writer: &mut DbConnection| {
                let now = to_millis(SystemTime::now());
                for chunk in ordered(counts).chunks(CHUNK) {
                    let mut query = QueryBuilder::<Db>::new("INSERT INTO token_count (definition_hash, tokens, used_at) ");
                    query.push_values(chunk, |mut row, (definition, tokens)| {
                        row.push_bind(definition.as_bytes().as_slice()).push_bind(i64::from(**tokens)).push_bind(now);
                    });
                    query.push(" ON CONFLICT (definition_hash) DO UPDATE SET tokens = excluded.tokens, used_at = excluded.used_at");
                    query.build().persistent(false).execute(&mut *writer).await?;
                }
                Ok(())
            }
        };
        self.write("save token counts", save).await
    }

    async fn forget_unused(
        &self,
        model: &str,
        texts: &[Fingerprint],
        definitions: &[Fingerprint],
        since: SystemTime,
    ) -> Result<u64, StoreError> {
        let forget = || {
            async move |writer: &mut DbConnection| {
                mark_used(writer, model, texts, definitions).await?;
                let since = to_millis(since);
                let vectors = sqlx::query("DELETE FROM vector WHERE used_at < $1").bind(since).execute(&mut *writer).await?;
                let counts = sqlx::query("DELETE FROM token_count WHERE used_at < $1").bind(since).execute(writer).await?;
                Ok(vectors.rows_affected() + counts.rows_affected())
            }
        };
        self.write("delete unused vectors and token counts", forget).await
    }
}

/// The last value of each hash, in order of the hashes: PostgreSQL refuses two rows with one key in a statement, and two processes
/// that lock rows in different orders would wait for each other.
fn ordered<T>(values: &[(Fingerprint, T)]) -> Vec<(&Fingerprint, &T)> {
    values.iter().map(|(hash, value)| (hash.as_bytes(), (hash, value))).collect::<BTreeMap<_, _>>().into_values().collect()
}

/// The number that stands for a model's name. Assigned on first use.
async fn model_id(writer: &mut DbConnection, name: &str) -> Result<i64, sqlx::Error> {
    sqlx::query("INSERT INTO model (name) VALUES ($1) ON CONFLICT (name) DO NOTHING").bind(name).execute(&mut *writer).await?;
    sqlx::query_scalar("SELECT id FROM model WHERE name = $1").bind(name).fetch_one(writer).await
}

/// Marks these entries as used now. Skips entries marked within the last day, to avoid writes.
async fn mark_used(writer: &mut DbConnection, model: &str, texts: &[Fingerprint], definitions: &[Fingerprint]) -> Result<(), sqlx::Error> {
    let now = to_millis(SystemTime::now());
    for chunk in texts.chunks(CHUNK) {
        let mut query = QueryBuilder::<Db>::new("UPDATE vector SET used_at = ");
        query.push_bind(now).push(" WHERE used_at < ").push_bind(now - DAY);
        query.push(" AND model = (SELECT id FROM model WHERE name = ").push_bind(model).push(") AND text_hash IN ");
        push_list(&mut query, chunk);
        query.build().persistent(false).execute(&mut *writer).await?;
    }
    for chunk in definitions.chunks(CHUNK) {
        let mut query = QueryBuilder::<Db>::new("UPDATE token_count SET used_at = ");
        query.push_bind(now).push(" WHERE used_at < ").push_bind(now - DAY).push(" AND definition_hash IN ");
        push_list(&mut query, chunk);
        query.build().persistent(false).execute(&mut *writer).await?;
    }
    Ok(())
}

/// Appends `(?, ?, …)` with these values.
pub(super) fn push_list(query: &mut QueryBuilder<Db>, values: &[Fingerprint]) {
    query.push("(");
    let mut list = query.separated(", ");
    for value in values {
        list.push_bind(value.as_bytes().to_vec());
    }
    query.push(")");
}
