//! Turns a conversation into search texts.
//!
//! The query is the last user message. Fenced blocks (a pasted log, file or code) are dropped: a sentence encoder reads only the
//! first few hundred word pieces, so a paste would hide the request before or after it. With 60 lines of log in front of 151
//! messages, R@5 falls from .596 to .007. A message of [`SENTENCE_WORDS`] words or more is also searched sentence by sentence,
//! because one vector for several requests lies between them and near none. (R@5 on a set of such messages: .92 instead of .75;
//! on the 151 messages with an unfenced log: .225 instead of .007.) Of a message with a text to translate, to rephrase or to proofread,
//! only the words before that text are searched (see `quoted`).
//!
//! A shorter message with several clauses is also searched clause by clause, so that the ranking covers all requests (see
//! `fusion`).
//!
//! Earlier turns mislead after a change of topic. So they count only for a message that can't be understood by itself: one of a
//! few words, or a short one with a reference ("close it then"; see `referring`). Such a message is also searched together with the previous user
//! and assistant turns. (R@5 on 51 such dialogues over 1,898 tools: .43 for the last message alone, .59 with the user's turn
//! prepended, .78 with both turns as a second text. After a change of topic: .75, .58 and .67; the rule above avoids most of
//! these cases.) If the assistant's turn ended with a question or an offer, a reply of a few words ("yes, please") is also searched
//! together with that: what was offered often needs another tool than what was done before. So is a longer reply that accepts an offer
//! ("yes, but change the date first"), which depends on it without a reference.

use unicode_segmentation::UnicodeSegmentation;

use super::acceptances::accepts;
use super::pasted::pasted_lines;
use super::quoted::before_quoted;
use super::referring::refers;
use super::turn::{LeftOpen, closing};
use crate::domain::text::words::is_unspaced;

/// Minimum number of words of messages that are also searched sentence by sentence.
pub(crate) const SENTENCE_WORDS: usize = 25;
/// Maximum number of sentences to search, half from the beginning and half from the end.
pub(crate) const MAXIMUM_SENTENCES: usize = 16;
/// Maximum number of clauses to search.
pub(crate) const MAXIMUM_CLAUSES: usize = 6;
/// Minimum number of words in a sentence to search. Shorter ones ("Hi!", "Thanks.") point to no tool.
pub(crate) const SHORTEST_SENTENCE_WORDS: usize = 3;
/// Maximum number of characters of a message to search: about as much prose as an encoder of 256 word pieces reads. If a
/// message is longer, only its beginning and end are searched, where requests usually are.
pub(crate) const MESSAGE_CHARACTERS: usize = 800;
/// Maximum number of characters per run without whitespace, such as encoded data or tokens.
pub(crate) const WORD_CHARACTERS: usize = 120;

/// Marks in web pages where a word may be divided.
const SOFT_HYPHEN: char = '\u{AD}';

/// Minimum number of letters of a text in capitals, which is not just an abbreviation.
const FEWEST_CAPITALS: usize = 6;
/// Maximum number of words of a message that is always searched with earlier turns.
pub(crate) const FEW_WORDS: usize = 6;
/// Maximum number of words of a message with a reference ("it", "that") that is searched with earlier turns.
pub(crate) const REFERRING_WORDS: usize = 14;
/// Maximum number of characters of each earlier turn to search.
pub(crate) const CONTEXT_CHARACTERS: usize = 400;

/// The author of a turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Role {
    User,
    Assistant,
    /// System, tool, and any other role.
    #[default]
    Other,
}

/// The search texts: the whole message first, then its sentences, its clauses, or the message with its context and with the question
/// that it may answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueryPlan {
    texts: Vec<String>,
    parts: MessageParts,
    left_open: LeftOpen,
    /// Whether the texts are only what stands before a text to work on.
    is_head: bool,
}

/// The kind of the texts after the whole message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MessageParts {
    /// There are no further texts.
    #[default]
    None,
    /// The sentences of a long message. The best one counts in addition to the whole.
    Sentences,
    /// The clauses of a shorter message. The ranking should cover them, but they don't affect a tool's match with the whole.
    Clauses,
    /// A single text: the message with earlier turns.
    Context,
}

impl QueryPlan {
    /// Plans the search for a single message. A blank message yields no texts.
    pub fn new(message: &str) -> Self {
        let mut whole = normalise(message, MESSAGE_CHARACTERS);
        if whole.is_empty() {
            return Self::default();
        }
        let head = before_quoted(&whole).map(str::to_owned);
        let is_head = head.is_some();
        if let Some(head) = head {
            whole = head;
        }
        let (mut parts, is) = match words(&whole) {
            SENTENCE_WORDS.. => (sentences(&whole), MessageParts::Sentences),
            _ => (clauses(&whole), MessageParts::Clauses),
        };
        if parts.len() == 1 {
            parts.clear();
        }
        let parts: Vec<String> = parts.into_iter().map(str::to_owned).collect();
        let is = if parts.is_empty() { MessageParts::None } else { is };
        let texts = std::iter::once(whole).chain(parts).collect();
        Self { texts, parts: is, left_open: LeftOpen::default(), is_head }
    }

    /// Plans the search for the last user message. `turns` is oldest first; earlier turns are used if the message depends on
    /// them.
    pub fn of_conversation(turns: &[(Role, &str)]) -> Self {
        let Some(last) = last_of(Role::User, turns) else { return Self::default() };
        let mut plan = Self::new(turns[last].1);
        let length = words(plan.whole());
        // A message with a text to work on can be understood by itself, even if that text isn't searched.
        if plan.is_empty() || plan.is_head || length > REFERRING_WORDS {
            return plan;
        }
        let before = &turns[..last];
        let [asked, answered] = [Role::User, Role::Assistant].map(|role| last_of(role, before).map(|at| before[at].1));
        let left_open = answered.map(LeftOpen::of).unwrap_or_default();
        let is_short = length <= FEW_WORDS;
        let is_acceptance = left_open.offers && accepts(plan.whole());
        let earlier: Vec<&str> = [asked, answered].into_iter().flatten().collect();
        if earlier.is_empty() || !(is_short || is_acceptance || refers(plan.whole())) {
            return plan;
        }
        let earlier: Vec<String> = earlier.into_iter().map(|text| normalise(text, CONTEXT_CHARACTERS)).collect();
        let in_context = format!("{}\n{}", earlier.join("\n"), plan.whole());
        plan.texts.truncate(1);
        plan.texts.push(in_context);
        plan.parts = MessageParts::Context;
        plan.left_open = left_open;
        if let Some(answered) = answered.filter(|_| left_open.is_any() && (is_short || is_acceptance)) {
            let closing = normalise(closing(answered), CONTEXT_CHARACTERS);
            plan.texts.push(format!("{closing}\n{}", plan.whole()));
        }
        plan
    }

    /// The kind of the texts after the whole message.
    pub fn parts(&self) -> MessageParts {
        self.parts
    }

    /// The message with earlier turns, if it depends on them.
    pub fn in_context(&self) -> Option<&str> {
        self.texts.get(1).filter(|_| self.parts == MessageParts::Context).map(String::as_str)
    }

    /// Whether a word of the message refers to something earlier.
    pub fn refers(&self) -> bool {
        refers(self.whole())
    }

    /// Whether the previous assistant turn ended with a question or offered something. Both are false for a self-contained message.
    pub fn left_open(&self) -> LeftOpen {
        self.left_open
    }

    /// Whether the message contains a text to work on, which isn't searched.
    pub fn has_text(&self) -> bool {
        self.is_head
    }

    /// All search texts, the whole message first. At most 1 + `MAXIMUM_SENTENCES`.
    pub fn texts(&self) -> &[String] {
        &self.texts
    }

    /// The whole message in normalised form; empty if it is blank.
    pub fn whole(&self) -> &str {
        self.texts.first().map_or("", String::as_str)
    }

    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }
}

/// The position of the last non-blank turn with this role.
fn last_of(role: Role, turns: &[(Role, &str)]) -> Option<usize> {
    turns.iter().rposition(|(of, text)| *of == role && !text.trim().is_empty())
}

/// Removes pastes from a message: drops fenced blocks and lines of logs, code and data (unless nothing else remains) and blank lines, shortens unbroken runs, and
/// cuts the middle of a very long text. Keeps line breaks, because they separate sentences. A text in capitals gets small letters.
fn normalise(message: &str, most: usize) -> String {
    let unfenced = without_blocks(message);
    let lines = if unfenced.iter().any(|line| line.chars().any(char::is_alphanumeric)) { unfenced } else { message.lines().collect() };
    calm(shorten(without_soft_hyphens(without_pastes(&lines)), most))
}

/// A text without the invisible hyphens of web pages, with which the encoder would see parts of words.
fn without_soft_hyphens(text: String) -> String {
    if text.contains(SOFT_HYPHEN) { text.replace(SOFT_HYPHEN, "") } else { text }
}

/// A text in capitals alone in small letters, because the encoder and the gate know few words in capitals.
fn calm(text: String) -> String {
    let capitals = text.chars().filter(|letter| letter.is_uppercase()).count();
    if capitals < FEWEST_CAPITALS || text.chars().any(char::is_lowercase) {
        return text;
    }
    let is_turkish = text.contains(['İ', 'Ğ', 'Ş']);
    let lowered = |letter: char| match letter {
        'İ' => "i".to_owned(),
        'I' if is_turkish => "ı".to_owned(),
        letter => letter.to_lowercase().collect(),
    };
    text.chars().map(lowered).collect()
}

/// The lines without those that `pasted` recognises, unless fewer than [`SHORTEST_SENTENCE_WORDS`] words remain.
fn without_pastes(lines: &[&str]) -> String {
    let joined = |lines: &mut dyn Iterator<Item = &str>| lines.fold(String::new(), |text, line| with_line(text, line.trim()));
    let pasted = pasted_lines(lines);
    if pasted.contains(&true) {
        let prose = joined(&mut lines.iter().zip(&pasted).filter(|(_, pasted)| !**pasted).map(|(line, _)| *line));
        if words(&prose) >= SHORTEST_SENTENCE_WORDS {
            return prose;
        }
    }
    joined(&mut lines.iter().copied())
}

/// The lines outside fenced blocks.
fn without_blocks(message: &str) -> Vec<&str> {
    // Ignore an unclosed fence: the text after it may be the request.
    let mut fences = message.lines().filter(|line| is_fence(line)).count() & !1;
    let mut inside = false;
    let mut prose = Vec::new();
    for line in message.lines() {
        if fences > 0 && is_fence(line) {
            fences -= 1;
            inside = !inside;
        } else if !inside {
            prose.push(line);
        }
    }
    prose
}

/// Whether a line opens or closes a fenced block. A block within one line does neither.
fn is_fence(line: &str) -> bool {
    let line = line.trim();
    ["```", "~~~"].iter().any(|fence| line.strip_prefix(fence).is_some_and(|rest| !rest.contains(fence)))
}

/// Appends a line and shortens its long unbroken runs.
fn with_line(mut text: String, line: &str) -> String {
    if !text.is_empty() && !line.is_empty() {
        text.push('\n');
    }
    for (at, word) in line.split_whitespace().enumerate() {
        if at > 0 {
            text.push(' ');
        }
        let longest = if word.chars().any(is_unspaced) { MESSAGE_CHARACTERS } else { WORD_CHARACTERS };
        text.extend(word.chars().take(longest));
    }
    text
}

/// Removes the middle of a text that exceeds `most` characters.
fn shorten(text: String, most: usize) -> String {
    if text.len() <= most || text.chars().count() <= most {
        return text;
    }
    let half = most / 2;
    let head = text.char_indices().nth(half).map_or(text.len(), |(at, _)| at);
    let tail = text.char_indices().rev().nth(half - 1).map_or(0, |(at, _)| at);
    format!("{}\n{}", &text[..head], &text[tail.max(head)..])
}

/// The sentences of a normalised message, without list markers and very short sentences.
fn sentences(message: &str) -> Vec<&str> {
    let mut sentences: Vec<&str> = message
        .lines()
        .flat_map(|line| line.split_sentence_bounds())
        .map(|sentence| sentence.trim().trim_start_matches(LIST_MARKERS))
        .filter(|sentence| words(sentence) >= SHORTEST_SENTENCE_WORDS)
        .collect();
    if sentences.len() > MAXIMUM_SENTENCES {
        sentences.drain(MAXIMUM_SENTENCES / 2..sentences.len() - MAXIMUM_SENTENCES / 2);
    }
    sentences
}

/// The clauses of a normalised message: the parts between commas, colons, dashes and conjunctions.
fn clauses(message: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let (mut start, mut end) = (0, 0);
    let mut close = |start: usize, end: usize| {
        let clause = message[start..end].trim().trim_matches(['-', '–', '—', '*', '•', '#', '>', ' ']);
        if words(clause) >= SHORTEST_SENTENCE_WORDS {
            found.push(clause);
        }
    };
    for word in message.split_whitespace() {
        let at = word.as_ptr() as usize - message.as_ptr() as usize;
        if JOINING.contains(&word.to_lowercase().as_str()) {
            close(start, end);
            start = at + word.len();
        } else if word.ends_with([',', ';', ':', '.', '!', '?']) {
            close(start, at + word.len());
            start = at + word.len();
        }
        end = at + word.len();
    }
    close(start.min(end), end);
    found.truncate(MAXIMUM_CLAUSES);
    found
}

/// Conjunctions of the most common languages with the Latin alphabet, and dashes.
const JOINING: [&str; 16] = ["and", "then", "but", "or", "plus", "&", "-", "–", "—", "und", "dann", "et", "puis", "y", "luego", "e"];

const LIST_MARKERS: [char; 6] = ['-', '*', '•', '#', '>', ' '];

/// The number of words. Two characters of a script without spaces count as one.
fn words(text: &str) -> usize {
    let unspaced = text.chars().filter(|&character| is_unspaced(character)).count();
    text.split_whitespace().filter(|word| word.chars().any(char::is_alphanumeric)).count() + unspaced / 2
}

#[cfg(test)]
mod tests {
    use super::{QueryPlan, Role};

    #[test]
    fn an_acceptance_of_an_offer_depends_on_it_even_if_it_is_longer() {
        let message = "Yes, but change the date to 11 March first";
        let after = |assistant| {
            QueryPlan::of_conversation(&[(Role::User, "answer Ms Keller"), (Role::Assistant, assistant), (Role::User, message)])
        };
        let offered = after("The draft is ready. Would you like me to send it?");
        assert_eq!(offered.in_context(), Some(&*format!("answer Ms Keller\nThe draft is ready. Would you like me to send it?\n{message}")));
        assert_eq!(offered.texts()[2], format!("Would you like me to send it?\n{message}"));
        assert_eq!(after("The draft is ready.").in_context(), None);
    }
}
