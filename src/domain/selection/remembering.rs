//! Recognises messages that ask to remember or to forget something: "remember that I am a vegetarian", "merk dir: …", "…、覚えておいて".
//!
//! Vectors of such messages are about the fact, not about the memory, and hardly resemble a tool that stores facts. So the phrases are
//! listed in `remembering.tsv`, in many languages. A phrase counts only with something to remember, and not in a question: "forget it" and
//! "do you remember the 90s?" need no tool.

use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

use unicode_normalization::char::is_combining_mark;

use crate::domain::text::folding::folded;
use crate::domain::text::words::is_without_spaces;

static TABLE: &str = include_str!("remembering.tsv");
static PHRASES: LazyLock<Phrases> = LazyLock::new(|| Phrases::of_table(TABLE));

/// What a message asks of a memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remembering {
    Keep,
    Forget,
}

impl Remembering {
    /// English words that tools for this have, beside general ones such as "add".
    pub const WORDS: &str = "memory observation";

    /// What a text asks for, by the first sentence that asks for anything.
    pub fn of(text: &str) -> Option<Self> {
        let mut follows = false;
        text.split_inclusive(ENDS).take(SENTENCES_READ).find_map(|sentence| {
            let units = units(sentence);
            let asked = PHRASES.in_sentence(&units, follows).filter(|_| !sentence.ends_with(QUESTION_MARKS));
            follows |= has_content(&units, FEWEST_BEFORE, FEWEST_CHARACTERS_BEFORE);
            asked
        })
    }
}

/// Maximum number of sentences examined per text.
const SENTENCES_READ: usize = 16;
/// Maximum number of units examined per sentence, at its beginning and at its end.
const UNITS_READ: usize = 24;
/// Minimum number of units to remember before a phrase that ends a sentence; in scripts without spaces, of characters.
const FEWEST_BEFORE: usize = 2;
const FEWEST_CHARACTERS_BEFORE: usize = 2;
/// The units that stand for a colon, and for a comma, a semicolon or a dash.
const COLON: &str = ":";
const COMMA: &str = ",";
const ENDS: [char; 9] = ['.', '!', '?', '\n', '。', '！', '？', '؟', '।'];
const QUESTION_MARKS: [char; 3] = ['?', '？', '؟'];

#[derive(Debug, Default)]
struct Phrases {
    /// Words that may stand before a phrase.
    leads: Vec<Vec<Part>>,
    /// Beginnings that only look like a phrase.
    excluded: Vec<Vec<Part>>,
    starts: Places,
    ends: Places,
    /// Ends that must also begin their clause.
    clauses: Places,
}

/// Phrases, and their positions by each character with which they may begin.
#[derive(Debug, Default)]
struct Places {
    phrases: Vec<(Remembering, Vec<Part>)>,
    by_first: HashMap<char, Vec<usize>>,
}

/// A part of a phrase: alternatives, of which an optional part needs none.
#[derive(Debug)]
struct Part {
    alternatives: Vec<Vec<Unit>>,
    is_optional: bool,
}

#[derive(Debug)]
enum Unit {
    Whole(String),
    Start(String),
}

impl Phrases {
    fn of_table(table: &str) -> Self {
        let mut phrases = Self::default();
        for line in table.lines().filter(|line| !line.starts_with('#')) {
            let mut columns = line.split('\t').skip(1);
            let (Some(kind), Some(phrase)) = (columns.next(), columns.next()) else { continue };
            let parts = phrase.split_whitespace().map(Part::of).collect();
            match kind {
                "lead" => phrases.leads.push(parts),
                "not" => phrases.excluded.push(parts),
                "start" => phrases.starts.add(Remembering::Keep, parts),
                "end" => phrases.ends.add(Remembering::Keep, parts),
                "clause" => phrases.clauses.add(Remembering::Keep, parts),
                "forget" => phrases.starts.add(Remembering::Forget, parts),
                "forget-end" => phrases.ends.add(Remembering::Forget, parts),
                _ => {}
            }
        }
        phrases
    }

    /// What a sentence asks for. `follows`: there is something to remember before it.
    fn in_sentence(&self, units: &[String], follows: bool) -> Option<Remembering> {
        let units = self.without_leads(units);
        if self.excluded.iter().any(|parts| ends(parts, units, 0).next().is_some()) {
            return None;
        }
        let starts = |parts: &[Part]| ends(parts, units, 0).any(|end| has_content(&units[end..], 1, 2));
        let mut at_start = self.starts.at(units, 0);
        if let Some((asked, _)) = at_start.find(|(_, parts)| starts(parts)) {
            return Some(*asked);
        }
        (units.len().saturating_sub(UNITS_READ)..units.len()).find_map(|at| {
            let has_fact = follows || has_content(&units[..at], FEWEST_BEFORE, FEWEST_CHARACTERS_BEFORE);
            let begins_clause = at == 0 || is_mark(&units[at]);
            let clauses = self.clauses.at(units, at).filter(|_| begins_clause);
            let mut here = self.ends.at(units, at).chain(clauses).filter(|_| has_fact);
            here.find(|(_, parts)| ends(parts, units, at).any(|end| end == units.len())).map(|(asked, _)| *asked)
        })
    }

    /// The units after polite words, and without a mark at either end.
    fn without_leads<'a>(&self, mut units: &'a [String]) -> &'a [String] {
        while let Some((_, rest)) = units.split_last().filter(|(last, _)| is_mark(last)) {
            units = rest;
        }
        loop {
            let skipped = usize::from(units.first().is_some_and(|first| is_mark(first)));
            let longest = self.leads.iter().filter_map(|parts| ends(parts, units, skipped).max()).max().unwrap_or(skipped);
            if longest == 0 {
                return units;
            }
            units = &units[longest..];
        }
    }
}

impl Places {
    fn add(&mut self, asked: Remembering, parts: Vec<Part>) {
        let required = parts.iter().position(|part| !part.is_optional).map_or(parts.len(), |at| at + 1);
        let alternatives = parts[..required].iter().flat_map(|part| &part.alternatives);
        let firsts: BTreeSet<char> = alternatives.filter_map(|units| units.first()?.text().chars().next()).collect();
        for first in firsts {
            self.by_first.entry(first).or_default().push(self.phrases.len());
        }
        self.phrases.push((asked, parts));
    }

    /// The phrases that may begin at this unit, or after a mark there.
    fn at(&self, units: &[String], at: usize) -> impl Iterator<Item = &(Remembering, Vec<Part>)> {
        let after_mark = units.get(at).is_some_and(|unit| is_mark(unit));
        let firsts = units.iter().skip(at).take(1 + usize::from(after_mark)).filter_map(|unit| unit.chars().next());
        firsts.flat_map(|first| self.by_first.get(&first).into_iter().flatten()).map(|&place| &self.phrases[place])
    }
}

impl Part {
    fn of(written: &str) -> Self {
        let (written, is_optional) = written.strip_suffix('?').map_or((written, false), |written| (written, true));
        let alternative = |text: &str| {
            if is_mark(text) {
                return vec![Unit::Whole(text.to_owned())];
            }
            let (text, is_start) = text.strip_suffix('*').map_or((text, false), |start| (start, true));
            let mut parts: Vec<Unit> = units(text).into_iter().map(Unit::Whole).collect();
            if is_start && let Some(Unit::Whole(last)) = parts.pop() {
                parts.push(Unit::Start(last));
            }
            parts
        };
        Self { alternatives: written.split('/').map(alternative).collect(), is_optional }
    }
}

impl Unit {
    fn text(&self) -> &str {
        let (Self::Whole(text) | Self::Start(text)) = self;
        text
    }

    fn matches(&self, unit: &str) -> bool {
        match self {
            Self::Whole(text) => unit == text,
            Self::Start(text) => unit.starts_with(text.as_str()),
        }
    }
}

/// The positions after a phrase that begins at this position, in each way to read it.
fn ends<'a>(parts: &'a [Part], units: &'a [String], at: usize) -> Box<dyn Iterator<Item = usize> + 'a> {
    let Some((part, rest)) = parts.split_first() else { return Box::new(std::iter::once(at)) };
    let after = part.alternatives.iter().filter_map(move |alternative| after(alternative, units, at));
    let skipped = part.is_optional.then_some(at);
    Box::new(after.chain(skipped).flat_map(move |next| ends(rest, units, next)))
}

/// The position after an alternative that begins at this position or after a mark there.
fn after(alternative: &[Unit], units: &[String], mut at: usize) -> Option<usize> {
    for part in alternative {
        if !is_mark(part.text()) && is_mark(units.get(at)?) {
            at += 1;
        }
        if !part.matches(units.get(at)?) {
            return None;
        }
        at += 1;
    }
    Some(at)
}

/// Whether a unit is a colon, or a comma or the like.
fn is_mark(unit: &str) -> bool {
    unit == COLON || unit == COMMA
}

/// Whether there are this many words, or characters of a script without spaces.
fn has_content(units: &[String], words: usize, characters: usize) -> bool {
    let is_character = |unit: &&String| unit.chars().all(is_without_spaces);
    let of_characters = units.iter().filter(|unit| !is_mark(unit)).filter(is_character).count();
    let of_words = units.iter().filter(|unit| !is_mark(unit)).count() - of_characters;
    of_words >= words || of_characters >= characters
}

/// Splits a text into folded words, characters of scripts without spaces, and marks.
fn units(text: &str) -> Vec<String> {
    let mut units: Vec<String> = Vec::new();
    let mut word = String::new();
    let close = |word: &mut String, units: &mut Vec<String>| {
        if !word.is_empty() {
            units.push(std::mem::take(word));
        }
    };
    for character in folded(text).chars() {
        if is_without_spaces(character) {
            close(&mut word, &mut units);
            units.push(character.to_string());
        } else if character.is_alphanumeric() || is_combining_mark(character) {
            word.push(character);
        } else {
            close(&mut word, &mut units);
            match character {
                ':' => units.push(COLON.to_owned()),
                ',' | '、' | '،' | '–' | '—' | ';' => units.push(COMMA.to_owned()),
                _ => {}
            }
        }
    }
    close(&mut word, &mut units);
    units
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Remembering, TABLE};

    #[test]
    fn a_wish_to_remember_is_known_in_many_languages() {
        for message in [
            "remember i am a vegetarian",
            "Please remember: my wife is called Ann.",
            "My boss is called Ingrid. Remember that!",
            "don't forget that we moved to Leeds",
            "My dog is called Rex, remember that",
            "我的狗叫旺财，记住",
            "merk dir, dass ich vegan lebe",
            "내 개 이름은 렉스야, 기억해",
            "merk dir dass ich laktoseintolerant bin",
            "mein Hund heißt Bello, merk dir das",
            "Souviens-toi que mon fils s'appelle Hugo",
            "recuerda que soy vegetariano",
            "ricordati che sono celiaca",
            "lembre-se de que moro em Lisboa",
            "onthoud dat ik vegetariër ben",
            "zapamiętaj, że mam uczulenie na orzechy",
            "запомни: у меня аллергия на мёд",
            "benim vejetaryen olduğumu unutma",
            "muista että olen kasvissyöjä",
            "kom ihåg att jag är vegetarian",
            "猫アレルギーなので覚えておいてください",
            "나 채식주의자야, 기억해",
            "记住我对花生过敏",
            "याद रखो कि मैं शाकाहारी हूँ",
            "yaad rakhna ki meri behen ka naam Anna hai",
            "تذكر أني نباتي",
            "תזכור שאני צמחוני",
            "θυμήσου ότι είμαι χορτοφάγος",
            "จำไว้ว่าฉันแพ้ถั่ว",
            "nhớ rằng tôi ăn chay",
        ] {
            assert_eq!(Remembering::of(message), Some(Remembering::Keep), "{message}");
        }
    }

    #[test]
    fn a_wish_to_forget_is_known_in_many_languages() {
        for message in [
            "forget that I live in York",
            "vergiss dass ich in köln wohne",
            "oublie que je travaille chez Renault",
            "olvida que tengo un gato",
            "забудь, что я живу в Омске",
            "İzmir'de yaşadığımı unut",
            "unohda että asun Vaasassa",
            "昔の住所は忘れて",
            "忘掉我住在上海",
            "انسى اني ساكن في القاهرة",
        ] {
            assert_eq!(Remembering::of(message), Some(Remembering::Forget), "{message}");
        }
    }

    #[test]
    fn memories_and_refusals_are_no_wishes() {
        for message in [
            "",
            "remember when phones had buttons",
            "do you remember the 90s?",
            "I remember my grandma's cookies",
            "remember to be kind",
            "remind me what photosynthesis is",
            "forget it",
            "what is a good note taking method",
            "wie merke ich mir vokabeln",
            "vergiss es",
            "oublie ça",
            "olvídalo",
            "забудь",
            "unut gitsin",
            "muista olla kiltti",
            "kom ihåg att vara snäll",
            "忘れて",
            "英単語を覚えるコツは？",
            "怎么才能快速记住英语单词",
            "됐어 잊어버려",
            "भूल जाओ",
            "انسى الموضوع",
            "Vergiss nicht, das Ticket zu schließen",
            "Denk daran, die Datei zu speichern",
            "pamiętaj, żeby wysłać maila",
            "ne felejtsd el, küldj emailt",
            "记得，明天提醒我开会",
            "I don't remember that",
            "Thanks, I'll keep that in mind.",
            "do you remember that",
            "Set a reminder for my dentist appointment and don't forget it",
            "Kannst du dir das Ticket PROJ-12 anschauen",
            "toplantıyı takvime eklemeyi unutma",
            "보고서 보내는 거 잊지마",
            "나는 그걸 기억해",
            "report bhejna mat bhoolna",
            "ingatkan saya besok rapat",
            "guarda na pasta Documentos o relatório",
            "vergiss meine letzte Frage",
            "forget my last question",
            "oublie ma dernière question",
            "olvida mi pregunta anterior",
            "забудь мой последний вопрос",
            "забудь, что я сказал",
            "clear in-memory cache on redis-1",
            "Add in-memory cache to the service",
            "明天开会，别忘了",
        ] {
            assert_eq!(Remembering::of(message), None, "{message}");
        }
        assert_eq!(Remembering::of(&"remember ".repeat(10_000)), None);
    }

    #[test]
    fn every_line_of_the_table_is_a_phrase() {
        let lines: Vec<&str> = TABLE.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(lines.len(), lines.iter().collect::<BTreeSet<_>>().len());
        for line in lines {
            let columns: Vec<&str> = line.split('\t').collect();
            assert_eq!(columns.len(), 3, "{line}");
            assert!(["start", "end", "clause", "forget", "forget-end", "lead", "not"].contains(&columns[1]), "{line}");
            assert!(columns[2].split(' ').all(|part| !part.is_empty() && part != "?"), "{line}");
        }
    }
}
