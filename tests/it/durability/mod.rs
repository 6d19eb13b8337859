//! What was acknowledged is kept and what was refused is not there, on a disk that is full, that can't flush, or whose process is
//! killed in the middle: the built binary, on a disk that fails when it is told to.

mod writes;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use self::writes::{Ask, Seen, Who, Write};
use crate::harness::keys::{ADMIN, KEY, SECRETS_KEY};
use crate::harness::process::disk::{Disk, ENDED, FailingDisk};
use crate::harness::process::{Service, ended};
use crate::harness::wait::within;
use crate::harness::{LONG, example, stdio};

/// Tools that can be approved, one for each attempt.
const TOOLS: usize = 40;

/// Attempts are numbered, so that none meets what another left.
static ATTEMPTS: AtomicUsize = AtomicUsize::new(1);

/// A data folder on a disk that fails.
struct House {
    folder: TempDir,
    disk: FailingDisk,
    client: Client,
    /// Attempts at each write.
    counts: Mutex<HashMap<&'static str, usize>>,
}

/// One write, with what its preparation was answered.
struct Attempt<'a> {
    write: &'a Write,
    words: HashMap<&'static str, String>,
}

impl House {
    fn new() -> Self {
        // Before any client; a later one finds it installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("data")).unwrap();
        let disk = FailingDisk::new(&folder.path().join("data"));
        let house = Self { folder, disk, client: Client::new(), counts: Mutex::default() };
        let mut service = house.start();
        // From now on tools are known at the start.
        service.until_logged("server=box tools=");
        service.until_logged("server=mine tools=");
        assert!(service.stop().success());
        house
    }

    fn start(&self) -> Service {
        let mine = json!({"command": example("test-stdio-server"), "env": {"TOKEN": "{{secret.token}}"}});
        let servers = json!({"box": stdio(&[&format!("tools={TOOLS}")]), "mine": mine});
        self.disk.is(Disk::Works);
        Service::start(self.folder.path(), &servers, |command| {
            // The index writes when it likes.
            self.disk.under(command, Some("/index/"));
            command.env("TOOLSIEVE_API_KEY", KEY).env("TOOLSIEVE_ADMIN_KEY", ADMIN).env("TOOLSIEVE_SECRETS_KEY", SECRETS_KEY);
            command.env("TOOLSIEVE_ACCESS__TRUST_USERS", "true");
        })
    }

    /// Ends the service as a power cut would, as far as a process can, and starts it again.
    fn restarted(&self, mut service: Service) -> Service {
        service.process.kill().unwrap();
        service.process.wait().unwrap();
        self.start()
    }

    fn database(&self) -> PathBuf {
        self.folder.path().join("data/toolsieve.db")
    }
}

impl<'a> Attempt<'a> {
    /// Prepares a write; it is not done.
    async fn prepare(house: &House, service: &Service, write: &'a Write) -> Self {
        let n = ATTEMPTS.fetch_add(1, Ordering::Relaxed).to_string();
        let m = {
            let mut counts = house.counts.lock().unwrap();
            let count = counts.entry(write.name).or_default();
            *count += 1;
            count.to_string()
        };
        let mut attempt = Self { write, words: HashMap::from([("{n}", n), ("{m}", m)]) };
        for ask in &write.before {
            let (status, body) = attempt.send(house, service, ask).await.unwrap();
            assert!(status.is_success(), "{}, before: {status} {body}", write.name);
            let found = [("{id}", "/id"), ("{id}", "/selection_id"), ("{key}", "/key"), ("{fingerprint}", "/definition/fingerprint")];
            for (word, place) in found {
                if let Some(value) = body.pointer(place).and_then(Value::as_str) {
                    attempt.words.insert(word, value.to_owned());
                }
            }
        }
        assert!(!attempt.is_done(house, service).await, "{} is done before it is asked for", write.name);
        attempt
    }

    fn name(&self) -> &'static str {
        self.write.name
    }

    fn filled(&self, text: &str) -> String {
        self.words.iter().fold(text.to_owned(), |text, (word, value)| text.replace(word, value))
    }

    /// `None`: the connection ended without an answer.
    async fn send(&self, house: &House, service: &Service, ask: &Ask) -> Option<(StatusCode, Value)> {
        let request = house.client.request(ask.method.clone(), format!("{}{}", service.url, self.filled(ask.path)));
        let request = match ask.who {
            Who::Admin => request.bearer_auth(ADMIN),
            Who::Key => request.bearer_auth(&self.words["{key}"]),
            Who::User => request.bearer_auth(KEY).header("X-OpenWebUI-User-Id", &self.words["{n}"]),
        };
        let request = match &ask.body {
            Some(body) => request.header("content-type", "application/json").body(self.filled(&body.to_string())),
            None => request,
        };
        let response = request.send().await.ok()?;
        let status = response.status();
        Some((status, serde_json::from_slice(&response.bytes().await.ok()?).unwrap_or_default()))
    }

    async fn write(&self, house: &House, service: &Service) -> Option<(StatusCode, Value)> {
        self.send(house, service, &self.write.ask).await
    }

    /// Whether the service, and where it can't be asked its database, says so.
    async fn is_done(&self, house: &House, service: &Service) -> bool {
        match &self.write.seen {
            Seen::Status(ask, done) => self.send(house, service, ask).await.unwrap().0.as_u16() == *done,
            Seen::Body(ask, is_done) => is_done(&self.send(house, service, ask).await.unwrap().1, &self.words["{n}"]),
            Seen::Row(query) => has_row(&house.database(), &self.filled(query)).await,
        }
    }

    /// Sends the write while nobody can write, and leaves before it is answered.
    async fn cut_off(&self, house: &House, service: &Service, patience: Duration) {
        let mut other = connect(&house.database()).await;
        sqlx::query("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
        let Ask { who, method, path, body } = &self.write.ask;
        let (key, user) = match who {
            Who::Admin => (ADMIN, ""),
            Who::Key => (self.words["{key}"].as_str(), ""),
            Who::User => (KEY, self.words["{n}"].as_str()),
        };
        let user = if user.is_empty() { String::new() } else { format!("X-OpenWebUI-User-Id: {user}\r\n") };
        let (path, body) = (self.filled(path), body.as_ref().map(|body| self.filled(&body.to_string())).unwrap_or_default());
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {key}\r\n{user}Content-Length: {length}\r\n\r\n{body}"
        );
        let mut connection = std::net::TcpStream::connect(service.url.strip_prefix("http://").unwrap()).unwrap();
        std::io::Write::write_all(&mut connection, request.as_bytes()).unwrap();
        // The caller's time until it gives up: shorter than what the write would wait for, or longer.
        tokio::time::sleep(patience).await;
        drop(connection);
        sqlx::query("ROLLBACK").execute(&mut other).await.unwrap();
    }

    /// Waits for what was begun, if it was.
    async fn is_done_soon(&self, house: &House, service: &Service) -> bool {
        within(Duration::from_secs(1), async || self.is_done(house, service).await).await.is_ok()
    }

    async fn refused(&self, house: &House, service: &Service) {
        let hits = house.disk.hits();
        let (status, body) = self.write(house, service).await.unwrap_or_else(|| panic!("{}: no answer", self.name()));
        assert!(status.is_server_error(), "{}: {status} {body}", self.name());
        assert!(body["detail"].as_str().is_some_and(|detail| detail.contains("nothing was changed")), "{}: {body}", self.name());
        assert!(house.disk.hits() > hits, "{}: the disk was not asked", self.name());
        assert!(!self.is_done(house, service).await, "{} was refused, and is there", self.name());
    }

    async fn acknowledged(&self, house: &House, service: &Service) {
        let (status, body) = self.write(house, service).await.unwrap_or_else(|| panic!("{}: no answer", self.name()));
        assert!(status.is_success(), "{}: {status} {body}", self.name());
        assert!(self.is_done(house, service).await, "{} was acknowledged, and is not there", self.name());
    }
}

async fn connect(database: &Path) -> sqlx::SqliteConnection {
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(database);
    sqlx::ConnectOptions::connect(&options).await.unwrap()
}

async fn has_row(database: &Path, query: &str) -> bool {
    let mut connection = connect(database).await;
    sqlx::query(sqlx::AssertSqlSafe(query)).fetch_optional(&mut connection).await.unwrap().is_some()
}

/// A user saw: 200 for a rule on a full disk, the rule in force, and after the next start the blocked tool running again.
#[tokio::test(flavor = "multi_thread")]
async fn on_a_full_disk_nothing_is_acknowledged_and_afterwards_everything_is_kept() {
    fails_and_works_again(Disk::Full).await;
}

/// As above, for a disk that takes writes and fails to flush them.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_flush_nothing_is_acknowledged_and_afterwards_everything_is_kept() {
    fails_and_works_again(Disk::NoFlush).await;
}

async fn fails_and_works_again(disk: Disk) {
    let house = House::new();
    let writes = writes::all();
    // What was refused is not there after a kill either.
    let service = house.start();
    let mut refused = Vec::new();
    for write in &writes {
        let attempt = Attempt::prepare(&house, &service, write).await;
        house.disk.is(disk);
        attempt.refused(&house, &service).await;
        house.disk.is(Disk::Works);
        refused.push(attempt);
    }
    house.disk.is(disk);
    let last = Attempt::prepare(&house, &service, &writes[1]).await;
    last.refused(&house, &service).await;
    refused.push(last);
    let service = house.restarted(service);
    for attempt in &refused {
        assert!(!attempt.is_done(&house, &service).await, "{} was refused, and is there after a restart", attempt.name());
    }
    // The same process goes on when the disk does, and keeps what it acknowledges from then on.
    let mut acknowledged = Vec::new();
    for write in &writes {
        let attempt = Attempt::prepare(&house, &service, write).await;
        house.disk.is(disk);
        attempt.refused(&house, &service).await;
        house.disk.is(Disk::Works);
        attempt.acknowledged(&house, &service).await;
        acknowledged.push(attempt);
    }
    let service = house.restarted(service);
    for attempt in &acknowledged {
        assert!(attempt.is_done(&house, &service).await, "{} was acknowledged, and is not there after a restart", attempt.name());
    }
}

/// Each write, killed at its first step, its second, and so on until it is done.
#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_step_a_write_is_there_as_a_whole_or_not_at_all() {
    let house = House::new();
    let mut service = house.start();
    for write in &writes::all() {
        let mut steps = 0;
        loop {
            steps += 1;
            let attempt = Attempt::prepare(&house, &service, write).await;
            house.disk.is(Disk::Ends(steps));
            let answer = attempt.write(&house, &service).await;
            house.disk.is(Disk::Works);
            match answer {
                None => {
                    assert_eq!(ended(&mut service.process).code(), Some(ENDED), "{} at step {steps}", attempt.name());
                    service = house.start();
                }
                Some((status, body)) => {
                    assert!(status.is_success(), "{}: {status} {body}", attempt.name());
                    service = house.restarted(service);
                    assert!(
                        attempt.is_done(&house, &service).await,
                        "{} was acknowledged, and is not there after a restart",
                        attempt.name()
                    );
                    break;
                }
            }
        }
        assert!(steps > 2, "{} is written in {steps} steps", write.name);
    }
}

/// A user saw: after a request that was cut off, a revoked key that is let in, and 412 for every further change of the rules.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_begun_is_finished_when_its_caller_leaves_and_memory_follows_the_store() {
    let house = House::new();
    let service = house.start();
    let (writes, mut attempts) = (writes::all(), Vec::new());
    for write in &writes {
        // Nobody tells when a request has come as far as the store: so it is given longer each time.
        let mut patience = Duration::from_millis(20);
        loop {
            let attempt = Attempt::prepare(&house, &service, write).await;
            attempt.cut_off(&house, &service, patience).await;
            let is_done = attempt.is_done_soon(&house, &service).await;
            attempts.push((attempt, is_done));
            if is_done {
                break;
            }
            patience *= 2;
            assert!(patience < LONG, "{} was begun, and is never finished", write.name);
        }
        // And the next one is taken.
        Attempt::prepare(&house, &service, write).await.acknowledged(&house, &service).await;
    }
    let mut seen = Vec::new();
    for (attempt, _) in &attempts {
        seen.push(attempt.is_done(&house, &service).await);
    }
    let service = house.restarted(service);
    for ((attempt, _), before) in attempts.iter().zip(seen) {
        assert_eq!(attempt.is_done(&house, &service).await, before, "{}: memory and store differ", attempt.name());
    }
}
