//! Files in results: images for models, and all other files.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Map, Value};

use crate::domain::text::named::named;

/// Image types that every provider accepts. Any other type (SVG, TIFF) would make the whole chat fail.
const IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/// Number of base64 characters that contain a file's magic bytes.
const BEGINNING: usize = 16;
const UNKNOWN: &str = "application/octet-stream";
/// Maximum length of a media type.
const LONGEST_MIME_TYPE: usize = 100;

const LENIENT: GeneralPurpose =
    GeneralPurpose::new(&STANDARD, GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent));

named! {
    /// The content type by which the server sent a file.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum BinaryKind {
        Image = "image",
        Audio = "audio",
        Resource = "resource",
    }
}

/// A file in a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binary {
    pub kind: BinaryKind,
    /// The media type in lower case, without parameters.
    pub mime_type: String,
    /// The URI, if the file is an embedded resource.
    pub uri: Option<String>,
    pub name: Option<String>,
    /// The data in base64 (RFC 4648, section 4).
    pub(super) data: String,
}

/// The kind of a resource with this media type.
pub(super) fn kind_of(mime_type: Option<&str>) -> BinaryKind {
    match mime_type.map(str::to_ascii_lowercase) {
        Some(mime_type) if mime_type.starts_with("image/") => BinaryKind::Image,
        Some(mime_type) if mime_type.starts_with("audio/") => BinaryKind::Audio,
        _ => BinaryKind::Resource,
    }
}

impl Binary {
    /// Accepts base64 as servers send it: with line breaks, URL-safe, or as a whole data URI.
    pub(super) fn new(kind: BinaryKind, data: Option<String>, mime_type: Option<String>) -> Self {
        let mut data = data.unwrap_or_default();
        let mut mime_type = mime_type.map(|mime_type| essence(&mime_type)).filter(|it| !it.is_empty());
        let uri = data.strip_prefix("data:").and_then(|data| data.split_once(','));
        if let Some((head, rest)) = uri.map(|(head, rest)| (essence(head), rest.to_owned())) {
            mime_type = mime_type.or(Some(head).filter(|it| !it.is_empty()));
            data = rest;
        }
        if !data.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=')) {
            data.retain(|character| !character.is_ascii_whitespace());
            data = data.replace('-', "+").replace('_', "/");
        }
        let mime_type = match mime_type.as_deref() {
            None | Some(UNKNOWN) => type_of(&data).map(str::to_owned).or(mime_type),
            Some("image/jpg") => Some("image/jpeg".to_owned()),
            Some(_) => mime_type,
        };
        Self { kind, mime_type: mime_type.unwrap_or_else(|| UNKNOWN.to_owned()), uri: None, name: None, data }
    }

    /// The file as a data URI if it is an image that models accept, otherwise `None`. Open WebUI passes such images to the model.
    pub(super) fn data_uri(&self) -> Option<String> {
        let data = self.data.trim_end_matches('=');
        let is_base64 = !data.is_empty() && data.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'));
        // Audio content is never an image, whatever its media type.
        (self.kind != BinaryKind::Audio && IMAGES.contains(&self.mime_type.as_str()) && is_base64).then(|| {
            let padding = "=".repeat((4 - data.len() % 4) % 4);
            format!("data:{};base64,{data}{padding}", self.mime_type)
        })
    }

    /// The size of the file in bytes.
    pub fn size(&self) -> usize {
        self.data.trim_end_matches('=').len() * 3 / 4
    }

    /// The decoded file; `None` if the data is not valid base64.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        LENIENT.decode(&self.data).ok()
    }

    /// The JSON description that replaces the file in a result; `more` adds members.
    pub fn description(&self, more: &[(&str, Value)]) -> String {
        let mut object = Map::new();
        object.insert("type".into(), self.kind.name().into());
        for (name, value) in [("uri", &self.uri), ("name", &self.name)] {
            if let Some(value) = value {
                object.insert(name.into(), value.as_str().into());
            }
        }
        object.insert("mimeType".into(), self.mime_type.as_str().into());
        object.insert("size".into(), self.size().into());
        object.extend(more.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        Value::Object(object).to_string()
    }

    /// The file's name, or the last segment of its URI.
    pub fn file_name(&self) -> Option<&str> {
        let of_address =
            || self.uri.as_deref().map(|uri| uri.split(['?', '#']).next().unwrap_or(uri)).and_then(|uri| uri.rsplit('/').next());
        self.name.as_deref().or_else(of_address).map(str::trim).filter(|name| !name.is_empty())
    }
}

/// Detects the media type from the first bytes (WHATWG, "MIME Sniffing").
fn type_of(data: &str) -> Option<&'static str> {
    let beginning = LENIENT.decode(data.get(..BEGINNING.min(data.len() / 4 * 4))?).ok()?;
    Some(match beginning.as_slice() {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => "image/png",
        [0xff, 0xd8, 0xff, ..] => "image/jpeg",
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => "image/gif",
        // Audio and video use this container too.
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P'] => "image/webp",
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'A', b'V', b'E'] => "audio/wav",
        [b'R', b'I', b'F', b'F', _, _, _, _, b'A', b'V', b'I', b' '] => "video/x-msvideo",
        [b'f', b'L', b'a', b'C', ..] => "audio/flac",
        [b'I', b'D', b'3', ..] => "audio/mpeg",
        [b'%', b'P', b'D', b'F', b'-', ..] => "application/pdf",
        _ => return None,
    })
}

/// Normalises a media type to `type/subtype` in lower case. Empty if malformed.
fn essence(mime_type: &str) -> String {
    let essence = mime_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_token = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte));
    let is_valid = essence.split_once('/').is_some_and(|(kind, of_kind)| is_token(kind) && is_token(of_kind));
    if is_valid && essence.len() <= LONGEST_MIME_TYPE { essence } else { String::new() }
}
