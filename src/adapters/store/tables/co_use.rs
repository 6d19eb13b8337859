//! Stores which tools chats called together.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use sqlx::{Pool, Row};

use super::{Db, DbConnection, DbRow};
use crate::adapters::store::encoding::{from_millis, signed, to_millis};
use crate::domain::access::principal::PrincipalId;
use crate::domain::catalog::tool::ToolId;
use crate::domain::learning::scope::Scope;
use crate::service::ports::{CalledInChat, Forgotten};

/// The ids of the newest chats, with a limit per caller and one in total.
macro_rules! newest {
    () => {
        "SELECT id FROM (SELECT id, at, row_number() OVER (PARTITION BY principal ORDER BY at DESC, id) AS place FROM learned_chat \
         WHERE at >= $3) AS placed \
         WHERE place <= $1 ORDER BY at DESC, id LIMIT $2"
    };
}
const SCOPES: &str = concat!("SELECT chat, scope FROM learned_chat_scope WHERE chat IN (", newest!(), ") ORDER BY chat, scope");
const TOOLS: &str = concat!(
    "SELECT id, principal, learned_chat.at AS called_at, server, tool FROM learned_chat ",
    "JOIN learned_chat_tool ON learned_chat_tool.chat = learned_chat.id WHERE id IN (",
    newest!(),
    ") ORDER BY learned_chat.at DESC, id, learned_chat_tool.at, server, tool"
);

pub(super) async fn save(writer: &mut DbConnection, call: &CalledInChat) -> Result<(), sqlx::Error> {
    let at = to_millis(call.at);
    sqlx::query(
        "INSERT INTO learned_chat (id, principal, at) VALUES ($1, $2, $3) \
         ON CONFLICT (id) DO UPDATE SET at = CASE WHEN learned_chat.at > excluded.at THEN learned_chat.at ELSE excluded.at END",
    )
    .bind(&*call.chat)
    .bind(&*call.principal)
    .bind(at)
    .execute(&mut *writer)
    .await?;
    for scope in call.scopes.iter() {
        let query = sqlx::query("INSERT INTO learned_chat_scope (chat, scope) VALUES ($1, $2) ON CONFLICT DO NOTHING");
        query.bind(&*call.chat).bind(scope.to_string()).execute(&mut *writer).await?;
    }
    let query = sqlx::query("INSERT INTO learned_chat_tool (chat, server, tool, at) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING");
    let query = query.bind(&*call.chat).bind(call.tool.server.as_str()).bind(&*call.tool.name).bind(at);
    query.execute(writer).await.map(drop)
}

/// Newest chat first, each in the order of its calls.
pub(super) async fn read(readers: &Pool<Db>, since: SystemTime, (chats, of_one): (usize, usize)) -> Result<Vec<CalledInChat>, sqlx::Error> {
    let newest = |statement: &'static str| sqlx::query(statement).bind(signed(of_one)).bind(signed(chats)).bind(to_millis(since));
    let scopes = scopes(&newest(SCOPES).fetch_all(readers).await?, "chat")?;
    let rows = newest(TOOLS).fetch_all(readers).await?;
    let called = |row: &DbRow| -> Result<CalledInChat, sqlx::Error> {
        let id: String = row.try_get("id")?;
        Ok(CalledInChat {
            scopes: scopes.get(&id).cloned().unwrap_or_default(),
            chat: id.into(),
            principal: row.try_get::<&str, _>("principal")?.into(),
            tool: ToolId::new(row.try_get::<&str, _>("server")?, row.try_get::<String, _>("tool")?),
            at: from_millis(row.try_get("called_at")?),
        })
    };
    rows.iter().map(called).collect()
}

pub(super) async fn forget(writer: &mut DbConnection, forgotten: &Forgotten) -> Result<(), sqlx::Error> {
    match forgotten {
        Forgotten::Caller(id) => return remove_all(writer, id).await,
        Forgotten::Own(own) => {
            let (from, to) = scopes_of(&own.key);
            let query = sqlx::query(
                "DELETE FROM learned_chat_scope WHERE scope >= $1 AND scope < $2 \
                 AND chat IN (SELECT id FROM learned_chat WHERE principal = $3)",
            );
            query.bind(from).bind(to).bind(own.caller().map(str::to_owned)).execute(&mut *writer).await?;
        }
        Forgotten::Before(time) => {
            let query = sqlx::query("DELETE FROM learned_chat WHERE at < $1").bind(to_millis(*time));
            return query.execute(writer).await.map(drop);
        }
        Forgotten::All => return sqlx::query("DELETE FROM learned_chat").execute(writer).await.map(drop),
        Forgotten::Key(key) => {
            let (from, to) = scopes_of(key.as_str());
            let query = sqlx::query("DELETE FROM learned_chat_scope WHERE scope >= $1 AND scope < $2").bind(from).bind(to);
            query.execute(&mut *writer).await?;
        }
        Forgotten::Tool(tool) => {
            let query = sqlx::query("DELETE FROM learned_chat_tool WHERE server = $1 AND tool = $2");
            query.bind(tool.server.as_str()).bind(&*tool.name).execute(&mut *writer).await?;
        }
        Forgotten::Scope(scope) => {
            let query = sqlx::query("DELETE FROM learned_chat_scope WHERE scope = $1").bind(scope.to_string());
            query.execute(&mut *writer).await?;
        }
    }
    let unused = "DELETE FROM learned_chat WHERE NOT EXISTS (SELECT 1 FROM learned_chat_scope WHERE chat = learned_chat.id) \
                  OR NOT EXISTS (SELECT 1 FROM learned_chat_tool WHERE chat = learned_chat.id)";
    sqlx::query(unused).execute(writer).await.map(drop)
}

pub(super) async fn remove_all(writer: &mut DbConnection, owner: &PrincipalId) -> Result<(), sqlx::Error> {
    sqlx::query("DELETE FROM learned_chat WHERE principal = $1").bind(owner.as_str()).execute(writer).await.map(drop)
}

/// Where the names of a key's scopes begin, and where they end: they start with its id and a slash, and after the slash comes `0`.
pub(super) fn scopes_of(key: &str) -> (String, String) {
    (format!("{key}/"), format!("{key}0"))
}

/// For whom what a column identifies counts. Skips unknown scopes: one row must not cost what everybody else has taught.
pub(super) fn scopes(rows: &[DbRow], column: &str) -> Result<HashMap<String, Arc<[Scope]>>, sqlx::Error> {
    let mut scopes: HashMap<String, Vec<Scope>> = HashMap::new();
    for row in rows {
        let name: &str = row.try_get("scope")?;
        if let Some(scope) = Scope::read(name) {
            scopes.entry(row.try_get(column)?).or_default().push(scope);
        } else {
            tracing::warn!(scope = name, "an unknown scope of learning is ignored");
        }
    }
    Ok(scopes.into_iter().map(|(of, scopes)| (of, scopes.into())).collect())
}
