//! Detects messages in many languages that are only polite: "danke", "谢谢", "ok, merci!", "👍".
//!
//! The built-in model handles English best and some scripts not at all. So thanks, greetings, farewells and refusals are listed
//! in `courtesies.tsv` and `replies.tsv`, one phrase per line with its language. A message is polite if it consists only of such phrases
//! and symbols. An assent ("yes") needs a tool if the assistant asked or offered something, otherwise not.
//!
//! `replies.tsv` doesn't count in [`courtesy_share`]: its words also occur in requests ("please"), and the turn head, which knows that
//! share, was trained without it.

use std::collections::HashMap;
use std::sync::LazyLock;

use unicode_normalization::UnicodeNormalization;

use crate::domain::text::words::is_unspaced;

static LIST: &str = include_str!("courtesies.tsv");
static REPLIES: &str = include_str!("replies.tsv");

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

/// A phrase of the lists.
struct Phrase {
    kind: Courtesy,
    /// Whether it counts in [`courtesy_share`].
    counts: bool,
}

static PHRASES: LazyLock<HashMap<String, Phrase>> = LazyLock::new(|| {
    let mut phrases = HashMap::new();
    for (list, counts) in [(LIST, true), (REPLIES, false)] {
        for (kind, phrase) in rows(list) {
            let known = phrases.entry(units(phrase).concat()).or_insert(Phrase { kind, counts });
            // A word may be an assent in one language and a courtesy in another. It then counts as assent.
            known.kind = kind.min(known.kind);
        }
    }
    phrases
});

/// The meaning and the text of each phrase in a list.
fn rows(list: &'static str) -> impl Iterator<Item = (Courtesy, &'static str)> {
    list.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut columns = line.split('\t').skip(1);
        let kind = match columns.next() {
            Some("courtesy") => Courtesy::Courtesy,
            Some("assent") => Courtesy::Assent,
            _ => return None,
        };
        Some((kind, columns.next()?))
    })
}

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

/// The share of a message's words that belong to the phrases of `courtesies.tsv`, 0 to 1.
pub(crate) fn courtesy_share(message: &str) -> f32 {
    let mut units = units(message);
    units.truncate(UNITS_READ);
    let mut covered = vec![false; units.len()];
    for start in 0..units.len() {
        let mut phrase = String::new();
        let mut longest = start;
        for (end, unit) in units.iter().enumerate().skip(start).take(LONGEST_PHRASE) {
            phrase.push_str(unit);
            if PHRASES.get(&phrase).is_some_and(|phrase| phrase.counts) {
                longest = end + 1;
            }
        }
        covered[start..longest].fill(true);
    }
    covered.iter().filter(|covered| **covered).count() as f32 / units.len().max(1) as f32
}

/// Whether a polite message needs phrases of `replies.tsv`.
pub(crate) fn is_untrained_reply(message: &str) -> bool {
    message.contains(char::is_alphanumeric) && courtesy_share(message) < 1.0
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
            let Some(&Phrase { kind, .. }) = PHRASES.get(&phrase) else { continue };
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
    use std::collections::BTreeSet;

    use super::{Courtesy, LIST, REPLIES, courtesy, courtesy_share, is_untrained_reply, rows};

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
        for message in ["ok, danke", "vale, gracias", "great, thank you"] {
            assert_eq!(courtesy(message), Some(Courtesy::Both), "{message}");
        }
    }

    /// Regression: after "shall I send it?", these left the message without a tool.
    #[test]
    fn people_say_yes_in_many_ways() {
        for message in [
            "sehr gerne",
            "Das wäre super!",
            "sí, gracias",
            "bueno",
            "por favor",
            "je veux bien",
            "oui stp",
            "perché no",
            "sim obrigado",
            "uhum",
            "ga je gang",
            "chętnie",
            "no jasne",
            "tak, dzięki",
            "evet teşekkürler",
            "isterim",
            "с удовольствием",
            "да, спасибо",
            "було б добре",
            "так, дякую",
            "ايوه لو سمحت",
            "نعم، شكرا",
            "haan thanks",
            "हाँ प्लीज़",
            "麻烦你了",
            "好的，麻烦你了",
            "おねがいします",
            "是非",
            "부탁드립니다",
            "네 감사합니다",
        ] {
            assert_eq!(courtesy(message), Some(Courtesy::Assent), "{message}");
        }
    }

    #[test]
    fn the_turn_head_knows_some_replies() {
        assert!(["yes", "ja, bitte", "👍"].into_iter().all(|message| !is_untrained_reply(message)));
        assert!(["do it", "yes, do it", "sehr gerne"].into_iter().all(is_untrained_reply));
    }

    #[test]
    fn people_decline_in_many_ways() {
        for message in [
            "jetzt nicht",
            "auf keinen fall",
            "déjalo así",
            "nan c'est bon",
            "a posto così",
            "agora não",
            "laat maar zitten",
            "nie teraz",
            "boşver",
            "şimdi değil",
            "не сейчас",
            "не зараз",
            "ما يحتاج",
            "rehne do",
            "नहीं चाहिए",
            "下次吧",
            "不要です",
            "また今度",
            "지금 말고",
        ] {
            assert_eq!(courtesy(message), Some(Courtesy::Courtesy), "{message}");
        }
    }

    #[test]
    fn every_line_of_both_lists_is_a_phrase() {
        let lines = |list: &'static str| list.lines().filter(|line| !line.starts_with('#')).count();
        let distinct: BTreeSet<&str> = REPLIES.lines().collect();
        assert_eq!((rows(LIST).count(), rows(REPLIES).count()), (lines(LIST), lines(REPLIES)));
        assert_eq!(distinct.len(), REPLIES.lines().count());
    }

    #[test]
    fn a_share_of_a_message_is_courtesy() {
        for (message, share) in [
            ("thanks", 1.0),
            ("thanks for checking", 1.0 / 3.0),
            ("open it", 0.0),
            ("", 0.0),
            ("ok, open it", 1.0 / 3.0),
            ("please open it", 0.0),
        ] {
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
