//! Connects to the server, and creates or migrates the schema.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::pool::PoolConnectionMetadata;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, PgConnection, Row};

use super::errors::PostgresOpenError;
use super::place::{OLDEST, PostgresPlace};
use crate::adapters::store::migrating;
use crate::settings::PostgresSettings;

static MIGRATIONS: Migrator = sqlx::migrate!("src/adapters/store/migrations/postgres");

/// How long to wait for another process that migrates the schema.
const MIGRATION_WAIT: Duration = Duration::from_mins(2);
/// A connection that is unused for this long is closed.
const IDLE: Duration = Duration::from_mins(5);
/// How long to wait for the response when a connection is taken from the pool. Longer than a round trip to a slow server.
const TAKEN: Duration = Duration::from_secs(1);
/// The same when it is given back, after what it may still have to do.
const GIVEN_BACK: Duration = Duration::from_secs(5);
/// A read-only connection that is older is closed: a new one may be writable again. Younger ones stay, so that a database that is read-only
/// for longer needn't accept a connection for each operation.
const READ_ONLY_KEPT: Duration = Duration::from_secs(5);
/// How long a transaction may wait for its next statement. Other services wait for its locks, and its own service may be gone without
/// the server noticing.
const IDLE_IN_TRANSACTION: Duration = Duration::from_secs(5);
/// The only encoding in which a database can store every text.
const ENCODING: &str = "UTF8";
/// The comment of the table `installation`, which distinguishes our schema from others.
const OURS: &str = "toolsieve";

/// The place of the schema, a pool of connections that use it, and a pool of one connection that listens to notifications.
pub(super) type Opened = (Arc<PostgresPlace>, PgPool, PgPool);

/// Opens the schema. Creates it if it is missing, and migrates it to this version.
pub(super) async fn open(settings: &PostgresSettings) -> Result<Opened, PostgresOpenError> {
    let mut opening = Opening::begin(settings).await?;
    // `IF NOT EXISTS` alone would need the permission to create schemas although there is one.
    if !opening.exists().await? {
        let create = AssertSqlSafe(format!("CREATE SCHEMA {}", quoted(&settings.schema)));
        opening.connection.execute(create).await.map_err(|source| PostgresOpenError::of(&opening.place, source))?;
    }
    opening.enter().await?;
    opening.finish(settings).await
}

/// Opens the schema, but neither creates nor migrates it. Returns `None` if there are no tables yet.
pub(super) async fn open_present(settings: &PostgresSettings) -> Result<Option<Opened>, PostgresOpenError> {
    let mut opening = Opening::begin(settings).await?;
    if !opening.exists().await? {
        return Ok(None);
    }
    opening.enter().await?;
    match opening.migration().await? {
        None => Ok(None),
        Some(migration) if migration < migrating::newest(&MIGRATIONS) => {
            Err(PostgresOpenError::Older { place: opening.place, schema: settings.schema.clone() })
        }
        Some(_) => opening.finish(settings).await.map(Some),
    }
}

/// Checks that [`open()`] could create the tables in a database that has none. Leaves nothing behind.
pub(super) async fn check_creation(settings: &PostgresSettings) -> Result<(), PostgresOpenError> {
    let mut opening = Opening::begin(settings).await?;
    let schema = quoted(&settings.schema);
    let create = if opening.exists().await? { String::new() } else { format!("CREATE SCHEMA {schema}; ") };
    // Only an attempt shows all that the database may refuse.
    let attempt = format!("BEGIN; {create}CREATE TABLE {schema}.toolsieve_doctor (); ROLLBACK");
    opening.connection.execute(AssertSqlSafe(attempt)).await.map(drop).map_err(|source| PostgresOpenError::of(&opening.place, source))
}

fn options(url: &SecretString) -> Result<PgConnectOptions, PostgresOpenError> {
    let options = PgConnectOptions::from_str(url.expose_secret()).map_err(|_| PostgresOpenError::Address)?;
    // The driver keeps the brackets of an IPv6 address, and would look up a host of this name.
    let host = options.get_host().trim_start_matches('[').trim_end_matches(']').to_owned();
    let options = options.host(&host);
    // PgBouncer refuses connections that set `extra_float_digits`. The server's default is exact too.
    let options = options.application_name("toolsieve").extra_float_digits(None);
    // A statement may contain texts of callers.
    Ok(options.disable_statement_logging())
}

fn pool(options: PgConnectOptions, settings: &PostgresSettings, max_connections: u32) -> PgPool {
    let setup = session(settings);
    PgPoolOptions::new()
        .max_connections(max_connections)
        .acquire_timeout(settings.connect_timeout)
        .idle_timeout(IDLE)
        // sqlx would wait without a limit. The connection to a server that was replaced may stay silent for ever, and would keep its place.
        .test_before_acquire(false)
        .before_acquire(|connection, metadata| Box::pin(async move { Ok(is_usable(connection, &metadata, TAKEN).await) }))
        .after_release(|connection, metadata| Box::pin(async move { Ok(is_usable(connection, &metadata, GIVEN_BACK).await) }))
        .after_connect(move |connection, _| {
            let setup = setup.clone();
            Box::pin(async move { connection.execute(AssertSqlSafe(setup)).await.map(drop) })
        })
        .connect_lazy_with(options)
}

/// Whether the server responds, and the connection isn't one that a failover or a setting of the database has left read-only.
async fn is_usable(connection: &mut PgConnection, metadata: &PoolConnectionMetadata, patience: Duration) -> bool {
    let response = tokio::time::timeout(patience, is_read_only(connection)).await;
    response.is_ok_and(|is_read_only| is_read_only.is_ok_and(|is_read_only| !is_read_only || metadata.age < READ_ONLY_KEPT))
}

/// Whether the server refuses writes in the next transaction.
async fn is_read_only(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    let row = sqlx::raw_sql("SHOW transaction_read_only").fetch_one(connection).await?;
    Ok(row.try_get::<String, _>(0)? == "on")
}

/// The statements that begin each connection of the pool. A server that acknowledges commits before they are flushed would lose
/// acknowledged writes.
fn session(settings: &PostgresSettings) -> String {
    format!(
        "SET search_path TO {}; SET statement_timeout = {}; SET idle_in_transaction_session_timeout = {}; \
         SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'",
        quoted(&settings.schema),
        settings.statement_timeout.as_millis(),
        IDLE_IN_TRANSACTION.min(settings.statement_timeout).as_millis(),
    )
}

/// A connection to a suitable server, whose schema no other process migrates while the connection exists.
struct Opening {
    place: Arc<PostgresPlace>,
    options: PgConnectOptions,
    connection: PgConnection,
}

impl Opening {
    /// Connects and checks the server. Waits for other processes that open the schema.
    async fn begin(settings: &PostgresSettings) -> Result<Self, PostgresOpenError> {
        let options = options(&settings.url)?;
        let place = Arc::new(PostgresPlace {
            host: options.get_socket().map_or_else(|| options.get_host().to_owned(), |path| path.display().to_string()),
            port: options.get_port(),
            database: options.get_database().unwrap_or_else(|| options.get_username()).to_owned(),
            user: options.get_username().to_owned(),
            schema: settings.schema.clone(),
        });
        let failed = |source| PostgresOpenError::of(&place, source);
        let connect = tokio::time::timeout(settings.connect_timeout, options.connect());
        let mut connection = connect.await.unwrap_or(Err(sqlx::Error::PoolTimedOut)).map_err(failed)?;
        let number: String = sqlx::query_scalar("SHOW server_version_num").fetch_one(&mut connection).await.map_err(failed)?;
        if number.parse::<u32>().is_ok_and(|number| number < OLDEST * 10_000) {
            let version = sqlx::query_scalar("SHOW server_version").fetch_one(&mut connection).await.map_err(failed)?;
            return Err(PostgresOpenError::TooOld { place, version });
        }
        let encoding: String = sqlx::query_scalar("SHOW server_encoding").fetch_one(&mut connection).await.map_err(failed)?;
        if encoding != ENCODING {
            return Err(PostgresOpenError::Encoding { user: place.user.clone(), database: place.database.clone(), place, encoding });
        }
        let wait = format!("SET statement_timeout = 0; SET lock_timeout = {}", MIGRATION_WAIT.as_millis());
        connection.execute(AssertSqlSafe(wait)).await.map_err(failed)?;
        // The lock ends with the connection.
        let lock = sqlx::query("SELECT pg_advisory_lock(hashtextextended('toolsieve.' || $1, 0))").bind(&place.schema);
        lock.execute(&mut connection).await.map_err(|source| PostgresOpenError::of_lock(&place, source, MIGRATION_WAIT))?;
        Ok(Self { place, options, connection })
    }

    async fn exists(&mut self) -> Result<bool, PostgresOpenError> {
        let exists = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = $1)").bind(&self.place.schema);
        exists.fetch_one(&mut self.connection).await.map_err(|source| PostgresOpenError::of(&self.place, source))
    }

    /// Makes the schema the one that statements mean. Refuses that of another program.
    async fn enter(&mut self) -> Result<(), PostgresOpenError> {
        let failed = |source| PostgresOpenError::of(&self.place, source);
        let path = format!("SET search_path TO {}", quoted(&self.place.schema));
        self.connection.execute(AssertSqlSafe(path)).await.map_err(failed)?;
        if belongs_to_us(&mut self.connection).await.map_err(failed)? {
            return Ok(());
        }
        Err(PostgresOpenError::Foreign { place: Arc::clone(&self.place), schema: self.place.schema.clone() })
    }

    /// The number of the last migration; `None` without tables.
    async fn migration(&mut self) -> Result<Option<i64>, PostgresOpenError> {
        let failed = |source| PostgresOpenError::of(&self.place, source);
        let has_migrations = sqlx::query_scalar("SELECT to_regclass('_sqlx_migrations') IS NOT NULL");
        if !has_migrations.fetch_one(&mut self.connection).await.map_err(failed)? {
            return Ok(None);
        }
        sqlx::query_scalar(migrating::NEWEST).fetch_one(&mut self.connection).await.map_err(failed)
    }

    /// Migrates the schema, and opens the connections that use it.
    async fn finish(mut self, settings: &PostgresSettings) -> Result<Opened, PostgresOpenError> {
        migrate(&mut self.connection).await.map_err(|source| PostgresOpenError::of_migration(&self.place, source))?;
        self.connection.close().await.map_err(|source| PostgresOpenError::of(&self.place, source))?;
        let listening = settings.listen_url.as_ref().map_or_else(|| Ok(self.options.clone()), options)?;
        Ok((self.place, pool(self.options, settings, settings.max_connections), pool(listening, settings, 1)))
    }
}

/// Migrates the tables to this version, or leaves those that a newer version has migrated and this one may use.
async fn migrate(connection: &mut PgConnection) -> Result<(), MigrateError> {
    let Err(error) = MIGRATIONS.run(&mut *connection).await else { return Ok(()) };
    let compatible_from = sqlx::query_scalar(migrating::COMPATIBLE_FROM).fetch_one(&mut *connection).await.ok();
    if !migrating::is_bearable(&error, &MIGRATIONS, compatible_from) {
        return Err(error);
    }
    migrating::lenient(&MIGRATIONS).run(&mut *connection).await
}

/// Whether the schema is empty or belongs to this service. A process killed before the first migration leaves only sqlx's own
/// table.
async fn belongs_to_us(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    const QUERY: &str = "SELECT coalesce(obj_description(to_regclass('installation'), 'pg_class') = $1, false) OR NOT EXISTS (\
                         SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename <> '_sqlx_migrations')";
    sqlx::query_scalar(QUERY).bind(OURS).fetch_one(connection).await
}

/// A name in a statement. The settings allow only names without quotes.
fn quoted(name: &str) -> String {
    format!("\"{name}\"")
}

#[cfg(test)]
mod tests {
    use secrecy::SecretString;
    use sqlx::ConnectOptions as _;
    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;

    use super::options;

    /// Regression test: the host `[::1]` was never found.
    #[test]
    fn an_ipv6_address_has_no_brackets() {
        for (url, host) in [
            ("postgres://toolsieve@[::1]:18432/fresh", "::1"),
            ("postgres://toolsieve@127.0.0.1:18432/fresh", "127.0.0.1"),
            ("postgres://toolsieve@db.example.org/fresh", "db.example.org"),
        ] {
            assert_eq!(options(&SecretString::from(url)).unwrap().get_host(), host);
        }
    }

    /// Regression test: `PgBouncer`, as it comes, refuses connections with a parameter that it does not know.
    #[tokio::test]
    async fn a_connection_begins_with_parameters_that_a_pooler_knows() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let options = options(&SecretString::from(format!("postgres://toolsieve@127.0.0.1:{port}/fresh?sslmode=disable"))).unwrap();
        let connecting = tokio::spawn(async move { options.connect().await });
        let (mut stream, _) = listener.accept().await.unwrap();
        let length = stream.read_u32().await.unwrap();
        let mut message = vec![0; length as usize - 4];
        stream.read_exact(&mut message).await.unwrap();
        connecting.abort();
        let texts: Vec<&[u8]> = message.split(|byte| *byte == 0).filter(|text| !text.is_empty()).collect();
        for known in ["user", "database", "client_encoding", "DateStyle", "TimeZone", "application_name"] {
            assert!(texts.contains(&known.as_bytes()), "{known}");
        }
        assert!(!texts.contains(&b"extra_float_digits".as_slice()));
    }
}
