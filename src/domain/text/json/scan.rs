//! A tokenizer for JSON text that builds no values.

use std::ops::Range;

/// A token of a valid JSON text.
pub(super) enum Token<'a> {
    Open,
    Close,
    /// The name of a member, as written in the text.
    Name(&'a str),
    Number {
        text: &'a str,
        start: usize,
    },
}

/// The tokens of a valid JSON text, in order.
pub(super) struct Scan<'a> {
    json: &'a str,
    position: usize,
}

impl<'a> Scan<'a> {
    pub(super) fn new(json: &'a str) -> Self {
        Self { json, position: 0 }
    }
}

impl<'a> Iterator for Scan<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        let bytes = self.json.as_bytes();
        loop {
            let start = self.position;
            match bytes.get(start)? {
                b'"' => {
                    self.position = end_of_string(bytes, start);
                    if is_name(self.json, &(start..self.position)) {
                        return Some(Token::Name(&self.json[start..self.position]));
                    }
                }
                b'{' => {
                    self.position += 1;
                    return Some(Token::Open);
                }
                b'}' => {
                    self.position += 1;
                    return Some(Token::Close);
                }
                b'-' | b'0'..=b'9' => {
                    let length = bytes[start..].iter().take_while(|byte| matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9'));
                    self.position += length.count();
                    return Some(Token::Number { text: &self.json[start..self.position], start });
                }
                _ => self.position += 1,
            }
        }
    }
}

/// The position after the closing quote of the string that begins at `start`; the end of the text if it has none.
pub fn end_of_string(bytes: &[u8], start: usize) -> usize {
    let mut position = start + 1;
    while let Some(byte) = bytes.get(position) {
        match byte {
            b'"' => return position + 1,
            b'\\' => position += 2,
            _ => position += 1,
        }
    }
    bytes.len()
}

/// The maximal nesting depth of lists and objects.
pub(super) fn depth(json: &str) -> usize {
    let (bytes, mut position) = (json.as_bytes(), 0);
    let (mut depth, mut deepest) = (0_usize, 0);
    while let Some(byte) = bytes.get(position) {
        match byte {
            b'"' => {
                position = end_of_string(bytes, position);
                continue;
            }
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        position += 1;
    }
    deepest
}

/// About how much memory the values of a parsed JSON text take, besides the bytes of its texts. Works on any text, and is never far
/// below the size of one tree.
pub(super) fn tree_bytes(json: &[u8]) -> usize {
    /// A `Value`, in a list that grows by doubling.
    const ITEM: usize = 112;
    /// The smallest list has room for four values.
    const LIST: usize = 4 * 72;
    /// The smallest object has room for four names and values, and a table of their hashes.
    const OBJECT: usize = 480;
    let (mut position, mut bytes) = (0, 0);
    while let Some(byte) = json.get(position) {
        match byte {
            b'"' => {
                position = end_of_string(json, position);
                continue;
            }
            b',' => bytes += ITEM,
            b'[' => bytes += LIST,
            b'{' => bytes += OBJECT,
            _ => {}
        }
        position += 1;
    }
    bytes
}

/// The byte ranges of all strings in a valid JSON text, quotes included.
pub(super) fn strings(json: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut position = 0;
    std::iter::from_fn(move || {
        let bytes = json.as_bytes();
        let start = position + bytes.get(position..)?.iter().position(|byte| *byte == b'"')?;
        position = end_of_string(bytes, start);
        Some(start..position)
    })
}

/// Whether the string in this range is the name of a member.
pub(super) fn is_name(json: &str, string: &Range<usize>) -> bool {
    json.as_bytes()[string.end..].iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b':')
}

/// The byte ranges of `NaN`, `Infinity` and `-Infinity` outside strings.
pub(super) fn literals(json: &str) -> Vec<Range<usize>> {
    const LITERALS: [&str; 3] = ["NaN", "Infinity", "-Infinity"];
    let bytes = json.as_bytes();
    let mut found = Vec::new();
    let mut position = 0;
    while let Some(byte) = bytes.get(position) {
        match byte {
            b'"' => position = end_of_string(bytes, position),
            b'N' | b'I' | b'-' => match LITERALS.iter().find(|literal| bytes[position..].starts_with(literal.as_bytes())) {
                Some(literal) => {
                    found.push(position..position + literal.len());
                    position += literal.len();
                }
                None => position += 1,
            },
            _ => position += 1,
        }
    }
    found
}

/// The escapes of lone surrogates. Escapes occur only in strings.
pub(super) fn lone_surrogates(json: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    if !json.contains("\\ud") && !json.contains("\\uD") {
        return found;
    }
    let (bytes, mut position) = (json.as_bytes(), 0);
    while let Some(byte) = bytes.get(position) {
        if *byte != b'\\' {
            position += 1;
            continue;
        }
        let length = match (surrogate(bytes, position), surrogate(bytes, position + 6)) {
            (Some(Half::First), Some(Half::Second)) => 12,
            (Some(_), _) => {
                found.push(position..position + 6);
                6
            }
            (None, _) => 2,
        };
        position += length;
    }
    found
}

#[derive(Clone, Copy)]
enum Half {
    First,
    Second,
}

/// The half of a surrogate pair whose escape begins at `position`, if any.
fn surrogate(bytes: &[u8], position: usize) -> Option<Half> {
    let escape = bytes.get(position..position + 6)?.strip_prefix(b"\\u")?;
    match (escape[0].to_ascii_lowercase(), escape[1].to_ascii_lowercase()) {
        (b'd', b'8' | b'9' | b'a' | b'b') => Some(Half::First),
        (b'd', b'c' | b'd' | b'e' | b'f') => Some(Half::Second),
        _ => None,
    }
}
