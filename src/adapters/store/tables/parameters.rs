//! Stores which parameters calls fill.

use std::collections::BTreeMap;

use sqlx::{Pool, Row};

use super::{Db, DbConnection};
use crate::adapters::store::encoding::to_millis;
use crate::domain::access::principal::PrincipalId;
use crate::domain::catalog::tool::ToolId;
use crate::domain::learning::arguments::FilledParameters;
use crate::domain::learning::scope::Audience;
use crate::service::ports::{FilledCall, Forgotten};

/// The parameter that stands for the calls themselves.
pub(super) const CALLS: &str = "";
/// Sums over callers, with a condition.
macro_rules! sums {
    ($condition:literal) => {
        concat!(
            "SELECT server, tool, parameter, CAST(sum(calls) AS bigint) AS calls, count(DISTINCT key || '/' || principal) AS people ",
            "FROM learned_parameter ",
            $condition,
            " GROUP BY server, tool, parameter ORDER BY server, tool, parameter"
        )
    };
}

/// A row by its primary key: server, tool, parameter, key and principal.
type RowKey<'a> = (&'a str, &'a str, &'a str, &'a str, &'a str);

pub(super) async fn save(writer: &mut DbConnection, calls: &[FilledCall]) -> Result<(), sqlx::Error> {
    // In the order of the primary key, so that two writers can't wait for each other.
    let mut counts: BTreeMap<RowKey<'_>, (i64, i64)> = BTreeMap::new();
    for call in calls {
        for parameter in call.parameters.iter().map(String::as_str).chain([CALLS]) {
            let key = (call.tool.server.as_str(), &*call.tool.name, parameter, &*call.key, &*call.principal);
            let (count, at) = counts.entry(key).or_default();
            *count += 1;
            *at = to_millis(call.at).max(*at);
        }
    }
    for ((server, tool, parameter, key, principal), (count, at)) in counts {
        let query = sqlx::query(
            "INSERT INTO learned_parameter (server, tool, parameter, key, principal, calls, at) VALUES ($1, $2, $3, $4, $5, $6, $7) \
             ON CONFLICT (server, tool, parameter, key, principal) DO UPDATE SET calls = learned_parameter.calls + excluded.calls, \
             at = CASE WHEN learned_parameter.at > excluded.at THEN learned_parameter.at ELSE excluded.at END",
        );
        let query = query.bind(server).bind(tool).bind(parameter).bind(key).bind(principal).bind(count).bind(at);
        query.execute(&mut *writer).await?;
    }
    Ok(())
}

pub(super) async fn read(readers: &Pool<Db>, tool: Option<&ToolId>) -> Result<Vec<FilledParameters>, sqlx::Error> {
    let rows = match tool {
        Some(tool) => {
            let query = sqlx::query(sums!("WHERE server = $1 AND tool = $2"));
            query.bind(tool.server.as_str()).bind(&*tool.name).fetch_all(readers).await?
        }
        None => sqlx::query(sums!("")).fetch_all(readers).await?,
    };
    let mut found: Vec<FilledParameters> = Vec::new();
    for row in rows {
        let tool = ToolId::new(row.try_get::<&str, _>("server")?, row.try_get::<String, _>("tool")?);
        let count = |name: &str| row.try_get::<i64, _>(name).map(i64::unsigned_abs);
        match row.try_get("parameter")? {
            CALLS => found.push(FilledParameters { tool, calls: count("calls")?, people: count("people")?, parameters: BTreeMap::new() }),
            parameter => {
                // The calls themselves come first. Without them, their time has passed.
                if let Some(last) = found.last_mut().filter(|last| last.tool == tool) {
                    last.parameters.insert(parameter.to_owned(), count("calls")?);
                }
            }
        }
    }
    Ok(found)
}

pub(super) async fn forget(writer: &mut DbConnection, forgotten: &Forgotten) -> Result<(), sqlx::Error> {
    let query = match forgotten {
        Forgotten::Caller(id) => return remove_all(writer, id).await,
        Forgotten::Key(key) => sqlx::query("DELETE FROM learned_parameter WHERE key = $1").bind(key.as_str().to_owned()),
        Forgotten::Tool(tool) => sqlx::query("DELETE FROM learned_parameter WHERE server = $1 AND tool = $2")
            .bind(tool.server.as_str().to_owned())
            .bind(tool.name.to_string()),
        Forgotten::Scope(scope) | Forgotten::Own(scope) => match &scope.audience {
            Audience::Caller(id) => sqlx::query("DELETE FROM learned_parameter WHERE key = $1 AND principal = $2")
                .bind(scope.key.to_string())
                .bind(id.to_string()),
            Audience::All => sqlx::query("DELETE FROM learned_parameter WHERE key = $1").bind(scope.key.to_string()),
            // Counts don't belong to groups.
            Audience::Group(_) => return Ok(()),
        },
        Forgotten::Before(time) => sqlx::query("DELETE FROM learned_parameter WHERE at < $1").bind(to_millis(*time)),
        Forgotten::All => sqlx::query("DELETE FROM learned_parameter"),
    };
    query.execute(writer).await.map(drop)
}

pub(super) async fn remove_all(writer: &mut DbConnection, owner: &PrincipalId) -> Result<(), sqlx::Error> {
    sqlx::query("DELETE FROM learned_parameter WHERE principal = $1").bind(owner.as_str()).execute(writer).await.map(drop)
}
