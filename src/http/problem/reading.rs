//! Reads request bodies and checks parameters.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use serde::de::{DeserializeOwned, IgnoredAny};

use super::{Code, Problem};
use crate::domain::text::json;
use crate::http::member::misfit;

/// Parses a JSON object in a body. Errors contain the position in the body.
///
/// # Errors
/// [`Code::NotJson`] for invalid JSON, and [`Code::InvalidRequest`] for JSON with unexpected contents.
pub(crate) fn read_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    // Derived code would also read the members from an array, in their order.
    if body.trim_ascii_start().first().is_some_and(|first| *first != b'{') {
        serde_json::from_slice::<IgnoredAny>(body)?;
        return Err(Problem::new(Code::InvalidRequest, "The body is not a JSON object."));
    }
    serde_json::from_slice(body).map_err(|error| {
        let parameter = error.is_data().then(|| misfit::<T>(body)).flatten().map(Cow::from);
        Problem { parameter, ..Problem::from(error) }
    })
}

/// Like [`read_json`], for what an administrator defines. A name may occur only once in an object, because the last value would silently
/// replace the others.
///
/// # Errors
/// Those of [`read_json`], and [`Code::InvalidRequest`] for such a name.
pub(crate) fn read_definition<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    let read = read_json(body)?;
    match std::str::from_utf8(body).ok().and_then(json::repeated_name) {
        Some(name) => Err(Problem::new(Code::InvalidRequest, format!("{name} occurs twice in the same object. Remove one of the two."))),
        None => Ok(read),
    }
}

/// The `limit` of a request.
///
/// # Errors
/// It is out of range.
pub(in crate::http) fn limit(given: Option<usize>, default: usize, range: RangeInclusive<usize>) -> Result<usize, Problem> {
    let limit = given.unwrap_or(default);
    let (least, most) = (range.start(), range.end());
    if range.contains(&limit) { Ok(limit) } else { Err(Problem::invalid("limit", format!("limit is {least} to {most}."))) }
}

/// Checks a name or an id that is stored or looked up. Databases store NUL differently, and no client sends control characters.
///
/// # Errors
/// It contains a control character.
pub(in crate::http) fn plain(parameter: &'static str, text: &str) -> Result<(), Problem> {
    let is_plain = !text.contains(char::is_control);
    if is_plain { Ok(()) } else { Err(Problem::invalid(parameter, format!("{parameter} contains a control character."))) }
}

impl From<serde_json::Error> for Problem {
    fn from(error: serde_json::Error) -> Self {
        let code = if error.is_data() { Code::InvalidRequest } else { Code::NotJson };
        Self::new(code, in_words_of_json(&error.to_string()))
    }
}

/// A parser's error, with JSON's names of types in place of Rust's.
fn in_words_of_json(error: &str) -> String {
    let mut words = error.split(' ');
    let mut said: Vec<&str> = Vec::new();
    while let Some(word) = words.next() {
        let follows_expected = said.last() == Some(&"expected");
        said.push(match word {
            "u8" | "u16" | "u32" | "u64" | "usize" if follows_expected => "a whole number",
            "f32" | "f64" if follows_expected => "a number",
            "struct" if follows_expected => {
                // The name of the type follows.
                words.next();
                "an object"
            }
            word => word,
        });
    }
    said.join(" ")
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[test]
    fn a_body_is_an_object_and_its_errors_speak_of_json() {
        #[derive(Debug, Deserialize)]
        #[expect(dead_code, reason = "it is only read")]
        struct Given {
            #[serde(default)]
            limit: Option<usize>,
            #[serde(default)]
            inner: Option<Inner>,
        }
        #[derive(Debug, Deserialize)]
        #[expect(dead_code, reason = "it is only read")]
        struct Inner {
            share: f32,
        }
        let refused = |body: &str| {
            let problem = read_json::<Given>(body.as_bytes()).unwrap_err();
            (problem.code.name(), problem.detail)
        };
        assert!(read_json::<Given>(b" {}").is_ok());
        for (body, code, detail) in [
            ("[1, null]", "invalid_request", "The body is not a JSON object."),
            (" null", "invalid_request", "The body is not a JSON object."),
            ("[1", "not_json", "EOF while parsing a list at line 1 column 2"),
            ("", "not_json", "EOF while parsing a value at line 1 column 0"),
            (r#"{"limit": -1}"#, "invalid_request", "invalid value: integer `-1`, expected a whole number at line 1 column 12"),
            (r#"{"inner": 5}"#, "invalid_request", "invalid type: integer `5`, expected an object at line 1 column 11"),
            (r#"{"inner": {"share": "x"}}"#, "invalid_request", "invalid type: string \"x\", expected a number at line 1 column 23"),
        ] {
            assert_eq!(refused(body), (code, detail.to_owned()), "{body}");
        }
    }

    #[test]
    fn a_definition_has_no_name_twice() {
        let read = |body: &str| read_definition::<serde_json::Value>(body.as_bytes()).map_err(|problem| problem.detail);
        assert!(read(r#"{"rules": [{"effect": "block"}, {"effect": "block"}]}"#).is_ok());
        let twice = read(r#"{"rules": [{"effect": "block", "effect": "allow"}]}"#);
        assert_eq!(twice, Err("\"effect\" occurs twice in the same object. Remove one of the two.".to_owned()));
    }
}
