//! The port [`Store`] on one SQLite file.
//!
//! **Durability.** Write-ahead log with `synchronous = NORMAL`: a commit is acknowledged after the operating system
//! has taken it, so a killed process loses nothing that was acknowledged. A power cut or a crash of the operating
//! system can lose the last commits, never the file's integrity; everything kept here is derived (listings, vectors,
//! counts) or costs a warning when it is lost (chats, events), so it is not worth one disk flush per commit. What people
//! write or are promised (keys, the policy, toolsets, words about tools, approvals, secrets, sessions and what they load,
//! feedback) is flushed.
//!
//! **Connections.** One writes, a few read; in write-ahead mode they do not wait for each other. Each has a thread
//! and a page cache of its own, so both are kept small. Another process may have the file open: it is waited for.

mod audit;
mod chats;
mod definitions;
mod enrichments;
mod errors;
mod events;
mod feedback;
mod file;
mod installation;
mod keys;
mod listings;
mod policy;
mod secrets;
mod session_figures;
mod sessions;
mod tool_facts;
mod toolsets;
mod transaction;
mod usage;
mod vectors;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use sqlx::migrate::Migrator;
use sqlx::sqlite::{SqliteAutoVacuum, SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, SqliteConnection};
use uuid::Uuid;

use crate::adapters::installation::AccessMark;
use crate::domain::access::api_key::{ApiKey, KeyId};
use crate::domain::access::principal::PrincipalId;
use crate::domain::access::secret::{SealedSecret, SecretPlace};
use crate::domain::access::tool_facts::WrittenFacts;
use crate::domain::access::toolset::{Definition, Toolset, ToolsetName};
use crate::domain::catalog::tool::{ServerName, ToolId};
use crate::domain::records::session_figures::{SessionQuery, SessionReport};
use crate::domain::selection::chat::{ChatKey, ChatSet};
use crate::domain::selection::enrichment::{Author, Written};
use crate::domain::text::canonical::Fingerprint;
use crate::domain::toolsets::loading::Group;
use crate::domain::toolsets::session::{Session, SessionContents, SessionId};
use crate::service::ports::{
    AuditEntry, AuditQuery, Feedback, SelectionEvent, SelectionName, ServerListing, SessionCaps, SessionSaved, Store, StoreError,
    StoredAuditEntry, StoredChat, StoredDefinition, StoredPolicy, StoredToolFacts, Usage, UsageQuery,
};

use self::errors::GoneError;
use self::file::Identity;
use self::transaction::{Durability, Write};
pub use errors::OpenError;
pub use file::{BackupError, back_up};

static MIGRATIONS: Migrator = sqlx::migrate!("src/adapters/store/migrations/sqlite");

/// `PRAGMA application_id` of our files, set by the first migration.
const APPLICATION_ID: i32 = 1_414_744_406;

const READERS: u32 = 2;
/// Page cache of one connection. A negative number of the pragma means KiB.
const CACHE_KIB: &str = "-512";
/// What remains of the write-ahead log after a large batch was moved into the file.
const LOG_LIMIT_BYTES: &str = "4194304";
/// Rows that a query may be ahead of its reader: with few of them, two threads wait for each other at every step.
const ROW_BUFFER: usize = CHUNK;
/// Pages that are given back in one transaction, 4 MiB, and how often in one go.
const SHRINK_PAGES: u32 = 1_000;
const SHRINK_ROUNDS: usize = 256;
/// The largest file that is written anew at the start, to make it one that can shrink: half a second.
const REWRITTEN_BYTES: u64 = 256 << 20;
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Values of one `IN (…)` list and rows of one `INSERT`: far below SQLite's limit of bound values.
const CHUNK: usize = 250;

/// A SQLite file as the store.
#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    /// Of the file that was opened: a name can come to mean another one.
    identity: Identity,
    mark: Option<AccessMark>,
    writer: SqlitePool,
    readers: SqlitePool,
}

impl SqliteStore {
    /// Opens the file, creates it where it is missing, and brings its tables to this version.
    ///
    /// A new file is readable by its owner only.
    ///
    /// # Errors
    /// [`OpenError`], which says what to do.
    pub async fn open(path: &Path) -> Result<Self, OpenError> {
        let uncreated = |source| OpenError::Create { path: path.to_owned(), source };
        file::create_private(path).map_err(uncreated)?;
        let identity = Identity::of(path).map_err(uncreated)?;
        let options = SqliteConnectOptions::new()
            .filename(path)
            .busy_timeout(BUSY_TIMEOUT)
            .foreign_keys(true)
            .pragma("cache_size", CACHE_KIB)
            .row_buffer_size(ROW_BUFFER)
            .disable_statement_logging();
        let writing = options
            .clone()
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Normal)
            .pragma("journal_size_limit", LOG_LIMIT_BYTES);

        let opening = |source| OpenError::of(path, source);
        if std::fs::metadata(path).is_ok_and(|file| file.len() == 0) {
            // What is free can be given back then, a few pages at a time. Saying so is a write, so it is said once.
            let first = options.clone().auto_vacuum(SqliteAutoVacuum::Incremental).journal_mode(SqliteJournalMode::Wal);
            first.connect().await.map_err(opening)?.close().await.map_err(opening)?;
        }
        let writer = pool(1).connect_with(writing).await.map_err(opening)?;
        if !belongs_to_us(&writer).await.map_err(opening)? {
            return Err(OpenError::Foreign { path: path.to_owned() });
        }
        MIGRATIONS.run(&writer).await.map_err(|source| OpenError::of_migration(path, source))?;
        let readers = pool(READERS).connect_lazy_with(options.read_only(true));
        Ok(Self { path: path.to_owned(), identity, mark: None, writer, readers })
    }

    /// Writes a file of a version before anew, so that it can shrink, where that is quick and there is room. Meanwhile nobody can
    /// write, so this comes before the service.
    pub async fn make_shrinkable(&self) {
        let rewrite = async {
            let mode: i64 = sqlx::query_scalar("PRAGMA auto_vacuum").fetch_one(&self.writer).await?;
            let size = std::fs::metadata(&self.path).map_or(0, |file| file.len());
            if mode == 0 && size <= REWRITTEN_BYTES {
                sqlx::raw_sql("PRAGMA auto_vacuum = INCREMENTAL; VACUUM").execute(&self.writer).await?;
            }
            Ok(mode == 0 && size > REWRITTEN_BYTES)
        };
        match rewrite.await {
            Ok(false) => {}
            Ok(true) => tracing::info!(
                "{0} does not shrink: to make it one that does, stop the service and run: sqlite3 {0} 'PRAGMA auto_vacuum = 2; VACUUM'",
                self.path.display()
            ),
            Err::<_, sqlx::Error>(error) => tracing::warn!(%error, "the database keeps room that it does not need"),
        }
    }

    /// Notes beside the file that there are keys, rules, or what rules go by (toolsets, words about tools, approvals), before the first of
    /// them is kept.
    #[must_use]
    pub fn with_mark(self, mark: AccessMark) -> Self {
        Self { mark: Some(mark), ..self }
    }

    /// Waits for what is under way, moves the write-ahead log into the file and closes it. Without it the next
    /// start does that.
    pub async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }

    /// Writes in one transaction. On an error nothing has changed.
    async fn write<T>(
        &self,
        action: &'static str,
        work: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, StoreError> {
        self.transact(Durability::Process, action, work).await
    }

    /// The same for what a person was promised: it is on the disk when this returns.
    async fn keep<T>(
        &self,
        action: &'static str,
        work: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, StoreError> {
        self.transact(Durability::Disk, action, work).await
    }

    async fn transact<T>(
        &self,
        durability: Durability,
        action: &'static str,
        work: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, StoreError> {
        self.is_there().map_err(|gone| StoreError::Failed { action, source: gone.into() })?;
        let write = async {
            let mut transaction = Write::begin(&self.writer, durability).await?;
            let done = work(&mut transaction).await?;
            transaction.commit().await?;
            Ok(done)
        };
        write.await.map_err(self.failed(action))
    }

    /// The file is named first, so that the mark never says more than the file.
    async fn mark(&self) -> Result<(), StoreError> {
        let Some((mark, id)) = self.mark.as_ref().and_then(|mark| Some((mark, mark.missing()?))) else { return Ok(()) };
        self.set_installation(id).await?;
        mark.set().map_err(|error| StoreError::Failed { action: "note that there is something to lose", source: error.into() })
    }

    /// What is written into a file that was removed meanwhile is gone with the process.
    fn is_there(&self) -> Result<(), GoneError> {
        let is_same = Identity::of(&self.path).is_ok_and(|found| found == self.identity);
        if is_same { Ok(()) } else { Err(GoneError { path: self.path.clone() }) }
    }

    fn failed(&self, action: &'static str) -> impl FnOnce(sqlx::Error) -> StoreError {
        let path = self.path.clone();
        move |source| StoreError::Failed { action, source: errors::during_use(&path, source) }
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn installation(&self) -> Result<Option<Uuid>, StoreError> {
        installation::id(&self.readers).await.map_err(self.failed("read which installation it belongs to"))
    }

    async fn set_installation(&self, id: Uuid) -> Result<(), StoreError> {
        self.keep("note which installation it belongs to", async |to| installation::set(to, id).await).await
    }

    async fn listings(&self) -> Result<Vec<ServerListing>, StoreError> {
        listings::all(&self.readers).await.map_err(self.failed("read the listings"))
    }

    async fn save_listing(&self, listing: &ServerListing) -> Result<(), StoreError> {
        self.write("save a listing", async |to| listings::save(to, listing).await).await
    }

    async fn remove_listing(&self, server: &ServerName) -> Result<(), StoreError> {
        self.write("remove a listing", async |to| listings::remove(to, server).await).await
    }

    async fn vectors(&self, model: &str, texts: &[Fingerprint]) -> Result<HashMap<Fingerprint, Arc<[f32]>>, StoreError> {
        vectors::load(&self.readers, model, texts).await.map_err(self.failed("read vectors"))
    }

    async fn save_vectors(&self, model: &str, vectors: &[(Fingerprint, Arc<[f32]>)]) -> Result<(), StoreError> {
        self.write("save vectors", async |to| vectors::save(to, model, vectors).await).await
    }

    async fn token_counts(&self, definitions: &[Fingerprint]) -> Result<HashMap<Fingerprint, u32>, StoreError> {
        vectors::load_token_counts(&self.readers, definitions).await.map_err(self.failed("read token counts"))
    }

    async fn save_token_counts(&self, counts: &[(Fingerprint, u32)]) -> Result<(), StoreError> {
        self.write("save token counts", async |to| vectors::save_token_counts(to, counts).await).await
    }

    async fn forget_unused(
        &self,
        model: &str,
        texts: &[Fingerprint],
        definitions: &[Fingerprint],
        since: SystemTime,
    ) -> Result<u64, StoreError> {
        let work = async |to: &mut SqliteConnection| {
            vectors::mark_used(&mut *to, model, texts, definitions).await?;
            let gone = vectors::delete_unused(&mut *to, since).await?;
            Ok(gone)
        };
        self.write("forget unused vectors and counts", work).await
    }

    async fn enrichments(&self, model: Option<&str>, tools: &[Fingerprint]) -> Result<HashMap<Fingerprint, Written>, StoreError> {
        enrichments::load(&self.readers, model, tools).await.map_err(self.failed("read what is written about tools"))
    }

    async fn save_enrichment(&self, tool: &Fingerprint, written: &Written) -> Result<(), StoreError> {
        // What an admin writes exists nowhere else.
        let durability = if written.author == Author::Admin { Durability::Disk } else { Durability::Process };
        let work = async |to: &mut SqliteConnection| enrichments::save(to, tool, written).await;
        self.transact(durability, "save what is written about a tool", work).await
    }

    async fn remove_enrichment(&self, tool: &Fingerprint, author: &Author) -> Result<bool, StoreError> {
        self.keep("remove what is written about a tool", async |to| enrichments::remove(to, tool, author).await).await
    }

    async fn forget_unused_enrichments(&self, model: Option<&str>, tools: &[Fingerprint], since: SystemTime) -> Result<u64, StoreError> {
        self.write("forget what is written about tools that are gone", async |to| enrichments::forget_unused(to, model, tools, since).await)
            .await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.is_there().map_err(|gone| StoreError::Failed { action: "answer", source: gone.into() })?;
        sqlx::query("SELECT 1 FROM listing LIMIT 1").execute(&self.readers).await.map(drop).map_err(self.failed("answer"))
    }

    async fn chat(&self, key: &ChatKey) -> Result<Option<StoredChat>, StoreError> {
        chats::load(&self.readers, key).await.map_err(self.failed("read a chat"))
    }

    async fn save_chat(&self, key: &ChatKey, set: &ChatSet, expected: u64) -> Result<Option<u64>, StoreError> {
        self.write("save a chat", async |to| chats::save(to, key, set, expected).await).await
    }

    async fn record(&self, events: &[SelectionEvent]) -> Result<(), StoreError> {
        let work = async |to: &mut SqliteConnection| {
            events::insert(&mut *to, events).await?;
            usage::add(&mut *to, events).await?;
            session_figures::add(&mut *to, events).await?;
            Ok(())
        };
        self.write("record events", work).await
    }

    async fn selection(&self, principal: &str, named: &SelectionName) -> Result<Option<String>, StoreError> {
        events::selection(&self.readers, principal, named).await.map_err(self.failed("look for a selection"))
    }

    async fn save_feedback(&self, feedback: &Feedback) -> Result<(), StoreError> {
        self.keep("save feedback", async |to| feedback::save(to, feedback).await).await
    }

    async fn usage(&self, query: &UsageQuery) -> Result<Usage, StoreError> {
        usage::load(&self.readers, query).await.map_err(self.failed("read the usage"))
    }

    async fn session_figures(&self, query: &SessionQuery) -> Result<SessionReport, StoreError> {
        session_figures::load(&self.readers, query).await.map_err(self.failed("read the figures of sessions"))
    }

    async fn forget_usage_before(&self, time: SystemTime) -> Result<u64, StoreError> {
        let work =
            async |to: &mut SqliteConnection| Ok(usage::delete_before(to, time).await? + session_figures::delete_before(to, time).await?);
        self.write("forget old usage", work).await
    }

    async fn api_keys(&self) -> Result<Vec<ApiKey>, StoreError> {
        keys::all(&self.readers).await.map_err(self.failed("read the API keys"))
    }

    async fn save_api_key(&self, key: &ApiKey) -> Result<(), StoreError> {
        self.mark().await?;
        self.keep("save an API key", async |to| keys::save(to, key).await).await
    }

    async fn revoke_api_key(&self, key: &ApiKey) -> Result<(), StoreError> {
        let owner = PrincipalId::of_key(&key.name);
        let work = async |to: &mut SqliteConnection| {
            keys::save(to, key).await?;
            secrets::remove_all(to, &owner).await?;
            sessions::remove_all(to, &owner).await?;
            chats::remove_all(to, &owner).await
        };
        self.keep("revoke an API key", work).await
    }

    async fn touch_api_key(&self, id: &KeyId, at: SystemTime) -> Result<(), StoreError> {
        self.write("note the use of an API key", async |to| keys::touch(to, id, at).await).await
    }

    async fn policy(&self) -> Result<Option<StoredPolicy>, StoreError> {
        policy::load(&self.readers).await.map_err(self.failed("read the policy"))
    }

    async fn save_policy(&self, expected: u64, body: &str) -> Result<Option<u64>, StoreError> {
        self.mark().await?;
        self.keep("save the policy", async |to| policy::save(to, expected, body).await).await
    }

    async fn toolsets(&self) -> Result<Vec<Toolset>, StoreError> {
        toolsets::all(&self.readers).await.map_err(self.failed("read the toolsets"))
    }

    async fn save_toolset(&self, name: &ToolsetName, definition: &Definition) -> Result<(), StoreError> {
        self.mark().await?;
        self.keep("save a toolset", async |to| toolsets::save(to, name, definition).await).await
    }

    async fn remove_toolset(&self, name: &ToolsetName) -> Result<bool, StoreError> {
        self.keep("remove a toolset", async |to| toolsets::remove(to, name).await).await
    }

    async fn session(&self, id: &SessionId) -> Result<Option<Session>, StoreError> {
        sessions::load(&self.readers, id).await.map_err(self.failed("read a session"))
    }

    async fn sessions(&self, owner: Option<&PrincipalId>, now: SystemTime) -> Result<Vec<Session>, StoreError> {
        sessions::of(&self.readers, owner, now).await.map_err(self.failed("read sessions"))
    }

    async fn save_session(&self, session: &Session, caps: SessionCaps) -> Result<SessionSaved, StoreError> {
        self.keep("save a session", async |to| sessions::insert(to, session, caps).await).await
    }

    async fn save_session_contents(&self, id: &SessionId, contents: &SessionContents) -> Result<(), StoreError> {
        self.keep("save a session", async |to| sessions::save_contents(to, id, contents).await).await
    }

    async fn touch_session(&self, id: &SessionId, at: SystemTime) -> Result<(), StoreError> {
        self.write("note the use of a session", async |to| sessions::touch(to, id, at).await).await
    }

    async fn session_groups(&self, id: &SessionId) -> Result<Vec<Group>, StoreError> {
        sessions::loaded(&self.readers, id).await.map_err(self.failed("read what is loaded into a session"))
    }

    async fn load_session_groups(&self, id: &SessionId, groups: &[Group]) -> Result<(), StoreError> {
        self.keep("save what is loaded into a session", async |to| sessions::load_groups(to, id, groups).await).await
    }

    async fn unload_session_group(&self, id: &SessionId, group: &Group) -> Result<bool, StoreError> {
        self.keep("unload from a session", async |to| sessions::unload_group(to, id, group).await).await
    }

    async fn remove_session(&self, id: &SessionId) -> Result<bool, StoreError> {
        self.keep("remove a session", async |to| sessions::remove(to, id).await).await
    }

    async fn tool_facts(&self) -> Result<Vec<StoredToolFacts>, StoreError> {
        tool_facts::all(&self.readers).await.map_err(self.failed("read what is written about tools"))
    }

    async fn save_tool_facts(&self, tool: &ToolId, expected: u64, facts: Option<&WrittenFacts>) -> Result<Option<u64>, StoreError> {
        if facts.is_some() {
            self.mark().await?;
        }
        self.keep("save what is written about a tool", async |to| tool_facts::save(to, tool, expected, facts).await).await
    }

    async fn definitions(&self) -> Result<Vec<StoredDefinition>, StoreError> {
        definitions::all(&self.readers).await.map_err(self.failed("read the definitions of tools"))
    }

    async fn definition(&self, tool: &ToolId) -> Result<Option<String>, StoreError> {
        definitions::text(&self.readers, tool).await.map_err(self.failed("read the definition of a tool"))
    }

    async fn add_definitions(&self, new: &[(StoredDefinition, String)]) -> Result<(), StoreError> {
        self.write("keep the definitions of new tools", async |to| definitions::add(to, new).await).await
    }

    async fn note_definition(&self, tool: &ToolId, other: &Fingerprint, at: SystemTime) -> Result<(), StoreError> {
        self.write("note that the definition of a tool has changed", async |to| definitions::note(to, tool, other, at).await).await
    }

    async fn approve_definition(&self, tool: &ToolId, definition: &Fingerprint, json: &str, at: SystemTime) -> Result<(), StoreError> {
        self.mark().await?;
        self.keep("approve the definition of a tool", async |to| definitions::approve(to, tool, definition, json, at).await).await
    }

    async fn listing_times(&self) -> Result<HashMap<ServerName, SystemTime>, StoreError> {
        listings::times(&self.readers).await.map_err(self.failed("read when servers were listed"))
    }

    async fn secrets(&self, owner: &PrincipalId) -> Result<Vec<SealedSecret>, StoreError> {
        secrets::of(&self.readers, owner).await.map_err(self.failed("read a caller's secrets"))
    }

    async fn secrets_of_other_keys(&self, key_id: &str) -> Result<Vec<SealedSecret>, StoreError> {
        secrets::of_other_keys(&self.readers, key_id).await.map_err(self.failed("read the secrets of former keys"))
    }

    async fn save_secret(&self, secret: &SealedSecret) -> Result<(), StoreError> {
        self.keep("save a secret", async |to| secrets::save(to, secret).await).await
    }

    async fn reseal_secret(&self, former: &SealedSecret, new: &SealedSecret) -> Result<bool, StoreError> {
        self.keep("seal a secret with another key", async |to| secrets::reseal(to, former, new).await).await
    }

    async fn remove_secret(&self, place: &SecretPlace) -> Result<bool, StoreError> {
        self.keep("remove a secret", async |to| secrets::remove(to, place).await).await
    }

    async fn remove_secrets(&self, owner: &PrincipalId) -> Result<u64, StoreError> {
        self.keep("remove a caller's secrets", async |to| secrets::remove_all(to, owner).await).await
    }

    async fn save_audit(&self, entries: &[AuditEntry]) -> Result<(), StoreError> {
        self.write("save the audit log", async |to| audit::insert(to, entries).await).await
    }

    async fn audit(&self, query: &AuditQuery) -> Result<Vec<StoredAuditEntry>, StoreError> {
        audit::find(&self.readers, query).await.map_err(self.failed("read the audit log"))
    }

    async fn forget_keys_ended_before(&self, time: SystemTime) -> Result<Vec<KeyId>, StoreError> {
        let work = async |to: &mut SqliteConnection| {
            for name in keys::expired_before(to, time).await? {
                let owner = PrincipalId::of_key(&name);
                secrets::remove_all(to, &owner).await?;
                sessions::remove_all(to, &owner).await?;
                chats::remove_all(to, &owner).await?;
            }
            keys::delete_before(to, time).await
        };
        self.write("forget keys that ended", work).await
    }

    async fn note_definitions_seen(&self, server: &ServerName, tools: &[Arc<str>], at: SystemTime) -> Result<(), StoreError> {
        self.write("note which tools there are", async |to| definitions::note_seen(to, server, tools, at).await).await
    }

    async fn forget_definitions_before(&self, time: SystemTime) -> Result<Vec<ToolId>, StoreError> {
        self.write("forget definitions of tools", async |to| definitions::delete_before(to, time).await).await
    }

    async fn forget_tool_facts_before(&self, time: SystemTime) -> Result<Vec<ToolId>, StoreError> {
        self.write("forget what was taken back about tools", async |to| tool_facts::delete_before(to, time).await).await
    }

    async fn forget_sessions_before(&self, time: SystemTime) -> Result<u64, StoreError> {
        self.write("forget sessions that are over", async |to| sessions::delete_before(to, time).await).await
    }

    async fn shrink(&self) -> Result<(), StoreError> {
        for _ in 0..SHRINK_ROUNDS {
            let free: i64 = sqlx::query_scalar("PRAGMA freelist_count").fetch_one(&self.readers).await.map_err(self.failed("shrink"))?;
            if free == 0 {
                break;
            }
            let statement = format!("PRAGMA incremental_vacuum({SHRINK_PAGES})");
            let work = async |to: &mut SqliteConnection| sqlx::raw_sql(AssertSqlSafe(statement)).execute(to).await.map(drop);
            self.write("shrink", work).await?;
        }
        Ok(())
    }

    async fn forget_audit_before(&self, time: SystemTime) -> Result<u64, StoreError> {
        self.write("forget old entries of the audit log", async |to| audit::delete_before(to, time).await).await
    }

    async fn forget_before(&self, chats: SystemTime, events: SystemTime) -> Result<u64, StoreError> {
        let work = async |to: &mut SqliteConnection| {
            let chats = chats::delete_before(&mut *to, chats).await?;
            let feedback = feedback::delete_before(&mut *to, events).await?;
            let events = events::delete_before(&mut *to, events).await?;
            Ok(chats + events + feedback)
        };
        self.write("forget old chats and events", work).await
    }
}

fn pool(connections: u32) -> SqlitePoolOptions {
    SqlitePoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(Duration::from_secs(10))
        // A file does not go away like a server does: connections live as long as the store.
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
}

/// An empty file becomes ours, one with tables must be ours.
async fn belongs_to_us(writer: &SqlitePool) -> Result<bool, sqlx::Error> {
    let (id, tables): (i32, i64) =
        sqlx::query_as("SELECT application_id, (SELECT count(*) FROM sqlite_schema) FROM pragma_application_id").fetch_one(writer).await?;
    Ok(id == APPLICATION_ID || (id == 0 && tables == 0))
}
