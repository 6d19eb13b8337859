//! The toolsets that administrators gave.

use std::time::SystemTime;

use sqlx::{SqliteConnection, SqlitePool};

use crate::adapters::store::encoding::to_millis;
use crate::domain::access::toolset::{Definition, Toolset, ToolsetName};

pub(super) async fn all(readers: &SqlitePool) -> Result<Vec<Toolset>, sqlx::Error> {
    let rows: Vec<(String, String)> = sqlx::query_as("SELECT name, definition FROM toolset ORDER BY name").fetch_all(readers).await?;
    let toolset = |(name, definition): (String, String)| {
        let definition = serde_json::from_str(&definition).map_err(|error| sqlx::Error::Decode(error.into()))?;
        Ok(Toolset { name: ToolsetName::new(name), definition })
    };
    rows.into_iter().map(toolset).collect()
}

pub(super) async fn save(writer: &mut SqliteConnection, name: &ToolsetName, definition: &Definition) -> Result<(), sqlx::Error> {
    let definition = serde_json::to_string(definition).map_err(|error| sqlx::Error::Encode(error.into()))?;
    sqlx::query(
        "INSERT INTO toolset (name, definition, saved_at) VALUES (?, ?, ?) \
         ON CONFLICT (name) DO UPDATE SET definition = excluded.definition, saved_at = excluded.saved_at",
    )
    .bind(name.as_str())
    .bind(definition)
    .bind(to_millis(SystemTime::now()))
    .execute(writer)
    .await?;
    Ok(())
}

pub(super) async fn remove(writer: &mut SqliteConnection, name: &ToolsetName) -> Result<bool, sqlx::Error> {
    let done = sqlx::query("DELETE FROM toolset WHERE name = ?").bind(name.as_str()).execute(writer).await?;
    Ok(done.rows_affected() > 0)
}
