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

/// When structured content is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StructuredContent {
    /// Instead of texts: the tool has an output schema. Its texts repeat the structured content for older clients (MCP specification,
    /// "Structured Content") and are dropped; images, files and links stay. If the structured content only wraps the texts, they are
    /// returned: libraries give a function that returns a text the output schema `{"result": string}`.
    Preferred,
    /// Beside the content, if it differs.
    Added,
    /// Only if there is no content.
    Fallback,
}

/// Chooses the content to return.
pub(super) fn beside<'a>(mut items: Vec<Content<'a>>, structured: Option<&'a str>, returned: StructuredContent) -> Chosen<'a> {
    let Some(given) = structured else { return Chosen { items, structured } };
    match returned {
        StructuredContent::Preferred if wraps(given, &items) => Chosen { items, structured: None },
        StructuredContent::Preferred => {
            items.retain(|item| !matches!(item, Content::Text(_)));
            Chosen { items, structured }
        }
        StructuredContent::Added => {
            let is_repeated = items.iter().any(|item| repeats(item, given));
            Chosen { items, structured: structured.filter(|_| !is_repeated) }
        }
        StructuredContent::Fallback => {
            let is_alone = items.is_empty();
            Chosen { items, structured: structured.filter(|_| is_alone) }
        }
    }
}

/// Whether the structured content is an object whose only member is the text, or the list of the texts.
fn wraps(structured: &str, items: &[Content<'_>]) -> bool {
    let texts: Option<Vec<&str>> = items.iter().map(|item| if let Content::Text(text) = item { Some(*text) } else { None }).collect();
    let Some(texts) = texts.filter(|texts| !texts.is_empty()) else { return false };
    if structured.len() > COMPARED_BYTES || texts.iter().map(|text| text.len()).sum::<usize>() > COMPARED_BYTES {
        return false;
    }
    let Ok(Value::Object(members)) = json::readable(structured) else { return false };
    let Some(value) = members.values().next().filter(|_| members.len() == 1) else { return false };
    match (&texts[..], value) {
        ([text], value) if says(text, value) => true,
        (texts, Value::Array(values)) => texts.len() == values.len() && texts.iter().zip(values).all(|(text, value)| says(text, value)),
        _ => false,
    }
}

/// Whether a text, as a JSON string, is this value: a string literally, any other value as JSON.
fn says(text: &str, value: &Value) -> bool {
    let Some(text) = json::text(text) else { return false };
    match value {
        Value::String(string) => *string == text,
        value => json::readable(&text).is_ok_and(|read| read == *value),
    }
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
