//! Parses the items in a result's `content`.
//!
//! `_meta` is for programs and is dropped. The intended audience (`annotations.audience`) has no effect, because all content
//! reaches the user through the model.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::domain::execution::outcome::Part;
use crate::domain::execution::outcome::media::{self, Binary, BinaryKind};
use crate::domain::text::json::{self, Members, quoted};

/// Members that are useless to a model. Chats might show the image in an icon as a result.
const NOT_FOR_MODELS: [&str; 3] = ["_meta", "annotations", "icons"];

#[derive(Debug)]
pub(super) enum Content<'a> {
    /// A text, as a JSON string.
    Text(&'a str),
    /// An embedded text resource: its text as a JSON string, and its other members.
    Resource {
        members: Members<'a>,
        text: &'a str,
    },
    /// A link to a resource.
    Link(String),
    /// An item of an unknown type, passed on unchanged.
    Other(Cow<'a, str>),
    Image(String),
    Binary(Binary),
}

/// Parses the items. Tolerates content that is not a list.
pub(super) fn read(content: &str) -> Vec<Content<'_>> {
    match content.as_bytes().first() {
        Some(b'[') => json::items(content).unwrap_or_default().into_iter().map(|item| one(item.get())).collect(),
        Some(b'n') | None => Vec::new(),
        _ => vec![one(content)],
    }
}

fn one(item: &str) -> Content<'_> {
    if item.starts_with('"') {
        return Content::Text(item);
    }
    let Some(members) = json::members(item) else { return Content::Other(item.into()) };
    let text = |name: &str| members.get(name).and_then(|value| json::text(value.get()));
    match text("type").as_deref() {
        Some("text") => match members.get("text") {
            Some(text) if text.get().starts_with('"') => Content::Text(text.get()),
            Some(other) => Content::Other(other.get().into()),
            None => Content::Text("\"\""),
        },
        Some("image") => binary(Binary::new(BinaryKind::Image, text("data"), text("mimeType"))),
        Some("audio") => binary(Binary::new(BinaryKind::Audio, text("data"), text("mimeType"))),
        Some("resource") => match members.get("resource").and_then(|resource| json::members(resource.get())) {
            Some(resource) => embedded(resource),
            None => Content::Other(item.into()),
        },
        Some("resource_link") => Content::Link(for_models(&members, &[])),
        _ => Content::Other(item.into()),
    }
}

fn embedded(mut resource: Members<'_>) -> Content<'_> {
    let text = |name: &str| resource.get(name).and_then(|value| json::text(value.get()));
    if let Some(blob) = text("blob") {
        let kind = media::kind_of(text("mimeType").as_deref());
        let name = text("name").or_else(|| text("title"));
        return binary(Binary { uri: text("uri"), name, ..Binary::new(kind, Some(blob), text("mimeType")) });
    }
    match resource.get("text").map(|text| text.get()).filter(|text| text.starts_with('"')) {
        Some(text) => {
            resource.shift_remove("text");
            Content::Resource { members: resource, text }
        }
        None => Content::Other(for_models(&resource, &[("type", "\"resource\"")]).into()),
    }
}

/// Separates images that models accept from other files.
fn binary(binary: Binary) -> Content<'static> {
    match binary.data_uri() {
        Some(uri) => Content::Image(quoted(&uri)),
        None => Content::Binary(binary),
    }
}

/// The JSON of an object for models: the members in `first`, then those of `members` that are useful.
fn for_models(members: &Members<'_>, first: &[(&str, &str)]) -> String {
    let given = first.iter().copied();
    let kept = members.iter().filter(|(name, _)| !NOT_FOR_MODELS.contains(&name.as_ref()));
    let kept = kept.map(|(name, value)| (name.as_ref(), value.get()));
    let all: Vec<String> = given.chain(kept).map(|(name, value)| format!("{}:{value}", quoted(name))).collect();
    format!("{{{}}}", all.join(","))
}

impl<'a> Content<'a> {
    /// Converts the item to a part of the result. A single text resource becomes its text; among other items, it stays an object
    /// with its URI.
    pub(super) fn into_part(self, is_alone: bool) -> Part<'a> {
        match self {
            Self::Text(text) => Part::Json(text_part(text)),
            Self::Resource { text, .. } if is_alone => Part::Json(text_part(text)),
            Self::Resource { members, text } => {
                let mut object = for_models(&members, &[("type", "\"resource\"")]);
                object.pop();
                Part::Json(format!("{object},\"text\":{text}}}").into())
            }
            Self::Link(json) => Part::File(json.into()),
            Self::Other(json) => Part::Json(json),
            Self::Image(uri) => Part::Image(uri),
            Self::Binary(binary) => Part::Binary(binary),
        }
    }

    /// The text of the item, if it has any.
    pub(super) fn plain_text(&self) -> Option<String> {
        match self {
            Self::Text(text) | Self::Resource { text, .. } => json::text(text),
            Self::Link(_) | Self::Other(_) | Self::Image(_) | Self::Binary(_) => None,
        }
    }
}

/// Converts a JSON string: to its content if that is JSON, otherwise to the string itself.
fn text_part(string: &str) -> Cow<'_, str> {
    if !may_be_json(string) {
        return string.into();
    }
    match json::text(string).as_deref().and_then(json_in) {
        Some(json) => json.to_owned().into(),
        None => string.into(),
    }
}

/// Whether the first significant character may start JSON.
fn may_be_json(string: &str) -> bool {
    let mut rest = &string.as_bytes()[1..];
    loop {
        rest = match rest {
            [b' ', rest @ ..] | [b'\\', b'n' | b'r' | b't', rest @ ..] => rest,
            [b'\\', b'"', ..] | [b'{' | b'[' | b't' | b'f' | b'-' | b'0'..=b'9', ..] => return true,
            _ => return false,
        };
    }
}

/// The text as JSON; `None` if it must stay text. That applies to `null`, which chats treat as no result, and to anything that
/// parsers would change (`NaN`, `007`, `1e999`, long numbers, duplicate names).
fn json_in(text: &str) -> Option<&str> {
    let text = text.trim();
    let is_json = match text.as_bytes().first()? {
        b'{' | b'[' | b'"' => serde_json::from_str::<&RawValue>(text).is_ok() && json::survives_reading(text),
        b't' | b'f' => matches!(text, "true" | "false"),
        // The spelling must match too, not only the value: `1e5` may be a name.
        b'-' | b'0'..=b'9' => {
            let is_same = |number: serde_json::Number| number.to_string() == text;
            serde_json::from_str(text).is_ok_and(is_same) && json::number_survives(text)
        }
        _ => false,
    };
    is_json.then_some(text)
}
