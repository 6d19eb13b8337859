//! A thousand kills, restarts and reloads of one service leave no process, no file descriptor and no memory behind.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use futures::future::join_all;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};

use crate::harness::example;
use crate::harness::process::Service;
use crate::harness::servers::http::HttpServer;
use crate::harness::wait::{eventually, when};

/// Servers that are killed and changed in every round.
const SERVERS: usize = 8;
const ROUNDS: usize = 40;
/// Reloads after each round that add or remove one server and disable or enable a tool of another.
const RELOADS: usize = 8;
/// Rounds after which what the service holds counts as what it needs.
const WARM_UP: usize = 10;
/// What the heap may have grown by since, in KiB. Thirty rounds that lose a page for each of their operations lose 3 MiB.
const GROWTH: u64 = 8 * 1024;

/// The service under test and what was done to it.
struct Trial {
    service: Service,
    client: Client,
    mark: String,
    http: HttpServer,
    sse: HttpServer,
    operations: usize,
}

impl Trial {
    fn servers(&self, round: usize, reload: usize) -> Value {
        let stdio = |words: &[&str]| {
            let args = [&["list=small"][..], words].concat();
            json!({"command": example("test-stdio-server"), "args": args, "env": {"LEAK_MARK": self.mark}})
        };
        let mut servers = json!({"stable": stdio(&[])});
        for number in 0..SERVERS {
            servers[format!("s{number}")] = stdio(&[&format!("round={round}")]);
        }
        if round.is_multiple_of(2) {
            servers["http"] = json!({"type": "streamable-http", "url": format!("http://127.0.0.1:{}/mcp", self.http.port)});
            servers["sse"] = json!({"url": format!("http://127.0.0.1:{}/mcp", self.sse.port)});
        }
        if reload.is_multiple_of(2) {
            servers["extra"] = stdio(&[]);
            servers["stable"]["disabledTools"] = json!(["echo"]);
        }
        servers
    }

    fn reload(&mut self, servers: &Value) {
        self.service.configure(servers);
        self.service.signal(Signal::SIGHUP);
        self.operations += 1;
    }

    async fn call(&self, path: &str) -> (StatusCode, Value) {
        let response = self.client.post(format!("{}{path}", self.service.url)).body("{}").send().await.unwrap();
        (response.status(), response.json().await.unwrap_or_default())
    }

    /// Calls until the answer is right.
    async fn until(&self, path: &str, is_right: impl Fn(StatusCode, &Value) -> bool) -> Value {
        let what = format!("the answer of {path} that the test wants");
        eventually(&what, async || {
            let (status, body) = self.call(path).await;
            if is_right(status, &body) { Ok(body) } else { Err(format!("{status}: {body}\n{}", self.service.log())) }
        })
        .await
    }

    async fn until_status(&self, path: &str, status: StatusCode) {
        self.until(path, |found, _| found == status).await;
    }

    /// The process of a server, once it is one that is meant.
    async fn process(&self, server: &str, is_meant: impl Fn(&Value) -> bool) -> u64 {
        let body = self.until(&format!("/{server}/process"), |status, body| status == StatusCode::OK && is_meant(body)).await;
        body["pid"].as_u64().unwrap()
    }

    /// The whole configuration is in force, and nothing else.
    async fn everything_is_right(&self, round: usize, reload: usize) {
        let ok = |is_there| if is_there { StatusCode::OK } else { StatusCode::NOT_FOUND };
        let with_remote = ok(round.is_multiple_of(2));
        let with_extra = reload.is_multiple_of(2);
        tokio::join!(
            self.until_status("/http/echo", with_remote),
            self.until_status("/sse/echo", with_remote),
            self.until_status("/extra/echo", ok(with_extra)),
            self.until_status("/stable/echo", ok(!with_extra)),
        );
    }

    /// Changes every server, then kills every one.
    async fn round(&mut self, round: usize) {
        // A call that never ends is cut off when its server changes.
        let hanging = (round > 0 && round.is_multiple_of(5)).then(|| {
            let request = self.client.post(format!("{}/s1/sleep", self.service.url)).body("{}").send();
            tokio::spawn(async move { request.await.unwrap().status() })
        });
        self.call("/s0/grandchild").await;
        self.reload(&self.servers(round, 0));
        let word = json!(format!("round={round}"));
        let (word, trial) = (&word, &*self);
        let restarted = (0..SERVERS).map(|number| async move {
            trial.process(&format!("s{number}"), |body| body["arguments"].as_array().unwrap().contains(word)).await
        });
        let processes = join_all(restarted).await;
        let killed = processes.iter().enumerate().map(|(number, process)| async move {
            kill(Pid::from_raw(i32::try_from(*process).unwrap()), Signal::SIGKILL).unwrap();
            trial.process(&format!("s{number}"), |body| body["pid"] != *process).await
        });
        join_all(killed).await;
        self.everything_is_right(round, 0).await;
        if let Some(hanging) = hanging {
            assert_eq!(hanging.await.unwrap(), StatusCode::SERVICE_UNAVAILABLE);
        }
        self.operations += 2 * SERVERS;
    }

    /// Waits until the index has followed, so that nothing goes on in the background.
    async fn settle(&self) {
        eventually("the index has every tool", async || {
            let body: Value = self.client.get(format!("{}/readyz", self.service.url)).send().await.unwrap().json().await.unwrap();
            when(body, |body| body["index"]["documents"] == body["tools"] && body["index"]["embedded"] == body["tools"])
        })
        .await;
    }

    fn folder(&self, name: &str) -> std::path::PathBuf {
        Path::new("/proc").join(self.service.process.id().to_string()).join(name)
    }

    fn descriptors(&self) -> usize {
        fs::read_dir(self.folder("fd")).unwrap().count()
    }

    /// Of the heap and the stacks, in KiB.
    fn memory(&self) -> u64 {
        let status = fs::read_to_string(self.folder("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.trim().trim_end_matches(" kB").trim().parse().unwrap()
    }

    /// Every process with our mark, and every child of the service, dead or alive.
    fn processes(&self) -> HashSet<u32> {
        let mut found = HashSet::new();
        for entry in fs::read_dir("/proc").unwrap().filter_map(Result::ok) {
            let Some(process) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            let is_marked = environment.split(|byte| *byte == 0).any(|variable| variable == format!("LEAK_MARK={}", self.mark).as_bytes());
            let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse::<u32>().ok());
            if is_marked || parent == Some(self.service.process.id()) {
                found.insert(process);
            }
        }
        found
    }

    /// Waits until it is so: what has ended is not gone in the same moment.
    async fn comes_down<T: PartialOrd + std::fmt::Debug>(&self, what: &str, measure: impl Fn() -> T, limit: T) {
        let what = format!("{what}: at most {limit:?}");
        eventually(&what, async || when(measure(), |measured| *measured <= limit).map_err(|measured| format!("{measured:?}"))).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_kills_restarts_and_reloads_leave_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().display().to_string();
    let first = json!({"stable": {"command": example("test-stdio-server"), "args": ["list=small"], "env": {"LEAK_MARK": mark}}});
    let service = Service::start(folder.path(), &first, |command| {
        command.env("TOOLSIEVE_RELOAD__DRAIN_SECONDS", "1").env("TOOLSIEVE_LOG", "warn,toolsieve=info");
    });
    // Each request over a connection of its own: kept ones would be descriptors of the service.
    let client = Client::builder().pool_max_idle_per_host(0).build().unwrap();
    let (http, sse) = (HttpServer::start(&["list=small"]), HttpServer::sse(&["list=small"]));
    let mut trial = Trial { service, client, mark, http, sse, operations: 0 };
    let stable = trial.process("stable", |_| true).await;
    let mut warm = None;
    for round in 0..ROUNDS {
        trial.round(round).await;
        for reload in 1..=RELOADS {
            trial.reload(&trial.servers(round, reload));
            trial.everything_is_right(round, reload).await;
        }
        if round == WARM_UP {
            trial.settle().await;
            warm = Some((trial.descriptors(), trial.memory()));
        }
    }
    assert!(trial.operations >= 1000, "{}", trial.operations);
    assert_eq!(trial.process("stable", |_| true).await, stable, "what never changed was never restarted");

    // The same configuration as at the end of the warm-up.
    trial.reload(&trial.servers(WARM_UP, RELOADS));
    trial.everything_is_right(WARM_UP, RELOADS).await;
    trial.settle().await;
    let (descriptors, memory) = warm.unwrap();
    trial.comes_down("processes", || trial.processes().len(), SERVERS + 2).await;
    trial.comes_down("file descriptors", || trial.descriptors(), descriptors).await;
    trial.comes_down("memory", || trial.memory(), memory + GROWTH).await;
    println!(
        "{} operations; descriptors {descriptors}, then {}; heap {memory} KiB, then {} KiB",
        trial.operations,
        trial.descriptors(),
        trial.memory()
    );

    // Without the servers there is no process, and without the service neither.
    let url = format!("http://127.0.0.1:{}/mcp", trial.http.port);
    trial.reload(&json!({"http": {"type": "streamable-http", "url": url}}));
    trial.until_status("/stable/process", StatusCode::NOT_FOUND).await;
    trial.comes_down("processes", || trial.processes().len(), 0).await;
    trial.reload(&trial.servers(0, 0));
    trial.process("s0", |_| true).await;
    assert_eq!(trial.service.stop().code(), Some(0));
    assert_eq!(trial.processes(), HashSet::new());
}
