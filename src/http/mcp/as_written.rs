//! Sends results of tools, prompts and resources to MCP clients unchanged. The MCP SDK's types would round numbers, drop
//! unknown members and reject unknown content. So the SDK gets a small placeholder, which is replaced by the result before
//! the response is sent.

use std::sync::{Arc, OnceLock};

use actix_web::web::Bytes;
use http_body::Body;
use http_body_util::BodyExt as _;
use http_body_util::combinators::MapFrame;
use rmcp::model::{CallToolResult, GetPromptResult, InputRequiredResult, ReadResourceResult};
use serde_json::value::RawValue;

use crate::domain::execution::outcome;
use crate::domain::text::json;

const PLACEHOLDER: &str = "toolsieve";
const RESULT_TYPE: &str = "resultType";
/// What results for clients with protocol 2026-07-28 or newer contain. The SDK adds what is missing to its own results.
const NEWER: [&str; 3] = [RESULT_TYPE, "ttlMs", "cacheScope"];
const STRUCTURED: &str = "structuredContent";

/// The result of one request, as its original JSON text.
#[derive(Clone, Default)]
pub(super) struct AsWritten(Arc<OnceLock<Box<RawValue>>>);

impl AsWritten {
    /// If the result is a question, stores it and returns its placeholder.
    pub(super) fn question(&self, result: &str) -> Option<InputRequiredResult> {
        (outcome::is_question(result) && self.put(result.to_owned())).then(|| InputRequiredResult::from_request_state(PLACEHOLDER))
    }

    /// Stores a call's result and returns its placeholder. Returns `None` if the result is invalid JSON.
    pub(super) fn result(&self, result: String) -> Option<CallToolResult> {
        self.put(result).then(|| CallToolResult::success(Vec::new()))
    }

    /// Stores a prompt's result and returns its placeholder. Returns `None` if the result is invalid JSON.
    pub(super) fn prompt(&self, result: String) -> Option<GetPromptResult> {
        self.put(result).then(GetPromptResult::default)
    }

    /// Stores a resource's result and returns its placeholder. Returns `None` if the result is invalid JSON.
    pub(super) fn resource(&self, result: String) -> Option<ReadResourceResult> {
        self.put(result).then(|| ReadResourceResult::new(Vec::new()))
    }

    fn put(&self, result: String) -> bool {
        // Each request has only one result.
        RawValue::from_string(result).is_ok_and(|result| self.0.set(result).is_ok())
    }

    /// Replaces the placeholder in the SDK's response with the stored result.
    pub(super) fn replacing<B>(self, response: http::Response<B>) -> http::Response<MapFrame<B, Replace<B>>>
    where
        B: Body<Data = Bytes> + 'static,
    {
        response.map(|body| {
            let replace: Replace<B> = Box::new(move |frame| frame.map_data(|data| self.replaced(data)));
            body.map_frame(replace)
        })
    }

    /// Replaces the placeholder in a JSON-RPC message, or in an event of a stream. Messages and events are never split.
    pub(super) fn replaced(&self, data: Bytes) -> Bytes {
        let Some((text, written)) = self.0.get().and_then(|written| Some((std::str::from_utf8(&data).ok()?, written))) else { return data };
        if text.starts_with('{') {
            return in_message(text, written).map_or(data, Bytes::from);
        }
        let put_in = |line: &str| {
            let message = line.strip_prefix("data:").and_then(|message| in_message(message.trim_start(), written));
            // A line break in the result would end the event, and so would a lone carriage return. Between JSON tokens,
            // all whitespace is equivalent.
            message.map_or_else(|| line.to_owned(), |message| format!("data: {}", message.replace('\r', " ").replace('\n', "\ndata: ")))
        };
        let lines: Vec<String> = text.split('\n').map(put_in).collect();
        lines.join("\n").into()
    }
}

type Replace<B> = Box<dyn FnMut(http_body::Frame<Bytes>) -> http_body::Frame<<B as Body>::Data>>;

/// Replaces the result in a JSON-RPC message. Returns `None` if the message has no result.
fn in_message(message: &str, written: &RawValue) -> Option<String> {
    let mut members = json::members(message)?;
    let result = members.get_mut("result")?;
    let placed = json::members(result.get())?;
    let as_text: Box<RawValue>;
    let mut own = json::members(written.get())?;
    let mut is_changed = false;
    for name in NEWER {
        let is_unset = own.get(name).is_none_or(|value| matches!(value.get(), "null" | "\"\"") || value.get().starts_with('-'));
        if let (Some(value), true) = (placed.get(name), is_unset) {
            own.insert(name.into(), *value);
            is_changed = true;
        }
    }
    // Only clients with protocol 2026-07-28 or newer get `resultType`. The SDK's own message shows which version the
    // client has.
    if !placed.contains_key(RESULT_TYPE) {
        is_changed |= own.shift_remove(RESULT_TYPE).is_some();
        // Earlier clients reject the whole result if the structured content is no object (MCP specification 2025-11-25).
        // Only the placeholder of a call has `content`.
        let is_call = placed.contains_key("content");
        if is_call && own.get(STRUCTURED).is_some_and(|structured| !structured.get().starts_with('{')) {
            let structured = own.shift_remove(STRUCTURED)?;
            let content = own.get("content").and_then(|content| json::items(content.get()));
            if structured.get() != "null" && content.is_none_or(|items| items.is_empty()) {
                let text = format!("[{{\"type\":\"text\",\"text\":{}}}]", json::quoted(structured.get()));
                as_text = RawValue::from_string(text).ok()?;
                own.insert("content".into(), &as_text);
            }
            is_changed = true;
        }
    }
    let typed = if is_changed { Some(serde_json::value::to_raw_value(&own).ok()?) } else { None };
    *result = typed.as_deref().unwrap_or(written);
    serde_json::to_string(&members).ok()
}

#[cfg(test)]
mod tests {
    use actix_web::web::Bytes;

    use super::AsWritten;

    const CALLED: &str = "{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"result\":{\"resultType\":\"complete\",\"content\":[]}}";

    /// The SDK's message with what was put in the place of its result.
    fn replaced(message: &str, put: impl FnOnce(&AsWritten) -> bool) -> String {
        let written = AsWritten::default();
        assert!(put(&written));
        String::from_utf8(written.replaced(Bytes::from(message.to_owned())).to_vec()).unwrap()
    }

    #[test]
    fn a_question_leaves_as_it_was_written() {
        let written =
            "{\"resultType\": \"input_required\",\n\"inputRequests\": {\"a\": {\"odd\": 12345678901234567890123}}, \"more\": 1e999}";
        let question = AsWritten::default();
        assert!(question.question("{\"content\":[]}").is_none());
        let message = Bytes::from_static(
            b"{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"result\":{\"resultType\":\"input_required\",\"requestState\":\"toolsieve\"}}",
        );
        assert_eq!(question.replaced(message.clone()), message);
        assert!(question.question(written).is_some());
        assert_eq!(question.replaced(message.clone()), format!("{{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"result\":{written}}}"));
        let error = Bytes::from_static(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":1,\"message\":\"\"}}");
        assert_eq!(question.replaced(error.clone()), error);
        let event = Bytes::from([b"id: 0\ndata: ", &*message, b"\n\n"].concat());
        let expected = format!("id: 0\ndata: {{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"result\":{}}}\n\n", written.replace('\n', "\ndata: "));
        assert_eq!(question.replaced(event), expected);
        let alive = Bytes::from_static(b": alive\n\n");
        assert_eq!(question.replaced(alive.clone()), alive);
    }

    #[test]
    fn the_result_type_follows_the_message_of_the_sdk() {
        let replaced = |message: &str, written: &str| replaced(message, |result| result.result(written.to_owned()).is_some());
        let older = CALLED.replace("\"resultType\":\"complete\",", "");
        let (plain, typed) = ("{\"content\":[],\"n\":12345678901234567890123}", "{\"n\":1e2,\"resultType\":\"complete\"}");
        assert_eq!(replaced(&older, plain), format!("{{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"result\":{plain}}}"));
        assert_eq!(replaced(CALLED, typed), format!("{{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"result\":{typed}}}"));
        assert!(replaced(CALLED, plain).ends_with("\"n\":12345678901234567890123,\"resultType\":\"complete\"}}"));
        assert!(replaced(&older, typed).ends_with("\"result\":{\"n\":1e2}}"));
        assert!(AsWritten::default().result("no JSON".to_owned()).is_none());
    }

    /// Regression: the SDKs of earlier protocol versions rejected the whole result.
    #[test]
    fn earlier_clients_get_structured_content_only_as_an_object() {
        let replaced = |message: &str, written: &str| replaced(message, |result| result.result(written.to_owned()).is_some());
        let older = CALLED.replace("\"resultType\":\"complete\",", "");
        let text = r#"[{"type":"text","text":"[1.50]"}]"#;
        for (written, expected) in [
            (r#"{"content":[7],"structuredContent":[1.50]}"#.to_owned(), r#"{"content":[7]}"#.to_owned()),
            (r#"{"content":[],"structuredContent":[1.50]}"#.to_owned(), format!("{{\"content\":{text}}}")),
            (r#"{"structuredContent":[1.50],"n":1e2}"#.to_owned(), format!("{{\"n\":1e2,\"content\":{text}}}")),
            (r#"{"content":[],"structuredContent":null}"#.to_owned(), r#"{"content":[]}"#.to_owned()),
        ] {
            assert!(replaced(&older, &written).ends_with(&format!("\"result\":{expected}}}")), "{}", replaced(&older, &written));
            assert!(replaced(CALLED, &written).contains("structuredContent"));
        }
        let object = r#"{"content":[],"structuredContent":{"n":1.50}}"#;
        assert!(replaced(&older, object).ends_with(&format!("\"result\":{object}}}")));
    }

    #[test]
    fn a_resource_has_what_the_newer_protocol_requires() {
        let replaced = |message: &str, written: &str| replaced(message, |result| result.resource(written.to_owned()).is_some());
        let newer = r#"{"id":1,"result":{"resultType":"complete","ttlMs":0,"cacheScope":"private","contents":[]}}"#;
        let plain = r#"{"contents":[{"odd":1.50}]}"#;
        assert_eq!(
            replaced(newer, plain),
            r#"{"id":1,"result":{"contents":[{"odd":1.50}],"resultType":"complete","ttlMs":0,"cacheScope":"private"}}"#
        );
        let own = r#"{"ttlMs":5,"contents":[],"cacheScope":"public","resultType":"complete"}"#;
        assert_eq!(replaced(newer, own), format!("{{\"id\":1,\"result\":{own}}}"));
        assert_eq!(replaced(r#"{"id":1,"result":{"contents":[]}}"#, plain), format!("{{\"id\":1,\"result\":{plain}}}"));
    }
}
