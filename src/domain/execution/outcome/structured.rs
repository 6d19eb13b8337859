//! What becomes of structured content beside content: nothing is said twice, and nothing is lost.

use serde_json::Value;

use crate::domain::execution::outcome::content::Content;
use crate::domain::text::json;

/// Larger texts are compared byte by byte only.
const COMPARED_BYTES: usize = 1 << 20;

/// What is part of the answer.
pub(super) struct Chosen<'a> {
    pub(super) items: Vec<Content<'a>>,
    pub(super) structured: Option<&'a str>,
}

/// A tool that declares an output schema answers with its structured content; its texts are the same in another form,
/// for clients that know no better (MCP specification, "Structured Content"). Images, files and links are not. Of any
/// other tool the content is the answer, and the structured content is added where it says something else.
pub(super) fn beside<'a>(mut items: Vec<Content<'a>>, structured: Option<&'a str>, declares_output: bool) -> Chosen<'a> {
    if declares_output && structured.is_some() {
        items.retain(|item| !matches!(item, Content::Text(_)));
        return Chosen { items, structured };
    }
    let structured = structured.filter(|structured| !items.iter().any(|item| repeats(item, structured)));
    Chosen { items, structured }
}

/// Whether a text is the structured content, or what it wraps: libraries make `{"result": x}` of an `x` that is no
/// object.
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
