//! The port [`Store`] on one SQLite file.
//!
//! **Durability.** Write-ahead log with `synchronous = NORMAL`: a commit is acknowledged after the operating system
//! has taken it, so a killed process loses nothing that was acknowledged. A power cut or a crash of the operating
//! system can lose the last commits, never the file's integrity; everything kept here is derived (listings, vectors,
//! counts) or costs a warning when it is lost (chats, events), so it is not worth one disk flush per commit. What people
//! write (keys, the policy, toolsets, words about tools, approvals) is flushed.
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
mod keys;
mod listings;
mod policy;
mod secrets;
mod session_figures;
mod sessions;
mod tool_facts;
mod toolsets;
mod usage;
mod vectors;

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use sqlx::migrate::Migrator;
use sqlx::pool::PoolConnection;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, Sqlite, SqliteConnection, Transaction};

use crate::domain::api_key::{ApiKey, KeyId};
use crate::domain::canonical::Fingerprint;
use crate::domain::chat::{ChatKey, ChatSet};
use crate::domain::enrichment::{Author, Written};
use crate::domain::loading::Group;
use crate::domain::principal::PrincipalId;
use crate::domain::secret::{SealedSecret, SecretPlace};
use crate::domain::session::{Session, SessionId};
use crate::domain::session_figures::{SessionQuery, SessionReport};
use crate::domain::tool::{ServerName, ToolId};
use crate::domain::tool_facts::WrittenFacts;
use crate::domain::toolset::{Definition, Toolset, ToolsetName};
use crate::service::ports::{
    AuditEntry, AuditQuery, Feedback, SelectionEvent, SelectionName, ServerListing, SessionCaps, SessionSaved, Store, StoreError,
    StoredAuditEntry, StoredChat, StoredDefinition, StoredPolicy, StoredToolFacts, Usage, UsageQuery,
};

pub use errors::OpenError;

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
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Values of one `IN (…)` list and rows of one `INSERT`: far below SQLite's limit of bound values.
const CHUNK: usize = 250;

/// A SQLite file as the store.
#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
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
        create_private(path).map_err(|source| OpenError::Create { path: path.to_owned(), source })?;
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
        let writer = pool(1).connect_with(writing).await.map_err(opening)?;
        if !belongs_to_us(&writer).await.map_err(opening)? {
            return Err(OpenError::Foreign { path: path.to_owned() });
        }
        MIGRATIONS.run(&writer).await.map_err(|source| OpenError::of_migration(path, source))?;
        let readers = pool(READERS).connect_lazy_with(options.read_only(true));
        Ok(Self { path: path.to_owned(), writer, readers })
    }

    /// Waits for what is under way, moves the write-ahead log into the file and closes it. Without it the next
    /// start does that.
    pub async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }

    /// A transaction that has the right to write from its start, so that it can't fail half way because another
    /// process began to write.
    async fn write(&self) -> Result<Transaction<'static, Sqlite>, sqlx::Error> {
        self.writer.begin_with("BEGIN IMMEDIATE").await
    }

    /// The connection that writes, so set that what it commits is on the disk. Is given back with [`as_usual`].
    async fn durably(&self) -> Result<PoolConnection<Sqlite>, sqlx::Error> {
        let mut connection = self.writer.acquire().await?;
        sqlx::query("PRAGMA synchronous = FULL").execute(&mut *connection).await?;
        Ok(connection)
    }

    fn failed(&self, action: &'static str) -> impl FnOnce(sqlx::Error) -> StoreError {
        let path = self.path.clone();
        move |source| StoreError::Failed { action, source: errors::during_use(&path, source) }
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn listings(&self) -> Result<Vec<ServerListing>, StoreError> {
        listings::all(&self.readers).await.map_err(self.failed("read the listings"))
    }

    async fn save_listing(&self, listing: &ServerListing) -> Result<(), StoreError> {
        listings::save(&self.writer, listing).await.map_err(self.failed("save a listing"))
    }

    async fn remove_listing(&self, server: &ServerName) -> Result<(), StoreError> {
        listings::remove(&self.writer, server).await.map_err(self.failed("remove a listing"))
    }

    async fn vectors(&self, model: &str, texts: &[Fingerprint]) -> Result<HashMap<Fingerprint, Arc<[f32]>>, StoreError> {
        vectors::load(&self.readers, model, texts).await.map_err(self.failed("read vectors"))
    }

    async fn save_vectors(&self, model: &str, vectors: &[(Fingerprint, Arc<[f32]>)]) -> Result<(), StoreError> {
        let save = async {
            let mut transaction = self.write().await?;
            vectors::save(&mut transaction, model, vectors).await?;
            transaction.commit().await
        };
        save.await.map_err(self.failed("save vectors"))
    }

    async fn token_counts(&self, definitions: &[Fingerprint]) -> Result<HashMap<Fingerprint, u32>, StoreError> {
        vectors::load_token_counts(&self.readers, definitions).await.map_err(self.failed("read token counts"))
    }

    async fn save_token_counts(&self, counts: &[(Fingerprint, u32)]) -> Result<(), StoreError> {
        let save = async {
            let mut transaction = self.write().await?;
            vectors::save_token_counts(&mut transaction, counts).await?;
            transaction.commit().await
        };
        save.await.map_err(self.failed("save token counts"))
    }

    async fn forget_unused(
        &self,
        model: &str,
        texts: &[Fingerprint],
        definitions: &[Fingerprint],
        since: SystemTime,
    ) -> Result<u64, StoreError> {
        let forget = async {
            let mut transaction = self.write().await?;
            vectors::mark_used(&mut transaction, model, texts, definitions).await?;
            let gone = vectors::delete_unused(&mut transaction, since).await?;
            transaction.commit().await?;
            Ok(gone)
        };
        forget.await.map_err(self.failed("forget unused vectors and counts"))
    }

    async fn enrichments(&self, model: Option<&str>, tools: &[Fingerprint]) -> Result<HashMap<Fingerprint, Written>, StoreError> {
        enrichments::load(&self.readers, model, tools).await.map_err(self.failed("read what is written about tools"))
    }

    async fn save_enrichment(&self, tool: &Fingerprint, written: &Written) -> Result<(), StoreError> {
        let save = async {
            if written.author != Author::Admin {
                return enrichments::save(&mut *self.writer.acquire().await?, tool, written).await;
            }
            // What an admin writes exists nowhere else.
            let mut connection = self.durably().await?;
            let saved = enrichments::save(&mut connection, tool, written).await;
            as_usual(&mut connection).await?;
            saved
        };
        save.await.map_err(self.failed("save what is written about a tool"))
    }

    async fn remove_enrichment(&self, tool: &Fingerprint, author: &Author) -> Result<bool, StoreError> {
        enrichments::remove(&self.writer, tool, author).await.map_err(self.failed("remove what is written about a tool"))
    }

    async fn forget_unused_enrichments(&self, model: Option<&str>, tools: &[Fingerprint], since: SystemTime) -> Result<u64, StoreError> {
        let forget = async {
            let mut transaction = self.write().await?;
            let gone = enrichments::forget_unused(&mut transaction, model, tools, since).await?;
            transaction.commit().await?;
            Ok(gone)
        };
        forget.await.map_err(self.failed("forget what is written about tools that are gone"))
    }

    async fn check(&self) -> Result<(), StoreError> {
        sqlx::query("SELECT 1 FROM listing LIMIT 1").execute(&self.readers).await.map(drop).map_err(self.failed("answer"))
    }

    async fn chat(&self, key: &ChatKey) -> Result<Option<StoredChat>, StoreError> {
        chats::load(&self.readers, key).await.map_err(self.failed("read a chat"))
    }

    async fn save_chat(&self, key: &ChatKey, set: &ChatSet, expected: u64) -> Result<Option<u64>, StoreError> {
        chats::save(&self.writer, key, set, expected).await.map_err(self.failed("save a chat"))
    }

    async fn record(&self, events: &[SelectionEvent]) -> Result<(), StoreError> {
        let record = async {
            let mut transaction = self.write().await?;
            events::insert(&mut transaction, events).await?;
            usage::add(&mut transaction, events).await?;
            session_figures::add(&mut transaction, events).await?;
            transaction.commit().await
        };
        record.await.map_err(self.failed("record events"))
    }

    async fn selection(&self, principal: &str, named: &SelectionName) -> Result<Option<String>, StoreError> {
        events::selection(&self.readers, principal, named).await.map_err(self.failed("look for a selection"))
    }

    async fn save_feedback(&self, feedback: &Feedback) -> Result<(), StoreError> {
        feedback::save(&self.writer, feedback).await.map_err(self.failed("save feedback"))
    }

    async fn usage(&self, query: &UsageQuery) -> Result<Usage, StoreError> {
        usage::load(&self.readers, query).await.map_err(self.failed("read the usage"))
    }

    async fn session_figures(&self, query: &SessionQuery) -> Result<SessionReport, StoreError> {
        session_figures::load(&self.readers, query).await.map_err(self.failed("read the figures of sessions"))
    }

    async fn forget_usage_before(&self, time: SystemTime) -> Result<u64, StoreError> {
        let forget = async {
            let mut transaction = self.write().await?;
            let gone = usage::delete_before(&mut transaction, time).await? + session_figures::delete_before(&mut transaction, time).await?;
            transaction.commit().await?;
            Ok(gone)
        };
        forget.await.map_err(self.failed("forget old usage"))
    }

    async fn api_keys(&self) -> Result<Vec<ApiKey>, StoreError> {
        keys::all(&self.readers).await.map_err(self.failed("read the API keys"))
    }

    async fn save_api_key(&self, key: &ApiKey) -> Result<(), StoreError> {
        let save = async {
            let mut connection = self.durably().await?;
            let saved = keys::save(&mut connection, key).await;
            as_usual(&mut connection).await?;
            saved
        };
        save.await.map_err(self.failed("save an API key"))
    }

    async fn touch_api_key(&self, id: &KeyId, at: SystemTime) -> Result<(), StoreError> {
        keys::touch(&self.writer, id, at).await.map_err(self.failed("note the use of an API key"))
    }

    async fn policy(&self) -> Result<Option<StoredPolicy>, StoreError> {
        policy::load(&self.readers).await.map_err(self.failed("read the policy"))
    }

    async fn save_policy(&self, expected: u64, body: &str) -> Result<Option<u64>, StoreError> {
        let save = async {
            let mut connection = self.durably().await?;
            let saved = policy::save(&mut connection, expected, body).await;
            as_usual(&mut connection).await?;
            saved
        };
        save.await.map_err(self.failed("save the policy"))
    }

    async fn toolsets(&self) -> Result<Vec<Toolset>, StoreError> {
        toolsets::all(&self.readers).await.map_err(self.failed("read the toolsets"))
    }

    async fn save_toolset(&self, name: &ToolsetName, definition: &Definition) -> Result<(), StoreError> {
        let save = async {
            let mut connection = self.durably().await?;
            let saved = toolsets::save(&mut connection, name, definition).await;
            as_usual(&mut connection).await?;
            saved
        };
        save.await.map_err(self.failed("save a toolset"))
    }

    async fn remove_toolset(&self, name: &ToolsetName) -> Result<bool, StoreError> {
        let remove = async {
            let mut connection = self.durably().await?;
            let removed = toolsets::remove(&mut connection, name).await;
            as_usual(&mut connection).await?;
            removed
        };
        remove.await.map_err(self.failed("remove a toolset"))
    }

    async fn session(&self, id: &SessionId) -> Result<Option<Session>, StoreError> {
        sessions::load(&self.readers, id).await.map_err(self.failed("read a session"))
    }

    async fn sessions(&self, owner: Option<&PrincipalId>, now: SystemTime) -> Result<Vec<Session>, StoreError> {
        sessions::of(&self.readers, owner, now).await.map_err(self.failed("read sessions"))
    }

    async fn save_session(&self, session: &Session, caps: SessionCaps) -> Result<SessionSaved, StoreError> {
        let save = async {
            let mut transaction = self.write().await?;
            let saved = sessions::insert(&mut transaction, session, caps).await?;
            transaction.commit().await?;
            Ok(saved)
        };
        save.await.map_err(self.failed("save a session"))
    }

    async fn touch_session(&self, id: &SessionId, at: SystemTime) -> Result<(), StoreError> {
        sessions::touch(&self.writer, id, at).await.map_err(self.failed("note the use of a session"))
    }

    async fn session_groups(&self, id: &SessionId) -> Result<Vec<Group>, StoreError> {
        sessions::loaded(&self.readers, id).await.map_err(self.failed("read what is loaded into a session"))
    }

    async fn load_session_groups(&self, id: &SessionId, groups: &[Group]) -> Result<(), StoreError> {
        let save = async {
            let mut transaction = self.write().await?;
            sessions::load_groups(&mut transaction, id, groups).await?;
            transaction.commit().await
        };
        save.await.map_err(self.failed("save what is loaded into a session"))
    }

    async fn unload_session_group(&self, id: &SessionId, group: &Group) -> Result<bool, StoreError> {
        sessions::unload_group(&self.writer, id, group).await.map_err(self.failed("unload from a session"))
    }

    async fn remove_session(&self, id: &SessionId) -> Result<bool, StoreError> {
        sessions::remove(&self.writer, id).await.map_err(self.failed("remove a session"))
    }

    async fn tool_facts(&self) -> Result<Vec<StoredToolFacts>, StoreError> {
        tool_facts::all(&self.readers).await.map_err(self.failed("read what is written about tools"))
    }

    async fn save_tool_facts(&self, tool: &ToolId, expected: u64, facts: Option<&WrittenFacts>) -> Result<Option<u64>, StoreError> {
        let save = async {
            let mut connection = self.durably().await?;
            let saved = tool_facts::save(&mut connection, tool, expected, facts).await;
            as_usual(&mut connection).await?;
            saved
        };
        save.await.map_err(self.failed("save what is written about a tool"))
    }

    async fn definitions(&self) -> Result<Vec<StoredDefinition>, StoreError> {
        definitions::all(&self.readers).await.map_err(self.failed("read the definitions of tools"))
    }

    async fn definition(&self, tool: &ToolId) -> Result<Option<String>, StoreError> {
        definitions::text(&self.readers, tool).await.map_err(self.failed("read the definition of a tool"))
    }

    async fn add_definitions(&self, new: &[(StoredDefinition, String)]) -> Result<(), StoreError> {
        let add = async {
            let mut transaction = self.write().await?;
            definitions::add(&mut transaction, new).await?;
            transaction.commit().await
        };
        add.await.map_err(self.failed("keep the definitions of new tools"))
    }

    async fn note_definition(&self, tool: &ToolId, other: &Fingerprint, at: SystemTime) -> Result<(), StoreError> {
        definitions::note(&self.writer, tool, other, at).await.map_err(self.failed("note that the definition of a tool has changed"))
    }

    async fn approve_definition(&self, tool: &ToolId, definition: &Fingerprint, json: &str, at: SystemTime) -> Result<(), StoreError> {
        let approve = async {
            let mut connection = self.durably().await?;
            let approved = definitions::approve(&mut connection, tool, definition, json, at).await;
            as_usual(&mut connection).await?;
            approved
        };
        approve.await.map_err(self.failed("approve the definition of a tool"))
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
        let save = async {
            let mut connection = self.durably().await?;
            let saved = secrets::save(&mut connection, secret).await;
            as_usual(&mut connection).await?;
            saved
        };
        save.await.map_err(self.failed("save a secret"))
    }

    async fn reseal_secret(&self, former: &SealedSecret, new: &SealedSecret) -> Result<bool, StoreError> {
        let reseal = async {
            let mut connection = self.durably().await?;
            let resealed = secrets::reseal(&mut connection, former, new).await;
            as_usual(&mut connection).await?;
            resealed
        };
        reseal.await.map_err(self.failed("seal a secret with another key"))
    }

    async fn remove_secret(&self, place: &SecretPlace) -> Result<bool, StoreError> {
        let remove = async {
            let mut connection = self.durably().await?;
            let removed = secrets::remove(&mut connection, place).await;
            as_usual(&mut connection).await?;
            removed
        };
        remove.await.map_err(self.failed("remove a secret"))
    }

    async fn remove_secrets(&self, owner: &PrincipalId) -> Result<u64, StoreError> {
        let remove = async {
            let mut connection = self.durably().await?;
            let removed = secrets::remove_all(&mut connection, owner).await;
            as_usual(&mut connection).await?;
            removed
        };
        remove.await.map_err(self.failed("remove a caller's secrets"))
    }

    async fn save_audit(&self, entries: &[AuditEntry]) -> Result<(), StoreError> {
        let save = async {
            let mut transaction = self.write().await?;
            audit::insert(&mut transaction, entries).await?;
            transaction.commit().await
        };
        save.await.map_err(self.failed("save the audit log"))
    }

    async fn audit(&self, query: &AuditQuery) -> Result<Vec<StoredAuditEntry>, StoreError> {
        audit::find(&self.readers, query).await.map_err(self.failed("read the audit log"))
    }

    async fn forget_audit_before(&self, time: SystemTime) -> Result<u64, StoreError> {
        audit::delete_before(&self.writer, time).await.map_err(self.failed("forget old entries of the audit log"))
    }

    async fn forget_before(&self, chats: SystemTime, events: SystemTime) -> Result<u64, StoreError> {
        let forget = async {
            let mut transaction = self.write().await?;
            let chats = chats::delete_before(&mut transaction, chats).await?;
            let feedback = feedback::delete_before(&mut transaction, events).await?;
            let events = events::delete_before(&mut transaction, events).await?;
            transaction.commit().await?;
            Ok(chats + events + feedback)
        };
        forget.await.map_err(self.failed("forget old chats and events"))
    }
}

/// Ends what [`SqliteStore::durably`] began. Where that does not happen, commits are slower and no less safe.
async fn as_usual(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    sqlx::query("PRAGMA synchronous = NORMAL").execute(connection).await.map(drop)
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

/// Creates the file so that SQLite need not, which would leave the access rights to the umask. Its log files get
/// the rights of the file from SQLite.
fn create_private(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && !path.is_dir() => Ok(()),
        other => other.map(drop),
    }
}

/// An empty file becomes ours, one with tables must be ours.
async fn belongs_to_us(writer: &SqlitePool) -> Result<bool, sqlx::Error> {
    let (id, tables): (i32, i64) =
        sqlx::query_as("SELECT application_id, (SELECT count(*) FROM sqlite_schema) FROM pragma_application_id").fetch_one(writer).await?;
    Ok(id == APPLICATION_ID || (id == 0 && tables == 0))
}
