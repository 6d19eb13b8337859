//! Guessed keys: they are counted, noted and slowed down, and a right key is not.

use std::time::{Duration, Instant};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::socket::{Socket, head};
use crate::harness::process::Service;
use crate::harness::wait::{eventually, when};
use crate::harness::{Running, Start, stdio};

const KEY: &str = "the-key-of-the-service";
const ADMIN: &str = "the-key-of-administration";
const FREE: usize = 20;
/// Further ones, each of which waits for its answer.
const OVER: usize = 4;

async fn start() -> Running {
    let environment = vec![("TOOLSIEVE_ADMIN_KEY", ADMIN), ("TOOLSIEVE_HTTP__TRUSTED_PROXIES", "127.0.0.0/8")];
    let running = Start { servers: json!({"one": stdio(&[])}), key: Some(KEY), environment, ..Start::default() }.start().await;
    running.settled().await;
    running
}

/// A request of this client, with this key.
async fn guess(service: &Running, client: &str, key: &str) -> reqwest::Response {
    let request = service.client.get(format!("{}/openapi.json", service.url)).bearer_auth(key);
    request.header("x-forwarded-for", client).send().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_wrong_keys_of_one_address_are_429_and_a_right_one_passes() {
    let service = start().await;
    for (first, second) in [("203.0.113.7", "203.0.113.8"), ("2001:db8:1:2::1", "2001:db8:1:3::1")] {
        for number in 0..FREE + OVER {
            // Of one customer of an IPv6 network.
            let client = if first.contains(':') { format!("{}{number}", first.trim_end_matches('1')) } else { first.to_owned() };
            let response = guess(&service, &client, &format!("guess-{number}")).await;
            let expected = if number < FREE { StatusCode::UNAUTHORIZED } else { StatusCode::TOO_MANY_REQUESTS };
            assert_eq!(response.status(), expected, "guess {number} of {client}");
            if number >= FREE {
                let seconds: u64 = response.headers()["retry-after"].to_str().unwrap().parse().unwrap();
                assert!((1..=60).contains(&seconds), "{seconds}");
                assert_eq!(response.json::<Value>().await.unwrap()["code"], "rate_limited");
            }
        }
        for key in [KEY, ADMIN] {
            assert_eq!(guess(&service, first, key).await.status(), StatusCode::OK, "a right key always passes");
        }
        assert_eq!(guess(&service, second, "guess").await.status(), StatusCode::UNAUTHORIZED, "another address");
    }
    // Who sends none guesses none.
    for _ in 0..=FREE {
        let response = service.client.get(format!("{}/openapi.json", service.url)).header("x-forwarded-for", "203.0.113.9").send().await;
        assert_eq!(response.unwrap().status(), StatusCode::UNAUTHORIZED);
    }
    let metrics = service.request(Method::GET, "/metrics").send().await.unwrap().text().await.unwrap();
    for (answer, count) in [("refused", 2 * FREE + 2), ("limited", 2 * OVER)] {
        assert!(metrics.contains(&format!("toolsieve_wrong_keys_total{{answer=\"{answer}\"}} {count}\n")), "{metrics}");
    }
}

/// Before, one connection took as many guesses after the limit as before it.
#[tokio::test(flavor = "multi_thread")]
async fn over_the_limit_a_guess_waits_and_ends_its_connection() {
    let service = start().await;
    let asking = |key| head("GET", "/openapi.json", Some(key), "X-Forwarded-For: 203.0.113.20\r\n\r\n");
    let mut socket = Socket::to(&service).await;
    for number in 0..FREE {
        socket.send(asking("a-guess")).await;
        let answer = socket.answer().await;
        assert!(answer.starts_with("HTTP/1.1 401 ") && !answer.contains("connection: close"), "guess {number}: {answer}");
    }
    for mut socket in [socket, Socket::to(&service).await] {
        let began = Instant::now();
        socket.send(asking("a-guess")).await;
        let answer = socket.answer().await;
        assert!(began.elapsed() >= Duration::from_millis(240), "answered after {:?}", began.elapsed());
        assert!(answer.starts_with("HTTP/1.1 429 ") && answer.contains("connection: close"), "{answer}");
        socket.ended().await;
    }
    let mut socket = Socket::to(&service).await;
    for _ in 0..2 {
        socket.send(asking(KEY)).await;
        let answer = socket.answer().await;
        assert!(answer.starts_with("HTTP/1.1 200 ") && !answer.contains("connection: close"), "{answer}");
    }
}

/// Before, whoever guessed there was not slowed down, because the console checks keys itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_guess_at_the_sign_in_of_the_console_waits_and_ends_its_connection_too() {
    let service = start().await;
    let form = "key=a-guess";
    let more = format!(
        "X-Forwarded-For: 203.0.113.21\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{form}",
        form.len()
    );
    let asking = head("POST", "/ui/login", None, &more);
    let mut socket = Socket::to(&service).await;
    for number in 0..FREE {
        socket.send(&asking).await;
        let answer = socket.answer().await;
        assert!(answer.starts_with("HTTP/1.1 403 ") && !answer.contains("connection: close"), "guess {number}: {answer}");
    }
    let began = Instant::now();
    socket.send(&asking).await;
    let answer = socket.answer().await;
    assert!(began.elapsed() >= Duration::from_millis(240), "answered after {:?}", began.elapsed());
    assert!(answer.starts_with("HTTP/1.1 429 ") && answer.contains("connection: close"), "{answer}");
    socket.ended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_log_has_the_address_and_not_each_guess() {
    let service = start().await;
    for number in 0..FREE + OVER {
        guess(&service, "203.0.113.7", &format!("guess-{number}")).await;
    }
    let log = eventually("the limit in the audit log", async || {
        let request = service.client.get(format!("{}/v1/admin/audit?principal=nobody", service.url)).bearer_auth(ADMIN);
        let log: Value = request.send().await.unwrap().json().await.unwrap();
        when(log, |log| log["entries"].as_array().unwrap().iter().any(|entry| entry["action"] == "wrong_keys_limit"))
    })
    .await;
    let entries = log["entries"].as_array().unwrap();
    let audited: Vec<_> = entries.iter().map(|entry| (&entry["action"], &entry["subject"], &entry["decision"])).collect();
    let (address, block) = (json!("203.0.113.7"), json!("block"));
    assert_eq!(audited, [(&json!("wrong_keys_limit"), &address, &block), (&json!("wrong_key"), &address, &block)]);
}

/// Nobody may write the address of another one into our log.
#[tokio::test(flavor = "multi_thread")]
async fn the_log_has_a_line_for_a_burst_and_believes_no_stranger_on_the_address() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start(folder.path(), &json!({"one": stdio(&[])}), |command| {
        command.env("TOOLSIEVE_API_KEY", KEY);
    });
    let client = reqwest::Client::new();
    for number in 0..FREE + OVER {
        let request = client.get(format!("{}/openapi.json", service.url)).bearer_auth("a-guess");
        let forwarded = format!("198.51.100.{number}");
        let status =
            request.header("x-forwarded-for", &forwarded).header("forwarded", format!("for={forwarded}")).send().await.unwrap().status();
        assert_eq!(status, if number < FREE { StatusCode::UNAUTHORIZED } else { StatusCode::TOO_MANY_REQUESTS });
    }
    let log = service.until_logged("too many wrong keys");
    let about_keys = log.lines().filter(|line| line.contains("wrong key") && line.contains("127.0.0.1"));
    assert_eq!(about_keys.count(), 2, "{log}");
    assert!(!log.contains("198.51.100.") && !log.contains("a-guess"), "{log}");
}
