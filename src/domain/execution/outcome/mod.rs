//! Converts a raw MCP result to a response body.
//!
//! A single content item is unwrapped; several become an array. Text that is JSON is passed on as JSON, byte for byte, unless
//! parsers would change it. Results are scanned as text and never parsed into a tree.

mod media;
mod content;
mod structured;
mod truncate;

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::domain::execution::outcome::content::Content;
use crate::domain::execution::outcome::structured::Chosen;
use crate::domain::text::json::{self, quoted};

pub use self::media::{Binary, BinaryKind};
pub use self::structured::StructuredContent;
pub use self::truncate::TextLimit;

/// Maximum length of an error text in a problem's `detail`, in characters.
const DETAIL_LIMIT: usize = 4_000;
/// The text sent for an empty result. An empty list would read as "nothing found".
const NOTHING: &str = "The tool finished and returned nothing.";

/// The outcome of a tool call.
#[derive(Debug)]
pub enum ToolAnswer<'a> {
    /// The parts of the result, at least one.
    Result(Vec<Part<'a>>),
    /// The error text of the tool (MCP `isError`).
    Error(String),
}

/// One part of a result.
#[derive(Debug)]
pub enum Part<'a> {
    /// JSON text.
    Json(Cow<'a, str>),
    /// An image, as a data URI in a JSON string. Models receive it as an image, so it is never truncated.
    Image(String),
    /// A file. Callers replace it with a description.
    Binary(Binary),
    /// The description of a file, or a link to a resource, as JSON text. It is never truncated, but dropped if there are too many.
    File(Cow<'a, str>),
}

/// Whether the JSON text of a `CallToolResult` is an error.
pub fn is_error(result: &str) -> bool {
    json::member(result, "isError").is_some_and(|is_error| is_error.get() == "true")
}

/// The `resultType` of a result (MCP specification 2026-07-28); `None` from older servers.
pub fn result_type(result: &str) -> Option<String> {
    json::member(result, "resultType").and_then(|kind| json::text(kind.get()))
}

/// Whether the result asks for input (MCP specification 2026-07-28, `InputRequiredResult`).
pub fn is_question(result: &str) -> bool {
    result_type(result).as_deref() == Some("input_required")
}

/// Parses a `CallToolResult` (MCP specification, "Tool Result").
pub fn answer(result: &RawValue, returned: StructuredContent) -> ToolAnswer<'_> {
    let members = json::members(result.get()).unwrap_or_default();
    let content: Vec<Content<'_>> = members.get("content").map(|content| content::read(content.get())).unwrap_or_default();
    let structured = members.get("structuredContent").map(|structured| structured.get()).filter(|structured| *structured != "null");
    if members.get("isError").is_some_and(|is_error| is_error.get() == "true") {
        return ToolAnswer::Error(error_text(&content, structured));
    }
    let Chosen { items, structured } = structured::beside(content, structured, returned);
    let is_alone = items.len() + usize::from(structured.is_some()) == 1;
    let mut parts: Vec<Part<'_>> = items.into_iter().map(|item| item.into_part(is_alone)).collect();
    if let Some(structured) = structured {
        let place = if returned == StructuredContent::Preferred { 0 } else { parts.len() };
        parts.insert(place, Part::Json(structured.into()));
    }
    if parts.is_empty() {
        parts.push(Part::Json(quoted(NOTHING).into()));
    }
    ToolAnswer::Result(parts)
}

/// Converts JSON objects and lists to strings of minified JSON, which callers that pretty-print JSON leave unchanged. A list with
/// data URIs stays a list, because chat applications show its items as files.
pub fn compact(parts: Vec<Part<'_>>) -> Vec<Part<'_>> {
    let is_nested = |json: &str| json.trim_start().starts_with(['{', '[']);
    let is_file = |item: &&RawValue| item.get().starts_with("\"data:");
    let has_files = |json: &str| json::items(json).is_some_and(|items| items.iter().any(is_file));
    let compact = |part| match part {
        Part::Json(json) if is_nested(&json) && !has_files(&json) => Part::Json(quoted(&json::minified(&json)).into()),
        Part::File(json) => Part::File(quoted(&json::minified(&json)).into()),
        part => part,
    };
    parts.into_iter().map(compact).collect()
}

/// The response body as JSON text. Files must have been replaced with descriptions; any others are dropped.
pub fn body(parts: Vec<Part<'_>>, limit: Option<TextLimit<'_>>) -> String {
    let parts = match limit {
        Some(limit) => limit.apply(parts),
        None => parts,
    };
    let mut texts = parts.into_iter().filter_map(|part| match part {
        Part::Json(text) | Part::File(text) => Some(text),
        Part::Image(text) => Some(text.into()),
        Part::Binary(_) => None,
    });
    let body = match (texts.next(), texts.next()) {
        (None, _) => quoted(NOTHING),
        (Some(only), None) => only.into_owned(),
        (Some(first), Some(second)) => {
            let mut body = format!("[{first},{second}");
            for text in texts {
                body.push(',');
                body.push_str(&text);
            }
            body.push(']');
            body
        }
    };
    json::without_lone_surrogates(body)
}

fn error_text(content: &[Content<'_>], structured: Option<&str>) -> String {
    let texts: Vec<String> = content.iter().filter_map(Content::plain_text).filter(|text| !text.trim().is_empty()).collect();
    let text = match (texts.is_empty(), structured) {
        (false, _) => texts.join("\n"),
        (true, Some(structured)) => structured.to_owned(),
        (true, None) => "the tool returned an error without a text".to_owned(),
    };
    match text.char_indices().nth(DETAIL_LIMIT) {
        Some((end, _)) => format!("{}… (cut, {} bytes in all)", &text[..end], text.len()),
        None => text,
    }
}

#[cfg(test)]
mod tests;
