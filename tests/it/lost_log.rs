//! Nobody reads the log any more: the reader has ended, is stuck, was never there, or the terminal was closed. The service works all the
//! same, and can be stopped.

use std::io::{PipeReader, PipeWriter, Write as _, pipe};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::process::{Service, command, ended, write_config};
use crate::harness::stdio;
use crate::harness::wait::{eventually, when};

/// As much as a pipe takes before a writer has to wait for its reader.
const PIPE: usize = 64 * 1024;

/// A service of whose log nothing is known.
struct Mute {
    url: String,
    client: Client,
    folder: TempDir,
}

/// A process that ends with this value.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Mute {
    fn new() -> (Self, Command) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().unwrap();
        write_config(folder.path(), &json!({"test": stdio(&[])}));
        let port = free_port();
        let mut command = command(folder.path());
        command.args(["--port", &port.to_string(), "--log-level", "debug"]).stdout(Stdio::null());
        (Self { url: format!("http://127.0.0.1:{port}"), client: Client::new(), folder }, command)
    }

    async fn post(&self, path: &str, body: &Value) -> Option<(StatusCode, Value)> {
        let response = self.client.post(format!("{}{path}", self.url)).json(body).send().await.ok()?;
        Some((response.status(), response.json().await.unwrap_or_default()))
    }

    /// Calls until the answer is 200, and returns it.
    async fn called(&self, tool: &str) -> Value {
        let what = format!("{tool} is answered");
        eventually(&what, async || match self.post(&format!("/test/{tool}"), &json!({})).await {
            // JSON results are compact texts by default.
            Some((StatusCode::OK, Value::String(text))) => Ok(serde_json::from_str(&text).unwrap_or(Value::String(text))),
            Some((StatusCode::OK, body)) => Ok(body),
            other => Err(format!("{other:?}")),
        })
        .await
    }

    /// What everybody may expect of a service that runs.
    async fn works(&self) {
        let before = self.called("process").await;
        let (status, session) = self.post("/v1/sessions", &json!({"servers": ["test"]})).await.expect("no answer");
        assert_eq!(status, StatusCode::CREATED, "{session}");
        let (status, _) = self.post("/test/die", &json!({})).await.expect("no answer");
        assert_ne!(status, StatusCode::OK);
        let after = self.called("process").await;
        assert_ne!(before["pid"], after["pid"], "a server that died comes back");
    }

    async fn metric(&self, name: &str) -> f64 {
        let text = self.client.get(format!("{}/metrics", self.url)).send().await.unwrap().text().await.unwrap();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name} is not in {text}"));
        line.rsplit_once(' ').unwrap().1.parse().unwrap()
    }
}

/// Two requests to stop, of which the first one is enough.
fn stops(process: &mut Child) {
    let id = Pid::from_raw(i32::try_from(process.id()).unwrap());
    kill(id, Signal::SIGTERM).unwrap();
    kill(id, Signal::SIGTERM).unwrap();
    assert_eq!(ended(process).code(), Some(0));
}

fn pipes() -> (PipeReader, PipeWriter) {
    pipe().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reader_ends() {
    let (service, mut command) = Mute::new();
    let (reader, writer) = pipes();
    let mut process = Killed(command.stderr(writer).spawn().unwrap());
    drop(command);
    service.called("echo").await;
    drop(reader);
    service.works().await;
    assert!(service.metric("toolsieve_log_lines_dropped_total").await > 0.0, "what nobody could read is counted");
    stops(&mut process.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reader_is_gone_before_the_start() {
    let (service, mut command) = Mute::new();
    let (reader, writer) = pipes();
    drop(reader);
    let mut process = Killed(command.stderr(writer).spawn().unwrap());
    service.works().await;
    stops(&mut process.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reader_never_reads() {
    let (service, mut command) = Mute::new();
    let (_reader, mut writer) = pipes();
    writer.write_all(&vec![b'x'; PIPE]).unwrap();
    let mut process = Killed(command.stderr(writer).spawn().unwrap());
    service.works().await;
    stops(&mut process.0);
}

/// `script` gives the service a terminal of its own, which ends with it. `before` is what a shell does before it becomes the service.
async fn on_a_terminal(before: &str) -> (Mute, Killed, Pid) {
    let (service, command) = Mute::new();
    let file = service.folder.path().join("pid");
    let words: Vec<_> = std::iter::once(command.get_program()).chain(command.get_args()).map(|word| word.to_str().unwrap()).collect();
    let line = format!("{before}; echo $$ > {}; exec {}", file.display(), words.join(" "));
    let mut script = Command::new("script");
    script.args(["--quiet", "--command", &line, "/dev/null"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let script = Killed(script.spawn().expect("the command `script` of util-linux"));
    service.called("echo").await;
    let id = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
    (service, script, Pid::from_raw(id))
}

/// Waits for the end of a process that is nobody's child here.
async fn gone(process: Pid) {
    // What has ended may still wait for whoever asks how.
    let is_there = || std::fs::read_to_string(format!("/proc/{process}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
    eventually("the process ends", async || !is_there()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_terminal_ends_a_service_that_was_started_on_it() {
    let (_service, script, process) = on_a_terminal("true").await;
    drop(script);
    gone(process).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_shall_outlive_its_terminal_does_and_can_be_stopped() {
    let (service, script, process) = on_a_terminal("trap '' HUP").await;
    drop(script);
    service.works().await;
    kill(process, Signal::SIGTERM).unwrap();
    gone(process).await;
}

/// Seen before: a line of the log that the service never wrote.
#[tokio::test(flavor = "multi_thread")]
async fn the_name_of_a_tool_makes_no_line_of_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let forged = "2026-11-22T14:30:00.000000Z  INFO API key revoked key=\"0123456789ab\" name=\"admin\"";
    let name = format!("x\n{forged}\u{1b}[2J\u{202e}");
    let file = folder.path().join("tools.json");
    std::fs::write(&file, json!([{"name": name, "inputSchema": {"type": "object"}}]).to_string()).unwrap();
    let servers = json!({"test": stdio(&[&format!("file={}", file.display())])});
    let mut service = Service::start(folder.path(), &servers, |_| {});
    service.until_logged("connected");
    let path: String = percent_encoding::utf8_percent_encode(&name, percent_encoding::NON_ALPHANUMERIC).to_string();
    eventually("`invalid_arguments` in the log", async || {
        let _ = Client::new().post(format!("{}/test/{path}", service.url)).body("[]").send().await;
        when(service.log(), |log| log.contains("invalid_arguments"))
    })
    .await;
    assert_eq!(service.stop().code(), Some(0));
    let log = service.log();
    assert!(log.contains(r"x\n2026-11-22T14:30:00.000000Z  INFO API key revoked"), "{log}");
    assert!(!log.lines().any(|line| line.starts_with(forged)), "{log}");
    assert!(!log.contains(['\u{1b}', '\u{202e}']), "{log}");
}
