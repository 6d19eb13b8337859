//! Stores sums of costs per day. Every batch of events updates them.
//!
//! Names of chats' models come from callers, and groups and users from the chat application. So their number per day is limited,
//! and further ones share one sum.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use sqlx::Row;

use super::{DbConnection, DbPool, DbRow, count, snapshot, text};
use crate::adapters::store::encoding::{odd, signed};
use crate::adapters::store::sums::{CostKey, begin};
use crate::domain::access::principal::PrincipalId;
use crate::domain::records::costs::{CostCounts, CostRow, CostScope, Purpose};

/// Maximum number of models, groups and users per day.
const MOST_MODELS: i64 = 100;
const MOST_GROUPS: i64 = 200;
const MOST_USERS: i64 = 1_000;
/// The name under which further ones are summed up.
const OTHER: &str = "(other)";

const UPSERT: &str = "INSERT INTO usage_cost \
    (day, scope, name, purpose, is_own, model, requests, estimated, calls, input_tokens, output_tokens, saved_tokens) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT (day, scope, name, purpose, is_own, model) DO UPDATE SET \
    requests = usage_cost.requests + excluded.requests, estimated = usage_cost.estimated + excluded.estimated, calls = usage_cost.calls + excluded.calls, \
    input_tokens = usage_cost.input_tokens + excluded.input_tokens, output_tokens = usage_cost.output_tokens + excluded.output_tokens, \
    saved_tokens = usage_cost.saved_tokens + excluded.saved_tokens";

pub(super) async fn add(writer: &mut DbConnection, costs: BTreeMap<CostKey<'_>, CostCounts>) -> Result<(), sqlx::Error> {
    let mut names = Names::default();
    for (key, counts) in costs {
        // The sums over all callers come first, so a model that fits among them is known to the others. Models that the service
        // asks are those in its settings.
        let model = match key.purpose {
            Purpose::Chat => names.fitting(writer, key.day, Listed::Model, key.model).await?,
            Purpose::Judge | Purpose::Enrich | Purpose::SmartSelect => key.model,
        };
        let name = match key.scope {
            CostScope::All => "",
            CostScope::Group => names.fitting(writer, key.day, Listed::Group, key.name).await?,
            CostScope::User => names.fitting(writer, key.day, Listed::User, key.name).await?,
        };
        sqlx::query(UPSERT)
            .bind(key.day)
            .bind(key.scope.name())
            .bind(text(name))
            .bind(key.purpose.name())
            .bind(key.is_own)
            .bind(text(model))
            .bind(signed(counts.requests))
            .bind(signed(counts.estimated))
            .bind(signed(counts.calls))
            .bind(signed(counts.input_tokens))
            .bind(signed(counts.output_tokens))
            .bind(signed(counts.saved_tokens))
            .execute(&mut *writer)
            .await?;
    }
    Ok(())
}

/// A list of names per day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Listed {
    Model,
    Group,
    User,
}

/// The names that a batch has looked up.
#[derive(Default)]
struct Names<'a>(HashMap<(i64, Listed, &'a str), bool>);

impl<'a> Names<'a> {
    /// The name, if it is already among those of the day or still fits. Otherwise [`OTHER`].
    async fn fitting(&mut self, writer: &mut DbConnection, day: i64, listed: Listed, name: &'a str) -> Result<&'a str, sqlx::Error> {
        if name.is_empty() {
            return Ok(name);
        }
        let fits = if let Some(fits) = self.0.get(&(day, listed, name)) {
            *fits
        } else {
            let fits = listed.fits(writer, day, name).await?;
            self.0.insert((day, listed, name), fits);
            fits
        };
        Ok(if fits { name } else { OTHER })
    }
}

impl Listed {
    async fn fits(self, writer: &mut DbConnection, day: i64, name: &str) -> Result<bool, sqlx::Error> {
        let (known, all, most) = match self {
            Self::Model => (
                "SELECT EXISTS (SELECT 1 FROM usage_cost WHERE day = $1 AND scope = 'all' AND name = '' AND model = $2)",
                "SELECT count(DISTINCT model) FROM usage_cost WHERE day = $1 AND scope = 'all'",
                MOST_MODELS,
            ),
            Self::Group => (
                "SELECT EXISTS (SELECT 1 FROM usage_cost WHERE day = $1 AND scope = 'group' AND name = $2)",
                "SELECT count(DISTINCT name) FROM usage_cost WHERE day = $1 AND scope = 'group'",
                MOST_GROUPS,
            ),
            Self::User => (
                "SELECT EXISTS (SELECT 1 FROM usage_cost WHERE day = $1 AND scope = 'user' AND name = $2)",
                "SELECT count(DISTINCT name) FROM usage_cost WHERE day = $1 AND scope = 'user'",
                MOST_USERS,
            ),
        };
        if sqlx::query_scalar::<_, bool>(known).bind(day).bind(text(name)).fetch_one(&mut *writer).await? {
            return Ok(true);
        }
        Ok(sqlx::query_scalar::<_, i64>(all).bind(day).fetch_one(writer).await? < most)
    }
}

const SUMS: &str = "scope, name, purpose, is_own, model, CAST(SUM(requests) AS BIGINT) AS requests, \
    CAST(SUM(estimated) AS BIGINT) AS estimated, CAST(SUM(calls) AS BIGINT) AS calls, \
    CAST(SUM(input_tokens) AS BIGINT) AS input_tokens, CAST(SUM(output_tokens) AS BIGINT) AS output_tokens, \
    CAST(SUM(saved_tokens) AS BIGINT) AS saved_tokens";

/// Loads the sums of these days from one snapshot.
pub(super) async fn load(readers: &DbPool, days: Range<i64>) -> Result<Vec<CostRow>, sqlx::Error> {
    let mut snapshot = snapshot(readers).await?;
    let mut rows = Vec::new();
    for (day, condition, group) in [("day", "scope = 'all'", "day, "), ("CAST(NULL AS BIGINT) AS day", "scope <> 'all'", "")] {
        let query = format!(
            "SELECT {day}, {SUMS} FROM usage_cost WHERE day >= $1 AND day < $2 AND {condition} \
             GROUP BY {group}scope, name, purpose, is_own, model"
        );
        let query = sqlx::query(sqlx::AssertSqlSafe(query)).persistent(false).bind(days.start).bind(days.end);
        for row in query.fetch_all(&mut *snapshot).await? {
            rows.push(read(&row)?);
        }
    }
    snapshot.commit().await?;
    Ok(rows)
}

fn read(row: &DbRow) -> Result<CostRow, sqlx::Error> {
    Ok(CostRow {
        day: row.try_get::<Option<i64>, _>("day")?.map(begin),
        scope: CostScope::of_name(row.try_get("scope")?).ok_or_else(|| odd("an unknown scope of usage"))?,
        name: row.try_get("name")?,
        purpose: Purpose::of_name(row.try_get("purpose")?).ok_or_else(|| odd("an unknown purpose of tokens"))?,
        is_own: row.try_get("is_own")?,
        model: Some(row.try_get::<String, _>("model")?).filter(|model| !model.is_empty()),
        counts: CostCounts::by_name(|name| count(row, name))?,
    })
}

/// Deletes the sums of one user or named key.
pub(super) async fn delete_of(writer: &mut DbConnection, owner: &PrincipalId) -> Result<u64, sqlx::Error> {
    let delete = sqlx::query("DELETE FROM usage_cost WHERE scope = 'user' AND name = $1").bind(owner.as_str());
    Ok(delete.execute(writer).await?.rows_affected())
}
