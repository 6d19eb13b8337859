//! Combines structured content with content: no repetition, no loss.

use serde_json::Value;

use crate::domain::execution::outcome::content::Content;
use crate::domain::text::json;

/// Larger texts are compared only byte by byte.
const COMPARED_BYTES: usize = 1 << 20;

/// The items of the result.
pub(super) struct Chosen<'a> {
    pub(super) items: Vec<Content<'a>>,
    pub(super) structured: Option<&'a str>,
}

/// A tool with an output schema returns its structured content. Its texts repeat the same for older clients (MCP
/// specification, "Structured Content"); images, files and links do not and are kept. For any other tool, the content is
/// the result, and structured content is added if it differs.
pub(super) fn beside<'a>(mut items: Vec<Content<'a>>, structured: Option<&'a str>, declares_output: bool) -> Chosen<'a> {
    if declares_output && structured.is_some() {
        items.retain(|item| !matches!(item, Content::Text(_)));
        return Chosen { items, structured };
    }
    let structured = structured.filter(|structured| !items.iter().any(|item| repeats(item, structured)));
    Chosen { items, structured }
}

/// Whether a text equals the structured content, or the value it wraps: libraries turn a non-object `x` into `{"result":
/// x}`.
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
