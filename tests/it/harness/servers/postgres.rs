//! A real PostgreSQL server, started by the tests as a user that is not root.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use secrecy::SecretString;
use sqlx::{Connection as _, PgConnection};
use tempfile::TempDir;
use toolsieve::adapters::store::PostgresStore;
use toolsieve::settings::PostgresSettings;

use crate::harness::wait::eventually_blocking;

/// Where Debian has the programs of each version.
const VERSIONS: &str = "/usr/lib/postgresql";
const OLDEST: u32 = 15;
/// The user "nobody". The server refuses to run as root.
const NOBODY: u32 = 65_534;
/// Stops the server when the process of the tests closes its end of the pipe, however it ended. Then removes the folder.
const KEEPER: &str =
    "folder=$1; shift; \"$@\" & server=$!; cat >/dev/null; kill -INT $server 2>/dev/null; wait $server; rm -rf \"$folder\"";

pub(crate) const USER: &str = "tester";
/// Has what a URL must encode.
pub(crate) const PASSWORD: &str = "geheim/?#@:%";
const ENCODED: &str = "geheim%2F%3F%23%40%3A%25";

/// A server with a folder of its own.
pub(crate) struct Postgres {
    folder: PathBuf,
    pub(crate) port: u16,
    keeper: Option<Child>,
}

/// The server that tests share. Each uses a schema of its own.
pub(crate) fn shared() -> &'static Postgres {
    static SHARED: LazyLock<Postgres> = LazyLock::new(Postgres::start);
    &SHARED
}

/// A name that no other test uses.
pub(crate) fn schema() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// An empty store on the shared server.
pub(crate) async fn empty_store() -> (PostgresStore, ()) {
    (PostgresStore::open(&shared().settings(&schema())).await.unwrap(), ())
}

/// The folder with the programs of the newest version.
fn programs() -> PathBuf {
    let versions = fs::read_dir(VERSIONS).into_iter().flatten().flatten();
    let version = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let found = versions.map(|entry| entry.path()).filter(|path| path.join("bin/postgres").is_file());
    let newest = found.filter_map(|path| Some((version(&path)?, path))).filter(|(version, _)| *version >= OLDEST).max();
    let missing = "PostgreSQL 15 or later is missing, which tests of the store need: apt-get install postgresql";
    newest.unwrap_or_else(|| panic!("{missing}")).1.join("bin")
}

/// The command, as "nobody" if the tests run as root.
fn unprivileged(program: impl AsRef<std::ffi::OsStr>, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("LC_ALL", "C.UTF-8").current_dir(folder);
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

/// A folder of the unprivileged user. Its keeper removes it, because nothing is dropped at the end of the tests.
fn folder() -> PathBuf {
    let folder = TempDir::with_prefix("toolsieve-postgres-").unwrap().keep();
    if rustix::process::geteuid().is_root() {
        chown(&folder, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    folder
}

fn succeed(command: &mut Command) {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// A command that runs as long as the process of the tests. Then its folder is removed.
fn keeper(folder: &Path) -> Command {
    let mut keeper = unprivileged("sh", folder);
    keeper.args(["-c", KEEPER, "sh"]).arg(folder).stdin(Stdio::piped());
    keeper
}

/// An empty cluster, which each server gets a copy of: creating one takes seconds.
fn empty_cluster() -> PathBuf {
    static CLUSTER: LazyLock<(PathBuf, Child)> = LazyLock::new(|| {
        let folder = folder();
        let (password, data) = (folder.join("password"), folder.join("data"));
        fs::write(&password, PASSWORD).unwrap();
        if rustix::process::geteuid().is_root() {
            chown(&password, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let mut initdb = unprivileged(programs().join("initdb"), &folder);
        initdb.args(["--auth=scram-sha-256", "--encoding=UTF8", "--no-sync", "--username", USER, "--pwfile=password", "--pgdata"]);
        succeed(initdb.arg(&data));
        // Keeps the folder alone.
        (data, keeper(&folder).arg("true").spawn().unwrap())
    });
    CLUSTER.0.clone()
}

impl Postgres {
    /// Creates a cluster and starts its server.
    pub(crate) fn start() -> Self {
        let folder = folder();
        succeed(unprivileged("cp", &folder).args(["-a", "--reflink=auto"]).arg(empty_cluster()).arg(folder.join("data")));
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut server = Self { folder, port, keeper: None };
        server.resume();
        server
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Starts the server again, and waits until it accepts connections.
    pub(crate) fn resume(&mut self) {
        let mut keeper = keeper(&self.folder);
        keeper.arg(programs().join("postgres")).arg("-D").arg(self.data());
        let port = format!("port={}", self.port);
        let socket = format!("unix_socket_directories={}", self.folder.display());
        // Without flushes: the machine does not crash, only the server.
        for setting in [&port, &socket, "listen_addresses=127.0.0.1", "max_connections=400", "fsync=off", "shared_buffers=64MB"] {
            keeper.args(["-c", setting]);
        }
        let log = fs::File::options().create(true).append(true).open(self.folder.join("log")).unwrap();
        let keeper = keeper.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        // The former keeper would remove the folder.
        if let Some(mut former) = self.keeper.replace(keeper) {
            former.kill().unwrap();
            former.wait().unwrap();
        }
        let ready = || {
            let pid = fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
            if pid.lines().nth(7).is_some_and(|line| line.trim() == "ready") { Ok(()) } else { Err(self.log()) }
        };
        eventually_blocking("the PostgreSQL server is ready", ready);
    }

    /// Ends the server at once, as a crash would, and waits for the end of all its processes.
    pub(crate) fn crash(&self) {
        let pids = self.processes();
        for pid in &pids {
            // A process may have ended already.
            let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
        }
        let is_gone = |pid: &i32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.is_empty() || stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z'))
        };
        eventually_blocking("the processes of the server end", || pids.iter().all(is_gone));
        // What a crash leaves and a later start may take for another running server.
        let _ = fs::remove_file(self.data().join("postmaster.pid"));
    }

    /// The server and its processes.
    fn processes(&self) -> Vec<i32> {
        let pid = fs::read_to_string(self.data().join("postmaster.pid")).unwrap();
        let postmaster: i32 = pid.lines().next().unwrap().parse().unwrap();
        let children = fs::read_to_string(format!("/proc/{postmaster}/task/{postmaster}/children")).unwrap_or_default();
        std::iter::once(postmaster).chain(children.split_whitespace().map(|pid| pid.parse().unwrap())).collect()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// The address of the database that the tests use.
    pub(crate) fn url(&self) -> String {
        self.url_of(&format!("{USER}:{ENCODED}"), "postgres")
    }

    pub(crate) fn url_of(&self, user: &str, database: &str) -> String {
        format!("postgres://{user}@127.0.0.1:{}/{database}", self.port)
    }

    pub(crate) fn settings(&self, schema: &str) -> PostgresSettings {
        PostgresSettings {
            url: SecretString::from(self.url()),
            listen_url: None,
            schema: schema.to_owned(),
            max_connections: 10,
            connect_timeout: Duration::from_secs(10),
            statement_timeout: Duration::from_secs(30),
        }
    }

    pub(crate) async fn connect(&self) -> PgConnection {
        PgConnection::connect(&self.url()).await.unwrap()
    }

    /// Runs these statements as the administrator.
    pub(crate) async fn run(&self, statements: &str) {
        let mut connection = self.connect().await;
        sqlx::raw_sql(sqlx::AssertSqlSafe(statements)).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    }

    /// The user that the server runs as.
    pub(crate) fn owner(&self) -> u32 {
        fs::metadata(self.data()).unwrap().uid()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(mut keeper) = self.keeper.take() {
            drop(keeper.stdin.take());
            let _ = keeper.wait();
        }
    }
}
