//! Classifies a message that can't be understood by itself: a follow-up request, or mere courtesy.
//!
//! "and Seoul?" and "thanks!" are equally short and follow the same turns. They differ in the kind of message, and in whether the
//! previous assistant turn left something open. "yes" needs a tool after "Shall I send it?", but not after an answer. Polite
//! phrases in many languages are listed in [`super::courtesies`]. A head trained on such turns decides everything else
//! ([`super::turn_head`]).

use super::gate::GateEvidence;

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

impl LeftOpen {
    /// Examines the assistant's last turn.
    pub fn of(assistant: &str) -> Self {
        let end = tail(assistant.trim_end(), TAIL_CHARACTERS).to_lowercase().replace('’', "'");
        if FAREWELLS.iter().any(|words| last_sentence(&end).contains(words)) {
            return Self::default();
        }
        let asks = last_sentence(&end).contains(['?', '？', '؟']);
        let offers = OFFERS.iter().any(|words| end.contains(words));
        Self { asks, offers }
    }

    /// Whether a "yes" could refer to a question or an offer.
    pub fn is_any(self) -> bool {
        self.asks || self.offers
    }
}

/// Number of characters examined at the end of a turn, where questions and offers are.
const TAIL_CHARACTERS: usize = 240;

/// Closing questions that expect no answer.
const FAREWELLS: [&str; 8] = [
    "anything else",
    "something else",
    "what else can i",
    "how else can i",
    "can i help you with",
    "may i help you",
    "what can i do for you",
    "let me know if you need",
];

/// English phrases of an offer. In other languages, only a question mark is detected.
const OFFERS: [&str; 22] = [
    "shall i",
    "shall we",
    "should i",
    "should we",
    "do you want me to",
    "want me to",
    "do you want to",
    "would you like me to",
    "would you like to",
    "would you like it",
    "would you like a",
    "may i ",
    "can i go ahead",
    "if you like, i",
    "if you want, i",
    "let me know if you want",
    "let me know if i should",
    "please confirm",
    "are you sure",
    "do you really want",
    "say the word",
    "confirmation",
];

/// The last characters of a text.
fn tail(text: &str, characters: usize) -> &str {
    let start = text.char_indices().rev().nth(characters.saturating_sub(1)).map_or(0, |(at, _)| at);
    &text[start..]
}

fn last_sentence(text: &str) -> &str {
    let body = text.trim_end_matches(|character: char| !character.is_alphanumeric());
    let start =
        body.rfind(['.', '!', '?', '\n', '。', '！', '？']).map_or(0, |at| at + body[at..].chars().next().map_or(1, char::len_utf8));
    &text[start..]
}

#[cfg(test)]
mod tests {
    use super::LeftOpen;

    fn open(asks: bool, offers: bool) -> LeftOpen {
        LeftOpen { asks, offers }
    }

    #[test]
    fn a_question_at_the_end_is_open() {
        assert_eq!(LeftOpen::of("There are two. Which one do you mean?"), open(true, false));
        assert_eq!(LeftOpen::of("Shall I send it? 🙂"), open(true, true));
        assert_eq!(LeftOpen::of("Soll ich sie abschicken?"), open(true, false));
        assert_eq!(LeftOpen::of("要发送吗？"), open(true, false));
        assert_eq!(LeftOpen::of("Please confirm, then I will run it."), open(false, true));
    }

    #[test]
    fn an_answer_is_not() {
        assert_eq!(LeftOpen::of("Why did the bicycle fall over? It was two-tired."), open(false, false));
        assert_eq!(LeftOpen::of("Done. Is there anything else I can help you with?"), open(false, false));
        assert_eq!(LeftOpen::of(""), open(false, false));
    }
}
