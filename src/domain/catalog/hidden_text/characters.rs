//! Defines hidden characters.
//!
//! The hidden characters are the default ignorable code points of Unicode (`Default_Ignorable_Code_Point`: zero-width characters,
//! bidirectional controls, fillers, variation selectors, tag characters), interlinear annotations, and control characters except
//! tabs and line breaks. Unicode Technical Report 36 and Technical Standard 39 describe their use for spoofing. Some scripts and
//! emoji need such characters, so they are kept in these places:
//!
//! - a zero-width non-joiner that breaks a cursive connection (Unicode Standard Annex 31, section 2.3.1, rule A1) or
//!   follows a virama between letters (A2), and a zero-width joiner after a virama (B);
//! - a zero-width joiner between two emoji, and a variation selector after a character with an emoji form (Unicode
//!   Technical Standard 51, ED-16 and ED-9);
//! - the tag characters of the three flags recommended for interchange: England, Scotland and Wales (ED-14);
//! - the selectors and the vowel separator of Mongolian, after a Mongolian letter.

use std::fmt::Write as _;

use icu_properties::props::{
    CanonicalCombiningClass, DefaultIgnorableCodePoint, Emoji, EmojiModifier, ExtendedPictographic, GeneralCategory, GeneralCategoryGroup,
    IndicSyllabicCategory, JoiningType, Script, VariationSelector,
};
use icu_properties::{CodePointMapData, CodePointSetData};

const NON_JOINER: char = '\u{200c}';
const JOINER: char = '\u{200d}';
const KEYCAP: char = '\u{20e3}';
const BLACK_FLAG: char = '\u{1f3f4}';
const CANCEL_TAG: char = '\u{e007f}';
/// Subdivision codes of the flags recommended for interchange.
const FLAGS: [&str; 3] = ["gbeng", "gbsct", "gbwls"];

/// Returns the text without hidden characters, and the removed characters in order; `None` if it has none.
pub fn strip(text: &str) -> Option<(String, Vec<char>)> {
    // Nearly every text is clean and needs no copy.
    if !text.chars().any(is_suspect) {
        return None;
    }
    let characters: Vec<char> = text.chars().collect();
    let (mut kept, mut gone) = (String::with_capacity(text.len()), Vec::new());
    let mut position = 0;
    while let Some(&character) = characters.get(position) {
        let tags = if character == BLACK_FLAG { flag(&characters[position + 1..]) } else { 0 };
        if is_suspect(character) && !has_effect(&characters, position) {
            gone.push(character);
        } else {
            kept.extend(&characters[position..=position + tags]);
        }
        position += 1 + tags;
    }
    (!gone.is_empty()).then_some((kept, gone))
}

/// Replaces hidden characters with escapes such as `\u{200b}`, so that people can see them.
pub fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if is_suspect(character) {
            out.extend(character.escape_unicode());
        } else {
            out.push(character);
        }
    }
    out
}

/// Replaces hidden characters in a regular expression with escapes such as `\u200b` (ECMA-262), which match the same.
pub(super) fn escaped(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut after_backslash = false;
    for character in pattern.chars() {
        if is_suspect(character) {
            // A backslash before such a character has no meaning. Before the escape, it would take the place of the escape's own one.
            if after_backslash {
                out.pop();
            }
            let _ = match u32::from(character) {
                code @ ..=0xffff => write!(out, "\\u{code:04x}"),
                code => write!(out, "\\u{{{code:x}}}"),
            };
        } else {
            out.push(character);
        }
        after_backslash = character == '\\' && !after_backslash;
    }
    out
}

/// Whether a character is invisible within a line or ends the line. Variation selectors count as visible, because emoji and rare
/// Han characters need them.
pub fn is_unseen(character: char) -> bool {
    is_control(character) || (is_suspect(character) && !CodePointSetData::new::<VariationSelector>().contains(character))
}

/// Whether a character is a control character or a line or paragraph separator.
pub fn is_control(character: char) -> bool {
    character.is_control() || matches!(character, '\u{2028}' | '\u{2029}')
}

/// Whether a character counts as hidden unless its position justifies it.
fn is_suspect(character: char) -> bool {
    match character {
        '\t' | '\n' | '\r' | ' '..='~' => false,
        '\u{fff9}'..='\u{fffb}' => true,
        _ => character.is_control() || CodePointSetData::new::<DefaultIgnorableCodePoint>().contains(character),
    }
}

fn has_effect(text: &[char], position: usize) -> bool {
    let (before, after) = (&text[..position], &text[position + 1..]);
    match text[position] {
        NON_JOINER => breaks_connection(before, after) || (follows_virama(before) && is_followed_by_letter(after)),
        JOINER => joins_emoji(before, after) || (follows_virama(before) && !after.first().is_some_and(|next| is_dependent_vowel(*next))),
        '\u{fe0e}' | '\u{fe0f}' => before.last().is_some_and(|base| {
            let has_emoji_form = CodePointSetData::new::<Emoji>().contains(*base);
            has_emoji_form && (!base.is_ascii() || after.first() == Some(&KEYCAP))
        }),
        '\u{180b}'..='\u{180f}' => before.last().is_some_and(|base| is_letter(*base) && script(*base) == Script::Mongolian),
        _ => false,
    }
}

/// The number of tag characters, with terminator, that form a flag after a black flag emoji; 0 if there is no valid flag.
fn flag(rest: &[char]) -> usize {
    let tags = rest.iter().take_while(|tag| matches!(tag, '\u{e0020}'..='\u{e007e}')).count();
    let spelled: String = rest[..tags].iter().filter_map(|tag| char::from_u32(u32::from(*tag) - 0xe_0000)).collect();
    if rest.get(tags) == Some(&CANCEL_TAG) && FLAGS.contains(&spelled.as_str()) { tags + 1 } else { 0 }
}

/// Rule A1: whether the position is between a letter that joins forwards and one that joins backwards.
fn breaks_connection(before: &[char], after: &[char]) -> bool {
    let joining = |character: char| CodePointMapData::<JoiningType>::new().get(character);
    let next =
        |mut letters: Box<dyn Iterator<Item = &char> + '_>| letters.find(|letter| joining(**letter) != JoiningType::Transparent).copied();
    let left = next(Box::new(before.iter().rev())).map(joining);
    let right = next(Box::new(after.iter())).map(joining);
    matches!(left, Some(JoiningType::DualJoining | JoiningType::LeftJoining))
        && matches!(right, Some(JoiningType::DualJoining | JoiningType::RightJoining))
}

/// Rules A2 and B: whether `before` ends in a letter, marks, a virama, and marks reordered after it.
fn follows_virama(before: &[char]) -> bool {
    let class = |character: char| CodePointMapData::<CanonicalCombiningClass>::new().get(character);
    let mut marks = before.iter().rev().take_while(|mark| class(**mark) != CanonicalCombiningClass::NotReordered);
    if !marks.any(|mark| class(*mark) == CanonicalCombiningClass::Virama) {
        return false;
    }
    let is_mark = |character: char| GeneralCategoryGroup::Mark.contains(CodePointMapData::<GeneralCategory>::new().get(character));
    before.iter().rev().find(|character| !is_mark(**character)).is_some_and(|base| is_letter(*base))
}

fn is_followed_by_letter(after: &[char]) -> bool {
    let class = |character: char| CodePointMapData::<CanonicalCombiningClass>::new().get(character);
    after.iter().find(|next| class(**next) == CanonicalCombiningClass::NotReordered).is_some_and(|next| is_letter(*next))
}

fn joins_emoji(before: &[char], after: &[char]) -> bool {
    let is_pictographic = |character: char| CodePointSetData::new::<ExtendedPictographic>().contains(character);
    let decorates = |character: char| character == '\u{fe0f}' || CodePointSetData::new::<EmojiModifier>().contains(character);
    let base = before.iter().rev().find(|character| !decorates(**character));
    base.is_some_and(|base| is_pictographic(*base)) && after.first().is_some_and(|next| is_pictographic(*next))
}

fn is_letter(character: char) -> bool {
    GeneralCategoryGroup::Letter.contains(CodePointMapData::<GeneralCategory>::new().get(character))
}

fn is_dependent_vowel(character: char) -> bool {
    CodePointMapData::<IndicSyllabicCategory>::new().get(character) == IndicSyllabicCategory::VowelDependent
}

fn script(character: char) -> Script {
    CodePointMapData::<Script>::new().get(character)
}

#[cfg(test)]
mod tests {
    use super::{is_unseen, strip, visible};

    #[test]
    fn what_is_seen_in_a_name_is_not_unseen() {
        for name in ["Jane ❤\u{fe0f}", "葛\u{e0100}城", "Ωmega ß"] {
            assert!(!name.chars().any(is_unseen), "{name}");
        }
        for character in ['\u{7}', '\u{ad}', '\u{61c}', '\u{200b}', '\u{200d}', '\u{2028}', '\u{2029}', '\u{202e}', '\u{2066}', '\u{feff}']
        {
            assert!(is_unseen(character), "{character:?}");
        }
    }

    #[test]
    fn what_reads_otherwise_without_it_stays() {
        for text in [
            "plain\ttext\r\n",
            "می\u{200c}خواهم",        // Persian
            "ක්\u{200d}ෂ",             // Sinhala
            "क्\u{200d}ष",             // Devanagari, half form
            "क्\u{200c}ष",             // Devanagari, visible virama
            "👩\u{200d}👩\u{200d}👧", // a family
            "👩🏽\u{200d}💻",           // with a colour of the skin
            "🏳\u{fe0f}\u{200d}🌈",    // a flag of two emoji
            "❤\u{fe0f}",
            "1\u{fe0f}\u{20e3}",
            "🏴\u{e0067}\u{e0062}\u{e0073}\u{e0063}\u{e0074}\u{e007f}", // Scotland
            "ᠠ\u{180b}",
        ] {
            assert_eq!(strip(text), None, "{text:?}");
        }
    }

    #[test]
    fn what_hides_goes() {
        for (text, expected) in [
            ("a\u{200b}b\u{200c}c\u{200d}d", "abcd"),
            ("\u{202e}evil\u{202c} \u{2066}x\u{2069}\u{200f}", "evil x"),
            ("Hi\u{e0049}\u{e0067}\u{e006e}", "Hi"),
            ("🏴\u{e0068}\u{e0069}\u{e007f}", "🏴"),
            ("🏴\u{e0067}\u{e0062}", "🏴"),
            ("1\u{fe0f}2\u{fe0e}", "12"),
            ("😀\u{e0100}\u{e0123}\u{fe01}", "😀"),
            ("👍\u{200d}x", "👍x"),
            ("soft\u{ad}hyphen\u{feff}\u{2060}\u{3164}", "softhyphen"),
            ("\u{1b}[31mred\u{7}\u{0}", "[31mred"),
            ("\u{fff9}a\u{fffb}", "a"),
            ("خ\u{200c} ", "خ "),
        ] {
            let (stripped, gone) = strip(text).unwrap_or_else(|| panic!("nothing found in {text:?}"));
            assert_eq!(stripped, expected, "{text:?}");
            assert_eq!(gone.len(), text.chars().count() - expected.chars().count());
            assert_eq!(strip(&stripped), None, "{stripped:?}");
        }
    }

    #[test]
    fn hidden_characters_can_be_shown() {
        assert_eq!(visible("a\u{200b}b\nc"), "a\\u{200b}b\nc");
    }
}
