//! Detects replies that accept an offer and go on: "yes, but only to Anna", "ja gern, das wäre lieb".
//!
//! The turn head knows a "yes" from an acknowledgement by its words, and was trained on few such replies. With thanks, they look to it like
//! the end of a conversation. `acceptances.tsv` lists in 16 languages how they begin, what qualifies them, and what takes them back ("yes,
//! thanks, but I'll do it myself"). A remark ("yes, I thought so") has none of these words, and isn't an acceptance.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

use crate::domain::text::words::is_without_spaces;

static LIST: &str = include_str!("acceptances.tsv");

/// The phrases of one language.
#[derive(Default)]
struct Phrases {
    /// How an acceptance begins.
    yes: Vec<String>,
    /// What qualifies it, thanks for it, or asks for it.
    more: Vec<String>,
    /// What takes it back or puts it off.
    refusal: Vec<String>,
}

static PHRASES: LazyLock<Vec<Phrases>> = LazyLock::new(|| {
    let mut languages: BTreeMap<&str, Phrases> = BTreeMap::new();
    for [language, kind, phrase] in rows() {
        let of_language = languages.entry(language).or_default();
        let phrases = match kind {
            "yes" => &mut of_language.yes,
            "refusal" => &mut of_language.refusal,
            _ => &mut of_language.more,
        };
        phrases.push(in_text(phrase));
    }
    languages.into_values().collect()
});

/// Language, kind and phrase of each line.
fn rows() -> impl Iterator<Item = [&'static str; 3]> {
    LIST.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split('\t').collect::<Vec<_>>().try_into().ok())
}

/// Whether a message accepts an offer and says more about it. Not for a bare "yes", which is a [`super::courtesies::Courtesy`].
///
/// If phrases of several languages begin the message, those of all of them count.
pub(super) fn accepts(message: &str) -> bool {
    let message = words(message) + " ";
    let mut has_more = false;
    for Phrases { yes, more, refusal } in &*PHRASES {
        let begins = yes.iter().filter(|phrase| message.starts_with(phrase.as_str()));
        let Some(begins) = begins.map(|phrase| phrase.trim_end().len()).max() else { continue };
        // "Why not" is no refusal.
        if refusal.iter().any(|phrase| message[begins..].contains(phrase.as_str())) {
            return false;
        }
        has_more |= more.iter().any(|phrase| message.contains(phrase.as_str()));
    }
    has_more
}

/// A phrase as it occurs in a message: whole words, unless it ends with `*`. In scripts without spaces, anywhere.
fn in_text(phrase: &str) -> String {
    let text = words(phrase);
    if phrase.ends_with('*') || text.ends_with(is_without_spaces) { text } else { text + " " }
}

/// The words of a text in lower case, with single spaces between them, and one before the first in scripts with spaces. Vowel signs of
/// Arabic are left out, as many writers do.
fn words(text: &str) -> String {
    let folded: String = text.nfkc().filter(|character| !matches!(character, '\'' | '’' | '\u{64B}'..='\u{652}')).collect();
    let is_part = |character: char| character.is_alphanumeric() || is_combining_mark(character);
    let words: Vec<String> =
        folded.split(|character: char| !is_part(character)).filter(|word| !word.is_empty()).map(str::to_lowercase).collect();
    let text = words.join(" ");
    if text.starts_with(is_without_spaces) { text } else { format!(" {text}") }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{LIST, PHRASES, accepts, rows};

    #[test]
    fn people_accept_and_go_on() {
        for message in [
            "yes, but change the date first",
            "Yes please, that would be amazing",
            "ja, aber nur an Anna",
            "ja sehr gern, das wäre super lieb von dir",
            "warum nicht, das wäre nett von dir",
            "sí, pero manda copia a Carlos",
            "oui, mais écris 20h",
            "sì, ma scrivi il 15",
            "sim, mas põe dia 15",
            "ja, maar maak er 15 april van",
            "tak, ale zmień na 15",
            "evet ama tarihi 15 yap",
            "да, только поменяй на 15-е",
            "так, тільки зміни на 15-те",
            "نعم لكن غيّر التاريخ إلى 15",
            "हाँ, लेकिन तारीख 15 कर दो",
            "好的，不过改成三点",
            "はい、でも明日にして",
            "네, 근데 날짜를 15일로 바꿔줘",
        ] {
            assert!(accepts(message), "{message}");
        }
    }

    #[test]
    fn a_refusal_or_a_remark_accepts_nothing() {
        for message in [
            "",
            "yes",
            "yes, I thought so",
            "thanks, that would be too much",
            "ok but not now, I need to ask my boss first",
            "ja, danke, aber das mache ich selbst",
            "ja, das hab ich mir gedacht",
            "sí, gracias, pero ya lo envío yo",
            "oui merci, mais je vais le faire moi-même",
            "sì grazie, ma la mando io",
            "sim, obrigado, mas eu mesmo envio",
            "ja bedankt, maar dat doe ik zelf",
            "tak, dzięki, ale sam to wyślę",
            "evet sağ ol ama ben kendim gönderirim",
            "да, спасибо, но я сам отправлю",
            "так, дякую, але я сам надішлю",
            "نعم شكرا، لكن سأرسلها بنفسي",
            "हाँ शुक्रिया, पर मैं खुद भेज दूँगा",
            "好的谢谢，不过我自己发就行",
            "はい、ありがとう。でも自分で送ります",
            "네 감사한데 제가 직접 보낼게요",
        ] {
            assert!(!accepts(message), "{message}");
        }
    }

    #[test]
    fn every_line_of_the_list_is_a_phrase_of_a_known_kind() {
        let lines: Vec<&str> = LIST.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(rows().count(), lines.len());
        assert_eq!(lines.len(), lines.iter().collect::<BTreeSet<_>>().len());
        assert!(rows().all(|[_, kind, phrase]| ["yes", "but", "grace", "refusal"].contains(&kind) && phrase == phrase.to_lowercase()));
        assert_eq!(PHRASES.len(), 16);
        assert!(PHRASES.iter().all(|phrases| phrases.yes.len() > 9 && phrases.more.len() > 9 && phrases.refusal.len() > 9));
    }
}
