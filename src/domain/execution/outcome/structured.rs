//! Combines structured content with other content, without repetition or loss.

use serde_json::Value;

use crate::domain::execution::outcome::content::Content;
use crate::domain::text::json;

/// Maximum size in bytes of texts that are compared as JSON values. Larger ones are compared byte by byte.
const COMPARED_BYTES: usize = 1 << 20;

/// The items and the structured content to return.
pub(super) struct Chosen<'a> {
    pub(super) items: Vec<Content<'a>>,
    pub(super) structured: Option<&'a str>,
}

/// Chooses the content to return. A tool with an output schema returns its structured content. Its texts repeat that for older
/// clients (MCP specification, "Structured Content") and are dropped; images, files and links stay. Any other tool returns its
/// content, plus structured content that differs.
pub(super) fn beside<'a>(mut items: Vec<Content<'a>>, structured: Option<&'a str>, declares_output: bool) -> Chosen<'a> {
    if declares_output && structured.is_some() {
        items.retain(|item| !matches!(item, Content::Text(_)));
        return Chosen { items, structured };
    }
    let structured = structured.filter(|structured| !items.iter().any(|item| repeats(item, structured)));
    Chosen { items, structured }
}

/// Whether a text equals the structured content, or the value in it: libraries wrap a non-object `x` as `{"result": x}`.
fn repeats(item: &Content<'_>, structured: &str) -> bool {
    let Content::Text(string) = item else { return false };
    let Some(text) = json::text(string) else { return false };
    let text = text.trim();
    if text == structured {
        return true;
    }
    if text.len() > COMPARED_BYTES || structured.len() > COMPARED_BYTES {
        return false;
    }
    let Ok(structured) = json::readable(structured) else { return false };
    let wrapped = match &structured {
        Value::Object(members) if members.len() == 1 => members.get("result"),
        _ => None,
    };
    match json::readable(text) {
        Ok(value) => value == structured || Some(&value) == wrapped,
        Err(_) => wrapped.and_then(Value::as_str).is_some_and(|wrapped| wrapped.trim() == text),
    }
}
