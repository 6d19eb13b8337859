//! Detects messages in many languages that are only polite: "danke", "谢谢", "ok, merci!", "👍".
//!
//! The built-in model handles English best and some scripts not at all. So thanks, greetings, farewells and refusals are listed
//! in `courtesies.tsv`, one phrase per line with its language. A message is polite if it consists only of such phrases and
//! symbols. An assent ("yes") needs a tool if the assistant asked or offered something, otherwise not.

use std::collections::HashMap;
use std::sync::LazyLock;

use unicode_normalization::UnicodeNormalization;

use crate::domain::text::words::is_unspaced;

static LIST: &str = include_str!("courtesies.tsv");

/// The meaning of a purely polite message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Courtesy {
    /// Assent, such as "yes", "good" or "understood".
    Assent,
    /// Assent and courtesy, such as "ok, thanks". After a question, it may be a yes or a farewell.
    Both,
    /// Thanks, a greeting, a farewell, a refusal, or only symbols.
    Courtesy,
}

/// Maximum length of a polite message, in bytes.
const LONGEST_BYTES: usize = 160;
/// Maximum number of units in a phrase. A unit is a word, or a character of a script without spaces.
const LONGEST_PHRASE: usize = 24;
/// Maximum number of units examined per message.
const UNITS_READ: usize = 60;
/// Symbols that mean yes.
const ASSENTING: [char; 5] = ['👍', '👌', '✅', '🆗', '✔'];

static PHRASES: LazyLock<HashMap<String, Courtesy>> = LazyLock::new(|| {
    let mut phrases = HashMap::new();
    for line in LIST.lines().filter(|line| !line.starts_with('#')) {
        let mut columns = line.split('\t').skip(1);
        let kind = match columns.next() {
            Some("courtesy") => Courtesy::Courtesy,
            Some("assent") => Courtesy::Assent,
            _ => continue,
        };
        let Some(phrase) = columns.next() else { continue };
        // A word may be an assent in one language and a courtesy in another. It then counts as assent.
        phrases.entry(units(phrase).concat()).and_modify(|known: &mut Courtesy| *known = kind.min(*known)).or_insert(kind);
    }
    phrases
});

/// The meaning of a purely polite message; `None` for any other message, including blank ones.
pub fn courtesy(message: &str) -> Option<Courtesy> {
    let message = message.trim();
    if message.is_empty() || message.len() > LONGEST_BYTES {
        return None;
    }
    let units = units(message);
    if units.is_empty() {
        return signs(message);
    }
    covered(&units)
}

/// The share of a message's words that belong to polite phrases, 0 to 1.
pub(crate) fn courtesy_share(message: &str) -> f32 {
    let mut units = units(message);
    units.truncate(UNITS_READ);
    let mut covered = vec![false; units.len()];
    for start in 0..units.len() {
        let mut phrase = String::new();
        let mut longest = start;
        for (end, unit) in units.iter().enumerate().skip(start).take(LONGEST_PHRASE) {
            phrase.push_str(unit);
            if PHRASES.contains_key(&phrase) {
                longest = end + 1;
            }
        }
        covered[start..longest].fill(true);
    }
    covered.iter().filter(|covered| **covered).count() as f32 / units.len().max(1) as f32
}

/// The meaning of a message that consists only of emoji or punctuation.
fn signs(message: &str) -> Option<Courtesy> {
    let is_emoji = |character: char| matches!(u32::from(character), 0x1F000..=0x1FAFF | 0x2600..=0x27BF | 0x2B00..=0x2BFF | 0x2190..=0x21FF | 0xFE0F | 0x200D | 0x20E3);
    let has_emoji = message.chars().any(is_emoji);
    let all_signs = message.chars().all(|character| !character.is_alphanumeric());
    if !has_emoji || !all_signs {
        return None;
    }
    Some(if message.contains(ASSENTING) { Courtesy::Assent } else { Courtesy::Courtesy })
}

/// The combined meaning of the units if polite phrases cover all of them.
fn covered(units: &[String]) -> Option<Courtesy> {
    // For each position that phrases reach, their combined meaning.
    let mut reached: Vec<Option<Courtesy>> = vec![None; units.len() + 1];
    for start in 0..units.len() {
        if start > 0 && reached[start].is_none() {
            continue;
        }
        let mut phrase = String::new();
        for end in start + 1..=units.len().min(start + LONGEST_PHRASE) {
            phrase.push_str(&units[end - 1]);
            let Some(&kind) = PHRASES.get(&phrase) else { continue };
            let together = reached[start].map_or(kind, |before| if before == kind { kind } else { Courtesy::Both });
            // The longer phrase starts further back and wins.
            reached[end].get_or_insert(together);
        }
    }
    reached[units.len()]
}

/// Splits a text into units: lowercase words, each followed by a space, and single characters of scripts without spaces. Drops
/// symbols.
fn units(text: &str) -> Vec<String> {
    let mut units: Vec<String> = Vec::new();
    let mut word = String::new();
    let close = |word: &mut String, units: &mut Vec<String>| {
        if !word.is_empty() {
            word.push(' ');
            units.push(std::mem::take(word));
        }
    };
    let folded: String = text.nfkc().collect::<String>().to_lowercase();
    for character in folded.chars() {
        if is_unspaced(character) && character.is_alphabetic() {
            close(&mut word, &mut units);
            units.push(character.to_string());
        } else if character.is_alphanumeric() || unicode_normalization::char::is_combining_mark(character) {
            // Skip Arabic vowel signs, which are often omitted, and variation selectors and key caps, which belong to symbols.
            if !matches!(u32::from(character), 0x064B..=0x0652 | 0x20E3 | 0xFE00..=0xFE0F) {
                word.push(character);
            }
        } else if !matches!(character, '\'' | '’' | '\u{200C}' | '\u{200D}') {
            close(&mut word, &mut units);
        }
    }
    close(&mut word, &mut units);
    units
}

#[cfg(test)]
mod tests {
    use super::{Courtesy, courtesy, courtesy_share};

    #[test]
    fn courtesies_of_many_scripts_are_known() {
        for message in [
            "谢谢",
            "谢谢！",
            "ありがとう",
            "ありがとうございます。",
            "شكرا",
            "شكراً!",
            "धन्यवाद",
            "спасибо",
            "Спасибо большое!!",
            "감사합니다",
            "danke",
            "Danke schön!",
            "merci",
            "gracias",
            "¡Gracias!",
            "obrigado",
            "grazie",
            "dank je",
            "dziękuję",
            "teşekkürler",
            "תודה רבה",
            "ευχαριστώ",
            "ขอบคุณครับ",
            "cảm ơn bạn",
            "thanks!",
            "Nein, danke.",
            "不用了，谢谢",
            "🙏",
            "❤️",
            "😂😂",
            "merci 🙏",
        ] {
            assert_eq!(courtesy(message), Some(Courtesy::Courtesy), "{message}");
        }
    }

    #[test]
    fn an_assent_is_one() {
        for message in ["ja", "Ja, bitte!", "oui", "好的", "はい", "да", "네", "نعم", "👍", "Yes, go ahead.", "ok"] {
            assert_eq!(courtesy(message), Some(Courtesy::Assent), "{message}");
        }
        for message in ["ok, danke", "sí, gracias", "great, thank you"] {
            assert_eq!(courtesy(message), Some(Courtesy::Both), "{message}");
        }
    }

    #[test]
    fn a_share_of_a_message_is_courtesy() {
        for (message, share) in
            [("thanks", 1.0), ("thanks for checking", 1.0 / 3.0), ("open it", 0.0), ("", 0.0), ("ok, open it", 1.0 / 3.0)]
        {
            assert!((courtesy_share(message) - share).abs() < 1e-6, "{message}: {}", courtesy_share(message));
        }
    }

    #[test]
    fn whatever_says_more_is_not() {
        for message in [
            "",
            "  ",
            "?",
            "danke, und morgen?",
            "谢谢，还有上海呢？",
            "thanks, now send it",
            "no, the other one",
            "👍 what is new?",
            "4711",
            "Tokyo",
        ] {
            assert_eq!(courtesy(message), None, "{message}");
        }
        assert_eq!(courtesy(&"danke ".repeat(1_000)), None);
    }
}
