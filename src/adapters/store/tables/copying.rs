//! Exports and imports all tables, for a copy between databases.

use futures::TryStreamExt as _;
use sha2::{Digest as _, Sha256};
use sqlx::{AssertSqlSafe, QueryBuilder, Row};
use tokio::sync::mpsc::{Receiver, Sender};

use super::{CHUNK, Db, DbConnection, DbRow, SqlStore, snapshot, text, unhurried};
use crate::adapters::store::rows::{Batch, Kind, StoreCopyError, Sum, Table, Value};

impl SqlStore {
    /// Sends the rows of these tables, as they are at one moment.
    pub(in crate::adapters::store) async fn export(&self, tables: &[Table], to: Sender<Batch>) -> Result<(), StoreCopyError> {
        let mut snapshot = snapshot(self.readers()).await?;
        unhurried(&mut snapshot).await?;
        for table in tables {
            let (mut sum, mut rows) = (Summing::default(), Vec::with_capacity(CHUNK));
            let mut stream = sqlx::query(AssertSqlSafe(selection(table))).fetch(&mut *snapshot);
            while let Some(row) = stream.try_next().await? {
                let row = read(&row, table)?;
                sum.add(&row);
                rows.push(row);
                if rows.len() == CHUNK {
                    to.send(Batch::Rows(std::mem::take(&mut rows))).await.map_err(|_| StoreCopyError::Stopped)?;
                }
            }
            drop(stream);
            for batch in [Batch::Rows(rows), Batch::End(sum.0)] {
                to.send(batch).await.map_err(|_| StoreCopyError::Stopped)?;
            }
        }
        to.send(Batch::Installation(self.installation_text(&mut snapshot).await?)).await.map_err(|_| StoreCopyError::Stopped)?;
        Ok(())
    }

    /// Stores the rows of these tables in an empty store, reads them again, and keeps them if they are the same. Otherwise nothing
    /// changes. Returns the sum of each table.
    pub(in crate::adapters::store) async fn import(&self, tables: &[Table], mut from: Receiver<Batch>) -> Result<Vec<Sum>, StoreCopyError> {
        let mut write = self.importing().await?;
        unhurried(&mut write).await?;
        if self.installation_text(&mut write).await?.is_some() {
            return Err(StoreCopyError::NotEmpty { table: "installation".to_owned() });
        }
        let mut sums = Vec::with_capacity(tables.len());
        for table in tables {
            let any = format!("SELECT EXISTS (SELECT 1 FROM {})", table.name);
            if sqlx::query_scalar(AssertSqlSafe(any)).fetch_one(&mut *write).await? {
                return Err(StoreCopyError::NotEmpty { table: table.name.clone() });
            }
            let expected = loop {
                match from.recv().await {
                    Some(Batch::Rows(rows)) => {
                        let failed = |source| StoreCopyError::Table { table: table.name.clone(), source };
                        insert(&mut write, table, &rows).await.map_err(failed)?;
                    }
                    Some(Batch::End(sum)) => break sum,
                    Some(Batch::Installation(_)) | None => return Err(StoreCopyError::Stopped),
                }
            };
            let mut found = Summing::default();
            let mut stream = sqlx::query(AssertSqlSafe(selection(table))).fetch(&mut *write);
            while let Some(row) = stream.try_next().await? {
                found.add(&read(&row, table)?);
            }
            drop(stream);
            let found = found.0;
            if found != expected {
                return Err(StoreCopyError::Different { table: table.name.clone(), expected: expected.rows, found: found.rows });
            }
            self.continue_numbers(&mut write, table).await?;
            sums.push(found);
        }
        let Some(Batch::Installation(id)) = from.recv().await else { return Err(StoreCopyError::Stopped) };
        sqlx::query("UPDATE installation SET id = $1").bind(id).execute(&mut *write).await?;
        write.commit().await?;
        Ok(sums)
    }

    async fn installation_text(&self, connection: &mut DbConnection) -> Result<Option<String>, sqlx::Error> {
        sqlx::query_scalar("SELECT id FROM installation").fetch_one(connection).await
    }
}

fn selection(table: &Table) -> String {
    let columns: Vec<&str> = table.columns.iter().map(|(name, _)| name.as_str()).collect();
    format!("SELECT {} FROM {}", columns.join(", "), table.name)
}

fn read(row: &DbRow, table: &Table) -> Result<Vec<Value>, sqlx::Error> {
    let value = |(position, (_, kind)): (usize, &(String, Kind))| {
        Ok(match kind {
            // As the other database can store it.
            Kind::Text => Value::Text(row.try_get::<Option<&str>, _>(position)?.map(storable)),
            Kind::Bytes => Value::Bytes(row.try_get(position)?),
            Kind::Integer => Value::Integer(row.try_get(position)?),
            Kind::Flag => Value::Flag(row.try_get(position)?),
        })
    };
    table.columns.iter().enumerate().map(value).collect()
}

/// A text as every database can store it: PostgreSQL's can't contain NUL.
fn storable(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

async fn insert(writer: &mut DbConnection, table: &Table, rows: &[Vec<Value>]) -> Result<(), sqlx::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let columns: Vec<&str> = table.columns.iter().map(|(name, _)| name.as_str()).collect();
    let mut query = QueryBuilder::<Db>::new(format!("INSERT INTO {} ({}) ", table.name, columns.join(", ")));
    query.push_values(rows, |mut row, values| {
        for value in values {
            match value {
                Value::Text(value) => row.push_bind(value.as_deref().map(text)),
                Value::Bytes(value) => row.push_bind(value.as_deref()),
                Value::Integer(value) => row.push_bind(*value),
                Value::Flag(value) => row.push_bind(*value),
            };
        }
    });
    query.build().persistent(false).execute(writer).await.map(drop)
}

/// Computes the number of rows and the sum of their hashes.
#[derive(Default)]
struct Summing(Sum);

impl Summing {
    fn add(&mut self, row: &[Value]) {
        let mut hash = Sha256::new();
        for value in row {
            let bytes = match value {
                Value::Text(value) => value.as_ref().map(|text| text.as_bytes().to_vec()),
                Value::Bytes(value) => value.clone(),
                Value::Integer(value) => value.map(|number| number.to_le_bytes().to_vec()),
                Value::Flag(value) => value.map(|flag| vec![u8::from(flag)]),
            };
            // The length tells where a value ends. No value is as long as the one for NULL.
            let length = bytes.as_ref().map_or(u64::MAX, |bytes| bytes.len() as u64);
            hash.update(length.to_le_bytes());
            hash.update(bytes.unwrap_or_default());
        }
        let hash: [u8; 32] = hash.finalize().into();
        let (words, _) = hash.as_chunks::<8>();
        for (sum, word) in self.0.hash.iter_mut().zip(words) {
            *sum = sum.wrapping_add(u64::from_le_bytes(*word));
        }
        self.0.rows += 1;
    }
}
