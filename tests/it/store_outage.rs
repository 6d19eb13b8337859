//! What a service does while its PostgreSQL server is away, slow or back again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use reqwest::header::RETRY_AFTER;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::harness::keys::{ADMIN, KEY, administer, create, with_key};
use crate::harness::process::Service;
use crate::harness::servers::postgres::Postgres;
use crate::harness::wait::{eventually, when};
use crate::harness::{Running, Start, stdio};

const SECRETS_KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

fn leaked(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

/// A service on this server, with these settings beside.
async fn start(server: &Postgres, settings: &[(&'static str, &'static str)], folder: Option<TempDir>) -> Running {
    let own = [
        ("DATABASE_URL", leaked(server.url())),
        ("TOOLSIEVE_ADMIN_KEY", ADMIN),
        ("TOOLSIEVE_ACCESS__TRUST_USERS", "true"),
        ("TOOLSIEVE_SECRETS_KEY", SECRETS_KEY),
        ("TOOLSIEVE_STORE__CONNECT_TIMEOUT_MS", "2000"),
    ];
    let personal = json!({
        "command": stdio(&[])["command"], "args": stdio(&["list=mail"])["args"], "env": {"TOKEN": "{{secret.token}}"}
    });
    let servers = json!({"one": stdio(&[]), "mine": personal});
    let running = Start { servers, key: Some(KEY), environment: [&own, settings].concat(), folder, ..Start::default() }.start().await;
    running.settled().await;
    running
}

fn server() -> Postgres {
    tokio::task::block_in_place(Postgres::start)
}

fn crash(server: &Postgres) {
    tokio::task::block_in_place(|| server.crash());
}

/// What the changes are about.
struct Kept {
    key: String,
    session: String,
    /// Fingerprints of a tool and of its server, for approvals.
    tool: Value,
    server: Value,
}

/// All routes that change the store, with a body that they accept.
fn changes(kept: &Kept) -> Vec<(Method, String, &'static str, Value)> {
    const TOOL: &str = "/v1/admin/tools/{server}/{tool}";
    const SERVER: &str = "/v1/admin/servers/{server}";
    let Kept { key, session, tool, server } = kept;
    let load = json!({"toolset": "one"});
    let of = |method, path: &str, template, body| (method, path.to_owned(), template, body);
    vec![
        of(Method::PUT, "/v1/secrets/mine/token", "/v1/secrets/{server}/{name}", json!({"value": "geheim"})),
        of(Method::DELETE, "/v1/secrets/mine/token", "/v1/secrets/{server}/{name}", Value::Null),
        of(Method::POST, "/v1/sessions", "/v1/sessions", json!({"tools": ["one__echo"]})),
        of(Method::DELETE, &format!("/v1/sessions/{session}"), "/v1/sessions/{id}", Value::Null),
        of(Method::POST, "/v1/feedback", "/v1/feedback", json!({"chat_id": "chat", "tool": "one__echo", "verdict": "helpful"})),
        of(Method::POST, "/v1/admin/keys", "/v1/admin/keys", json!({"name": "lost"})),
        of(Method::POST, &format!("/v1/admin/keys/{key}/rotate"), "/v1/admin/keys/{id}/rotate", json!({})),
        of(Method::DELETE, &format!("/v1/admin/keys/{key}"), "/v1/admin/keys/{id}", Value::Null),
        of(Method::PUT, "/v1/admin/policy", "/v1/admin/policy", json!({"rules": [{"effect": "block", "tools": ["fail"]}]})),
        of(Method::DELETE, &format!("/v1/admin/sessions/{session}"), "/v1/admin/sessions/{id}", Value::Null),
        of(Method::PUT, "/v1/admin/toolsets/words", "/v1/admin/toolsets/{name}", json!({"tools": ["echo"]})),
        of(Method::DELETE, "/v1/admin/toolsets/kept", "/v1/admin/toolsets/{name}", Value::Null),
        of(Method::DELETE, "/v1/admin/secrets/user%3Aalice", "/v1/admin/secrets/{principal}", Value::Null),
        of(Method::DELETE, "/v1/admin/learning?all=true", "/v1/admin/learning", Value::Null),
        of(Method::PUT, "/v1/admin/enrichment/one/echo", "/v1/admin/enrichment/{server}/{tool}", json!({"function": "Says it again."})),
        of(Method::DELETE, "/v1/admin/enrichment/one/echo", "/v1/admin/enrichment/{server}/{tool}", Value::Null),
        of(Method::PUT, "/v1/admin/tools/one/fail", TOOL, json!({"synonyms": ["broken"]})),
        of(Method::DELETE, "/v1/admin/tools/one/echo", TOOL, Value::Null),
        of(Method::POST, "/v1/admin/tools/one/echo/approve", "/v1/admin/tools/{server}/{tool}/approve", json!({"fingerprint": tool})),
        of(
            Method::POST,
            "/v1/admin/servers/one/definition/approve",
            "/v1/admin/servers/{server}/definition/approve",
            json!({"fingerprint": server}),
        ),
        of(Method::PUT, "/v1/admin/servers/lost", SERVER, json!({"url": NOWHERE})),
        of(Method::PATCH, "/v1/admin/servers/far", SERVER, json!({"enabled": false})),
        of(Method::POST, "/v1/admin/servers/far/restart", "/v1/admin/servers/{server}/restart", Value::Null),
        of(Method::DELETE, "/v1/admin/servers/far", SERVER, Value::Null),
        of(Method::POST, &format!("/s/{session}/v1/toolsets/load"), "/v1/toolsets/load", load.clone()),
        of(Method::POST, &format!("/s/{session}/v1/toolsets/unload"), "/v1/toolsets/unload", load),
        of(Method::POST, &format!("/s/{session}/v1/toolsets/enable"), "/v1/toolsets/enable", json!({"group": "one"})),
    ]
}

/// An address where nobody listens.
const NOWHERE: &str = "http://127.0.0.1:1/mcp";

/// Operations with a body that change nothing in the store, or that depend on uses which the test does not have.
const OTHERS: [&str; 10] = [
    "/v1/filter",
    "/v1/tools/search",
    "/v1/tools/describe",
    "/v1/tools/call",
    "/v1/tools/smart_select",
    "/v1/toolsets/available",
    "/v1/admin/policy/check",
    "/v1/admin/learning/replay",
    "/v1/admin/events/{id}/replay",
    "/v1/admin/tools/{server}/{tool}/try",
];

/// Whoever changes something while the store is away learns that another attempt may succeed.
#[tokio::test(flavor = "multi_thread")]
async fn changes_get_503_with_a_time_to_retry() {
    let server = server();
    let service = start(&server, &[], None).await;
    let (key, _) = create(&service, json!({"name": "kept"})).await;
    let toolset = administer(&service, Method::PUT, "/v1/admin/toolsets/kept", &json!({"tools": ["echo"]})).await;
    assert!(toolset.0.is_success(), "{toolset:?}");
    let (_, session) = service.post("/v1/sessions", &json!({"tools": ["one__echo"]})).await;
    let session = session["id"].as_str().unwrap().to_owned();
    for (path, body) in
        [("/v1/admin/servers/far", json!({"url": NOWHERE})), ("/v1/admin/tools/one/echo", json!({"synonyms": ["loudspeaker"]}))]
    {
        let (status, answer) = administer(&service, Method::PUT, path, &body).await;
        assert!(status.is_success(), "{path}: {answer}");
    }
    let fingerprint = async |path: &str| {
        let (_, answer) = administer(&service, Method::GET, path, &Value::Null).await;
        answer["definition"]["fingerprint"].clone()
    };
    let (tool, of_server) = (fingerprint("/v1/admin/tools/one/echo").await, fingerprint("/v1/admin/servers/one/definition").await);
    assert!(tool.is_string() && of_server.is_string(), "{tool} {of_server}");
    let all = changes(&Kept { key, session, tool, server: of_server });

    let document: Value = serde_json::from_str(include_str!("../../openapi/service.json")).unwrap();
    for (path, operations) in document["paths"].as_object().unwrap() {
        let writes = ["post", "put", "delete", "patch"].into_iter().filter(|method| operations.get(method).is_some());
        for method in writes {
            let is_there =
                |(of, _, template, _): &(Method, String, &str, Value)| of.as_str().eq_ignore_ascii_case(method) && template == path;
            assert!(OTHERS.contains(&path.as_str()) || all.iter().any(is_there), "{method} {path} is not tested");
        }
    }

    crash(&server);
    for (method, path, _, body) in all {
        let key = if path.starts_with("/v1/admin") { ADMIN } else { KEY };
        let request = with_key(&service, method.clone(), &path, key);
        let request = if path.starts_with("/v1/secrets") { request.header("x-openwebui-user-id", "alice") } else { request };
        let request = if body.is_null() { request } else { request.json(&body) };
        let response = request.send().await.unwrap();
        let (status, retry) = (response.status(), response.headers().get(RETRY_AFTER).cloned());
        let text = response.text().await.unwrap();
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{method} {path}: {text}");
        assert_eq!(retry.unwrap(), "3", "{method} {path}");
        let problem: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(problem["code"], "store_unavailable", "{method} {path}: {problem}");
        assert!(!text.contains("geheim"), "{text}");
    }
    service.stop().await;
}

/// Regression test: connections that were opened while the database was read-only stayed in the pool for ever, and all changes got 503.
#[tokio::test(flavor = "multi_thread")]
async fn changes_succeed_again_after_the_database_was_read_only() {
    let server = server();
    let service = start(&server, &[], None).await;
    let create = async |name: &str| administer(&service, Method::POST, "/v1/admin/keys", &json!({"name": name})).await;
    assert_eq!(create("before").await.0, StatusCode::CREATED);
    // Applies to new connections only, as a failover does that lets a proxy choose another server.
    server.run("ALTER DATABASE postgres SET default_transaction_read_only = on").await;
    server.run("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'toolsieve'").await;
    eventually("the service reads, but can't write", async || {
        let (status, answer) = administer(&service, Method::GET, "/v1/admin/usage", &Value::Null).await;
        let (changed, refused) = create("during").await;
        let is_so = status == StatusCode::OK && changed == StatusCode::SERVICE_UNAVAILABLE;
        if is_so { Ok(()) } else { Err(format!("{status} {answer}, {changed} {refused}")) }
    })
    .await;
    // For longer than a read-only connection is kept: reads go on with new ones.
    let until = Instant::now() + Duration::from_secs(7);
    while Instant::now() < until {
        let (status, answer) = administer(&service, Method::GET, "/v1/admin/usage", &Value::Null).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        // As often as a page that somebody has open.
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    server.run("BEGIN READ WRITE; ALTER DATABASE postgres RESET default_transaction_read_only; COMMIT").await;
    eventually("a key can be created again", async || {
        when(create("after").await, |(status, _)| *status == StatusCode::CREATED).map_err(|(status, answer)| format!("{status} {answer}"))
    })
    .await;
    service.stop().await;
}

async fn metric(service: &Running, name: &str) -> f64 {
    let text = with_key(service, Method::GET, "/metrics", ADMIN).send().await.unwrap().text().await.unwrap();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name} in {text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

async fn echo(service: &Running, text: &str) -> StatusCode {
    with_key(service, Method::POST, "/one/echo", KEY).json(&json!({"text": text})).send().await.unwrap().status()
}

/// The calls in the audit log of a service, the oldest first.
async fn audited(url: &str, client: &reqwest::Client) -> Vec<Value> {
    let request = client.get(format!("{url}/v1/admin/audit?action=call&limit=1000")).bearer_auth(ADMIN);
    let body: Value = request.send().await.unwrap().json().await.unwrap();
    body["entries"].as_array().cloned().unwrap_or_default().into_iter().rev().collect()
}

/// What was acknowledged while the store was away is in the audit log and in the sums, once and in its order, although the service
/// was killed before the store was back.
#[tokio::test(flavor = "multi_thread")]
async fn records_wait_on_the_disk_and_are_stored_once() {
    const CALLS: usize = 40;
    let mut server = server();
    let folder = tempfile::tempdir().unwrap();
    let servers = json!({"one": stdio(&[])});
    let url = server.url();
    let run = || {
        tokio::task::block_in_place(|| {
            Service::start(folder.path(), &servers, |command| {
                command.env("DATABASE_URL", &url).env("TOOLSIEVE_ADMIN_KEY", ADMIN).env("TOOLSIEVE_API_KEY", KEY);
                command.env("TOOLSIEVE_ACCESS__TRUST_USERS", "true");
            })
        })
    };
    let client = reqwest::Client::new();
    let call = async |url: &str, number: usize| {
        let user = format!("user-{number}");
        let request = client.post(format!("{url}/one/echo")).bearer_auth(KEY).header("x-openwebui-user-id", user);
        let request = request.json(&json!({"text": "a"}));
        when(request.send().await.unwrap().status(), |status| *status == StatusCode::OK)
    };
    let mut service = run();
    eventually("the server is connected", async || call(&service.url, 0).await).await;
    let before = eventually("the call is in the audit log", async || {
        when(audited(&service.url, &client).await, |all| !all.is_empty()).map_err(|all| format!("{all:?}"))
    })
    .await;
    crash(&server);
    for number in 1..=CALLS {
        call(&service.url, number).await.unwrap();
        // So that there are several batches.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let ready = async || {
        let response = client.get(format!("{}/readyz", service.url)).bearer_auth(ADMIN).send().await.unwrap();
        response.json::<Value>().await.unwrap()
    };
    // Events are collected for half a second, and each attempt may take another one.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let waiting = ready().await;
    assert!(waiting["spool"]["bytes"].as_u64().unwrap() > 0 && waiting["spool"]["error"].is_null(), "{waiting}");
    service.process.kill().unwrap();
    service.process.wait().unwrap();
    tokio::task::block_in_place(|| server.resume());
    let service = run();
    let all = eventually("the calls are in the audit log", async || {
        when(audited(&service.url, &client).await, |all| all.len() >= before.len() + CALLS).map_err(|all| all.len().to_string())
    })
    .await;
    let users: Vec<&str> = all[before.len()..].iter().map(|entry| entry["principal"].as_str().unwrap()).collect();
    let expected: Vec<String> = (1..=CALLS).map(|number| format!("user:user-{number}")).collect();
    assert_eq!(users, expected);
    eventually("nothing waits any more", async || {
        let response = client.get(format!("{}/readyz", service.url)).bearer_auth(ADMIN).send().await.unwrap();
        when(response.json::<Value>().await.unwrap(), |ready| ready["spool"] == json!({"bytes": 0}))
    })
    .await;
    let usage = client.get(format!("{}/v1/admin/usage", service.url)).bearer_auth(ADMIN).send().await.unwrap();
    let usage: Value = usage.json().await.unwrap();
    let calls = &usage["totals"]["called"];
    assert_eq!(calls.as_u64().unwrap(), (before.len() + CALLS) as u64, "{usage}");
}

/// A spool that takes nothing says so everywhere, and nothing is lost as long as memory has room.
#[tokio::test(flavor = "multi_thread")]
async fn a_spool_that_takes_nothing_says_so() {
    let mut server = server();
    let service = start(&server, &[], None).await;
    assert_eq!(echo(&service, "a").await, StatusCode::OK);
    assert_eq!((metric(&service, "toolsieve_spool_up{records=\"audit\"}").await, metric(&service, "toolsieve_leader").await), (1.0, 1.0));
    let audit = service.folder.path().join("data/spool/audit");
    std::fs::remove_dir(&audit).unwrap();
    crash(&server);
    assert_eq!(echo(&service, "b").await, StatusCode::OK);
    let ready = eventually("the spool says that it fails", async || {
        when(administer(&service, Method::GET, "/readyz", &Value::Null).await.1, |ready| ready["spool"]["error"].is_string())
    })
    .await;
    assert!(ready["spool"]["error"].as_str().unwrap().contains("can't be written"), "{ready}");
    assert!(metric(&service, "toolsieve_spool_up{records=\"audit\"}").await < 0.5);
    tokio::task::block_in_place(|| server.resume());
    eventually("the call is in the audit log", async || {
        when(audited(&service.url, &service.client).await, |all| all.len() == 2).map_err(|all| format!("{all:?}"))
    })
    .await;
    assert!(metric(&service, "toolsieve_audit_entries_lost_total").await < 0.5);
    service.stop().await;
}

/// Passes connections on to a server, and holds back each of its answers for a time.
struct Slow {
    port: u16,
    delay: Arc<AtomicU64>,
}

impl Slow {
    async fn before(server: &Postgres) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, to, delay) = (listener.local_addr().unwrap().port(), server.port, Arc::<AtomicU64>::default());
        let held = Arc::clone(&delay);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let held = Arc::clone(&held);
                tokio::spawn(async move {
                    let server = TcpStream::connect(("127.0.0.1", to)).await.unwrap();
                    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) = (client.into_split(), server.into_split());
                    let answers = async {
                        let mut buffer = vec![0; 1 << 16];
                        while let Ok(count @ 1..) = from_server.read(&mut buffer).await {
                            // The store is slow.
                            tokio::time::sleep(Duration::from_millis(held.load(Ordering::Relaxed))).await;
                            if to_client.write_all(&buffer[..count]).await.is_err() {
                                break;
                            }
                        }
                    };
                    tokio::select! {
                        () = answers => {}
                        _ = tokio::io::copy(&mut from_client, &mut to_server) => {}
                    }
                });
            }
        });
        Self { port, delay }
    }

    fn url(&self, server: &Postgres) -> &'static str {
        leaked(server.url().replace(&format!(":{}/", server.port), &format!(":{}/", self.port)))
    }
}

fn names(answer: &Value) -> Vec<String> {
    answer["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// Half a second per response of the store costs a message next to nothing, and no tool of its chat for good.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_store_does_not_slow_messages_down() {
    let server = server();
    let slow = Slow::before(&server).await;
    let service = start(&server, &[("DATABASE_URL", slow.url(&server))], None).await;
    let message = |chat: &str| json!({"messages": [{"role": "user", "content": "say the text again"}], "chat_id": chat});
    let (_, before) = service.post("/v1/filter", &message("before")).await;
    assert_eq!(before["warnings"], json!([]));
    slow.delay.store(500, Ordering::Relaxed);
    // The first message notices it.
    let begun = Instant::now();
    let (status, _) = service.post("/v1/filter", &message("first")).await;
    assert!(status.is_success() && begun.elapsed() < Duration::from_millis(450), "{:?}", begun.elapsed());
    let mut times = Vec::new();
    for number in 0..20 {
        let begun = Instant::now();
        let (status, answer) = service.post("/v1/filter", &message(&format!("chat-{number}"))).await;
        times.push(begun.elapsed());
        assert_eq!((status, names(&answer)), (StatusCode::OK, names(&before)), "{answer}");
        assert!(answer["warnings"].to_string().contains("earlier tools"), "{answer}");
    }
    times.sort_unstable();
    println!("a slow store: {:?} to {:?}, median {:?}", times[0], times[19], times[10]);
    assert!(times[10] < Duration::from_millis(50), "{times:?}");
    slow.delay.store(0, Ordering::Relaxed);
    // Another service knows what was offered meanwhile.
    let other = start(&server, &[], None).await;
    let thanks = json!({"messages": [{"role": "user", "content": "thanks!"}], "chat_id": "chat-7"});
    eventually("the chat's set is stored", async || {
        let answer = other.post("/v1/filter", &thanks).await.1;
        when(answer, |answer| names(&before).iter().all(|name| names(answer).contains(name)))
    })
    .await;
    service.stop().await;
    other.stop().await;
}

/// How many of this number of calls at once, spread over services, are permitted.
async fn permitted(services: &[&Running], user: &str, calls: usize) -> usize {
    let one = async |service: &Running| {
        let request = with_key(service, Method::POST, "/one/echo", KEY).header("x-openwebui-user-id", user);
        request.json(&json!({"text": "a"})).send().await.unwrap().status()
    };
    let all = join_all((0..calls).map(|number| one(services[number % services.len()]))).await;
    assert!(all.iter().all(|status| [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS].contains(status)), "{all:?}");
    all.iter().filter(|status| **status == StatusCode::OK).count()
}

/// Counts how many calls are permitted, each time for another caller, until the number is within this range. A loaded machine may delay an
/// exchange, and then the services permit their shares of what they know to be left: so there are three attempts.
async fn permits(what: &str, expected: std::ops::RangeInclusive<usize>, mut attempt: impl AsyncFnMut(&str) -> usize) {
    let mut counts = Vec::new();
    for number in 0..3 {
        let count = attempt(&format!("{what} {number}").replace(' ', "-")).await;
        assert!(count <= expected.end() * 2, "{what}: {count}");
        counts.push(count);
        if expected.contains(&count) {
            println!("{what}: {counts:?} of {expected:?}");
            return;
        }
    }
    panic!("{what}: {counts:?} of {expected:?}");
}

/// Services on a store share a limit. Without sharing, two of them would permit twice as much.
#[tokio::test(flavor = "multi_thread")]
async fn rate_limits_hold_over_all_services() {
    let server = server();
    let limits = [("TOOLSIEVE_LIMITS__CALLS_PER_MINUTE", "100"), ("TOOLSIEVE_LIMITS__CALL_EXCEPTIONS", "user:few*=5")];
    let (one, other) = (start(&server, &limits, None).await, start(&server, &limits, None).await);
    let both = [&one, &other];
    // Both know of each other.
    tokio::time::sleep(Duration::from_secs(1)).await;
    permits("a burst at both", 90..=110, async |user: &str| permitted(&both, user, 300).await).await;
    permits("a burst at one", 90..=110, async |user: &str| permitted(&[&one], user, 300).await).await;
    permits("many small bursts", 90..=112, async |user: &str| {
        let mut all = 0;
        for _ in 0..12 {
            all += permitted(&both, user, 30).await;
        }
        all
    })
    .await;
    permits("one after the other", 90..=112, async |user: &str| {
        let mut all = 0;
        for number in 0..130 {
            all += permitted(&both[number % 2..=number % 2], user, 1).await;
        }
        all
    })
    .await;
    permits("few at both", 5..=7, async |user: &str| permitted(&both, user, 60).await).await;
    permits("few one after the other", 5..=7, async |user: &str| {
        let mut all = 0;
        for number in 0..20 {
            all += permitted(&both[number % 2..=number % 2], user, 1).await;
        }
        all
    })
    .await;
    one.stop().await;
    other.stop().await;
}

/// The share of a service is its part of the limit among those that it knew last. No call waits for the store.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_store_every_service_keeps_to_its_share_of_a_limit() {
    let server = server();
    let limits = [("TOOLSIEVE_LIMITS__CALLS_PER_MINUTE", "100")];
    let (one, other) = (start(&server, &limits, None).await, start(&server, &limits, None).await);
    // Both know of each other.
    tokio::time::sleep(Duration::from_secs(1)).await;
    crash(&server);
    // At once, and when the loss of the store is known.
    for user in ["at-once", "later"] {
        if user == "later" {
            // A service keeps what it last knew of the others for a few seconds.
            tokio::time::sleep(Duration::from_secs(4)).await;
        }
        for service in [&one, &other] {
            let count = permitted(&[service], user, 120).await;
            assert!((45..=55).contains(&count), "{user}: {count}");
        }
    }
    let begun = Instant::now();
    assert_eq!(permitted(&[&one], "one-more", 1).await, 1);
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    one.stop().await;
    other.stop().await;
}

/// A link to a file works at every service on the store.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_behind_its_link_at_every_service() {
    const WAV: &str = "UklGRiQAAABXQVZF";
    let server = server();
    let start = async || {
        let environment = vec![
            ("DATABASE_URL", leaked(server.url())),
            ("TOOLSIEVE_HTTP__PUBLIC_URL", "https://tools.example.org"),
            ("TOOLSIEVE_FILES__MAX_FILE_BYTES", "1024"),
        ];
        let running = Start { servers: json!({"one": stdio(&["results"])}), key: Some(KEY), environment, ..Start::default() }.start().await;
        running.settled().await;
        running
    };
    let (one, other) = (start().await, start().await);
    let sound = |data: &str| json!({"result": json!({"content": [{"type": "audio", "data": data, "mimeType": "audio/wav"}]}).to_string()});
    let (status, described) = one.post("/one/raw_result", &sound(WAV)).await;
    assert_eq!(status, StatusCode::OK, "{described}");
    let link = described["url"].as_str().unwrap().strip_prefix("https://tools.example.org").unwrap().to_owned();
    for service in [&other, &one] {
        let file = reqwest::get(format!("{}{link}", service.url)).await.unwrap();
        assert_eq!((file.status(), &file.headers()["content-type"]), (StatusCode::OK, &"audio/wav".parse().unwrap()));
        assert_eq!(&file.bytes().await.unwrap()[..], b"RIFF$\0\0\0WAVE");
    }
    let (_, large) = one.post("/one/raw_result", &sound(&WAV.repeat(1_000))).await;
    assert!(large["url"].is_null() && large["note"].is_string(), "{large}");
    assert!(!one.folder.path().join("data/files").read_dir().unwrap().any(|entry| entry.unwrap().file_name() != "key"));

    crash(&server);
    let away = reqwest::get(format!("{}{link}", other.url)).await.unwrap();
    assert_eq!((away.status(), away.headers().contains_key(RETRY_AFTER)), (StatusCode::SERVICE_UNAVAILABLE, true));
    let (status, described) = one.post("/one/raw_result", &sound(WAV)).await;
    assert!(status == StatusCode::OK && described["url"].is_null(), "the call itself succeeds: {described}");
    one.stop().await;
    other.stop().await;
}

/// One service leads, and another one soon after its end, however it ended.
#[tokio::test(flavor = "multi_thread")]
async fn another_service_leads_within_ten_seconds_after_a_leader_was_killed() {
    let server = server();
    let url = server.url();
    let folders: Vec<TempDir> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let run = |folder: &TempDir| {
        tokio::task::block_in_place(|| {
            Service::start(folder.path(), &json!({"one": stdio(&[])}), |command| {
                command.env("DATABASE_URL", &url).env("TOOLSIEVE_ADMIN_KEY", ADMIN);
            })
        })
    };
    let mut services: Vec<Service> = folders.iter().map(run).collect();
    let client = reqwest::Client::new();
    let leaders = async |services: &[Service]| {
        let mut leaders = Vec::new();
        for (position, service) in services.iter().enumerate() {
            let response = client.get(format!("{}/readyz", service.url)).bearer_auth(ADMIN).send().await.unwrap();
            if response.json::<Value>().await.unwrap()["leader"] == true {
                leaders.push(position);
            }
        }
        leaders
    };
    for signal in [nix::sys::signal::Signal::SIGKILL, nix::sys::signal::Signal::SIGTERM] {
        let one = async || when(leaders(&services).await, |leaders| leaders.len() == 1).map_err(|all| format!("{all:?}"));
        let position = eventually("one leads", one).await[0];
        let mut leader = services.remove(position);
        leader.signal(signal);
        let begun = Instant::now();
        let one = async || when(leaders(&services).await, |leaders| leaders.len() == 1).map_err(|all| format!("{all:?}"));
        eventually("another one leads", one).await;
        println!("{signal}: another one leads after {:?}", begun.elapsed());
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        leader.process.wait().unwrap();
    }
    // Whoever can't reach the store does not lead.
    crash(&server);
    eventually("nobody leads", async || when(leaders(&services).await, Vec::is_empty).map_err(|all| format!("{all:?}"))).await;
}
