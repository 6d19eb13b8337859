//! Reads ids and errors of JSON-RPC messages, also of messages that are damaged or were cut off.

use rmcp::model::RequestId;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::ticket::DATA;
use crate::domain::text::json;

/// Maximum size of an id, in bytes.
const LONGEST_ID: usize = 1024;

/// The id in this JSON value.
pub(super) fn request_id(value: &Value) -> Option<RequestId> {
    match value {
        Value::Number(number) => number.as_i64().map(RequestId::Number),
        Value::String(text) => Some(RequestId::String(text.as_str().into())),
        _ => None,
    }
}

/// The id in this JSON text.
pub(super) fn readable_id(id: &RawValue) -> Option<RequestId> {
    if id.get().len() > LONGEST_ID {
        return None;
    }
    serde_json::from_str(id.get()).ok().as_ref().and_then(request_id)
}

/// The id as a number. Some servers return it as a string.
pub(super) fn number(id: &RequestId) -> Option<RequestId> {
    let RequestId::String(text) = id else { return None };
    text.parse().ok().map(RequestId::Number)
}

/// The parts of an `error` member that are used; `null` if it is no object. Its `data` may be of any size.
pub(super) fn trimmed_error(error: &RawValue) -> Value {
    let Some(members) = json::members(error.get()) else { return Value::Null };
    let mut trimmed = Map::new();
    for (name, limit) in [("code", LONGEST_ID), ("message", usize::MAX), ("data", DATA)] {
        let is_usable = |value: &&&RawValue| value.get().len() <= limit && (name != "message" || value.get().starts_with('"'));
        if let Some(value) = members.get(name).filter(is_usable).and_then(|value| json::readable(value.get()).ok()) {
            trimmed.insert(name.to_owned(), value);
        }
    }
    Value::Object(trimmed)
}

/// The messages of a JSON-RPC batch (protocol 2025-03-26); `None` for any other text.
pub(in crate::adapters::mcp) fn batch(text: &[u8]) -> Option<Vec<Vec<u8>>> {
    if !text.trim_ascii_start().starts_with(b"[") {
        return None;
    }
    let text = String::from_utf8_lossy(text);
    let mended = json::with_quoted_literals(&text);
    let messages = json::items(mended.as_deref().unwrap_or(&text))?;
    let is_message = |item: &&RawValue| json::members(item.get()).is_some_and(|members| members.contains_key("jsonrpc"));
    let is_batch = !messages.is_empty() && messages.iter().all(is_message);
    is_batch.then(|| messages.into_iter().map(|message| message.get().as_bytes().to_vec()).collect())
}

/// Whether a message is a response to this request.
pub(in crate::adapters::mcp) fn responds_to(message: &Value, request: &RequestId) -> bool {
    let is_response = message.get("result").is_some() || message.get("error").is_some();
    let id = message.get("id").and_then(request_id);
    // Some servers return the id as a string.
    is_response && message.get("method").is_none() && id.is_some_and(|id| id == *request || id.to_string() == request.to_string())
}

/// Whether a message is an error response.
pub(in crate::adapters::mcp) fn is_error(message: &Value) -> bool {
    message.get("error").is_some_and(Value::is_object) && message.get("method").is_none()
}

/// Whether a message is an error response without an id that could be one of ours. The Python SDK sends the id `server-error`.
pub(in crate::adapters::mcp) fn is_error_without_id(message: &Value) -> bool {
    let is_ours = match message.get("id").and_then(request_id) {
        Some(RequestId::Number(_)) => true,
        Some(RequestId::String(text)) => text.parse::<i64>().is_ok(),
        None => false,
    };
    is_error(message) && !is_ours
}

/// The top-level `id` near the start of a message.
pub(super) fn id_in_head(head: &[u8]) -> Option<RequestId> {
    each_top_level_key(head, |key, rest| if key == b"id" { id_after_key(rest) } else { None })
}

/// Whether a message has a top-level `method` near its start.
pub(super) fn has_method(head: &[u8]) -> bool {
    let is_key = |rest: &[u8]| rest.trim_ascii_start().starts_with(b":");
    each_top_level_key(head, |key, rest| (key == b"method" && is_key(rest)).then_some(())).is_some()
}

/// The first value that `found` returns for a top-level string and the text after it.
fn each_top_level_key<T>(head: &[u8], found: impl Fn(&[u8], &[u8]) -> Option<T>) -> Option<T> {
    let (mut depth, mut position) = (0_usize, 0_usize);
    while let Some(byte) = head.get(position) {
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                let rest = &head[position + 1..];
                let mut escaped = false;
                let end = rest.iter().position(|byte| {
                    let closes = *byte == b'"' && !escaped;
                    escaped = *byte == b'\\' && !escaped;
                    closes
                })?;
                if depth == 1
                    && let Some(found) = found(&rest[..end], &rest[end + 1..])
                {
                    return Some(found);
                }
                position += end + 1;
            }
            _ => {}
        }
        position += 1;
    }
    None
}

/// The last `id` near the end of a message.
pub(super) fn id_in_tail(tail: &[u8]) -> Option<RequestId> {
    let start = tail.windows(4).rposition(|window| window == b"\"id\"")?;
    id_after_key(&tail[start + 4..])
}

fn id_after_key(text: &[u8]) -> Option<RequestId> {
    let value = text.trim_ascii_start().strip_prefix(b":")?;
    let mut values = serde_json::Deserializer::from_slice(value).into_iter::<Value>();
    request_id(&values.next()?.ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_found_in_what_is_left_of_a_message() {
        assert_eq!(id_in_head(br#"{"jsonrpc":"2.0","id": 7,"result":{oops"#), Some(RequestId::Number(7)));
        assert_eq!(id_in_head(br#"{"result":{"id":1},"id":"a"}"#), Some(RequestId::String("a".into())));
        assert_eq!(id_in_head(br#"{"result":{"id":1,"#), None);
        assert_eq!(id_in_head(br#"{"a\"id":1,"#), None);
        assert_eq!(id_in_tail(br#"xxxx"}]},"id":12}"#), Some(RequestId::Number(12)));
    }

    #[test]
    fn a_batch_is_told_from_other_arrays() {
        let found = |text: &str| batch(text.as_bytes()).map(|messages| messages.len());
        assert_eq!(found(r#" [{"jsonrpc":"2.0","method":"a"}, {"jsonrpc":"2.0","id":1,"result":{"x":NaN}}]"#), Some(2));
        for other in
            ["[]", "[INFO] started", "[1, 2]", r#"[{"a":1}]"#, r#"{"jsonrpc":"2.0","id":1,"result":[]}"#, r#"[{"jsonrpc":"2.0"},1]"#]
        {
            assert_eq!(found(other), None, "{other}");
        }
    }

    #[test]
    fn a_response_names_its_request() {
        let responds = |text: &str| responds_to(&serde_json::from_str(text).unwrap(), &RequestId::Number(7));
        assert!(responds(r#"{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":""}}"#) && responds(r#"{"id":"7","result":{}}"#));
        for other in [r#"{"id":null,"error":{}}"#, r#"{"id":8,"result":{}}"#, r#"{"id":7,"method":"a"}"#, r#"{"id":7}"#, r#""not found""#] {
            assert!(!responds(other), "{other}");
        }
        let lacks_id = |text: &str| is_error_without_id(&serde_json::from_str(text).unwrap());
        assert!(lacks_id(r#"{"id":null,"error":{}}"#) && lacks_id(r#"{"id":"server-error","error":{}}"#));
        assert!(!lacks_id(r#"{"id":8,"error":{}}"#) && !lacks_id(r#"{"id":"8","error":{}}"#) && !lacks_id(r#"{"id":null,"result":{}}"#));
    }
}
