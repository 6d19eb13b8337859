//! Splits prose and identifiers into words.

use unicode_normalization::char::is_combining_mark;

/// The words of an identifier or of prose, separated by single spaces, in their original case: `getHTTPStatus_code` becomes `get
/// HTTP Status code`.
pub(crate) fn split_identifier(identifier: &str) -> String {
    let mut words = String::with_capacity(identifier.len() + 8);
    for segment in segments(identifier) {
        let (Segment::Word(part) | Segment::Unspaced(part)) = segment else {
            continue;
        };
        if !words.is_empty() {
            words.push(' ');
        }
        words.push_str(part);
    }
    words
}

pub(super) enum Segment<'a> {
    /// A whole word or a part of an identifier.
    Word(&'a str),
    /// A whole camelCase or letter-digit compound. It follows its parts, so that `GitHub` matches `github`.
    Compound(&'a str),
    /// A run of characters in a script without spaces.
    Unspaced(&'a str),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Other,
    Apostrophe,
    Lower,
    Upper,
    Digit,
    Unspaced,
}

fn kind(character: char) -> Kind {
    match character {
        'a'..='z' => Kind::Lower,
        'A'..='Z' => Kind::Upper,
        '0'..='9' => Kind::Digit,
        '\'' | '\u{2019}' => Kind::Apostrophe,
        _ if character.is_ascii() => Kind::Other,
        _ if is_unspaced(character) => Kind::Unspaced,
        _ if character.is_uppercase() => Kind::Upper,
        // In scripts with spaces, combining marks belong to the preceding letter.
        _ if character.is_alphabetic() || is_combining_mark(character) => Kind::Lower,
        _ if character.is_numeric() => Kind::Digit,
        _ => Kind::Other,
    }
}

/// Whether a character belongs to a script in which the words to search for are not separated by spaces. Korean has spaces, but
/// only between phrases.
pub(in crate::domain) fn is_unspaced(character: char) -> bool {
    is_without_spaces(character) || matches!(u32::from(character), 0x1100..=0x11FF | 0xAC00..=0xD7AF)
}

/// Whether a character belongs to a script without any spaces: Thai, Lao, Burmese, Khmer, Kana and Han.
pub(in crate::domain) fn is_without_spaces(character: char) -> bool {
    matches!(u32::from(character),
        0x0E00..=0x0EFF   // Thai, Lao
        | 0x1000..=0x109F // Myanmar
        | 0x1780..=0x17FF // Khmer
        | 0x3005..=0x3007
        | 0x3041..=0x30FF // Hiragana, Katakana
        | 0x31F0..=0x31FF
        | 0x3400..=0x4DBF // Han
        | 0x4E00..=0x9FFF
        | 0xF900..=0xFAFF
        | 0x20000..=0x323AF)
        && character != '\u{30FB}'
}

/// The segments of `text`, in order; symbols and whitespace between them are dropped.
pub(super) fn segments(text: &str) -> impl Iterator<Item = Segment<'_>> {
    Segments { text, position: 0, compound: None, compound_end: 0, compound_parts: 0 }
}

struct Segments<'a> {
    text: &'a str,
    position: usize,
    /// Start of the current run of letters and digits.
    compound: Option<usize>,
    compound_end: usize,
    compound_parts: u32,
}

impl<'a> Iterator for Segments<'a> {
    type Item = Segment<'a>;

    fn next(&mut self) -> Option<Segment<'a>> {
        loop {
            let rest = &self.text[self.position..];
            let Some(first) = rest.chars().next() else {
                return self.close_compound();
            };
            match kind(first) {
                Kind::Other | Kind::Apostrophe => {
                    if let Some(compound) = self.close_compound() {
                        return Some(compound);
                    }
                    self.position += first.len_utf8();
                }
                Kind::Unspaced => {
                    if let Some(compound) = self.close_compound() {
                        return Some(compound);
                    }
                    let length = rest.find(|c| kind(c) != Kind::Unspaced).unwrap_or(rest.len());
                    self.position += length;
                    return Some(Segment::Unspaced(&rest[..length]));
                }
                Kind::Lower | Kind::Upper | Kind::Digit => {
                    let length = part_length(rest);
                    let part = &rest[..length];
                    self.compound.get_or_insert(self.position);
                    self.compound_parts += 1;
                    self.compound_end = self.position + length;
                    self.position = self.compound_end + contraction_length(&rest[length..]);
                    return Some(Segment::Word(part));
                }
            }
        }
    }
}

impl<'a> Segments<'a> {
    fn close_compound(&mut self) -> Option<Segment<'a>> {
        let start = self.compound.take()?;
        let parts = std::mem::take(&mut self.compound_parts);
        (parts > 1).then(|| Segment::Compound(&self.text[start..self.compound_end]))
    }
}

/// Length in bytes of the first part of a run of letters and digits. A part ends between letters and digits, before an uppercase
/// letter after a lowercase one, and before the last uppercase letter of `HTTPServer`.
fn part_length(run: &str) -> usize {
    let mut characters = run.char_indices().map(|(at, character)| (at, kind(character))).peekable();
    let Some((_, mut previous)) = characters.next() else {
        return 0;
    };
    while let Some((at, current)) = characters.next() {
        let boundary = match (previous, current) {
            (_, Kind::Other | Kind::Apostrophe | Kind::Unspaced) | (Kind::Lower, Kind::Upper) => true,
            (Kind::Digit, current) => current != Kind::Digit,
            (_, Kind::Digit) => true,
            (Kind::Upper, Kind::Upper) => matches!(characters.peek(), Some((_, Kind::Lower))),
            _ => false,
        };
        if boundary {
            return at;
        }
        previous = current;
    }
    run.len()
}

/// Length in bytes of an English contraction (`'s`, `'re`, …) at the start of `rest`, or 0.
fn contraction_length(rest: &str) -> usize {
    let mut characters = rest.chars();
    let Some(apostrophe) = characters.next().filter(|&character| kind(character) == Kind::Apostrophe) else {
        return 0;
    };
    let tail = characters.as_str();
    let length = tail.find(|character: char| !character.is_alphanumeric()).unwrap_or(tail.len());
    let ending = &tail[..length];
    let known = ["s", "t", "d", "m", "ll", "re", "ve"].iter().any(|known| ending.eq_ignore_ascii_case(known));
    if known { apostrophe.len_utf8() + length } else { 0 }
}
