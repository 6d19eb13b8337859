//! Remote servers that are replaced by others at the same address.

use super::*;

/// Such a server was unusable until an administrator restarted it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_another_protocol_version_is_found() {
    for (former, present, protocol) in [("no-get", "modern", "2026-07-28"), ("modern", "no-get", "2025-11-25")] {
        let mut http = HttpServer::start(&[former]);
        let mut server = start(vec![http.settings("test", &[])]);
        server.kind = present;
        server.listed("test").await;
        let port = format!("port={}", http.port);
        http.kill();
        let _http = HttpServer::start(&[present, &port]);
        let is_answered = async || server.try_call("test", "echo", json!({})).await.is_ok();
        eventually("a call that is answered", async || is_answered().await && server.state("test").protocol.as_deref() == Some(protocol))
            .await;
        server.call("echo", json!({})).await;
    }
}

/// What the server had said of itself at first held for as long as the connection lasted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_server_says_in_a_new_session_counts() {
    let mut http = HttpServer::start(&["json", "no-get"]);
    let timing = Timing { stable_after: Duration::ZERO, ..QUICK };
    let mut server = start_with(vec![http.settings("test", &[])], timing, false);
    server.listed("test").await;
    let name = ServerName::from("test");
    assert!(!server.servers.offers(&name).prompts);
    let port = format!("port={}", http.port);
    http.kill();
    let _http = HttpServer::start(&["json", "no-get", "more", &port]);
    let _ = server.try_call("test", "echo", json!({})).await;
    eventually("the prompts", async || server.servers.offers(&name).prompts).await;
    server.call("echo", json!({})).await;
}
