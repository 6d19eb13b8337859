//! Stores what use has taught.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use sqlx::query::Query;
use sqlx::{Database, Pool, Row};

use super::{Db, DbConnection, DbRow, SqlStore, co_use, count, parameters};
use crate::adapters::store::encoding::{from_millis, odd, signed, to_json, to_millis};
use crate::domain::access::api_key::KeyId;
use crate::domain::access::principal::PrincipalId;
use crate::domain::catalog::tool::ToolId;
use crate::domain::learning::arguments::FilledParameters;
use crate::domain::learning::evidence::{Evidence, EvidenceKind, Minute};
use crate::domain::learning::memory::RememberedMessage;
use crate::domain::learning::scope::Scope;
use crate::domain::learning::vector::MessageVector;
use crate::service::ports::{
    CalledInChat, EarlierUse, FilledCall, FollowedName, Forgotten, LearnedUse, LearningStore, StoreError, StoredScope, Unfollowed,
};

const FORGET: &str = "forget what was learned";
/// The ids of the newest messages under a condition, with a limit per caller and one in total.
macro_rules! newest {
    ($condition:literal) => {
        concat!(
            "SELECT id FROM (SELECT id, at, row_number() OVER (PARTITION BY principal ORDER BY at DESC, id) AS place FROM learned_message ",
            "WHERE ",
            $condition,
            ") AS placed WHERE place <= $2 ORDER BY at DESC, id LIMIT $3"
        )
    };
}
/// For each of these messages, for whom it counts.
macro_rules! scopes {
    ($condition:literal) => {
        concat!("SELECT message, scope FROM learned_message_scope WHERE message IN (", newest!($condition), ") ORDER BY message, scope")
    };
}
/// The evidence of these messages, newest message first.
macro_rules! evidence {
    ($columns:literal, $joined:literal, $condition:literal) => {
        concat!(
            "SELECT learned_message.id AS id, learned_message.principal AS principal, ",
            $columns,
            ", server, tool, learned_message_evidence.kind AS kind, learned_message_evidence.at AS at FROM learned_message ",
            "JOIN learned_message_evidence ON learned_message_evidence.message = learned_message.id",
            $joined,
            " WHERE learned_message.id IN (",
            newest!($condition),
            ") ORDER BY learned_message.at DESC, learned_message.id"
        )
    };
}
const SCOPES: &str = scopes!("model = $1 AND at >= $4");
const EVIDENCE: &str = evidence!("vector, rivals", "", "model = $1 AND at >= $4");
// A message of another model, and not the words of arguments, whose ids contain slashes. Selections have ids of 36 characters. After them,
// there may be a hash of a caller other than the one who selected.
const EARLIER_SCOPES: &str = scopes!("model <> $1 AND at >= $4 AND id NOT LIKE '%/%'");
const EARLIER: &str = evidence!(
    "selection_event.message AS text, rivals",
    " LEFT JOIN selection_event ON selection_event.selection = substr(learned_message.id, 1, 36) AND selection_event.kind = 'offered'",
    "model <> $1 AND at >= $4 AND id NOT LIKE '%/%'"
);

/// How many messages and chats count for each scope. The words of arguments are no messages.
const STORED_SCOPES: &str = "SELECT scope, CAST(sum(messages) AS bigint) AS messages, CAST(sum(chats) AS bigint) AS chats FROM (\
    SELECT scope, count(*) AS messages, 0 AS chats FROM learned_message_scope WHERE message NOT LIKE '%/%' GROUP BY scope UNION ALL \
    SELECT scope, 0 AS messages, count(*) AS chats FROM learned_chat_scope GROUP BY scope) AS counted GROUP BY scope ORDER BY scope";

#[async_trait]
impl LearningStore for SqlStore {
    async fn save_learned(&self, model: &str, uses: &[LearnedUse]) -> Result<(), StoreError> {
        let save = || {
            async move |writer: &mut DbConnection| {
                for one in uses {
                    save(writer, model, one).await?;
                }
                Ok(())
            }
        };
        self.write("save what was learned", save).await
    }

    async fn learned(&self, model: &str, since: SystemTime, limits: (usize, usize)) -> Result<Vec<LearnedUse>, StoreError> {
        let read = async {
            let scopes = scopes(self.readers(), SCOPES, (model, since), limits).await?;
            let rows = newest(EVIDENCE, (model, since), limits).fetch_all(self.readers()).await?;
            let used = |row: &DbRow| -> Result<LearnedUse, sqlx::Error> {
                let id: String = row.try_get("id")?;
                let vector = MessageVector::from_bytes(row.try_get("vector")?).ok_or_else(|| odd("an unknown vector"))?;
                Ok(LearnedUse {
                    scopes: scopes.get(&id).cloned().unwrap_or_default(),
                    message: RememberedMessage { id: id.into(), vector, rivals: rivals(row.try_get("rivals")?) },
                    principal: row.try_get::<&str, _>("principal")?.into(),
                    evidence: evidence(row)?,
                })
            };
            rows.iter().map(used).collect()
        };
        self.read("read what was learned", read).await
    }

    async fn learned_earlier(&self, model: &str, limits: (usize, usize)) -> Result<Vec<EarlierUse>, StoreError> {
        let read = async {
            let always = (model, SystemTime::UNIX_EPOCH);
            let scopes = scopes(self.readers(), EARLIER_SCOPES, always, limits).await?;
            let rows = newest(EARLIER, always, limits).fetch_all(self.readers()).await?;
            let used = |row: &DbRow| -> Result<EarlierUse, sqlx::Error> {
                let id: String = row.try_get("id")?;
                Ok(EarlierUse {
                    scopes: scopes.get(&id).cloned().unwrap_or_default(),
                    message: id.into(),
                    text: row.try_get("text")?,
                    rivals: rivals(row.try_get("rivals")?),
                    principal: row.try_get::<&str, _>("principal")?.into(),
                    evidence: evidence(row)?,
                })
            };
            rows.iter().map(used).collect()
        };
        self.read("read what was learned with another model", read).await
    }

    async fn replace_vectors(&self, model: &str, vectors: &[(Arc<str>, MessageVector)]) -> Result<(), StoreError> {
        let save = || {
            async move |writer: &mut DbConnection| {
                for (id, vector) in vectors {
                    let query = sqlx::query("UPDATE learned_message SET model = $1, vector = $2 WHERE id = $3");
                    query.bind(model).bind(vector.to_bytes()).bind(&**id).execute(&mut *writer).await?;
                }
                Ok(())
            }
        };
        self.write("save vectors of messages", save).await
    }

    async fn save_called(&self, calls: &[CalledInChat]) -> Result<(), StoreError> {
        let save = || {
            async move |writer: &mut DbConnection| {
                for call in calls {
                    co_use::save(writer, call).await?;
                }
                Ok(())
            }
        };
        self.write("save what chats called", save).await
    }

    async fn called(&self, since: SystemTime, limits: (usize, usize)) -> Result<Vec<CalledInChat>, StoreError> {
        self.read("read what chats called", co_use::read(self.readers(), since, limits)).await
    }

    async fn learned_scopes(&self) -> Result<Vec<StoredScope>, StoreError> {
        let read = async {
            let rows = sqlx::query(STORED_SCOPES).fetch_all(self.readers()).await?;
            let mut scopes = Vec::with_capacity(rows.len());
            for row in &rows {
                // As when they are read, unknown ones are skipped.
                if let Some(scope) = Scope::read(row.try_get("scope")?) {
                    scopes.push(StoredScope { scope, messages: count(row, "messages")?, chats: count(row, "chats")? });
                }
            }
            Ok(scopes)
        };
        self.read("read for whom something was learned", read).await
    }

    async fn has_learned_from(&self, own: &Scope) -> Result<bool, StoreError> {
        let (from, to) = co_use::scopes_of(&own.key);
        let query = sqlx::query_scalar(
            "SELECT count(*) FROM (SELECT 1 AS one FROM learned_message JOIN learned_message_scope ON message = id \
             WHERE principal = $1 AND scope >= $2 AND scope < $3 UNION ALL \
             SELECT 1 FROM learned_chat JOIN learned_chat_scope ON chat = id WHERE principal = $1 AND scope >= $2 AND scope < $3 UNION ALL \
             SELECT 1 FROM learned_parameter WHERE principal = $1 AND key = $4) AS found",
        );
        let query = query.bind(own.caller()).bind(from).bind(to).bind(&*own.key);
        let found: i64 = self.read("read whether something was learned", query.fetch_one(self.readers())).await?;
        Ok(found > 0)
    }

    async fn save_filled(&self, calls: &[FilledCall]) -> Result<(), StoreError> {
        self.write("save which parameters calls filled", || async move |writer: &mut DbConnection| parameters::save(writer, calls).await)
            .await
    }

    async fn filled(&self, tool: Option<&ToolId>) -> Result<Vec<FilledParameters>, StoreError> {
        self.read("read which parameters calls filled", parameters::read(self.readers(), tool)).await
    }

    async fn forget_learned(&self, forgotten: &Forgotten) -> Result<u64, StoreError> {
        let forget_and_note = || {
            async move |writer: &mut DbConnection| {
                let before = pieces(writer, forgotten).await?;
                forget(writer, forgotten).await?;
                let removed = before.saturating_sub(pieces(writer, forgotten).await?);
                // Comes last, because other changes of the state wait from here on.
                if let Some(what) = Noted::of(forgotten) {
                    self.note_forgotten(writer, &to_json(&what)?).await?;
                }
                Ok(removed)
            }
        };
        let removed = match forgotten {
            Forgotten::Before(_) => self.write(FORGET, forget_and_note).await?,
            _ => self.durable(FORGET, forget_and_note).await?,
        };
        // Old messages are looked for often, and mostly there are none.
        if removed > 0 || !matches!(forgotten, Forgotten::Before(_)) {
            self.empty_log().await;
        }
        Ok(removed)
    }

    async fn forget_again(&self, after: u64) -> Result<Vec<Forgotten>, StoreError> {
        let forget_again = || {
            async move |writer: &mut DbConnection| {
                let mut again = Vec::new();
                for what in self.forgotten_elsewhere(writer, after).await? {
                    // A later version of the service may forget other things.
                    if let Some(forgotten) = serde_json::from_str(&what).ok().and_then(Noted::forgotten) {
                        forget(writer, &forgotten).await?;
                        again.push(forgotten);
                    }
                }
                Ok(again)
            }
        };
        self.durable(FORGET, forget_again).await
    }

    fn is_shared(&self) -> bool {
        Self::IS_SHARED
    }

    async fn save_unfollowed(&self, unfollowed: &[Unfollowed]) -> Result<(), StoreError> {
        if !Self::IS_SHARED {
            return Ok(());
        }
        let save = || {
            async move |writer: &mut DbConnection| {
                for one in unfollowed {
                    self.note_unfollowed(writer, &to_json(&NotedUnfollowed::of(one))?).await?;
                }
                Ok(())
            }
        };
        self.write("save what another service may learn", save).await
    }

    async fn unfollowed(&self) -> Result<Vec<(i64, Unfollowed)>, StoreError> {
        let found = self.read("read what this service may learn", self.unfollowed_elsewhere()).await?;
        // A later version of the service may note other things.
        let known = |(number, what): (i64, String)| Some((number, serde_json::from_str::<NotedUnfollowed>(&what).ok()?.unfollowed()?));
        Ok(found.into_iter().filter_map(known).collect())
    }

    async fn take_unfollowed(&self, numbers: &[i64]) -> Result<Vec<i64>, StoreError> {
        if !Self::IS_SHARED || numbers.is_empty() {
            return Ok(Vec::new());
        }
        self.write("take what this service learns", || async move |writer: &mut DbConnection| self.remove_unfollowed(writer, numbers).await)
            .await
    }
}

/// What another service may learn from, as it reads it.
#[derive(Serialize, Deserialize)]
struct NotedUnfollowed {
    key: Option<String>,
    principal: String,
    vouches: bool,
    scopes: Vec<String>,
    followed: NotedName,
    tool: (String, String),
    kind: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum NotedName {
    Selection(String),
    Message(String, String),
}

impl NotedUnfollowed {
    fn of(unfollowed: &Unfollowed) -> Self {
        let Unfollowed { key, principal, vouches, scopes, followed, tool, kind } = unfollowed;
        Self {
            key: key.as_ref().map(|key| key.as_str().to_owned()),
            principal: principal.as_str().to_owned(),
            vouches: *vouches,
            scopes: scopes.iter().map(ToString::to_string).collect(),
            followed: match followed.clone() {
                FollowedName::Selection(id) => NotedName::Selection(id),
                FollowedName::Message(chat, message) => NotedName::Message(chat, message),
            },
            tool: (tool.server.as_str().to_owned(), tool.name.to_string()),
            kind: kind.name().to_owned(),
        }
    }

    fn unfollowed(self) -> Option<Unfollowed> {
        Some(Unfollowed {
            key: self.key.map(KeyId::new),
            principal: PrincipalId::new(self.principal),
            vouches: self.vouches,
            scopes: self.scopes.iter().map(|scope| Scope::read(scope)).collect::<Option<_>>()?,
            followed: match self.followed {
                NotedName::Selection(id) => FollowedName::Selection(id),
                NotedName::Message(chat, message) => FollowedName::Message(chat, message),
            },
            tool: ToolId::new(self.tool.0.as_str(), self.tool.1),
            kind: EvidenceKind::of_name(&self.kind)?,
        })
    }
}

/// What was forgotten, as other services read it.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Noted {
    Caller(String),
    Own(String),
    Key(String),
    Tool(String, String),
    Scope(String),
    All,
}

impl Noted {
    /// `None` for old messages, which each service forgets by itself.
    fn of(forgotten: &Forgotten) -> Option<Self> {
        Some(match forgotten {
            Forgotten::Caller(id) => Self::Caller(id.as_str().to_owned()),
            Forgotten::Own(scope) => Self::Own(scope.to_string()),
            Forgotten::Key(id) => Self::Key(id.as_str().to_owned()),
            Forgotten::Tool(tool) => Self::Tool(tool.server.as_str().to_owned(), tool.name.to_string()),
            Forgotten::Scope(scope) => Self::Scope(scope.to_string()),
            Forgotten::Before(_) => return None,
            Forgotten::All => Self::All,
        })
    }

    fn forgotten(self) -> Option<Forgotten> {
        Some(match self {
            Self::Caller(id) => Forgotten::Caller(PrincipalId::new(id)),
            Self::Own(name) => Forgotten::Own(Scope::read(&name)?),
            Self::Key(id) => Forgotten::Key(KeyId::new(id)),
            Self::Tool(server, name) => Forgotten::Tool(ToolId::new(server.as_str(), name)),
            Self::Scope(name) => Forgotten::Scope(Scope::read(&name)?),
            Self::All => Forgotten::All,
        })
    }
}

async fn forget(writer: &mut DbConnection, forgotten: &Forgotten) -> Result<(), sqlx::Error> {
    co_use::forget(writer, forgotten).await?;
    parameters::forget(writer, forgotten).await?;
    match forgotten {
        Forgotten::Caller(id) => return remove_all(writer, id).await,
        Forgotten::Own(own) => {
            let (from, to) = co_use::scopes_of(&own.key);
            let query = sqlx::query(
                "DELETE FROM learned_message_scope WHERE scope >= $1 AND scope < $2 \
                 AND message IN (SELECT id FROM learned_message WHERE principal = $3)",
            );
            query.bind(from).bind(to).bind(own.caller().map(str::to_owned)).execute(&mut *writer).await?;
        }
        Forgotten::Key(key) => {
            let (from, to) = co_use::scopes_of(key.as_str());
            let query = sqlx::query("DELETE FROM learned_message_scope WHERE scope >= $1 AND scope < $2").bind(from).bind(to);
            query.execute(&mut *writer).await?;
        }
        Forgotten::Tool(tool) => {
            let query = sqlx::query("DELETE FROM learned_message_evidence WHERE server = $1 AND tool = $2");
            query.bind(tool.server.as_str()).bind(&*tool.name).execute(&mut *writer).await?;
        }
        Forgotten::Scope(scope) => {
            let query = sqlx::query("DELETE FROM learned_message_scope WHERE scope = $1").bind(scope.to_string());
            query.execute(&mut *writer).await?;
        }
        Forgotten::Before(time) => {
            let query = sqlx::query("DELETE FROM learned_message WHERE at < $1").bind(to_millis(*time));
            return query.execute(writer).await.map(drop);
        }
        Forgotten::All => return sqlx::query("DELETE FROM learned_message").execute(writer).await.map(drop),
    }
    let unused = "DELETE FROM learned_message WHERE NOT EXISTS (SELECT 1 FROM learned_message_scope WHERE message = learned_message.id) \
                  OR NOT EXISTS (SELECT 1 FROM learned_message_evidence WHERE message = learned_message.id)";
    sqlx::query(unused).execute(writer).await.map(drop)
}

/// For each message that a statement finds, for whom it counts.
async fn scopes(
    readers: &Pool<Db>,
    statement: &'static str,
    of: (&str, SystemTime),
    limits: (usize, usize),
) -> Result<HashMap<String, Arc<[Scope]>>, sqlx::Error> {
    co_use::scopes(&newest(statement, of, limits).fetch_all(readers).await?, "message")
}

/// A statement about the newest messages since a time: at most `messages` in total and `of_one` per caller.
fn newest<'a>(
    statement: &'static str,
    (model, since): (&'a str, SystemTime),
    (messages, of_one): (usize, usize),
) -> Query<'a, Db, <Db as Database>::Arguments> {
    sqlx::query(statement).bind(model).bind(signed(of_one)).bind(signed(messages)).bind(to_millis(since))
}

fn evidence(row: &DbRow) -> Result<Evidence, sqlx::Error> {
    let kind = EvidenceKind::of_name(row.try_get("kind")?).ok_or_else(|| odd("an unknown kind of evidence"))?;
    let tool = ToolId::new(row.try_get::<&str, _>("server")?, row.try_get::<String, _>("tool")?);
    Ok(Evidence { tool, kind, at: Minute::of(from_millis(row.try_get("at")?)) })
}

async fn save(writer: &mut DbConnection, model: &str, one: &LearnedUse) -> Result<(), sqlx::Error> {
    let LearnedUse { message, principal, scopes, evidence } = one;
    let at = to_millis(evidence.at.time());
    sqlx::query(
        "INSERT INTO learned_message (id, model, principal, vector, rivals, at) VALUES ($1, $2, $3, $4, $5, $6) \
         ON CONFLICT (id) DO UPDATE SET at = CASE WHEN learned_message.at > excluded.at THEN learned_message.at ELSE excluded.at END",
    )
    .bind(&*message.id)
    .bind(model)
    .bind(&**principal)
    .bind(message.vector.to_bytes())
    .bind(encoded(&message.rivals))
    .bind(at)
    .execute(&mut *writer)
    .await?;
    for scope in scopes.iter() {
        let query = sqlx::query("INSERT INTO learned_message_scope (message, scope) VALUES ($1, $2) ON CONFLICT DO NOTHING");
        query.bind(&*message.id).bind(scope.to_string()).execute(&mut *writer).await?;
    }
    sqlx::query(
        "INSERT INTO learned_message_evidence (message, server, tool, aspect, kind, at) VALUES ($1, $2, $3, $4, $5, $6) \
         ON CONFLICT (message, server, tool, aspect) DO UPDATE SET kind = excluded.kind, at = excluded.at",
    )
    .bind(&*message.id)
    .bind(evidence.tool.server.as_str())
    .bind(&*evidence.tool.name)
    .bind(evidence.kind.aspect().name())
    .bind(evidence.kind.name())
    .bind(at)
    .execute(writer)
    .await
    .map(drop)
}

/// `None` without rivals.
fn encoded(rivals: &[(ToolId, f32)]) -> Option<String> {
    let rivals: Vec<(&str, &str, f32)> = rivals.iter().map(|(tool, score)| (tool.server.as_str(), &*tool.name, *score)).collect();
    (!rivals.is_empty()).then(|| serde_json::to_string(&rivals).ok()).flatten()
}

fn rivals(text: Option<&str>) -> Arc<[(ToolId, f32)]> {
    let rivals: Vec<(String, String, f32)> = text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    rivals.into_iter().map(|(server, tool, score)| (ToolId::new(server.as_str(), tool), score)).collect()
}

/// The number of what can be forgotten: for a scope, the messages and chats that count for it. Otherwise the evidence of messages, the
/// tools that chats called, and the tools whose arguments were counted. The words of arguments count as a part of their message.
async fn pieces(writer: &mut DbConnection, forgotten: &Forgotten) -> Result<u64, sqlx::Error> {
    const OF_SCOPE: &str = "SELECT (SELECT count(*) FROM learned_message_scope WHERE scope = $1 AND message NOT LIKE '%/%') \
                            + (SELECT count(*) FROM learned_chat_scope WHERE scope = $1)";
    const OF_ALL: &str = "SELECT (SELECT count(*) FROM learned_message_evidence WHERE message NOT LIKE '%/%') \
                          + (SELECT count(*) FROM learned_chat_tool) + (SELECT count(*) FROM learned_parameter WHERE parameter = $1)";
    let counted: i64 = match forgotten {
        Forgotten::Scope(scope) => sqlx::query_scalar(OF_SCOPE).bind(scope.to_string()).fetch_one(writer).await?,
        _ => sqlx::query_scalar(OF_ALL).bind(parameters::CALLS).fetch_one(writer).await?,
    };
    Ok(counted.unsigned_abs())
}

pub(super) async fn remove_all(writer: &mut DbConnection, owner: &PrincipalId) -> Result<(), sqlx::Error> {
    co_use::remove_all(writer, owner).await?;
    parameters::remove_all(writer, owner).await?;
    sqlx::query("DELETE FROM learned_message WHERE principal = $1").bind(owner.as_str()).execute(writer).await.map(drop)
}
