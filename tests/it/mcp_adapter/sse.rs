//! The older transport: finding out who speaks it, and its own faults. What all transports share is tested above.

use std::process::{Command, Stdio};

use super::*;
use crate::harness::data;

async fn error_of(server: &Running, name: &str) -> String {
    eventually(name, async || server.state(name).error.is_some()).await;
    server.state(name).error.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_server_speaks_is_found_out() {
    for words in [&[][..], &["json"], &["no-get"], &["bad-session=400"], &["modern"]] {
        let http = HttpServer::start(words);
        let settings = ServerSettings { start_timeout: Duration::from_secs(2), ..http.sse_settings("test", &[]) };
        let mut server = start(vec![settings]);
        server.listed("test").await;
        server.call("echo", json!({})).await;
    }
    let http = HttpServer::sse(&["key=open-sesame"]);
    let mut server = start(vec![http.settings("test", &[("X-Key", "open-sesame")])]);
    let unauthorized = start(vec![http.sse_settings("sse", &[("X-Key", "barley")]), http.settings("http", &[])]);
    server.listed("test").await;
    server.call("echo", json!({})).await;
    assert_eq!(error_of(&unauthorized, "sse").await, "HTTP 401 Unauthorized");
    // To a post at the stream's address it says 405, then 401 to who asks for the stream: the first one counts.
    assert_eq!(error_of(&unauthorized, "http").await, "HTTP 405 Method Not Allowed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_go_to_no_other_origin() {
    let elsewhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    elsewhere.set_nonblocking(true).unwrap();
    let http = HttpServer::sse(&[&format!("endpoint=http://{}/messages", elsewhere.local_addr().unwrap())]);
    let server = start(vec![http.sse_settings("test", &[("Authorization", "Bearer hunter22")])]);
    let reason = error_of(&server, "test").await;
    assert_eq!(reason, "the event stream names a message endpoint at another origin");
    assert_eq!(elsewhere.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "nobody came");

    let http = HttpServer::sse(&["endpoint=messages"]);
    start(vec![http.sse_settings("test", &[])]).listed("test").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_names_no_address_is_given_up() {
    let http = HttpServer::sse(&["silent"]);
    let mut settings = http.sse_settings("test", &[]);
    settings.start_timeout = Duration::from_secs(1);
    let server = start(vec![settings]);
    let reason = error_of(&server, "test").await;
    assert_eq!(reason, "neither over SSE (no message endpoint within 0.5 s) nor over streamable HTTP (HTTP 405 Method Not Allowed)");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_breaks_off_is_opened_again() {
    let http = HttpServer::sse(&[]);
    let mut server = start(vec![http.sse_settings("test", &[])]);
    server.listed("test").await;
    let sleeping = server.sleeping(context()).await;
    let begun = Instant::now();
    let error = server.try_call("test", "cut", json!({})).await.unwrap_err();
    assert!(matches!(error, CallError::Unavailable { .. }), "{error:?}");
    assert!(matches!(timeout(LONG, sleeping).await.unwrap().unwrap(), Err(CallError::Unavailable { .. })));
    assert!(begun.elapsed() < PROMPT);
    server.failed("test").await;
    server.listed("test").await;
    server.call("echo", json!({})).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_down_or_restarted_is_found_again() {
    let mut http = HttpServer::sse(&["key=k"]);
    let mut server = start(vec![http.sse_settings("test", &[("x-key", "k")])]);
    server.listed("test").await;
    let port = format!("port={}", http.port);
    http.kill();
    let reason = server.failed("test").await;
    assert!(reason.contains("closed") || reason.contains("connect"), "{reason}");
    let begun = Instant::now();
    let error = server.try_call("test", "echo", json!({})).await.unwrap_err();
    assert!(matches!(error, CallError::Unavailable { .. }) && begun.elapsed() < PROMPT, "{error:?}");
    let _http = HttpServer::sse(&["key=k", "tools=1", &port]);
    assert!(names(&server.listed("test").await).contains(&"extra_1"));
    server.call("echo", json!({})).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_falls_silent_is_noticed() {
    let http = HttpServer::sse(&[]);
    let timing = Timing { refresh: Duration::from_millis(50), list_timeout: Duration::from_millis(300), ..QUICK };
    let mut settings = http.sse_settings("test", &[]);
    settings.start_timeout = Duration::from_secs(1);
    let mut server = start_with(vec![settings], timing, false);
    server.listed("test").await;
    let process = nix::unistd::Pid::from_raw(i32::try_from(http.process.id()).unwrap());
    nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGSTOP).unwrap();
    let reason = server.failed("test").await;
    assert_eq!(reason, "no list of tools within 1 s");
    nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGCONT).unwrap();
    server.listed("test").await;
    server.call("echo", json!({})).await;
}

/// Its connection was closed again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_list_is_no_broken_stream() {
    let http = HttpServer::sse(&["slow-list=300"]);
    let timing = Timing { refresh: Duration::from_millis(50), list_timeout: Duration::from_millis(100), ..QUICK };
    let mut server = start_with(vec![http.sse_settings("test", &[])], timing, false);
    server.listed("test").await;
    eventually("more lists", async || server.text("lists", json!({})).await.parse::<usize>().unwrap() >= 3).await;
    let state = server.state("test");
    assert_eq!((state.phase, state.error), (ServerPhase::Connected, None));
}

/// One refused post closed the connection, and with it the calls of everybody else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_calls_outlive_refused_lists() {
    for (status, phase) in [(429, ServerPhase::Connected), (503, ServerPhase::Retrying)] {
        let http = HttpServer::sse(&[&format!("list-status={status}")]);
        let timing = Timing { refresh: Duration::from_millis(50), ..QUICK };
        let mut server = start_with(vec![http.sse_settings("test", &[])], timing, false);
        server.listed("test").await;
        let sleeping = server.sleeping(context()).await;
        let reason = server.failed("test").await;
        assert!(reason.contains(&status.to_string()), "{reason}");
        let lists = async || server.text("lists", json!({})).await.parse::<usize>().unwrap();
        let until = lists().await + 4;
        eventually("more lists", async || lists().await >= until).await;
        assert!(!sleeping.is_finished(), "{status}");
        assert_eq!(server.state("test").phase, ServerPhase::Connected, "{status}");
        sleeping.abort();
        eventually("the phase without calls", async || server.state("test").phase == phase).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_counts_from_the_stream_and_not_from_the_post() {
    let http = HttpServer::sse(&["late-answers"]);
    let mut server = start(vec![http.sse_settings("test", &[])]);
    server.listed("test").await;
    // A post is answered when the stream ends: a call that waited for it would time out.
    for _ in 0..20 {
        server.call("echo", json!({})).await;
    }
}

/// A server of the official TypeScript SDK. `tests/run` installs it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_server_is_understood() {
    let Some(config) = data::quickstart("a real server of the older transport") else { return };
    let config: Value = serde_json::from_slice(&std::fs::read(config).unwrap()).unwrap();
    let script = config["mcpServers"]["everything"]["args"][0].as_str().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let process = Command::new("node").args([script, "sse"]).env("PORT", port.to_string()).stderr(Stdio::null()).spawn().unwrap();
    let http = HttpServer::foreign(process, port);
    let url = format!("http://127.0.0.1:{port}/sse").parse().unwrap();
    let mut server = start(vec![settings("test", TransportSettings::Sse { url, headers: IndexMap::new() })]);
    assert!(names(&server.listed("test").await).contains(&"echo"));
    assert_eq!(server.text("echo", json!({"message": "é"})).await, "Echo: é");
    drop(http);
    server.failed("test").await;
}
