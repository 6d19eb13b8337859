//! Servers that are configured anew while calls are under way.

use toolsieve::service::ports::{ServerChange, ServerChangeKind};

use super::*;
use crate::harness::wait::quickest;

/// A removed server is gone after this time, as the README promises.
const GONE: Duration = Duration::from_secs(1);

fn kinds(changes: Vec<ServerChange>) -> Vec<(String, ServerChangeKind)> {
    changes.into_iter().map(|change| (change.server.to_string(), change.kind)).collect()
}

fn changed(keys: &[&'static str], reconnects: bool) -> ServerChangeKind {
    ServerChangeKind::Changed { keys: keys.to_vec(), reconnects }
}

/// A call in the background of a tool of the server `test`; it has its connection when this returns.
async fn call(server: &Running, tool: &'static str) -> tokio::task::JoinHandle<Result<Box<RawValue>, CallError>> {
    let servers = Arc::clone(&server.servers);
    let mut call = Box::pin(async move { servers.call(&ToolId::new("test", tool), raw("{}"), context()).await });
    assert!(futures::poll!(call.as_mut()).is_pending());
    tokio::spawn(call)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_under_way_finish_on_the_former_server_while_new_ones_go_to_the_new() {
    let (before, after) = (stdio("test", &["before"]), stdio("test", &["after"]));
    for next in [Some(after), None] {
        let mut server = start(vec![before.clone()]);
        server.listed("test").await;
        let former = server.number("process", "pid").await;
        let sleeping = server.sleeping(context()).await;
        // Comes back once the server has learnt that the sleeping one is cancelled.
        let waiting = call(&server, "wait_cancelled").await;

        let plan = kinds(server.servers.configure(next.clone().into_iter().collect()));
        let expected = if next.is_some() { changed(&["args"], true) } else { ServerChangeKind::Removed };
        assert_eq!(plan, [("test".to_owned(), expected)]);
        if next.is_some() {
            assert_ne!(server.number("process", "pid").await, former);
        } else {
            assert!(matches!(server.try_call("test", "process", json!({})).await, Err(CallError::UnknownServer)));
        }
        assert!(is_alive(former) && !waiting.is_finished() && !sleeping.is_finished());
        sleeping.abort();
        waiting.await.unwrap().unwrap();
        eventually("the end of the former", async || !is_alive(former)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_do_not_finish_are_cut_off() {
    let mut server = start(vec![stdio("test", &[])]);
    server.listed("test").await;
    let former = server.number("process", "pid").await;
    let sleeping = server.sleeping(context()).await;
    let begun = Instant::now();
    server.servers.configure(Vec::new());
    let error = sleeping.await.unwrap().unwrap_err();
    assert!(matches!(error, CallError::Unavailable { .. }), "{error:?}");
    assert!(begun.elapsed() >= QUICK.drain && begun.elapsed() < QUICK.drain + PROMPT, "{:?}", begun.elapsed());
    eventually("the end of the former", async || !is_alive(former)).await;

    // The end of the service waits for nobody.
    let mut server = start_with(vec![stdio("test", &[])], Timing { drain: LONG, ..QUICK }, false);
    server.listed("test").await;
    let _sleeping = server.sleeping(context()).await;
    server.servers.configure(Vec::new());
    let begun = Instant::now();
    server.servers.shut_down().await;
    assert!(begun.elapsed() < ENDED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_server_is_gone_within_a_second() {
    let program = example("test-stdio-server");
    let stubborn = format!("trap '' TERM; exec {} ignore-end", program.display());
    for settings in [stdio("test", &[]), stdio("test", &["ignore-end"]), command("test", "sh", &["-c", &stubborn])] {
        quickest("gone", GONE, async || {
            let mut server = start(vec![settings.clone()]);
            server.listed("test").await;
            let (child, grandchild) = (server.number("process", "pid").await, server.number("grandchild", "pid").await);
            let begun = Instant::now();
            server.servers.configure(Vec::new());
            eventually("the end of both", async || !is_alive(child) && !is_alive(grandchild)).await;
            begun.elapsed()
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_connection_can_take_over_leaves_it_alone() {
    let before = stdio("test", &[]);
    let mut server = start(vec![before.clone()]);
    server.listed("test").await;
    let pid = server.number("process", "pid").await;
    let call_timeout = Duration::from_millis(200);
    let after = ServerSettings { call_timeout, disabled_tools: vec!["echo".into()], ..before.clone() };
    assert_eq!(kinds(server.servers.configure(vec![after.clone()])), [("test".to_owned(), changed(&["timeout", "disabledTools"], false))]);
    assert_eq!(kinds(server.servers.configure(vec![after])), [("test".to_owned(), ServerChangeKind::Unchanged)]);
    assert_eq!(server.number("process", "pid").await, pid);
    let error = server.try_call("test", "sleep", json!({})).await.unwrap_err();
    assert!(matches!(error, CallError::Timeout(limit) if limit == call_timeout), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_credentials_make_a_new_connection() {
    let mut server = start(vec![with_env(stdio("test", &[]), "TOKEN", "one")]);
    server.listed("test").await;
    let plan = kinds(server.servers.configure(vec![with_env(stdio("test", &[]), "TOKEN", "two")]));
    assert_eq!(plan, [("test".to_owned(), changed(&["env"], true))]);
    assert_eq!(server.call("environment", json!({})).await["structuredContent"]["TOKEN"], "two");

    let http = HttpServer::start(&["key=two"]);
    let sse = HttpServer::sse(&["key=two"]);
    let both = |key| vec![http.settings("http", &[("x-key", key)]), sse.sse_settings("sse", &[("x-key", key)])];
    let server = start(both("one"));
    eventually("a refusal of both", async || ["http", "sse"].iter().all(|name| server.state(name).error.is_some())).await;
    let plan = kinds(server.servers.configure(both("two")));
    assert!(plan.iter().all(|(_, kind)| *kind == changed(&["headers"], true)), "{plan:?}");
    for name in ["http", "sse"] {
        server.try_call(name, "echo", json!({})).await.unwrap();
    }
}
