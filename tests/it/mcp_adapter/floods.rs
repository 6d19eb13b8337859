//! Servers that write without end, or hang: each is ended, the reason is told, and it comes back.

use nix::sys::signal::{Signal, kill as send};
use nix::unistd::Pid;

use super::*;

/// A server that was never ended floods for good: then this waits in vain.
async fn ended_by(with: &str, words: &str) {
    let mut server = connected("stdio", stdio("test", &[]), None).await;
    let before = server.number("process", "pid").await;
    let flood = ToolId::new("test", "flood");
    let flooding = server.servers.call(&flood, raw(&json!({ "with": with }).to_string()), context());
    let ended = timeout(LONG, flooding).await.expect("it is ended");
    assert!(matches!(ended, Err(CallError::Unavailable { .. })), "{with}: {ended:?}");
    let reason = server.failed("test").await;
    assert!(reason.contains(words), "{with}: {reason}");
    server.listed("test").await;
    assert_ne!(server.number("process", "pid").await, before);
    eventually("its end", async || !is_alive(before)).await;
}

/// Seen before: a processor at work for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_without_an_end_ends_the_server() {
    ended_by("a_line", "a line on its standard output exceeds 128 MiB").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_that_are_no_messages_end_the_server() {
    for with in ["junk", "blanks"] {
        ended_by(with, "its standard output contains too many lines that are not messages").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notifications_without_end_end_the_server() {
    ended_by("notifications", "it floods its standard output with notifications").await;
}

/// Seen before: each request took memory until its answer was read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_without_end_end_the_server() {
    ended_by("requests", "it floods its standard output with requests").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_on_standard_error_ends_the_server() {
    ended_by("stderr", "it floods its standard error: more than 4 MiB a second for 10 s").await;
}

/// Seen before: a stopped server was never looked at again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_is_started_anew() {
    let timing = Timing { ping: Some(Duration::from_millis(50)), ping_timeout: Duration::from_millis(300), ..QUICK };
    let mut server = start_with(vec![stdio("test", &[])], timing, false);
    server.listed("test").await;
    let before = server.number("process", "pid").await;
    send(Pid::from_raw(i32::try_from(before).unwrap()), Signal::SIGSTOP).unwrap();
    let reason = server.failed("test").await;
    assert!(reason.contains("it hangs: 3 consecutive pings were not answered within 0.3 s"), "{reason}");
    server.listed("test").await;
    assert_ne!(server.number("process", "pid").await, before);
    eventually("its end", async || !is_alive(before)).await;
}

/// A call under way is a reason not to ask, until another one timed out without a word from the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_busy_is_asked_once_a_call_has_timed_out() {
    let timing = Timing { ping: Some(Duration::from_millis(20)), ping_timeout: Duration::from_millis(100), ..QUICK };
    let mut settings = stdio("test", &[]);
    settings.call_timeout = Duration::from_secs(4);
    let mut server = start_with(vec![settings], timing, false);
    server.listed("test").await;
    let process = server.number("process", "pid").await;
    let call = || {
        let servers = Arc::clone(&server.servers);
        tokio::spawn(async move { servers.call(&ToolId::new("test", "sleep"), raw("{}"), context()).await })
    };
    let first = call();
    send(Pid::from_raw(i32::try_from(process).unwrap()), Signal::SIGSTOP).unwrap();
    // Half of a call's time: the second one is under way when the first one ends.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let second = call();
    assert!(matches!(first.await.unwrap(), Err(CallError::Timeout(_))), "no ping ended it before its time was over");
    assert!(matches!(second.await.unwrap(), Err(CallError::Unavailable { .. })), "the server was ended under it");
    let reason = server.failed("test").await;
    assert!(reason.contains("it hangs"), "{reason}");
}
