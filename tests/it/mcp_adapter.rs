//! The adapter to MCP servers, against real processes and real HTTP servers of our own (`tests/servers/`).

mod answers;
mod configure;
mod floods;
mod replaced;
mod sse;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use indexmap::IndexMap;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use toolsieve::adapters::mcp::{McpServers, Options, Processes, Questions, Timing, client_builder};
use toolsieve::domain::access::principal::Principal;
use toolsieve::domain::catalog::tool::{ServerName, ToolId};
use toolsieve::domain::text::json_text::JsonText;
use toolsieve::service::ports::{CallContext, CallError, Progress, ServerEvent, ServerListing, ServerPhase, ServerState, ToolServers};
use toolsieve::settings::servers::{RemoteSettings, ServerSettings, TransportSettings};
use toolsieve::settings::{PerUserSettings, UserConnectionSettings, Validation};

use crate::harness::servers::http::HttpServer;
use crate::harness::wait::eventually;
use crate::harness::{LONG, example};

/// What ends "promptly" ends well before any timeout that is set here, on a loaded machine too.
const PROMPT: Duration = Duration::from_secs(15);
/// The end of all servers comes before this: after 8 s the adapter would wait no longer for one that does not end.
const ENDED: Duration = Duration::from_secs(5);

const QUICK: Timing = Timing {
    first_retry: Duration::from_millis(50),
    longest_retry: Duration::from_millis(400),
    stable_after: Duration::from_secs(10),
    debounce: Duration::from_millis(20),
    refresh: Duration::from_hours(1),
    list_timeout: LONG,
    patience: Duration::from_millis(900),
    start_patience: LONG,
    drain: Duration::from_secs(2),
    ping: None,
    ping_timeout: PROMPT,
};

fn settings(name: &str, transport: TransportSettings) -> ServerSettings {
    ServerSettings {
        name: ServerName::from(name),
        transport,
        call_timeout: LONG,
        start_timeout: LONG,
        disabled_tools: Vec::new(),
        tags: Vec::new(),
        max_result_bytes: 16 << 20,
        remote: RemoteSettings::default(),
        max_text_bytes: None,
        compact_results: false,
        validation: Validation::Strict,
        per_user: PerUserSettings::default(),
        sandbox: None,
    }
}

fn command(name: &str, command: &str, args: &[&str]) -> ServerSettings {
    let args = args.iter().map(ToString::to_string).collect();
    let command = command.to_owned();
    settings(name, TransportSettings::Stdio { command, args, env: IndexMap::new(), directory: None })
}

fn stdio(name: &str, words: &[&str]) -> ServerSettings {
    command(name, example("test-stdio-server").to_str().unwrap(), words)
}

fn with_env(mut settings: ServerSettings, name: &str, value: &str) -> ServerSettings {
    if let TransportSettings::Stdio { env, .. } = &mut settings.transport {
        env.insert(name.to_owned(), SecretString::from(value));
    }
    settings
}

impl HttpServer {
    fn settings(&self, name: &str, headers: &[(&str, &str)]) -> ServerSettings {
        let url = format!("http://127.0.0.1:{}/mcp", self.port).parse().unwrap();
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), SecretString::from(*value))).collect();
        settings(name, TransportSettings::StreamableHttp { url, headers })
    }

    fn sse_settings(&self, name: &str, headers: &[(&str, &str)]) -> ServerSettings {
        let TransportSettings::StreamableHttp { url, headers } = self.settings(name, headers).transport else { panic!() };
        settings(name, TransportSettings::Sse { url, headers })
    }
}

/// The adapter under test, and the events that it has sent.
struct Running {
    servers: Arc<McpServers>,
    events: mpsc::Receiver<ServerEvent>,
    /// What kind of server the test talks to, for the message of a failure.
    kind: &'static str,
    _http: Option<HttpServer>,
}

fn start_with(settings: Vec<ServerSettings>, timing: Timing, inherit_environment: bool) -> Running {
    let _ = rustls::crypto::ring::default_provider().install_default();
    start_over(client_builder().no_proxy().build().unwrap(), settings, timing, inherit_environment)
}

fn start_over(client: reqwest::Client, settings: Vec<ServerSettings>, timing: Timing, inherit_environment: bool) -> Running {
    let servers = McpServers::start(
        settings,
        Options {
            client,
            processes: Arc::new(Processes { inherit_environment, ..Processes::default() }),
            oauth: None,
            timing,
            users: UserConnectionSettings::default(),
            questions: Questions::default(),
        },
    );
    let events = servers.events();
    Running { servers, events, kind: "", _http: None }
}

fn start(settings: Vec<ServerSettings>) -> Running {
    start_with(settings, QUICK, false)
}

/// A server called `test` over every transport and in every form that one has, connected.
async fn each(words: &[&str], change: impl Fn(&mut ServerSettings)) -> Vec<Running> {
    let mut all = Vec::new();
    for (kind, more) in [("stdio", None), ("events", Some(None)), ("json", Some(Some("json"))), ("modern", Some(Some("modern")))] {
        let http = more.map(|word: Option<&str>| HttpServer::start(&[words, word.as_slice()].concat()));
        let mut settings = http.as_ref().map_or_else(|| stdio("test", words), |http| http.settings("test", &[]));
        change(&mut settings);
        all.push(connected(kind, settings, http).await);
    }
    let http = HttpServer::sse(words);
    let mut settings = http.sse_settings("test", &[]);
    change(&mut settings);
    all.push(connected("sse", settings, Some(http)).await);
    all
}

async fn connected(kind: &'static str, settings: ServerSettings, http: Option<HttpServer>) -> Running {
    let Running { servers, events, .. } = start(vec![settings]);
    let mut running = Running { servers, events, kind, _http: http };
    running.listed("test").await;
    running
}

fn context() -> CallContext {
    CallContext::new(Arc::new(Principal::anyone()))
}

fn raw(json: &str) -> Arc<RawValue> {
    RawValue::from_string(json.to_owned()).unwrap().into()
}

fn read(result: &RawValue) -> Value {
    serde_json::from_str(result.get()).unwrap()
}

impl Running {
    async fn event(&mut self) -> ServerEvent {
        self.find(Some).await
    }

    async fn listed(&mut self, name: &str) -> ServerListing {
        self.find(|event| match event {
            ServerEvent::Listed(listing) | ServerEvent::ListedForUser { listing, .. } if listing.server.as_str() == name => Some(listing),
            _ => None,
        })
        .await
    }

    async fn failed(&mut self, name: &str) -> String {
        self.find(|event| match event {
            ServerEvent::Failed { server, reason, .. } if server.as_str() == name => Some(reason),
            _ => None,
        })
        .await
    }

    /// The first event that a new follower gets.
    async fn present(&self) -> Option<ServerEvent> {
        timeout(LONG, self.servers.events().recv()).await.expect("an event in time")
    }

    /// The next event that is meant; others are passed over.
    async fn find<T>(&mut self, is_meant: impl Fn(ServerEvent) -> Option<T>) -> T {
        let found = async {
            loop {
                let event = self.events.recv().await.expect("the stream goes on");
                if let Some(found) = is_meant(event) {
                    return found;
                }
            }
        };
        timeout(LONG, found).await.expect("the event in time")
    }

    fn state(&self, name: &str) -> ServerState {
        self.servers.states().into_iter().find(|state| state.server.as_str() == name).unwrap()
    }

    async fn try_call(&self, server: &str, tool: &str, arguments: Value) -> Result<Value, CallError> {
        let id = ToolId::new(server, tool);
        let call = self.servers.call(&id, raw(&arguments.to_string()), context());
        let result = timeout(LONG, call).await.unwrap_or_else(|_| panic!("{}: {tool} hangs", self.kind));
        result.map(|result| read(&result))
    }

    async fn call(&self, tool: &str, arguments: Value) -> Value {
        self.try_call("test", tool, arguments).await.unwrap_or_else(|error| panic!("{}: {tool}: {error}", self.kind))
    }

    async fn text(&self, tool: &str, arguments: Value) -> String {
        self.call(tool, arguments).await["content"][0]["text"].as_str().unwrap().to_owned()
    }

    async fn number(&self, tool: &str, member: &str) -> u64 {
        self.call(tool, json!({})).await["structuredContent"][member].as_u64().unwrap()
    }

    /// A call in the background that the server does not answer; the server has it when this returns.
    async fn sleeping(&self, call: CallContext) -> tokio::task::JoinHandle<Result<Box<RawValue>, CallError>> {
        let servers = Arc::clone(&self.servers);
        let task = tokio::spawn(async move { servers.call(&ToolId::new("test", "sleep"), raw("{}"), call).await });
        self.call("wait_sleeping", json!({})).await;
        task
    }
}

fn names(listing: &ServerListing) -> Vec<&str> {
    #[derive(Deserialize)]
    struct Named<'a> {
        name: &'a str,
    }
    listing.tools.iter().map(|tool| serde_json::from_str::<Named<'_>>(tool.as_str()).unwrap().name).collect()
}

fn is_alive(pid: u64) -> bool {
    // A process that is dead but was not yet collected by its parent is a zombie.
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.rsplit(')').next().unwrap().trim_start().starts_with('Z'))
}

fn kill(pid: u64) {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_listed_as_it_describes_itself() {
    for server in each(&["tools=2"], |_| {}).await {
        let Some(ServerEvent::Listed(listing)) = server.present().await else { panic!("the present state comes first") };
        assert_eq!(&names(&listing)[..2], ["echo", "sleep"], "{}", server.kind);
        assert_eq!(names(&listing).last(), Some(&"extra_2"));
        let echo = r#"{"name":"echo","description":"The tool echo.","inputSchema":{"type":"object"}}"#;
        assert_eq!(listing.tools[0].to_string(), echo);
        assert_eq!(listing.title.as_deref(), Some(if server.kind == "modern" { "test" } else { "Test server" }));
        assert_eq!(listing.version.as_deref(), Some("1.2.3"));
        assert_eq!(listing.instructions.as_deref(), Some("Use it for tests."));
        let state = server.state("test");
        assert_eq!((state.phase, state.tools, state.error), (ServerPhase::Connected, listing.tools.len(), None));
        let protocol = if server.kind == "modern" { "2026-07-28" } else { "2025-11-25" };
        assert_eq!(state.protocol.as_deref(), Some(protocol));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_page_is_read_and_an_endless_list_is_not() {
    for mut server in each(&["tools=30", "page=7"], |_| {}).await {
        let paged = server.present().await;
        let Some(ServerEvent::Listed(listing)) = paged else { panic!("{paged:?}") };
        assert_eq!(names(&listing).last(), Some(&"extra_30"), "{}", server.kind);
        assert!(listing.skipped.is_empty());
        server.servers.shut_down().await;
        timeout(LONG, async { while server.events.recv().await.is_some() {} }).await.expect("an end in time");
    }
    for server in each(&["tools=3", "page=4", "cursor-loop"], |_| {}).await {
        let Some(ServerEvent::Listed(listing)) = server.present().await else { panic!("not listed") };
        assert_eq!(names(&listing), ["echo", "sleep", "wait_sleeping", "wait_cancelled"], "{}", server.kind);
        assert!(listing.skipped.iter().any(|skipped| skipped.tool == "everything after page 2"), "{:?}", listing.skipped);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_tool_does_not_hide_the_others() {
    for server in each(&["malformed-tools"], |_| {}).await {
        let Some(ServerEvent::Listed(listing)) = server.present().await else { panic!("not listed") };
        let names = names(&listing);
        assert!(names.contains(&"echo") && names.contains(&"peculiar") && !names.contains(&"bad"));
        let peculiar = r#"{"zeta":1,"name":"peculiar","inputSchema":{"type":"object","x-b":1,"a":2},"annotations":{"readOnlyHint":"true"},"execution":{"taskSupport":"optional"}}"#;
        assert_eq!(listing.tools.last().unwrap().to_string(), peculiar);
        let mut tools = listing.tools.iter().map(JsonText::value);
        let echo = tools.find(|tool| tool["name"] == "echo").unwrap();
        assert_eq!(echo["description"], "The tool echo.", "the first of a name wins");
        let skipped: Vec<&str> = listing.skipped.iter().map(|skipped| &*skipped.tool).collect();
        assert_eq!(skipped, ["bad", "tool 2", "echo"], "{}", server.kind);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_is_kept_whole() {
    let odd = r#"{"zeta":[1,2.5,null],"content":[{"type":"hologram","data":"x","depth":3},{"type":"text","text":"a","annotations":{"audience":["user"],"unknown":1},"_meta":{"k":1}},{"type":"audio","data":"AAAA","mimeType":"audio/wav"}],"structuredContent":[1,2],"_meta":{"vendor/key":{"b":1,"a":2}},"alpha":true}"#;
    for server in each(&[], |_| {}).await {
        assert_eq!(server.call("odd", json!({})).await.to_string(), odd, "{}", server.kind);
        let arguments = json!({"b": {"z": [1, "é", null]}, "a": 1.5});
        let echo = server.call("echo", arguments.clone()).await;
        assert_eq!(echo["structuredContent"].to_string(), arguments.to_string());
        let failed = server.call("fail", json!({})).await;
        assert_eq!((&failed["isError"], &failed["content"][0]["text"]), (&json!(true), &json!("disk full")));
        assert_eq!(server.call("string_id", json!({})).await, json!({"content": []}), "{}", server.kind);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arguments_and_results_are_never_touched() {
    let odd = r#"{"b": 12345678901234567890123, "a": [1.0, 1e999, 0.10, 9007199254740993], "é": "\u00e9\/"}"#;
    for server in each(&["results"], |_| {}).await {
        let call = async |tool: &str, arguments: &str| {
            server.servers.call(&ToolId::new("test", tool), raw(arguments), context()).await.unwrap().get().to_owned()
        };
        let got = call("raw_arguments", odd).await;
        assert_eq!(read(&raw(&got))["content"][0]["text"], format!("got {odd}"), "{}", server.kind);
        let result = format!(r#"{{"content":[ ],"structuredContent":{odd}}}"#);
        assert_eq!(call("raw_result", &json!({"result": result}).to_string()).await, result, "{}", server.kind);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_and_rubbish_end_one_call_at_once_and_only_that() {
    for server in each(&[], |_| {}).await {
        let error = server.try_call("test", "error", json!({})).await.unwrap_err();
        assert!(matches!(&error, CallError::Protocol { code: -32050, message, .. } if message == "bad luck"), "{error:?}");
        let error = server.try_call("test", "long_error", json!({})).await.unwrap_err();
        let CallError::Protocol { message, .. } = error else { panic!("{error:?}") };
        assert!(message.starts_with("one twoéé") && message.chars().count() == 4000, "{}: {message:.20}", server.kind);
        let error = server.try_call("test", "odd_error", json!({})).await.unwrap_err();
        assert!(matches!(error, CallError::Protocol { code: 99_999_999_999, .. }), "{error:?}");
        let start = Instant::now();
        let error = server.try_call("test", "not_json", json!({})).await.unwrap_err();
        assert!(matches!(error, CallError::Protocol { code: -32700, .. }), "{}: {error:?}", server.kind);
        assert!(start.elapsed() < PROMPT, "{}", server.kind);
        assert_eq!(server.text("junk", json!({})).await, "after junk", "{}", server.kind);
        let error = server.servers.call(&ToolId::new("nobody", "echo"), raw("{}"), context()).await.unwrap_err();
        assert!(matches!(error, CallError::UnknownServer));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_over_the_limit_ends_the_call_at_once_and_only_that() {
    for server in each(&[], |settings| settings.max_result_bytes = 100_000).await {
        // Over the result's limit, and over what the transport takes in at all.
        for bytes in [200_000, 20 << 20] {
            let start = Instant::now();
            let error = server.try_call("test", "huge", json!({"bytes": bytes})).await.unwrap_err();
            assert!(matches!(error, CallError::TooLarge { limit: 100_000 }), "{} {bytes}: {error:?}", server.kind);
            assert!(start.elapsed() < LONG / 2, "{}", server.kind);
        }
        assert_eq!(server.text("huge", json!({"bytes": 90_000})).await.len(), 90_000, "{}", server.kind);
        assert_eq!(server.state("test").phase, ServerPhase::Connected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_do_not_wait_for_each_other() {
    for server in each(&[], |_| {}).await {
        let tasks: Vec<_> = (0..40)
            .map(|_| {
                let servers = Arc::clone(&server.servers);
                tokio::spawn(async move { servers.call(&ToolId::new("test", "sleep"), raw("{}"), context()).await })
            })
            .collect();
        server.call("wait_sleeping", json!({"count": 40})).await;
        server.call("echo", json!({})).await;
        tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_reaches_the_caller_in_order() {
    for server in each(&[], |_| {}).await {
        assert_eq!(server.text("progress", json!({"steps": 1})).await, "true", "without a listener none is asked for");
        // Answers in one piece have no room for it.
        if server.kind == "json" {
            continue;
        }
        let (sender, mut receiver) = mpsc::channel(64);
        let call = CallContext { progress: Some(sender), ..context() };
        let tool = ToolId::new("test", "progress");
        let result = server.servers.call(&tool, raw(r#"{"steps":20}"#), call).await.unwrap();
        assert_eq!(read(&result)["content"][0]["text"], "false");
        let mut steps = Vec::new();
        receiver.close();
        while let Some(Progress { progress, total, message }) = receiver.recv().await {
            assert_eq!((total, message), (Some(10.5), Some(format!("step {progress}"))));
            steps.push(progress);
        }
        assert_eq!(steps, (1..=20).map(f64::from).collect::<Vec<_>>(), "{}", server.kind);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_a_call_cancels_it_at_the_server() {
    // In the newer era there is no such message: the stream is closed.
    for server in each(&[], |_| {}).await.into_iter().filter(|server| server.kind != "modern") {
        let call = server.sleeping(context()).await;
        call.abort();
        server.text("wait_cancelled", json!({})).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_takes_too_long_ends_and_is_cancelled_at_the_server() {
    for server in each(&[], |settings| settings.call_timeout = Duration::from_millis(1500)).await {
        let start = Instant::now();
        let call = server.sleeping(context()).await;
        let error = call.await.unwrap().unwrap_err();
        assert!(matches!(error, CallError::Timeout(limit) if limit == Duration::from_millis(1500)), "{error:?}");
        assert!(start.elapsed() >= Duration::from_millis(1500));
        if server.kind != "modern" {
            server.text("wait_cancelled", json!({})).await;
        }
        let deadline = Some(Instant::now() + Duration::from_millis(100));
        let error = server.sleeping(CallContext { deadline, ..context() }).await.await.unwrap().unwrap_err();
        assert!(matches!(error, CallError::Timeout(limit) if limit <= Duration::from_millis(100)), "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_tools_is_followed() {
    for mut server in each(&[], |_| {}).await {
        // The stream for news is opened after the first list.
        let listing = eventually("a new list", async || {
            server.call("add_tool", json!({})).await;
            timeout(Duration::from_millis(500), server.listed("test")).await
        })
        .await;
        assert!(names(&listing).contains(&"extra_1"), "{}", server.kind);
        assert_eq!(server.state("test").tools, listing.tools.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_that_speaks_only_the_newer_protocol_is_understood() {
    let mut server = start(vec![stdio("test", &["modern"])]);
    server.listed("test").await;
    assert_eq!(server.state("test").protocol.as_deref(), Some("2026-07-28"));
    server.call("echo", json!({})).await;
    server.call("add_tool", json!({})).await;
    assert!(names(&server.listed("test").await).contains(&"extra_1"));
    server.sleeping(context()).await.abort();
    server.text("wait_cancelled", json!({})).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_learns_who_asks_and_gets_no_for_what_is_not_offered() {
    for server in each(&[], |_| {}).await.into_iter().filter(|server| ["stdio", "events"].contains(&server.kind)) {
        let client = server.call("client", json!({})).await;
        let client = &client["structuredContent"];
        assert_eq!(client["clientInfo"], json!({"name": "toolsieve", "version": env!("CARGO_PKG_VERSION")}));
        assert_eq!((&client["protocolVersion"], &client["capabilities"]), (&json!("2025-11-25"), &json!({})));
        let result = server.call("ask", json!({})).await;
        let answers = &result["structuredContent"]["answers"];
        assert_eq!(answers[0]["error"]["code"], -32601, "sampling: {answers}");
        assert_eq!(answers[1]["error"]["code"], -32601, "roots: {answers}");
        assert_eq!(answers[2]["error"]["code"], -32601, "elicitation: {answers}");
        assert_eq!(answers[3]["result"], json!({}), "ping: {answers}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_in_flight_end_when_the_server_dies() {
    for mut server in each(&[], |_| {}).await {
        let sleeping = server.sleeping(context()).await;
        let start = Instant::now();
        let error = server.try_call("test", "die", json!({})).await.unwrap_err();
        assert!(matches!(error, CallError::Unavailable { sent: true, .. }), "{}: {error:?}", server.kind);
        let error = timeout(LONG, sleeping).await.unwrap().unwrap().unwrap_err();
        assert!(matches!(error, CallError::Unavailable { sent: true, .. }), "{}: {error:?}", server.kind);
        assert!(start.elapsed() < PROMPT, "{}", server.kind);
        let reason = server.failed("test").await;
        if server.kind == "stdio" {
            assert!(reason.contains("exited with status 3"), "{reason}");
            server.listed("test").await;
            server.call("echo", json!({})).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_child_is_back_for_the_next_call() {
    let timing = Timing { stable_after: Duration::ZERO, patience: LONG, ..QUICK };
    let mut server = start_with(vec![stdio("test", &[])], timing, false);
    server.listed("test").await;
    let mut pid = server.number("process", "pid").await;
    for _ in 0..3 {
        kill(pid);
        eventually("the death", async || !is_alive(pid)).await;
        // The service has noticed the death, so the call waits for the new process.
        assert!(server.failed("test").await.contains("ended by signal 9"));
        let next = server.number("process", "pid").await;
        assert_ne!(next, pid);
        pid = next;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_fails_at_first_is_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let marker = format!("die-once={}", folder.path().join("marker").display());
    let mut server = start(vec![stdio("test", &[&marker])]);
    assert!(server.failed("test").await.contains("exited with status 5"));
    server.listed("test").await;
    assert_eq!(server.state("test").phase, ServerPhase::Connected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_server_neither_delays_nor_hides_a_good_one() {
    let broken = HttpServer::start(&["status=500"]);
    let mut gone = HttpServer::start(&[]);
    gone.kill();
    let mut server = start(vec![
        command("missing", "no-such-command-anywhere", &[]),
        command("no-file", "/no/such/file", &[]),
        with_env(stdio("refuses", &["refuse-start"]), "TEST_SECRET", "hunter2222"),
        command("silent", "sleep", &["1000"]),
        command("not-mcp", "yes", &[]),
        stdio("no-list", &["no-list"]),
        broken.settings("broken", &[("x-key", "hunter2222")]),
        gone.settings("gone", &[]),
        stdio("test", &[]),
    ]);
    let start = Instant::now();
    server.call("echo", json!({})).await;
    assert!(start.elapsed() < LONG / 2);
    let expected = [
        ("missing", "command `no-such-command-anywhere` not found in PATH"),
        ("no-file", "command `/no/such/file` not found"),
        ("refuses", "exited with status 4: fatal: no key ***"),
        ("broken", "HTTP 500"),
        ("gone", "can't connect"),
        ("not-mcp", "its standard output contains too many lines that are not messages"),
    ];
    for (name, reason) in expected {
        eventually(name, async || server.state(name).error.is_some()).await;
        let state = server.state(name);
        assert!(state.error.as_ref().unwrap().contains(reason), "{name}: {:?}", state.error);
        assert_eq!(state.phase, ServerPhase::Retrying);
        assert!(!format!("{state:?}").contains("hunter2222"));
    }
    for name in ["silent", "no-list"] {
        assert_eq!(server.state(name).phase, ServerPhase::Starting);
    }
    let order: Vec<String> = server.servers.states().iter().map(|state| state.server.to_string()).collect();
    assert_eq!(order, ["missing", "no-file", "refuses", "silent", "not-mcp", "no-list", "broken", "gone", "test"]);
    assert_eq!(server.state("test").phase, ServerPhase::Connected);
    timeout(LONG, server.servers.shut_down()).await.unwrap();
    while timeout(LONG, server.events.recv()).await.unwrap().is_some() {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_waits_for_the_first_start_but_not_for_a_server_that_is_down() {
    // The next try comes after the time for which a call would wait for one.
    let timing = Timing { first_retry: 4 * LONG, longest_retry: 4 * LONG, patience: LONG, ..QUICK };
    let servers = vec![stdio("test", &["slow-start=1500"]), command("missing", "no-such-command-anywhere", &[])];
    let mut server = start_with(servers, timing, false);
    server.failed("missing").await;
    assert_eq!(server.state("test").phase, ServerPhase::Starting);
    let deadline = Some(Instant::now() + Duration::from_millis(50));
    let call = CallContext { deadline, ..context() };
    let error = server.servers.call(&ToolId::new("test", "echo"), raw("{}"), call).await.unwrap_err();
    assert!(matches!(&error, CallError::Unavailable { reason, .. } if reason == "it is still starting"), "{error:?}");
    server.call("echo", json!({})).await;

    // Nor for ever, where the start hangs.
    let timing = Timing { start_patience: Duration::from_millis(50), ..timing };
    let hung = start_with(vec![command("test", "sleep", &["1000"])], timing, false);
    let error = hung.try_call("test", "echo", json!({})).await.unwrap_err();
    assert!(matches!(&error, CallError::Unavailable { reason, .. } if reason == "it is still starting"), "{error:?}");

    let start = Instant::now();
    let error = server.try_call("missing", "echo", json!({})).await.unwrap_err();
    let CallError::Unavailable { reason, retry_after, sent: false } = error else { panic!("{error:?}") };
    assert!(reason.contains("not found in PATH") && retry_after <= 4 * LONG && retry_after > LONG);
    assert!(start.elapsed() < PROMPT, "it fails at once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_takes_too_long_is_given_up_and_its_process_ended() {
    // The second one ends by itself once its input is closed, which explains nothing.
    for waits in ["exec sleep 1000", "while read -r line; do :; done"] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let script = format!("echo $$ > {}; echo still loading >&2; {waits}", file.display());
        let mut settings = command("test", "sh", &["-c", &script]);
        settings.start_timeout = Duration::from_millis(500);
        let mut server = start_with(vec![settings], Timing { first_retry: LONG, ..QUICK }, false);
        assert_eq!(server.failed("test").await, "no answer within 0.5 s: still loading", "{waits}");
        let pid = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
        eventually("the end of the process", async || !is_alive(pid)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_gets_the_allowed_environment_and_what_is_configured() {
    for inherits in [false, true] {
        let settings = with_env(stdio("test", &["a b", ";$(exit) \"'"]), "MY_TOKEN", "s3cret-value");
        let mut server = start_with(vec![settings], QUICK, inherits);
        server.listed("test").await;
        let environment = server.call("environment", json!({})).await;
        let environment = environment["structuredContent"].as_object().unwrap().clone();
        assert_eq!(environment["MY_TOKEN"], "s3cret-value");
        assert_eq!(environment["PATH"].as_str().unwrap(), std::env::var("PATH").unwrap());
        assert!(std::env::var("CARGO_MANIFEST_DIR").is_ok(), "cargo sets it for tests");
        assert_eq!(environment.contains_key("CARGO_MANIFEST_DIR"), inherits);
        let allowed = ["PATH", "HOME", "USER", "LANG", "TMPDIR", "SHELL", "TERM", "MY_TOKEN"];
        let foreign: Vec<&String> = environment
            .keys()
            .filter(|name| !allowed.contains(&name.as_str()) && !name.starts_with("LC_") && !name.starts_with("XDG_"))
            .filter(|name| !name.to_lowercase().ends_with("_proxy"))
            .collect();
        assert_eq!(foreign.is_empty(), !inherits, "{foreign:?}");
        let process = server.call("process", json!({})).await;
        assert_eq!(process["structuredContent"]["arguments"], json!(["a b", ";$(exit) \"'"]));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_runs_in_its_working_directory() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let in_folder = |name: &str, folder: PathBuf| {
        let mut settings = stdio(name, &[]);
        if let TransportSettings::Stdio { directory, .. } = &mut settings.transport {
            *directory = Some(folder);
        }
        settings
    };
    let mut server = start(vec![in_folder("test", folder.clone()), in_folder("lost", folder.join("missing"))]);
    server.listed("test").await;
    let process = server.call("process", json!({})).await;
    assert_eq!(process["structuredContent"]["directory"], json!(folder));
    let reason = format!("the working directory {} does not exist", folder.join("missing").display());
    eventually("the failure", async || server.state("lost").error.as_deref() == Some(reason.as_str())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_process_is_left() {
    let program = example("test-stdio-server");
    let stubborn = format!("trap '' TERM; exec {} ignore-end", program.display());
    let deaf = command("test", "sh", &["-c", &stubborn]);
    for settings in [stdio("test", &[]), stdio("test", &["ignore-end"]), deaf] {
        let mut server = start(vec![settings]);
        server.listed("test").await;
        let child = server.number("process", "pid").await;
        let grandchild = server.number("grandchild", "pid").await;
        assert!(is_alive(child) && is_alive(grandchild));
        server.servers.shut_down().await;
        eventually("the end of both", async || !is_alive(child) && !is_alive(grandchild)).await;
    }
    // Nor after a restart, nor when the adapter is dropped.
    let mut server = start(vec![stdio("test", &[])]);
    server.listed("test").await;
    let grandchild = server.number("grandchild", "pid").await;
    kill(server.number("process", "pid").await);
    server.listed("test").await;
    eventually("the end of the grandchild", async || !is_alive(grandchild)).await;
    let child = server.number("process", "pid").await;
    drop(server);
    eventually("the end of the child", async || !is_alive(child)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_http_server_is_used_again_without_a_failed_call() {
    for word in ["no-get", "bad-session=400", "json"] {
        let mut http = HttpServer::start(&["no-get", word]);
        // A kept connection of the killed server could swallow the call, and nobody would know whether it was seen.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = client_builder().no_proxy().pool_max_idle_per_host(0).build().unwrap();
        let mut server = start_over(client, vec![http.settings("test", &[])], QUICK, false);
        server.kind = word;
        server.listed("test").await;
        server.call("echo", json!({})).await;
        let port = format!("port={}", http.port);
        http.kill();
        let _http = HttpServer::start(&["no-get", word, "tools=1", &port]);
        server.call("echo", json!({})).await;
        assert!(names(&server.listed("test").await).contains(&"extra_1"), "{word}");
    }
}

/// Resolves each name to this machine, but first fails this many times.
#[derive(Clone, Default)]
struct Flaky(Arc<AtomicUsize>);

impl Resolve for Flaky {
    fn resolve(&self, _name: Name) -> Resolving {
        let fails = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |failures| failures.checked_sub(1)).is_ok();
        Box::pin(async move {
            let found: Addrs = Box::new(std::iter::once(SocketAddr::from(([127, 0, 0, 1], 0))));
            if fails { Err("no address".into()) } else { Ok(found) }
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_could_not_be_sent_is_sent_again_over_the_same_connection() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let flaky = Flaky::default();
    let client = client_builder().no_proxy().pool_max_idle_per_host(0).dns_resolver(Arc::new(flaky.clone())).build().unwrap();
    let http = HttpServer::start(&["no-get"]);
    let mut settings = http.settings("test", &[]);
    if let TransportSettings::StreamableHttp { url, .. } = &mut settings.transport {
        url.set_host(Some("flaky.example")).unwrap();
    }
    let mut server = start_over(client, vec![settings], QUICK, false);
    server.listed("test").await;
    flaky.0.store(1, Ordering::Relaxed);
    server.call("echo", json!({})).await;
    assert_eq!(flaky.0.load(Ordering::Relaxed), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_http_server_that_is_down_is_noticed_and_found_again() {
    for word in ["no-get", "modern", "json"] {
        let mut http = HttpServer::start(&[word]);
        let mut server = start(vec![http.settings("test", &[])]);
        server.kind = word;
        server.listed("test").await;
        let port = format!("port={}", http.port);
        http.kill();
        let start = Instant::now();
        let error = server.try_call("test", "echo", json!({})).await.unwrap_err();
        assert!(matches!(error, CallError::Unavailable { .. }), "{word}: {error:?}");
        assert!(start.elapsed() < PROMPT, "{word}");
        let reason = server.failed("test").await;
        assert!(reason.contains("can't connect") || reason.contains("connection"), "{word}: {reason}");
        assert!(!reason.contains("127.0.0.1"), "no URL: {reason}");
        let _http = HttpServer::start(&[word, &port]);
        server.listed("test").await;
        server.call("echo", json!({})).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_http_server_is_watched() {
    // Its stream for news breaks off.
    let mut http = HttpServer::start(&[]);
    let mut server = start(vec![http.settings("test", &[])]);
    server.listed("test").await;
    eventually("the stream for news", async || server.state("test").phase == ServerPhase::Connected).await;
    server.call("echo", json!({})).await;
    http.kill();
    server.failed("test").await;
    // Without one it is listed from time to time.
    let mut http = HttpServer::start(&["no-get"]);
    let timing = Timing { refresh: Duration::from_millis(50), ..QUICK };
    let mut server = start_with(vec![http.settings("test", &[])], timing, false);
    server.listed("test").await;
    server.call("add_tool", json!({})).await;
    server.listed("test").await;
    http.kill();
    server.failed("test").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn configured_headers_go_to_the_server_and_nowhere_else() {
    let http = HttpServer::start(&["key=open-sesame"]);
    let away = format!("redirect=http://127.0.0.1:{}/mcp", http.port);
    let elsewhere = HttpServer::start(&[&away]);
    let mut server = start(vec![
        http.settings("test", &[("X-Key", "open-sesame")]),
        http.settings("wrong", &[("X-Key", "barley")]),
        http.settings("reserved", &[("Mcp-Session-Id", "x")]),
        elsewhere.settings("redirected", &[("X-Key", "open-sesame")]),
    ]);
    server.listed("test").await;
    server.call("echo", json!({})).await;
    let expected = [
        ("wrong", "HTTP 401 Unauthorized"),
        ("reserved", "the configured header `Mcp-Session-Id` is not valid"),
        ("redirected", "HTTP 307 Temporary Redirect: only redirects to the same origin with status 307 or 308 are followed"),
    ];
    for (name, reason) in expected {
        eventually(name, async || server.state(name).error.as_deref() == Some(reason)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_http_refuses_is_not_taken_for_a_lost_connection() {
    for status in [401, 403, 429, 500, 502, 503, 504] {
        let http = HttpServer::start(&[&format!("call-status={status}")]);
        let mut server = start(vec![http.settings("test", &[])]);
        server.listed("test").await;
        let error = server.try_call("test", "echo", json!({})).await.unwrap_err();
        // A proxy answers with the last three if it doesn't reach the server.
        match error {
            CallError::Refused { status: found, .. } => assert!(found == status && status < 502, "{error:?}"),
            _ => assert!(matches!(error, CallError::Unavailable { .. }) && status >= 502, "{error:?}"),
        }
        assert_eq!(server.state("test").phase, ServerPhase::Connected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_too_many_calls_says_when_to_try_again() {
    let times = [("7", Some(Duration::from_secs(7))), ("Fri, 31 Dec 1999 23:59:59 GMT", Some(Duration::ZERO)), ("in the year 2000", None)];
    for (seconds, expected) in times {
        let http = HttpServer::start(&["call-status=429", &format!("retry-after={seconds}")]);
        let mut server = start(vec![http.settings("test", &[])]);
        server.listed("test").await;
        let error = server.try_call("test", "echo", json!({})).await.unwrap_err();
        let CallError::Refused { status: 429, retry_after } = error else { panic!("{error:?}") };
        assert_eq!(retry_after, expected);
    }
    let http = HttpServer::start(&["call-status=503", "retry-after=7"]);
    let mut server = start(vec![http.settings("test", &[])]);
    server.listed("test").await;
    let error = server.try_call("test", "echo", json!({})).await.unwrap_err();
    let CallError::Unavailable { retry_after, sent: false, .. } = error else { panic!("{error:?}") };
    assert_eq!(retry_after, Duration::from_secs(7));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_configured_secret_is_in_the_reason_of_a_failure() {
    let script = "echo \"bad token $1, bad key $2, bad line second-line\" >&2; exit 1";
    let local = command("local", "sh", &["-c", script, "--token", "arg-secret", "--api-key=key-secret"]);
    let local = with_env(local, "PEM", "first-line\nsecond-line");
    let http = HttpServer::start(&["quote-refusal"]);
    let mut remote = http.settings("remote", &[("authorization", "Bearer head-secret")]);
    if let TransportSettings::StreamableHttp { url, .. } = &mut remote.transport {
        url.set_query(Some("key=query-secret"));
    }
    let mut server = start(vec![local, remote]);
    let mut reasons = [String::new(), String::new()];
    for (name, reason) in ["local", "remote"].into_iter().zip(&mut reasons) {
        eventually(name, async || server.state(name).error.is_some()).await;
        *reason = server.state(name).error.unwrap();
    }
    assert_eq!(reasons[0], "`sh` exited with status 1: bad token ***, bad key --api-key=***, bad line ***");
    assert_eq!(reasons[1], "the server rejected the handshake: no ***, no ***, (-32000)");
    for _ in 0..2 {
        if let ServerEvent::Failed { reason, .. } = server.event().await {
            assert!(reasons.contains(&reason), "{reason}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_changes_without_end_is_listed_ever_less_often() {
    let mut server = start(vec![stdio("test", &["restless"])]);
    let start = Instant::now();
    server.listed("test").await;
    eventually("six lists", async || server.text("lists", json!({})).await.parse::<u32>().unwrap() >= 6).await;
    // 20 + 40 + 80 + 160 + 320 ms
    assert!(start.elapsed() >= Duration::from_millis(600), "{:?}", start.elapsed());
    // Nor does the pause hold up the end.
    let start = Instant::now();
    server.servers.shut_down().await;
    assert!(start.elapsed() < ENDED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_can_be_added_changed_and_removed() {
    let mut server = start(vec![stdio("test", &[]), stdio("other", &[])]);
    server.listed("test").await;
    eventually("the other", async || server.state("other").phase == ServerPhase::Connected).await;
    let pid = server.number("process", "pid").await;
    let other = ToolId::new("other", "process");
    let process = server.servers.call(&other, raw("{}"), context()).await.unwrap();
    let former = read(&process)["structuredContent"]["pid"].as_u64().unwrap();

    server.servers.configure(vec![stdio("new", &[]), stdio("other", &["tools=1"]), stdio("test", &[])]);
    while !names(&server.listed("other").await).contains(&"extra_1") {}
    assert!(!is_alive(former));
    assert_eq!(server.number("process", "pid").await, pid, "what has not changed stays");

    server.servers.configure(vec![stdio("new", &[])]);
    let mut removed = Vec::new();
    while removed.len() < 2 {
        if let ServerEvent::Removed { server } = server.event().await {
            removed.push(server.to_string());
        }
    }
    removed.sort();
    assert_eq!(removed, ["other", "test"]);
    let error = server.try_call("test", "echo", json!({})).await.unwrap_err();
    assert!(matches!(error, CallError::UnknownServer));
    eventually("the end of the removed", async || !is_alive(pid)).await;
    server.try_call("new", "echo", json!({})).await.unwrap();
}

/// Collects what is logged on this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn standard_error_is_logged_and_calls_are_not() {
    // In a process of its own: what other tests log at the same time would decide what this thread's log is asked for.
    const ALONE: &str = "TOOLSIEVE_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let name = "mcp_adapter::standard_error_is_logged_and_calls_are_not";
        let mut alone = tokio::process::Command::new(std::env::current_exe().unwrap());
        let output = alone.args([name, "--exact"]).env(ALONE, "1").output().await.unwrap();
        let report = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && report.contains("1 passed"), "{report}");
        return;
    }
    let log = Log::default();
    let sink = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter("toolsieve=trace,mcp_server=trace")
        .with_ansi(false)
        .with_writer(move || sink.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let mut server = start(vec![with_env(stdio("test", &[]), "MY_TOKEN", "s3cret-value")]);
    server.listed("test").await;
    server.call("echo", json!({"argument": "my-private-argument"})).await;
    server.call("junk", json!({})).await;
    let written = format!("\u{1b}[31mred\u{1b}[0m \u{202e}turned s3cret-value\n{}\n", "x".repeat(10_000));
    server.call("stderr", json!({"text": written})).await;
    let read = || String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
    eventually("the line", async || read().contains("red turned ***") && read().contains("xxxx")).await;
    server.try_call("test", "die", json!({})).await.unwrap_err();
    eventually("the failure", async || read().contains("exited with status 3")).await;
    let text = read();
    assert!(text.contains("mcp_server") && text.contains("server=test"), "{text}");
    assert!(text.lines().all(|line| line.len() < 3000), "long lines are cut");
    for secret in ["s3cret-value", "my-private-argument", "after junk", "\u{1b}", "\u{202e}"] {
        assert!(!text.contains(secret), "{secret:?} in the log");
    }
}
