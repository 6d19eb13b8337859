//! Answers that break the rules, or whose call may have been carried out: a server in this process that answers as each tool is named.

use std::collections::HashSet;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// The answers to a session that the server doesn't know, as SDKs send them, by name.
const UNKNOWN_SESSION: [(&str, u16, &str); 5] = [
    ("go", 404, "session not found"),
    ("python", 404, r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Session not found"}}"#),
    ("typescript", 404, r#"{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}"#),
    ("example", 400, r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}"#),
    // No SDK is known to do this.
    ("own id", 404, r#"{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":ID}"#),
];

/// A streamable HTTP server with sessions.
struct Scripted {
    port: u16,
    state: Arc<ScriptedState>,
}

#[derive(Default)]
struct ScriptedState {
    unknown_session: Mutex<(u16, &'static str)>,
    sessions: Mutex<HashSet<String>>,
    begun: AtomicUsize,
    /// The tools that were called, in sessions that the server knows.
    called: Mutex<Vec<String>>,
}

impl Scripted {
    async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let (port, state) = (listener.local_addr().unwrap().port(), Arc::<ScriptedState>::default());
        let served = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let state = Arc::clone(&served);
                tokio::spawn(async move { state.serve(stream).await });
            }
        });
        Self { port, state }
    }

    async fn connected(&self) -> Running {
        let url = format!("http://127.0.0.1:{}/mcp", self.port).parse().unwrap();
        let mut server = start(vec![settings("test", TransportSettings::StreamableHttp { url, headers: IndexMap::new() })]);
        server.listed("test").await;
        server
    }

    fn called(&self) -> Vec<String> {
        std::mem::take(&mut self.state.called.lock().unwrap())
    }
}

impl ScriptedState {
    async fn serve(&self, mut stream: TcpStream) {
        let Some((head, body)) = request(&mut stream).await else { return };
        let session = head.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).map(str::to_owned);
        let message: Value = serde_json::from_slice(&body).unwrap_or_default();
        let (id, method) = (&message["id"], message["method"].as_str().unwrap_or_default());
        let (status, kind, answer) = match method {
            "initialize" => {
                let session = format!("session-{}", self.begun.fetch_add(1, Ordering::Relaxed));
                self.sessions.lock().unwrap().insert(session.clone());
                let result = json!({"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
                    "serverInfo": {"name": "scripted", "version": "1"}});
                let answer = json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string();
                (200, format!("application/json\r\nmcp-session-id: {session}"), answer)
            }
            "" => (405, "text/plain".to_owned(), String::new()),
            _ if session.is_some_and(|session| !self.sessions.lock().unwrap().contains(&session)) => {
                let (status, answer) = *self.unknown_session.lock().unwrap();
                (status, "application/json".to_owned(), answer.replace("ID}", &format!("{id}}}")))
            }
            _ if id.is_null() => (202, "text/plain".to_owned(), String::new()),
            "tools/list" => {
                let answer = json!({"jsonrpc": "2.0", "id": id, "result": {"tools": []}}).to_string();
                (200, "application/json".to_owned(), answer)
            }
            "tools/call" => {
                let tool = message["params"]["name"].as_str().unwrap_or_default();
                self.called.lock().unwrap().push(tool.to_owned());
                let Some((status, kind, answer)) = self.answer(tool, id) else { return };
                (status, kind.to_owned(), answer)
            }
            _ => {
                let answer = json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no such method"}}).to_string();
                (400, "application/json".to_owned(), answer)
            }
        };
        let length = answer.len();
        let head = format!("HTTP/1.1 {status} Status\r\ncontent-type: {kind}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
        let _ = stream.write_all(format!("{head}{answer}").as_bytes()).await;
    }

    /// The answer of a tool; `None` if the connection is closed without one.
    fn answer(&self, tool: &str, id: &Value) -> Option<(u16, &'static str, String)> {
        let result = |id: Value, text: &str| json!({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": text}]}});
        let error = |id: Value, text: &str| json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32050, "message": text}});
        let own = || id.clone();
        let note = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}});
        let event = |message: Value| format!("data: {message}\n\n");
        let (json, events) = ("application/json", "text/event-stream");
        Some(match tool {
            "no_repository" => (404, json, error(own(), "no such repository").to_string()),
            "no_tab" => (400, json, error(own(), "unknown browser session ID 7").to_string()),
            "found" => (404, json, result(own(), "found").to_string()),
            "not_found" => (404, "text/html", "<h1>Not found</h1>".to_owned()),
            "not_found_null" => (404, json, error(Value::Null, "not here").to_string()),
            "rejected" => (200, json, error(Value::Null, "rejected").to_string()),
            "rejected_stream" => (200, events, event(error(Value::Null, "rejected"))),
            "wrong_id" => (200, json, result(json!(9999), "wrong").to_string()),
            "note" => (200, json, note.to_string()),
            "batch" => (200, json, json!([note, result(own(), "batch")]).to_string()),
            "batch_stream" => (200, events, event(json!([note, result(own(), "batch")]))),
            "batch_without" => (200, json, json!([note]).to_string()),
            "close" => return None,
            "end" => (200, events, ": nothing\n\n".to_owned()),
            "expire" => {
                self.sessions.lock().unwrap().clear();
                (200, json, result(own(), "expired").to_string())
            }
            status if status.parse::<u16>().is_ok() => (status.parse().unwrap(), "text/html", "<h1>proxy</h1>".to_owned()),
            _ => (200, json, result(own(), "done").to_string()),
        })
    }
}

/// The head of a request in lower case, and its body.
async fn request(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut read = Vec::new();
    loop {
        if let Some(end) = read.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&read[..end]).to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
            if read.len() >= end + 4 + length {
                return Some((head, read.split_off(end + 4)));
            }
        }
        if stream.read_buf(&mut read).await.ok()? == 0 {
            return None;
        }
    }
}

/// Regression test: such a call was sent four times, and the server's error was lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_error_of_a_tool_is_not_taken_for_the_end_of_a_session() {
    let http = Scripted::start().await;
    let server = http.connected().await;
    for (tool, expected) in [("no_repository", "no such repository"), ("no_tab", "unknown browser session ID 7")] {
        let error = server.try_call("test", tool, json!({})).await.unwrap_err();
        assert!(matches!(&error, CallError::Protocol { code: -32050, message, .. } if message == expected), "{tool}: {error:?}");
        assert_eq!(http.called(), [tool]);
    }
    assert_eq!(server.text("found", json!({})).await, "found");
    assert_eq!(http.called(), ["found"]);
    // Without its id, an error looks like that of a lost session. It is sent again in one new session, and no more.
    let error = server.try_call("test", "not_found", json!({})).await.unwrap_err();
    assert!(matches!(error, CallError::Refused { status: 404, .. }), "{error:?}");
    assert_eq!(http.called(), ["not_found", "not_found"]);
    let error = server.try_call("test", "not_found_null", json!({})).await.unwrap_err();
    assert!(matches!(&error, CallError::Protocol { message, .. } if message == "not here"), "{error:?}");
    assert_eq!(http.called(), ["not_found_null", "not_found_null"]);
    assert_eq!(server.text("done", json!({})).await, "done");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_after_the_end_of_a_session_is_carried_out_once() {
    for (sdk, status, answer) in UNKNOWN_SESSION {
        let http = Scripted::start().await;
        *http.state.unknown_session.lock().unwrap() = (status, answer);
        let server = http.connected().await;
        server.call("expire", json!({})).await;
        http.called();
        if sdk == "own id" {
            // This could be the tool's own error, so the call isn't repeated. The session is.
            let error = server.try_call("test", "done", json!({})).await.unwrap_err();
            assert!(matches!(&error, CallError::Protocol { code: -32001, .. }), "{error:?}");
            assert_eq!(http.called(), [""; 0]);
            eventually("a new session", async || http.state.begun.load(Ordering::Relaxed) == 2).await;
        }
        assert_eq!(server.text("done", json!({})).await, "done", "{sdk}");
        assert_eq!(http.called(), ["done"], "{sdk}");
        assert_eq!(http.state.begun.load(Ordering::Relaxed), 2, "{sdk}");
    }
}

/// Regression test: such calls waited for their time limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_without_the_id_of_its_call_ends_the_call() {
    let http = Scripted::start().await;
    let server = http.connected().await;
    for tool in ["rejected", "rejected_stream"] {
        let error = server.try_call("test", tool, json!({})).await.unwrap_err();
        assert!(matches!(&error, CallError::Protocol { code: -32050, message, .. } if message == "rejected"), "{tool}: {error:?}");
    }
    for tool in ["wrong_id", "note", "batch_without"] {
        let error = server.try_call("test", tool, json!({})).await.unwrap_err();
        assert!(matches!(error, CallError::Protocol { code: -32700, .. }), "{tool}: {error:?}");
    }
    assert_eq!(http.called().len(), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_is_unpacked() {
    let http = Scripted::start().await;
    let server = http.connected().await;
    for tool in ["batch", "batch_stream"] {
        assert_eq!(server.text(tool, json!({})).await, "batch", "{tool}");
    }
    for server in each(&[], |_| {}).await {
        assert_eq!(server.text("batch", json!({})).await, "in a batch", "{}", server.kind);
    }
}

/// Regression test: callers learnt that the server is not connected, and that they should try again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_may_have_been_carried_out_is_told_from_others() {
    let http = Scripted::start().await;
    let server = http.connected().await;
    for (tool, may_be_done) in [("close", true), ("end", true), ("502", true), ("504", true), ("503", false)] {
        let error = server.try_call("test", tool, json!({})).await.unwrap_err();
        assert!(matches!(error, CallError::Unavailable { sent, .. } if sent == may_be_done), "{tool}: {error:?}");
        assert_eq!(http.called(), [tool]);
    }
}

/// A server over standard streams that does one thing after the other, and writes what it does to a file. `hold` ends once another file
/// exists.
const ONE_BY_ONE: &str = r#"
while read -r line; do
    id=${line#*\"id\":}
    id=${id%%[,\}]*}
    case "$line" in
        *'"initialize"'*) result='{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}';;
        *'"notifications/'*) echo "$line" | cut -c 1-60 >> "$1"; continue;;
        *'"tools/list"'*) result='{"tools":[]}';;
        *'"tools/call"'*)
            name=${line#*\"name\":\"}
            echo "${name%%\"*}" >> "$1"
            case "$line" in *'"hold"'*) while [ ! -e "$2" ]; do sleep 0.05; done;; esac
            result='{"content":[]}';;
        *) result='{}';;
    esac
    echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":$result}"
done
"#;

/// Regression test: the server carried out abandoned calls once it came to them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_was_abandoned_in_the_queue_is_never_sent() {
    let folder = tempfile::tempdir().unwrap();
    let (done, go) = (folder.path().join("done"), folder.path().join("go"));
    let mut server = start(vec![command("test", "sh", &["-c", ONE_BY_ONE, "server", done.to_str().unwrap(), go.to_str().unwrap()])]);
    server.listed("test").await;
    let done = || std::fs::read_to_string(&done).unwrap_or_default();
    let call = async |tool: &str, arguments: String, milliseconds: u64| {
        let deadline = Some(Instant::now() + Duration::from_millis(milliseconds));
        server.servers.call(&ToolId::new("test", tool), raw(&arguments), CallContext { deadline, ..context() }).await.unwrap_err()
    };
    let holding = tokio::spawn({
        let servers = Arc::clone(&server.servers);
        async move { servers.call(&ToolId::new("test", "hold"), raw("{}"), context()).await }
    });
    eventually("the first call", async || done().contains("hold")).await;
    // Fills the pipe, so that the next calls stay in the queue.
    let error = call("long", json!({"text": "x".repeat(200_000)}).to_string(), 1_500).await;
    assert!(matches!(error, CallError::Timeout(_)), "{error:?}");
    let error = call("late", "{}".to_owned(), 200).await;
    assert!(matches!(error, CallError::Timeout(_)), "{error:?}");
    let id = ToolId::new("test", "dropped");
    let dropped = server.servers.call(&id, raw("{}"), context());
    assert!(timeout(Duration::from_millis(200), dropped).await.is_err());
    std::fs::write(go, "").unwrap();
    holding.await.unwrap().unwrap();
    server.call("last", json!({})).await;
    let done = done();
    let calls: Vec<&str> = done.lines().filter(|line| !line.contains("notifications/")).collect();
    assert_eq!(calls, ["hold", "long", "last"], "{done}");
    assert_eq!(done.matches("notifications/cancelled").count(), 1, "only of the call that was sent: {done}");
}

/// Regression test: a log message that was too large failed the call that ran.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_message_that_is_too_large_fails_no_call() {
    for server in each(&[], |_| {}).await.into_iter().filter(|server| ["stdio", "sse"].contains(&server.kind)) {
        assert_eq!(server.text("huge_note", json!({"bytes": 17 << 20})).await, "noted", "{}", server.kind);
    }
}
