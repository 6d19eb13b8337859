//! Builds the response to a tool call: replaces files with links and truncates long texts.

use serde_json::{Value, json};

use crate::domain::execution::outcome::{self, Binary, Part, TextLimit};
use crate::service::execution::call_rules::CallRule;
use crate::service::execution::files::Files;

/// The setting with the text limit, named in the notice of a truncated result.
const LIMIT_SETTING: &str = "calls.max_text_bytes";
const NO_LINKS: &str = "The file is not part of this answer. For a link to it, an administrator can set http.public_url.";
const NOT_BASE64: &str = "The file is damaged: its data is not base64.";
const NOT_KEPT: &str = "The file is not part of this answer and could not be stored.";

/// The response body as JSON text.
pub(super) async fn body(parts: Vec<Part<'_>>, files: Option<&Files>, rule: CallRule) -> String {
    let mut described = Vec::with_capacity(parts.len());
    for part in parts {
        described.push(match part {
            Part::Binary(binary) => Part::File(describe(&binary, files).await.into()),
            part => part,
        });
    }
    let described = if rule.compact_results { outcome::compact(described) } else { described };
    outcome::body(described, rule.max_text_bytes.map(|bytes| TextLimit { bytes, setting: LIMIT_SETTING }))
}

async fn describe(binary: &Binary, files: Option<&Files>) -> String {
    let note = |note: &str| binary.description(&[("note", note.into())]);
    let Some(files) = files else { return note(NO_LINKS) };
    let Some(bytes) = binary.bytes() else { return note(NOT_BASE64) };
    match files.keep(&binary.mime_type, binary.file_name(), bytes).await {
        Ok(link) => {
            let note: Value = json!(format!("The file is at this address, without a key, for {}.", duration(files.lifetime().as_secs())));
            binary.description(&[("url", link.into()), ("note", note)])
        }
        Err(error) => {
            tracing::warn!(%error, bytes = binary.size(), "a file of a result could not be stored");
            note(NOT_KEPT)
        }
    }
}

/// Describes a duration in words.
fn duration(seconds: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(86_400, "day"), (3_600, "hour"), (60, "minute")];
    let (unit, name) = UNITS.into_iter().find(|(unit, _)| seconds >= *unit && seconds.is_multiple_of(*unit)).unwrap_or((1, "second"));
    let count = seconds / unit;
    format!("{count} {name}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::duration;

    #[test]
    fn durations_are_said_in_the_largest_unit_that_fits() {
        assert_eq!(
            [1, 60, 90, 3_600, 5_400, 172_800].map(duration),
            ["1 second", "1 minute", "90 seconds", "1 hour", "90 minutes", "2 days"]
        );
    }
}
