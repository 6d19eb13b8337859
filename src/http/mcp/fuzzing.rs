//! Checks for arbitrary input from MCP clients; see [`crate::http::fuzzing`].

use actix_web::web::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::http::mcp::as_written::AsWritten;
use crate::http::mcp::message::{Message, Parted};

/// Checks that a message is a request, an answer or neither, and contains every part that was read from it. The SDK's
/// part must be valid JSON, and the arguments of a call must be unchanged.
pub(in crate::http) fn message(bytes: &[u8]) {
    let Ok(message) = Message::read(bytes) else { return };
    for checks_headers in [false, true] {
        let Parted { body, arguments } = message.part(Bytes::copy_from_slice(bytes), checks_headers);
        assert!(serde_json::from_slice::<&RawValue>(&body).is_ok());
        assert!(arguments.is_none_or(|arguments| bytes.windows(arguments.len()).any(|part| part == arguments.as_bytes())));
    }
    let (request, answers, cancels) = (message.request(), message.answers(), message.cancels());
    assert!(request.is_none() || answers.is_none());
    for id in [request, answers, cancels].into_iter().flatten() {
        // Kept as text, because a number may exceed the range of a double, and a string may contain a lone surrogate.
        assert!(serde_json::from_str::<&RawValue>(id).is_ok(), "{id}");
        assert!(bytes.windows(id.len()).any(|part| part == id.as_bytes()));
    }
    assert!(!message.is_initialize() || request.is_some() && message.asks_who());
    assert!(!(message.calls_a_tool() && message.lists_tools()));
    assert!(message.listens().is_none() || request.is_some());
    let _ = (message.abilities(), message.asks_for_everything());
}

/// Inserts a server's result into the SDK's response, as JSON and as an event, and checks both.
pub(in crate::http) fn result(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for answer in
        ["{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"content\":[]}}", "{\"id\":1,\"result\":{\"resultType\":\"complete\",\"content\":[]}}"]
    {
        let written = AsWritten::default();
        if written.result(text.to_owned()).is_none() {
            return;
        }
        let alone = written.replaced(Bytes::from(answer.to_owned()));
        let event = written.replaced(Bytes::from(format!("event: message\ndata: {answer}\n\n")));
        assert_eq!(read(&alone)["id"], 1);
        // The result must not end the event or start another field.
        let event = String::from_utf8_lossy(&event).replace("\r\n", "\n").replace('\r', "\n");
        let lines = event.strip_prefix("event: message\n").and_then(|rest| rest.strip_suffix("\n\n")).unwrap_or_default();
        let data: Vec<&str> = lines.split('\n').map(|line| line.strip_prefix("data: ").unwrap_or("no data")).collect();
        assert_eq!(read(data.join("\n").as_bytes()), read(&alone), "{event}");
    }
}

fn read(json: &[u8]) -> Value {
    let read = serde_json::from_slice(json);
    assert!(read.is_ok() || String::from_utf8_lossy(json).contains(['e', 'E']), "{}", String::from_utf8_lossy(json));
    read.unwrap_or(serde_json::json!({"id": 1}))
}
