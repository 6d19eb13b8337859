//! One form for each letter, so that two spellings of a word are equal.
//!
//! [`clean`] works on a whole text before it is split: compatibility forms (NFKC), invisible characters, and the vowel marks
//! that writers of Hebrew and Arabic mostly leave out. [`fold`] works on a single word: lower case, without accents.

use std::borrow::Cow;

use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfkc_quick};

/// The text in NFKC, without characters that don't separate words and that nobody searches for. Keeps accents, which stemmers
/// need.
///
/// An apostrophe or a quotation mark between two letters of the Hebrew or Cyrillic script belongs to the word, and so does the
/// middle dot in Catalan (rules WB6 and WB7 of UAX #29). Marks and format characters never end a word (rule WB4).
pub(in crate::domain) fn clean(text: &str) -> Cow<'_, str> {
    if text.is_ascii() || !needs_cleaning(text) {
        return Cow::Borrowed(text);
    }
    let mut cleaned = String::with_capacity(text.len());
    let mut characters = text.nfkc().filter(|&character| !is_dropped(character)).peekable();
    let mut previous = ' ';
    while let Some(character) = characters.next() {
        let joins = is_joiner(character) && characters.peek().is_some_and(|&next| is_joined(previous, character, next));
        if !joins {
            cleaned.push(character);
        }
        previous = character;
    }
    Cow::Owned(cleaned)
}

/// A whole text in its single form: [`clean`] and [`fold`].
pub(in crate::domain) fn folded(text: &str) -> String {
    let mut folded = String::with_capacity(text.len());
    fold(&clean(text), &mut folded);
    folded
}

/// A word in lower case, without accents, with one form for letters that people use interchangeably.
pub(super) fn fold(word: &str, folded: &mut String) {
    folded.clear();
    if word.is_ascii() {
        folded.push_str(word);
        folded.make_ascii_lowercase();
        return;
    }
    for character in word.chars().flat_map(char::to_lowercase).nfkd() {
        match character {
            // The breve makes another letter of the Cyrillic и, and endings depend on it.
            '\u{0306}' if folded.ends_with('и') => {
                folded.pop();
                folded.push('й');
            }
            // Accents, and the hamza and the madda over an alef; the nukta; the apostrophe as a letter.
            '\u{0300}'..='\u{036F}' | '\u{0653}'..='\u{0655}' | '\u{093C}' | 'ʼ' => {}
            _ => match single_form(character) {
                Some(form) => folded.push_str(form),
                None => folded.push(character),
            },
        }
    }
}

/// The usual form of letters without a decomposition, and ASCII digits for the digits of other scripts.
fn single_form(character: char) -> Option<&'static str> {
    Some(match character {
        'ß' => "ss",
        'æ' => "ae",
        'œ' => "oe",
        'ø' => "o",
        'đ' | 'ð' => "d",
        'ł' => "l",
        'þ' => "th",
        'ħ' => "h",
        'ŧ' => "t",
        'ŋ' => "n",
        'ı' => "i",
        'ς' => "σ",
        'ґ' => "г",
        // Alef, yeh, teh marbuta and kaf.
        '\u{0671}' => "\u{0627}",
        '\u{0649}' | '\u{06CC}' => "\u{064A}",
        '\u{0629}' | '\u{06C1}' | '\u{06BE}' => "\u{0647}",
        '\u{06A9}' => "\u{0643}",
        // Candrabindu and anusvara.
        '\u{0901}' => "\u{0902}",
        _ => return digit(character),
    })
}

fn digit(character: char) -> Option<&'static str> {
    const ZEROS: [u32; 6] = [0x0660, 0x06F0, 0x0966, 0x09E6, 0x0E50, 0x0ED0];
    const DIGITS: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
    let place = ZEROS.iter().find_map(|zero| u32::from(character).checked_sub(*zero).filter(|digit| *digit < 10))?;
    DIGITS.get(place as usize).copied()
}

fn needs_cleaning(text: &str) -> bool {
    is_nfkc_quick(text.chars()) != IsNormalized::Yes || text.chars().any(|character| is_dropped(character) || is_joiner(character))
}

/// Whether [`clean`] drops a character: joiners, directional and other format characters, variation selectors, the marks of
/// Hebrew and Arabic, and the tatweel.
fn is_dropped(character: char) -> bool {
    matches!(u32::from(character),
        0x00AD
        | 0x0591..=0x05BD | 0x05BF | 0x05C1..=0x05C2 | 0x05C4..=0x05C5 | 0x05C7
        | 0x0610..=0x061A | 0x061C | 0x0640 | 0x064B..=0x065F | 0x0670 | 0x06D6..=0x06DC | 0x06DF..=0x06E8 | 0x06EA..=0x06ED
        | 0x180B..=0x180F
        | 0x200C..=0x200F | 0x202A..=0x202E | 0x2060..=0x206F
        | 0xFE00..=0xFE0F | 0xFEFF
        | 0xE0000..=0xE0FFF)
}

fn is_joiner(character: char) -> bool {
    matches!(character, '\'' | '\u{2019}' | '"' | '·' | '\u{05F3}' | '\u{05F4}')
}

fn is_joined(before: char, joiner: char, after: char) -> bool {
    let of_both = |is: fn(char) -> bool| is(before) && is(after);
    match joiner {
        '·' => of_both(|letter| letter.eq_ignore_ascii_case(&'l')),
        '\'' | '\u{2019}' if of_both(|letter| matches!(letter, '\u{0400}'..='\u{052F}')) => true,
        _ => of_both(|letter| matches!(letter, '\u{05D0}'..='\u{05F2}')),
    }
}

#[cfg(test)]
mod tests {
    use super::folded;

    #[test]
    fn folding_is_stable() {
        for text in ["ÄÖÜß", "İstanbul", "أهلاً", "한국어", "नोट्स", "ŁÓDŹ"] {
            assert_eq!(folded(&folded(text)), folded(text), "{text}");
        }
    }
}
