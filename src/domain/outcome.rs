//! A raw MCP result → the body that the caller gets.
//!
//! One content item is unwrapped, several become an array, text that is JSON is handed on as JSON, byte for byte.
//! Large bodies are never parsed into a tree: texts that are JSON already are checked and copied.

use serde::de::IgnoredAny;
use serde_json::{Number, Value, json};

/// Longest text of an error that goes into a problem's `detail`, in characters.
const DETAIL_LIMIT: usize = 4_000;

/// What a tool answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolAnswer {
    /// The body, as JSON text.
    Result(String),
    /// MCP `isError`: the tool's own words.
    Error(String),
}

/// Reads a `CallToolResult` (MCP specification, "Tool Result").
#[must_use]
pub fn answer(result: &Value) -> ToolAnswer {
    let content = result.get("content").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if result.get("isError").and_then(Value::as_bool) == Some(true) {
        return ToolAnswer::Error(error_text(content, result.get("structuredContent")));
    }
    ToolAnswer::Result(match (content, result.get("structuredContent").filter(|value| !value.is_null())) {
        ([], Some(structured)) => structured.to_string(),
        ([], None) => "[]".to_owned(),
        ([item], _) => fragment(item),
        (items, _) => format!("[{}]", items.iter().map(fragment).collect::<Vec<_>>().join(",")),
    })
}

/// One content item as JSON text.
fn fragment(item: &Value) -> String {
    let text = |key: &str| item.get(key).and_then(Value::as_str);
    match text("type") {
        Some("text") => text_fragment(text("text").unwrap_or_default()),
        Some("image") => {
            let kind = text("mimeType").unwrap_or("image/png");
            quoted(&format!("data:{kind};base64,{}", text("data").unwrap_or_default()))
        }
        // Base64 of a sound would only fill the model's context.
        Some("audio") => without_data(item, "data").to_string(),
        Some("resource") if item.pointer("/resource/blob").is_some() => {
            let resource = item.get("resource").cloned().unwrap_or_default();
            json!({"type": "resource", "resource": without_data(&resource, "blob")}).to_string()
        }
        _ => item.to_string(),
    }
}

/// The object without its base64 field, which is replaced by its size in bytes.
fn without_data(object: &Value, field: &str) -> Value {
    let mut out = object.clone();
    if let Value::Object(map) = &mut out
        && let Some(data) = map.remove(field)
    {
        let length = data.as_str().map_or(0, |data| data.trim_end_matches('=').len() * 3 / 4);
        map.insert("size".into(), length.into());
        map.insert("note".into(), "the binary content is not part of this answer".into());
    }
    out
}

/// JSON stays JSON; numbers that a JSON reader would change (`NaN`, `007`, big integers) stay text.
fn text_fragment(text: &str) -> String {
    let trimmed = text.trim();
    let json = match trimmed.as_bytes().first() {
        Some(b'{' | b'[' | b'"') => serde_json::from_str::<IgnoredAny>(trimmed).is_ok(),
        Some(b't' | b'f' | b'n') => matches!(trimmed, "true" | "false" | "null"),
        Some(b'-' | b'0'..=b'9') => serde_json::from_str::<Number>(trimmed).is_ok_and(|number| number.to_string().as_str() == trimmed),
        _ => false,
    };
    if json { trimmed.to_owned() } else { quoted(text) }
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn error_text(content: &[Value], structured: Option<&Value>) -> String {
    let texts: Vec<&str> = content.iter().filter_map(|item| item.get("text").and_then(Value::as_str)).collect();
    let text = match (texts.is_empty(), structured) {
        (false, _) => texts.join("\n"),
        (true, Some(structured)) => structured.to_string(),
        (true, None) => "the tool reported an error without a text".to_owned(),
    };
    match text.char_indices().nth(DETAIL_LIMIT) {
        Some((end, _)) => format!("{}… (cut, {} bytes in all)", &text[..end], text.len()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{ToolAnswer, answer};

    fn result(content: &serde_json::Value) -> String {
        match answer(&json!({"content": content})) {
            ToolAnswer::Result(body) => body,
            ToolAnswer::Error(text) => panic!("{text}"),
        }
    }

    fn text(text: &str) -> String {
        result(&json!([{"type": "text", "text": text}]))
    }

    #[test]
    fn text_that_is_json_is_handed_on_as_it_is() {
        assert_eq!(text(r#" {"b": 12345678901234567890123, "a": [1.0]} "#), r#"{"b": 12345678901234567890123, "a": [1.0]}"#);
        assert_eq!(text("42"), "42");
        assert_eq!(text("true"), "true");
    }

    #[test]
    fn what_a_reader_would_change_stays_text() {
        for odd in ["NaN", "007", "12345678901234567890123", "1e5", "-", "{broken", "tomorrow", "nothing", ""] {
            assert_eq!(text(odd), serde_json::Value::from(odd).to_string());
        }
    }

    #[test]
    fn one_item_is_unwrapped_and_several_are_a_list() {
        assert_eq!(result(&json!([{"type": "text", "text": "a"}, {"type": "text", "text": "{\"b\":1}"}])), r#"["a",{"b":1}]"#);
        assert_eq!(result(&json!([{"type": "image", "data": "AAAA", "mimeType": "image/png"}])), r#""data:image/png;base64,AAAA""#);
        assert_eq!(result(&json!([])), "[]");
        assert_eq!(answer(&json!({"content": [], "structuredContent": {"n": 1}})), ToolAnswer::Result(r#"{"n":1}"#.into()));
        assert_eq!(answer(&json!({})), ToolAnswer::Result("[]".into()));
    }

    #[test]
    fn unknown_kinds_are_not_lost() {
        let link = json!({"type": "resource_link", "uri": "file:///x", "name": "x"});
        assert_eq!(result(&json!([link.clone()])), link.to_string());
        assert!(result(&json!([{"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}])).contains(r#""size":3"#));
    }

    #[test]
    fn an_error_carries_the_tools_own_words() {
        assert_eq!(
            answer(&json!({"isError": true, "content": [{"type": "text", "text": "disk full"}]})),
            ToolAnswer::Error("disk full".into())
        );
        assert!(matches!(answer(&json!({"isError": true, "content": []})), ToolAnswer::Error(text) if !text.is_empty()));
    }
}
