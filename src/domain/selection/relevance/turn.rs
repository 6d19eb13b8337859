//! Classifies a message that can't be understood by itself: a follow-up request, or mere courtesy.
//!
//! "and Seoul?" and "thanks!" are equally short and follow the same turns. They differ in the kind of message, and in whether the
//! previous assistant turn left something open. "yes" needs a tool after "Shall I send it?", but not after an answer. `offers.tsv`
//! lists the phrases of offers and of closing questions, [`super::courtesies`] the polite phrases, both in many languages. A head
//! trained on such turns decides everything else ([`super::turn_head`]).

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use unicode_segmentation::UnicodeSegmentation;

use super::evidence::GateEvidence;

/// Whether the assistant's previous turn ended with a question, and whether it offered to do something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeftOpen {
    /// The turn ended with a question.
    pub asks: bool,
    /// The turn offered to do something, so the reply may be a request.
    pub offers: bool,
}

/// The evidence about a message that depends on earlier turns.
#[derive(Debug, Clone, Copy)]
pub struct TurnEvidence<'a> {
    /// The evidence about the message by itself.
    pub alone: GateEvidence<'a>,
    /// The evidence about the message together with earlier turns.
    pub in_context: GateEvidence<'a>,
    pub left_open: LeftOpen,
}

impl<'a> TurnEvidence<'a> {
    /// The text and the vector of the message by itself, with the candidates for the message in context.
    pub(super) fn by_itself(&self) -> GateEvidence<'a> {
        GateEvidence { message: self.alone.message, vector: self.alone.vector, ..self.in_context }
    }
}

impl LeftOpen {
    /// Examines the assistant's last turn.
    pub fn of(assistant: &str) -> Self {
        // A dotted capital I of Turkish leaves a combining dot behind.
        let end = tail(assistant.trim_end(), TAIL_CHARACTERS).to_lowercase().replace('’', "'").replace('\u{307}', "");
        let last = last_sentence(&end);
        if FAREWELLS.as_ref().is_some_and(|phrases| phrases.is_match(last)) {
            return Self::default();
        }
        let asks = last.contains(QUESTION_MARKS) || is_greek_question(last);
        let offers = OFFERS.as_ref().is_some_and(|phrases| phrases.is_match(&end));
        Self { asks, offers }
    }

    /// Whether a "yes" could refer to a question or an offer.
    pub fn is_any(self) -> bool {
        self.asks || self.offers
    }
}

/// Number of characters examined at the end of a turn, where questions and offers are.
const TAIL_CHARACTERS: usize = 240;
/// A sentence with fewer words says little without the one before.
const SHORT_SENTENCE_WORDS: usize = 4;
/// The question marks of Latin, East Asian and Arabic scripts, and the Greek one of its own.
const QUESTION_MARKS: [char; 4] = ['?', '？', '؟', '\u{37E}'];
/// The marks that end a sentence.
const SENTENCE_ENDS: [char; 10] = ['.', '!', '?', '\n', '。', '！', '？', '؟', '।', '\u{37E}'];

/// Phrases of 22 languages. Where a language has no phrases, a question mark still shows a question.
static LIST: &str = include_str!("offers.tsv");

static OFFERS: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| any_of(phrases("offer")));
static FAREWELLS: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| any_of(phrases("farewell")));

/// The phrases of a kind, in lowercase.
fn phrases(kind: &str) -> impl Iterator<Item = String> {
    let rows = LIST.lines().filter(|line| !line.starts_with('#')).map(|line| line.split('\t').skip(1));
    let of_kind = rows.filter_map(move |mut columns| columns.next().filter(|found| *found == kind).and(columns.next()));
    of_kind.map(|phrase| phrase.replace('_', " "))
}

/// Finds any of the phrases in one pass over a text. `None` if there are more phrases than an automaton has states.
fn any_of(phrases: impl Iterator<Item = String>) -> Option<AhoCorasick> {
    AhoCorasick::new(phrases).ok()
}

/// The last characters of a text.
fn tail(text: &str, characters: usize) -> &str {
    let start = text.char_indices().rev().nth(characters.saturating_sub(1)).map_or(0, |(at, _)| at);
    &text[start..]
}

fn last_sentence(text: &str) -> &str {
    let body = text.trim_end_matches(|character: char| !character.is_alphanumeric());
    let start = body.rfind(SENTENCE_ENDS).map_or(0, |at| at + body[at..].chars().next().map_or(1, char::len_utf8));
    &text[start..]
}

/// The question or offer at the end of an assistant's turn: its last sentence, with the one before if it is very short ("Yes or no?").
pub(super) fn closing(assistant: &str) -> &str {
    let end = tail(assistant.trim_end(), TAIL_CHARACTERS);
    let starts: Vec<usize> = end.split_sentence_bound_indices().map(|(start, _)| start).collect();
    let has_enough = |start: &usize| end[*start..].unicode_words().nth(SHORT_SENTENCE_WORDS - 1).is_some();
    &end[starts.into_iter().rev().find(has_enough).unwrap_or(0)..]
}

/// Whether a Greek sentence ends with a semicolon, which is how Greek keyboards write a question mark.
fn is_greek_question(sentence: &str) -> bool {
    let is_greek = |character| matches!(character, '\u{370}'..='\u{3FF}' | '\u{1F00}'..='\u{1FFF}');
    sentence.trim_end_matches(|character: char| !character.is_alphanumeric() && character != ';').ends_with(';')
        && sentence.contains(is_greek)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{FAREWELLS, LIST, LeftOpen, OFFERS, closing, phrases};

    fn open(asks: bool, offers: bool) -> LeftOpen {
        LeftOpen { asks, offers }
    }

    #[test]
    fn a_question_at_the_end_is_open() {
        assert_eq!(LeftOpen::of("There are two. Which one do you mean?"), open(true, false));
        assert_eq!(LeftOpen::of("Shall I send it? 🙂"), open(true, true));
        assert_eq!(LeftOpen::of("Please confirm, then I will run it."), open(false, true));
        assert_eq!(LeftOpen::of("Es gibt zwei. Welche meinst du?"), open(true, false));
        assert_eq!(LeftOpen::of("Βρήκα δύο. Ποιο εννοείς;"), open(true, false));
    }

    #[test]
    fn an_offer_is_open_in_many_languages() {
        for turn in [
            "Soll ich sie abschicken?",
            "C’est prêt. Voulez-vous que j’envoie le mail ?",
            "Lo encontré. ¿Quieres que lo borre?",
            "Posso anche creare un grafico.",
            "Encontrei dois. Quer que eu apague o mais antigo?",
            "Zal ik hem meteen versturen?",
            "Znalazłem wpis. Czy mam go usunąć?",
            "Taslak hazır. Göndereyim mi?",
            "İki kayıt aynı. İstersen birini silebilirim.",
            "Черновик готов. Хотите, чтобы я его отправил?",
            "Чернетка готова. Надіслати?",
            "المسودة جاهزة. هل تريد أن أرسلها؟",
            "मसौदा तैयार है। क्या मैं इसे भेज दूँ?",
            "草稿写好了，要不要我现在发出去？",
            "下書きができました。送信しましょうか。",
            "초안을 만들었어요. 보낼까요?",
            "Ska jag skicka det?",
            "Mám to poslat?",
            "Haluatko, että lähetän sen?",
            "Θέλεις να το στείλω;",
            "האם לשלוח את זה?",
            "ต้องการให้ส่งเลยไหม",
        ] {
            assert!(LeftOpen::of(turn).offers, "{turn}");
        }
    }

    #[test]
    fn the_closing_is_the_last_sentence_with_enough_words() {
        assert_eq!(closing("It contains notes.txt and plan.md. Shall I open plan.md?"), "Shall I open plan.md?");
        assert_eq!(closing("Dort liegen zwei. Soll ich plan.md öffnen? Oder nicht?"), "Soll ich plan.md öffnen? Oder nicht?");
        assert_eq!(closing("notes.txtとplan.mdがあります。plan.mdを開きましょうか？"), "plan.mdを開きましょうか？");
        assert_eq!(closing("Which one?"), "Which one?");
        assert_eq!(closing(""), "");
    }

    #[test]
    fn an_answer_is_not() {
        assert_eq!(LeftOpen::of("Why did the bicycle fall over? It was two-tired."), open(false, false));
        assert_eq!(LeftOpen::of("لماذا؟ لأن المطر كان غزيرا"), open(false, false));
        assert_eq!(LeftOpen::of("The stages are build; test; deploy;"), open(false, false));
        assert_eq!(LeftOpen::of(""), open(false, false));
    }

    #[test]
    fn a_closing_question_is_not() {
        for turn in [
            "Done. Is there anything else I can help you with?",
            "Erledigt. Kann ich sonst noch etwas für dich tun?",
            "C'est fait. Puis-je vous aider pour autre chose ?",
            "Listo. ¿Necesitas algo más?",
            "已经发送。还有什么可以帮您？",
            "送信しました。他に何かお手伝いしましょうか？",
            "Готово. Чем ещё могу помочь?",
            "تم الإرسال. هل تريد شيئا آخر؟",
        ] {
            assert_eq!(LeftOpen::of(turn), open(false, false), "{turn}");
        }
    }

    #[test]
    fn every_line_of_the_list_is_a_phrase_in_lowercase() {
        let lines: Vec<&str> = LIST.lines().filter(|line| !line.starts_with('#')).collect();
        let all: Vec<String> = ["offer", "farewell"].into_iter().flat_map(phrases).collect();
        assert_eq!(lines.len(), all.len());
        assert!(OFFERS.is_some() && FAREWELLS.is_some());
        assert_eq!(lines.len(), lines.iter().collect::<BTreeSet<_>>().len());
        assert!(lines.iter().all(|line| *line == line.to_lowercase() && !line.contains('’') && line.trim_end() == *line));
        assert!(all.iter().all(|phrase| phrase.chars().count() > 1));
        for kind in ["offer", "farewell"] {
            let languages: BTreeSet<&str> =
                lines.iter().filter(|line| line.split('\t').nth(1) == Some(kind)).map(|line| &line[..2]).collect();
            assert_eq!(languages.len(), 22, "{kind}: {languages:?}");
        }
    }
}
