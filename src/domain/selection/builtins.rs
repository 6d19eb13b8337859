//! Open WebUI's own tools, which it adds to every model call of a chat.
//!
//! They form families: a model that finds a note also needs to open and change it. So a family is kept or left out as a whole.
//! `builtins.tsv` lists the families with two kinds of evidence: phrases ("cues") in many languages, and examples of messages. A
//! family stays if the message contains one of its cues, or if the message resembles the family's examples more than those that
//! need no such tool. A family that is kept needlessly costs some tokens, but a missing one costs the answer. So either evidence is
//! enough.
//!
//! Cosines of different models have different scales. Therefore they are compared as standard scores over all examples.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, LazyLock};

use unicode_normalization::char::is_combining_mark;

use crate::domain::text::folding::folded;
use crate::domain::text::words::is_without_spaces;

static TABLE: &str = include_str!("builtins.tsv");
static FAMILIES: LazyLock<Families> = LazyLock::new(|| Families::of_table(TABLE));

/// The family of the examples that need none of these tools.
const OTHER: &str = "other";
/// Maximum number of words for which `..` stands in a cue.
const GAP: usize = 4;
/// Maximum number of words of a text that are compared with the cues.
const WORDS_READ: usize = 400;

/// How much a text must resemble a family's examples, in standard deviations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Nearness {
    /// Minimum standard score of the best example.
    pub floor: f32,
    /// Minimum lead over the best example that needs no such tool.
    pub lead: f32,
    /// Maximum distance from the family with the best example.
    pub spread: f32,
}

impl Nearness {
    /// For messages. In this way alone, all 76 held English messages in `tests/cases/builtins` find their family, and 148 of the 156 in
    /// other languages. The 160 English messages of `tests/cases/languages`, which need none, keep 0.7 families on average. A lead of 0
    /// finds the same, and keeps 0.8 families; one of 0.25 finds 74 and 145, and keeps 0.6.
    pub const OF_MESSAGE: Self = Self { floor: 2.0, lead: 0.1, spread: 2.0 };
    /// For searches by the model, which ask for some tool in any case.
    pub const OF_SEARCH: Self = Self { floor: 2.0, lead: -0.5, spread: 1.0 };
}

/// A family: its position in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Family(usize);

/// All families.
#[derive(Debug, Default)]
pub struct Families {
    names: Vec<String>,
    members: HashMap<String, Family>,
    needs: Vec<(Family, Family)>,
    cues: Cues,
    /// Each example with its family; `None` if it needs no such tool.
    examples: Vec<(Option<Family>, String)>,
}

impl Families {
    /// The families of the table.
    pub fn all() -> &'static Self {
        &FAMILIES
    }

    /// The family of a function; `None` if it isn't one of these tools.
    pub fn of_function(&self, name: &str) -> Option<Family> {
        self.members.get(name).copied()
    }

    /// The family with this name.
    pub fn of_name(&self, name: &str) -> Option<Family> {
        self.names.iter().position(|known| known == name).map(Family)
    }

    pub fn name(&self, family: Family) -> &str {
        self.names.get(family.0).map_or("", String::as_str)
    }

    /// The examples, in the order in which [`Families::near`] expects their vectors.
    pub fn example_texts(&self) -> impl Iterator<Item = &str> {
        self.examples.iter().map(|(_, text)| text.as_str())
    }

    /// The families of which a text contains a cue.
    pub fn with_cue(&self, text: &str) -> BTreeSet<Family> {
        self.cues.of(&words(text))
    }

    /// The families whose examples a text resembles, by unit vectors of the text and of all examples.
    pub fn near(&self, text: &[f32], examples: &[Arc<[f32]>], nearness: Nearness) -> BTreeSet<Family> {
        if examples.len() != self.examples.len() {
            return BTreeSet::new();
        }
        let cosine = |example: &Arc<[f32]>| text.iter().zip(example.iter()).map(|(one, other)| one * other).sum::<f32>();
        let cosines: Vec<f32> = examples.iter().map(cosine).collect();
        let count = cosines.len() as f32;
        let mean = cosines.iter().sum::<f32>() / count;
        let deviation = (cosines.iter().map(|cosine| (cosine - mean).powi(2)).sum::<f32>() / count).sqrt();
        if deviation <= f32::EPSILON {
            return BTreeSet::new();
        }
        let best = |of: Option<Family>| {
            let own = self.examples.iter().zip(&cosines).filter(|((family, _), _)| *family == of);
            own.map(|(_, cosine)| (cosine - mean) / deviation).fold(f32::NEG_INFINITY, f32::max)
        };
        let scores: Vec<f32> = (0..self.names.len()).map(|family| best(Some(Family(family)))).collect();
        let first = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let least = nearness.floor.max(best(None) + nearness.lead).max(first - nearness.spread);
        scores.iter().enumerate().filter(|(_, score)| **score >= least).map(|(family, _)| Family(family)).collect()
    }

    /// Adds the families that these families need.
    pub fn with_needed(&self, mut families: BTreeSet<Family>) -> BTreeSet<Family> {
        let needed: Vec<Family> = self.needs.iter().filter(|(family, _)| families.contains(family)).map(|(_, needed)| *needed).collect();
        families.extend(needed);
        families
    }

    fn of_table(table: &str) -> Self {
        let mut families = Self::default();
        for line in table.lines().filter(|line| !line.starts_with('#')) {
            let mut columns = line.splitn(4, '\t');
            let (Some(name), Some(kind), Some(_), Some(text)) = (columns.next(), columns.next(), columns.next(), columns.next()) else {
                continue;
            };
            let family = (name != OTHER).then(|| families.named(name));
            match (kind, family) {
                ("member", Some(family)) => {
                    families.members.insert(text.to_owned(), family);
                }
                ("needs", Some(family)) => {
                    let needed = families.named(text);
                    families.needs.push((family, needed));
                }
                ("cue", Some(family)) => families.cues.add(family, text),
                ("example", family) => families.examples.push((family, text.to_owned())),
                _ => {}
            }
        }
        families
    }

    /// The family with this name, which is new if it isn't known yet.
    fn named(&mut self, name: &str) -> Family {
        let known = self.names.iter().position(|known| known == name);
        Family(known.unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        }))
    }
}

/// The cues, by what a message must contain at least.
#[derive(Debug, Default)]
struct Cues {
    /// Phrases, by the first character of their first word.
    phrases: HashMap<char, Vec<(Family, Vec<Part>)>>,
    /// Phrases whose first word may follow an article or a preposition in the same word, as in Arabic and Hebrew.
    within: Vec<(Family, Vec<Part>)>,
    /// Phrases that begin with a number.
    numbers: Vec<(Family, Vec<Part>)>,
    /// Parts of texts without spaces between words.
    unspaced: Vec<(Family, String)>,
}

/// A part of a phrase.
#[derive(Debug)]
enum Part {
    Word(String),
    Start(String),
    Within(String),
    /// A word that begins with a digit.
    Number,
    Gap,
}

impl Part {
    fn of(word: &str) -> Self {
        let start = word.strip_suffix('*');
        let text = start.unwrap_or(word).to_owned();
        match (word, start) {
            ("..", _) => Self::Gap,
            ("#", _) => Self::Number,
            _ if text.chars().count() > 2 && text.chars().all(has_prefixes) => Self::Within(text),
            (_, Some(_)) => Self::Start(text),
            (_, None) => Self::Word(text),
        }
    }

    fn matches(&self, word: &str) -> bool {
        match self {
            Self::Word(text) => word == text,
            Self::Start(text) => word.starts_with(text.as_str()),
            Self::Within(text) => word.contains(text.as_str()),
            Self::Number => word.starts_with(char::is_numeric),
            Self::Gap => false,
        }
    }
}

impl Cues {
    fn add(&mut self, family: Family, cue: &str) {
        let cue = folded(cue);
        if cue.chars().any(is_without_spaces) {
            self.unspaced.push((family, cue.split_whitespace().collect()));
            return;
        }
        let parts: Vec<Part> = cue.split_whitespace().map(Part::of).collect();
        match parts.first() {
            Some(Part::Within(_)) => self.within.push((family, parts)),
            Some(Part::Number) => self.numbers.push((family, parts)),
            Some(Part::Word(text) | Part::Start(text)) => {
                if let Some(first) = text.chars().next() {
                    self.phrases.entry(first).or_default().push((family, parts));
                }
            }
            Some(Part::Gap) | None => {}
        }
    }

    fn of(&self, words: &[String]) -> BTreeSet<Family> {
        let mut found = BTreeSet::new();
        for (at, word) in words.iter().enumerate() {
            let Some(first) = word.chars().next() else { continue };
            let within = if word.chars().any(has_prefixes) { self.within.as_slice() } else { &[] };
            let numbers = if first.is_numeric() { self.numbers.as_slice() } else { &[] };
            for (family, parts) in self.phrases.get(&first).into_iter().flatten().chain(within).chain(numbers) {
                if !found.contains(family) && follows(parts, words, at, 0) {
                    found.insert(*family);
                }
            }
        }
        let joined = words.concat();
        if joined.chars().any(is_without_spaces) {
            found.extend(self.unspaced.iter().filter(|(_, text)| joined.contains(text.as_str())).map(|(family, _)| *family));
        }
        found
    }
}

/// Whether the words from `at` on match these parts, after at most `skipped` other words.
fn follows(parts: &[Part], words: &[String], at: usize, skipped: usize) -> bool {
    let Some((part, rest)) = parts.split_first() else { return true };
    if matches!(part, Part::Gap) {
        return follows(rest, words, at, GAP);
    }
    let last = words.len().min(at + skipped + 1);
    (at..last).any(|place| part.matches(&words[place]) && follows(rest, words, place + 1, 0))
}

/// The words of a text as cues are compared with them.
fn words(text: &str) -> Vec<String> {
    let folded = folded(text);
    let parts = folded.split(|character: char| !character.is_alphanumeric() && !is_combining_mark(character));
    parts.filter(|word| !word.is_empty()).take(WORDS_READ).map(str::to_owned).collect()
}

/// Whether a character belongs to Arabic or Hebrew, where articles and prepositions are written together with a word.
fn has_prefixes(character: char) -> bool {
    matches!(u32::from(character), 0x0590..=0x06FF)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::Arc;

    use super::{Families, Family, Nearness};

    fn names(families: &BTreeSet<Family>) -> Vec<&'static str> {
        families.iter().map(|&family| Families::all().name(family)).collect()
    }

    #[test]
    fn a_cue_is_found_in_any_form() {
        for (message, family) in [
            ("Remind me tomorrow", "calendar"),
            ("RAPPELLE-MOI DEMAIN", "calendar"),
            ("jeden MORGEN um 7", "automations"),
            ("schreib das bitte alles mal auf", "notes"),
            ("alışveriş listesi", "notes"),
            ("ALIŞVERİŞ LİSTESİ", "notes"),
            ("الموعد غدا", "calendar"),
            ("אני רוצה תזכורת", "calendar"),
            ("明天下午三点提醒我", "calendar"),
            ("메모를 찾아줘", "notes"),
            ("เตือนฉันพรุ่งนี้", "calendar"),
            ("напомни мне", "calendar"),
            ("dentist thursday 4pm", "calendar"),
            ("17u donderdag tandarts", "calendar"),
            ("hôm nay thứ mấy", "time"),
            ("aaj kaun sa din hai", "time"),
            ("اليوم ايش", "time"),
            ("jam berapa sekarang?", "time"),
            ("что ты знаешь обо мне", "memories"),
        ] {
            let found = Families::all().with_cue(message);
            assert!(names(&found).contains(&family), "{message}: {:?}", names(&found));
        }
        for message in ["", "thanks!", "write a poem about the sea", "schreib ein Gedicht", "🙂🙂", "merci beaucoup", "谢谢"] {
            assert_eq!(names(&Families::all().with_cue(message)), [""; 0], "{message}");
        }
    }

    #[test]
    fn a_gap_has_at_most_four_words() {
        let found = |message: &str| !Families::all().with_cue(message).is_empty();
        assert!(found("wrote it down"));
        assert!(found("wrote a b c d down"));
        assert!(!found("wrote a b c d e down"));
    }

    #[test]
    fn every_member_belongs_to_one_family_with_examples() {
        let all = Families::all();
        let mut examples = BTreeMap::new();
        for (family, _) in &all.examples {
            *examples.entry(*family).or_insert(0) += 1;
        }
        for (name, &family) in &all.members {
            assert!(examples.contains_key(&Some(family)), "{name}");
        }
        assert!(examples[&None] >= 50);
        assert_eq!(all.of_function("search_notes"), all.of_function("view_note"));
        assert_eq!(all.of_function("their_function"), None);
        let calendar = all.of_function("create_calendar_event").unwrap();
        let time = all.of_function("get_current_timestamp").unwrap();
        assert_eq!(all.with_needed(BTreeSet::from([calendar])), BTreeSet::from([calendar, time]), "an event has a time");
        let members: BTreeSet<&str> =
            super::TABLE.lines().filter(|line| line.contains("\tmember\t")).filter_map(|line| line.rsplit('\t').next()).collect();
        assert_eq!(members.len(), all.members.len());
    }

    /// A model's scale must not matter: the scores are the same for cosines between .8 and .9 as for those between 0 and 1.
    #[test]
    fn nearness_does_not_depend_on_the_scale_of_a_model() {
        let all = Families::all();
        let notes = all.of_function("view_note");
        for (low, high) in [(0.0, 1.0), (0.8, 0.9)] {
            let vector = |near: bool| -> Arc<[f32]> { Arc::from([if near { high } else { low }]) };
            let mut seen = 0;
            let vectors: Vec<Arc<[f32]>> = all
                .examples
                .iter()
                .map(|(family, _)| {
                    seen += usize::from(*family == notes);
                    vector(*family == notes && seen == 1)
                })
                .collect();
            assert_eq!(names(&all.near(&[1.0], &vectors, Nearness::OF_MESSAGE)), ["notes"]);
            let flat: Vec<Arc<[f32]>> = vectors.iter().map(|_| vector(false)).collect();
            assert!(all.near(&[1.0], &flat, Nearness::OF_SEARCH).is_empty());
            assert!(all.near(&[1.0], &vectors[1..], Nearness::OF_MESSAGE).is_empty(), "vectors of another table");
        }
    }
}
