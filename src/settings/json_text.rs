//! Parses JSON as people write it, with comments and trailing commas, and finds the line of every key.
//!
//! `//`, `/* */` and trailing commas are replaced by spaces, which keeps all positions. The rest must be valid JSON.

use std::collections::HashMap;

use serde_json::Value;

use crate::domain::text::json::end_of_string;

/// A parsed JSON text with line numbers.
pub(super) struct JsonText {
    pub(super) value: Value,
    /// The line of every key and item, by its path.
    lines: HashMap<String, usize>,
    /// Keys that occur twice, with the line of the second one. JSON parsers silently use the last value.
    duplicates: Vec<(String, usize)>,
}

/// Where a text is not valid JSON.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SyntaxError {
    pub(super) line: usize,
    pub(super) column: usize,
    pub(super) message: String,
}

impl JsonText {
    pub(super) fn parse(text: &str) -> Result<Self, SyntaxError> {
        let plain = blank_extras(text)?;
        let value = serde_json::from_str(&plain).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            let message = error.to_string();
            let place = format!(" at line {line} column {column}");
            SyntaxError { line, column, message: message.strip_suffix(&place).unwrap_or(&message).to_owned() }
        })?;
        let mut scanner = Scanner { text: &plain, position: 0, line: 1, lines: HashMap::new(), duplicates: Vec::new() };
        scanner.value("");
        Ok(Self { value, lines: scanner.lines, duplicates: scanner.duplicates })
    }

    /// Keys that occur twice, with the line of the second one. Omits keys inside another such key.
    pub(super) fn outer_duplicates(&self) -> impl Iterator<Item = (&str, usize)> {
        let is_inside = |path: &str, outer: &str| path.strip_prefix(outer).is_some_and(|rest| rest.starts_with(['.', '[']));
        self.duplicates
            .iter()
            .filter(move |(path, _)| !self.duplicates.iter().any(|(outer, _)| is_inside(path, outer)))
            .map(|(path, line)| (path.as_str(), *line))
    }

    pub(super) fn line(&self, path: &str) -> Option<usize> {
        self.lines.get(path).copied()
    }
}

/// The path of a key: `path.key`, or `path["a key"]` if the key is not a simple word.
pub(super) fn child(path: &str, key: &str) -> String {
    let plain = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-' || c == '$');
    match (plain, path) {
        (true, "") => key.to_owned(),
        (true, _) => format!("{path}.{key}"),
        (false, _) => format!("{path}[{}]", Value::from(key)),
    }
}

/// The path of a list item: `path[2]`.
pub(super) fn item(path: &str, position: usize) -> String {
    format!("{path}[{position}]")
}

/// Replaces comments, trailing commas and a byte order mark with spaces. The length in bytes stays the same.
fn blank_extras(text: &str) -> Result<String, SyntaxError> {
    let mut bytes = text.as_bytes().to_vec();
    if bytes.starts_with(b"\xef\xbb\xbf") {
        bytes[..3].fill(b' ');
    }
    let mut position = 0;
    let mut last_comma = None;
    while let Some(byte) = bytes.get(position).copied() {
        match byte {
            b'"' => {
                last_comma = None;
                position = end_of_string(&bytes, position);
                continue;
            }
            b'/' if matches!(bytes.get(position + 1), Some(b'/' | b'*')) => {
                let end = end_of_comment(&bytes, position).ok_or_else(|| at(text, position, "unterminated comment"))?;
                for byte in &mut bytes[position..end] {
                    if *byte != b'\n' {
                        *byte = b' ';
                    }
                }
                position = end;
                continue;
            }
            b',' => last_comma = Some(position),
            b'}' | b']' => {
                if let Some(comma) = last_comma.take() {
                    bytes[comma] = b' ';
                }
            }
            byte if byte.is_ascii_whitespace() => {}
            _ => last_comma = None,
        }
        position += 1;
    }
    // This can't fail, because only whole characters were replaced by spaces.
    String::from_utf8(bytes).map_err(|error| at(text, error.utf8_error().valid_up_to(), "not UTF-8"))
}

fn end_of_comment(bytes: &[u8], start: usize) -> Option<usize> {
    let inside = &bytes[start + 2..];
    if bytes[start + 1] == b'/' {
        return Some(inside.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |length| start + 2 + length));
    }
    inside.windows(2).position(|two| two == b"*/").map(|length| start + 2 + length + 2)
}

fn at(text: &str, position: usize, message: &str) -> SyntaxError {
    let (line, column) = line_and_column(text, position);
    SyntaxError { line, column, message: message.to_owned() }
}

/// The line and the column of a position, both counted from 1. The column is in bytes.
pub(super) fn line_and_column(text: &str, position: usize) -> (usize, usize) {
    let before = &text.as_bytes()[..position.min(text.len())];
    let line_start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
    (before.split(|byte| *byte == b'\n').count(), before.len() - line_start + 1)
}

/// Walks through valid JSON to find the lines of keys. The parser has already limited the depth.
struct Scanner<'a> {
    text: &'a str,
    position: usize,
    line: usize,
    lines: HashMap<String, usize>,
    duplicates: Vec<(String, usize)>,
}

impl Scanner<'_> {
    fn value(&mut self, path: &str) {
        match self.peek() {
            Some(b'{') => self.object(path),
            Some(b'[') => self.array(path),
            Some(b'"') => self.position = end_of_string(self.text.as_bytes(), self.position),
            _ => {
                while self.byte().is_some_and(|byte| !matches!(byte, b',' | b'}' | b']') && !byte.is_ascii_whitespace()) {
                    self.position += 1;
                }
            }
        }
    }

    fn object(&mut self, path: &str) {
        self.position += 1;
        while self.peek() == Some(b'"') {
            let start = self.position;
            self.position = end_of_string(self.text.as_bytes(), start);
            let key: String = serde_json::from_str(&self.text[start..self.position]).unwrap_or_default();
            let path = child(path, &key);
            if self.lines.insert(path.clone(), self.line).is_some() {
                self.duplicates.push((path.clone(), self.line));
            }
            self.peek();
            self.position += 1; // the colon
            self.value(&path);
            if self.peek() == Some(b',') {
                self.position += 1;
            }
        }
        self.position += 1;
    }

    fn array(&mut self, path: &str) {
        self.position += 1;
        for position in 0.. {
            match self.peek() {
                None | Some(b']') => break,
                _ => {}
            }
            let path = item(path, position);
            self.lines.insert(path.clone(), self.line);
            self.value(&path);
            if self.peek() == Some(b',') {
                self.position += 1;
            }
        }
        self.position += 1;
    }

    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.position).copied()
    }

    /// Returns the next byte that is not whitespace.
    fn peek(&mut self) -> Option<u8> {
        while let Some(byte) = self.byte()
            && byte.is_ascii_whitespace()
        {
            self.line += usize::from(byte == b'\n');
            self.position += 1;
        }
        self.byte()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{JsonText, SyntaxError};

    #[test]
    fn comments_and_trailing_commas_are_taken_and_lines_stay() {
        let text = "\u{feff}{ // é, }\n  \"a\": [1, /* ,] \n */ \"x // \\\" y\",],\n\"b c\": {\"d\": null,},\n}\n";
        let parsed = JsonText::parse(text).unwrap();
        assert_eq!(parsed.value, json!({"a": [1, "x // \" y"], "b c": {"d": null}}));
        let lines = ["a", "a[0]", "a[1]", "[\"b c\"]", "[\"b c\"].d", "nothing"].map(|path| parsed.line(path));
        assert_eq!(lines, [Some(2), Some(2), Some(3), Some(4), Some(4), None]);
    }

    #[test]
    fn syntax_errors_have_their_place() {
        let place = |text: &str| JsonText::parse(text).map(|parsed| parsed.value).unwrap_err();
        let SyntaxError { line, column, message } = place("{\n  \"a\": 1\n  \"b\": 2\n}");
        assert_eq!((line, column, message.as_str()), (3, 3, "expected `,` or `}`"));
        assert_eq!(place("{}\n /* x").line, 2);
        for text in ["", "{", "[1,,]", "{,}x", "\"", "\"\\", "/", "{\"a\" 1}"] {
            assert!(JsonText::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_key_that_comes_twice_is_found() {
        let parsed = JsonText::parse("{\"a\": {\"b\": 1,\n\"b\": 2}, \"b\": 3, \"c\": {\"d\": 1},\n\"c\": {\"d\": 1}}").unwrap();
        assert_eq!(parsed.outer_duplicates().collect::<Vec<_>>(), [("a.b", 2), ("c", 3)]);
    }

    #[test]
    fn no_broken_text_panics() {
        let text = "{\"a\": [1, /* é */ -2.5e3, \"\\u00e9\\\"\"], // x\n \"b\": {\"c\": null,},}";
        for (position, character) in text.char_indices() {
            let _ = JsonText::parse(&text[..position]);
            let _ = JsonText::parse(&text[position..]);
            let _ = JsonText::parse(&format!("{}{}", &text[..position], &text[position + character.len_utf8()..]));
        }
        assert!(JsonText::parse(text).is_ok() && JsonText::parse(&"[".repeat(100_000)).is_err());
    }
}
