//! Translates the words of a message into English, the language of most tools.
//!
//! Dictionary-based query translation (Pirkola, 1998, "The effects of query structure and dictionary setups in dictionary-based
//! cross-language information retrieval"): each word becomes all its translations, and the index decides by their idf which ones matter.
//! There is one table per language (`de.tsv`, …). A line has an English word that occurs in tools, and its forms in the language; `*` stands
//! for any ending. The tables share about 2,900 English words, most of which many tools use. Product names are in `names`.
//!
//! The script decides which tables apply. For the Latin script, the language of the text does; where that is unsure, all tables apply, and
//! the caller must be more careful (`Gloss::is_sure`).
//!
//! The longest form that a word begins with counts. In languages with compounds, the rest of the word is translated too.

use std::sync::LazyLock;

use super::analysis::term;
use super::folding::{clean, fold, folded};
use super::language::{Language, with_umlauts};
use super::words::{Segment, is_unspaced, segments};

/// The tables, with their languages.
const TABLES: [(Code, &str); 21] = [
    (Code::Ar, include_str!("ar.tsv")),
    (Code::Cs, include_str!("cs.tsv")),
    (Code::De, include_str!("de.tsv")),
    (Code::El, include_str!("el.tsv")),
    (Code::Es, include_str!("es.tsv")),
    (Code::Fi, include_str!("fi.tsv")),
    (Code::Fr, include_str!("fr.tsv")),
    (Code::He, include_str!("he.tsv")),
    (Code::Hi, include_str!("hi.tsv")),
    (Code::It, include_str!("it.tsv")),
    (Code::Ja, include_str!("ja.tsv")),
    (Code::Ko, include_str!("ko.tsv")),
    (Code::Nl, include_str!("nl.tsv")),
    (Code::Pl, include_str!("pl.tsv")),
    (Code::Pt, include_str!("pt.tsv")),
    (Code::Ru, include_str!("ru.tsv")),
    (Code::Sv, include_str!("sv.tsv")),
    (Code::Th, include_str!("th.tsv")),
    (Code::Tr, include_str!("tr.tsv")),
    (Code::Uk, include_str!("uk.tsv")),
    (Code::Zh, include_str!("zh.tsv")),
];

/// Maximum number of words of a message that are translated, and of characters of a run without spaces.
const WORDS_READ: usize = 300;
const CHARACTERS_READ: usize = 900;
/// Maximum length of a form in bytes.
const LONGEST_FORM: usize = 64;
/// Minimum length of the beginning of a word in Latin script in a text of unknown language, in characters.
const SHORTEST_UNSURE: usize = 4;
/// Minimum length of the second part of a compound, in characters.
const SHORTEST_PART: usize = 4;
/// Maximum length of the letters that join two parts of a compound, or are the first one's ending.
const LONGEST_JOINT: usize = 2;
/// Letters of Arabic and Hebrew articles, conjunctions and prepositions, which are glued to the next word.
const GLUED: [char; 13] = ['ا', 'ل', 'ب', 'و', 'ف', 'ك', 'ה', 'ו', 'ב', 'ל', 'מ', 'ש', 'כ'];
const LONGEST_GLUED: usize = 3;

static GLOSSARY: LazyLock<Glossary> = LazyLock::new(Glossary::read);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Code {
    Ar,
    Cs,
    De,
    El,
    Es,
    Fi,
    Fr,
    He,
    Hi,
    It,
    Ja,
    Ko,
    Nl,
    Pl,
    Pt,
    Ru,
    Sv,
    Th,
    Tr,
    Uk,
    Zh,
}

/// A set of languages, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Codes(u32);

impl Codes {
    const NONE: Self = Self(0);
    const LATIN: Self = Self::of(&[
        Code::Cs,
        Code::De,
        Code::Es,
        Code::Fi,
        Code::Fr,
        Code::It,
        Code::Nl,
        Code::Pl,
        Code::Pt,
        Code::Sv,
        Code::Tr,
        // Romanised.
        Code::Hi,
        Code::Ru,
    ]);
    const COMPOUNDING: Self = Self::of(&[Code::De, Code::Fi, Code::Nl, Code::Sv]);
    const GLUING: Self = Self::of(&[Code::Ar, Code::He]);

    const fn of(codes: &[Code]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < codes.len() {
            bits |= 1 << codes[at] as u32;
            at += 1;
        }
        Self(bits)
    }

    fn of_latin(language: Option<Language>) -> Self {
        let code = match language {
            None => return Self::LATIN,
            Some(Language::German) => Code::De,
            Some(Language::Dutch) => Code::Nl,
            // The words of its neighbors are near to Swedish ones.
            Some(Language::Swedish | Language::Danish | Language::Norwegian) => Code::Sv,
            Some(Language::French) => Code::Fr,
            Some(Language::Spanish) => Code::Es,
            Some(Language::Portuguese) => Code::Pt,
            Some(Language::Italian) => Code::It,
            Some(Language::Polish) => Code::Pl,
            Some(Language::Czech) => Code::Cs,
            Some(Language::Finnish) => Code::Fi,
            Some(Language::Turkish) => Code::Tr,
            Some(Language::English | Language::Romanian | Language::Hungarian) => return Self::NONE,
        };
        Self::of(&[code])
    }

    /// The languages of a character other than Latin. `is_japanese`: the text has Kana, or the Chinese table has none of its words.
    fn of_script(character: char, is_japanese: bool) -> Option<Self> {
        Some(match character {
            '\u{0370}'..='\u{03FF}' | '\u{1F00}'..='\u{1FFF}' => Self::of(&[Code::El]),
            '\u{0400}'..='\u{052F}' => Self::of(&[Code::Ru, Code::Uk]),
            '\u{0590}'..='\u{05FF}' => Self::of(&[Code::He]),
            '\u{0600}'..='\u{06FF}' => Self::of(&[Code::Ar]),
            '\u{0900}'..='\u{097F}' => Self::of(&[Code::Hi]),
            '\u{0E00}'..='\u{0E7F}' => Self::of(&[Code::Th]),
            '\u{1100}'..='\u{11FF}' | '\u{AC00}'..='\u{D7AF}' => Self::of(&[Code::Ko]),
            _ if is_kana(character) => Self::of(&[Code::Ja]),
            _ if is_unspaced(character) => Self::of(&[if is_japanese { Code::Ja } else { Code::Zh }]),
            _ => return None,
        })
    }

    fn has(self, code: Code) -> bool {
        self.0 & (1 << code as u32) != 0
    }

    fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// A translation of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gloss<'a> {
    /// The folded word of the message, or the part of a run without spaces.
    pub(crate) word: &'a str,
    /// The English words, separated by underscores.
    pub(crate) english: &'static str,
    /// How many translations the word has.
    pub(crate) alternatives: usize,
    /// Whether the language is sure.
    pub(crate) is_sure: bool,
}

/// Calls `emit` with each translation of each word of a text in this language.
pub(crate) fn for_each_gloss(text: &str, language: Option<Language>, mut emit: impl FnMut(Gloss<'_>)) {
    let latin = Codes::of_latin(language);
    if latin == Codes::NONE && text.is_ascii() {
        return;
    }
    let text = clean(text);
    let is_japanese = text.chars().any(is_kana);
    // Runs without spaces: whether one has a translation, and those that have none.
    let (mut has_parts, mut unread) = (false, Vec::new());
    // The word before, and the two before that.
    let (mut word, mut before, mut phrase) = (String::new(), String::new(), String::new());
    for segment in segments(&text).take(WORDS_READ) {
        match segment {
            Segment::Word(run) => {
                let of_script = run.chars().find(|character| !character.is_ascii()).and_then(|first| Codes::of_script(first, is_japanese));
                let codes = of_script.unwrap_or(latin);
                let is_sure = of_script.is_some() || language.is_some();
                std::mem::swap(&mut word, &mut before);
                fold(run, &mut word);
                if codes == Codes::NONE {
                    continue;
                }
                let lookup = Lookup { codes, is_sure };
                if !lookup.word(&word, &mut emit) && codes.has(Code::De) {
                    lookup.word(&with_umlauts(&word), &mut emit);
                }
                if !before.is_empty() {
                    phrase.clear();
                    phrase.push_str(&before);
                    phrase.push(' ');
                    phrase.push_str(&word);
                    lookup.phrase(&phrase, before.len() + 1, &mut emit);
                }
            }
            Segment::Unspaced(run) => {
                word.clear();
                if parts(run, is_japanese, &mut emit) {
                    has_parts = true;
                } else {
                    unread.push(run);
                }
            }
            Segment::Compound(_) => {}
        }
    }
    // Japanese can be written without kana. Of 3,233 Chinese messages, this finds something in 11.
    if !has_parts && !is_japanese {
        for run in unread {
            parts(run, true, &mut emit);
        }
    }
}

/// Emits the translations of the parts of a run without spaces. Returns whether there are any.
fn parts(run: &str, is_japanese: bool, emit: &mut impl FnMut(Gloss<'_>)) -> bool {
    let mut next = 0;
    for (at, character) in run.char_indices().take(CHARACTERS_READ) {
        let Some(codes) = Codes::of_script(character, is_japanese).filter(|_| at >= next) else { continue };
        let lookup = Lookup { codes, is_sure: true };
        if let Some(length) = lookup.longest(&run[at..], true) {
            lookup.emit(&run[at..at + length], true, emit);
            next = at + length;
        }
    }
    next > 0
}

/// Reads the tables, which happens at the first use otherwise.
pub fn prepare() {
    LazyLock::force(&GLOSSARY);
}

fn is_kana(character: char) -> bool {
    matches!(character, '\u{3041}'..='\u{30FF}' | '\u{31F0}'..='\u{31FF}') && character != '\u{30FB}'
}

/// All forms, sorted by their term. Terms instead of texts keep the table small (8 bytes each).
struct Glossary {
    entries: Vec<Entry>,
    english: Vec<&'static str>,
}

#[derive(Clone, Copy)]
struct Entry {
    term: u32,
    english: u16,
    code: Code,
    /// Any ending may follow.
    is_open: bool,
}

impl Glossary {
    fn read() -> Self {
        let mut glossary = Self { entries: Vec::new(), english: Vec::new() };
        let mut places = std::collections::HashMap::new();
        for (code, table) in TABLES {
            for (english, forms) in table.lines().filter_map(|line| line.split_once('\t')) {
                let place = *places.entry(english).or_insert_with(|| {
                    glossary.english.push(english);
                    glossary.english.len() - 1
                });
                let Ok(place) = u16::try_from(place) else { continue };
                for form in forms.split('|') {
                    let (stem, is_open) = form.strip_suffix('*').map_or((form, false), |stem| (stem, true));
                    glossary.entries.push(Entry { term: term(&normal(stem)), english: place, code, is_open });
                }
            }
        }
        glossary.entries.sort_unstable_by_key(|entry| (entry.term, entry.english));
        glossary
    }

    fn of(&self, term: u32) -> &[Entry] {
        let start = self.entries.partition_point(|entry| entry.term < term);
        let length = self.entries[start..].partition_point(|entry| entry.term == term);
        &self.entries[start..start + length]
    }
}

/// A form as it is compared.
fn normal(form: &str) -> String {
    if form.starts_with(is_unspaced) { clean(form).into_owned() } else { folded(form) }
}

/// A search in the tables of some languages.
#[derive(Clone, Copy)]
struct Lookup {
    codes: Codes,
    is_sure: bool,
}

impl Lookup {
    fn entries(self, text: &str, is_whole: bool) -> impl Iterator<Item = Entry> {
        let of_term = GLOSSARY.of(term(text)).iter().copied();
        of_term.filter(move |entry| self.codes.has(entry.code) && (is_whole || entry.is_open))
    }

    /// The length of the longest form with which a text begins. `is_open`: every form may have an ending.
    fn longest(self, text: &str, is_open: bool) -> Option<usize> {
        let ends = text.char_indices().map(|(at, character)| at + character.len_utf8()).take_while(|end| *end <= LONGEST_FORM);
        let has = |end: &usize| self.entries(&text[..*end], is_open || *end == text.len()).next().is_some();
        ends.filter(has).last()
    }

    fn emit(self, form: &str, is_whole: bool, emit: &mut impl FnMut(Gloss<'_>)) {
        let mut previous = None;
        let alternatives = self.entries(form, is_whole).count();
        for entry in self.entries(form, is_whole).filter(|entry| previous.replace(entry.english) != Some(entry.english)) {
            let english = GLOSSARY.english[usize::from(entry.english)];
            emit(Gloss { word: form, english, alternatives, is_sure: self.is_sure });
        }
    }

    /// Emits the translations of a word. Returns whether there are any.
    fn word(self, word: &str, emit: &mut impl FnMut(Gloss<'_>)) -> bool {
        let mut rest = word;
        let mut found = self.longest(rest, false);
        if self.codes.meets(Codes::GLUING) {
            for _ in 0..LONGEST_GLUED {
                let Some(shorter) = rest.strip_prefix(GLUED).filter(|_| found.is_none()) else { break };
                rest = shorter;
                found = self.longest(rest, false);
            }
        }
        let Some(length) = found.filter(|length| self.is_sure || rest[..*length].chars().nth(SHORTEST_UNSURE - 1).is_some()) else {
            return false;
        };
        self.emit_of(word, rest, length, emit);
        if self.is_sure && self.codes.meets(Codes::COMPOUNDING) {
            let starts = rest[length..].char_indices().map(|(at, _)| length + at).take(LONGEST_JOINT + 1);
            for part in starts.map(|start| &rest[start..]).take_while(|part| part.chars().nth(SHORTEST_PART - 1).is_some()) {
                if let Some(length) = self.longest(part, false).filter(|length| part[..*length].chars().nth(SHORTEST_PART - 1).is_some()) {
                    self.emit_of(word, part, length, emit);
                    break;
                }
            }
        }
        true
    }

    /// Emits the translations of the beginning of a part of a word.
    fn emit_of(self, word: &str, part: &str, length: usize, emit: &mut impl FnMut(Gloss<'_>)) {
        self.emit(&part[..length], length == part.len(), &mut |gloss| emit(Gloss { word, ..gloss }));
    }

    /// Emits the translations of several words, the last of which starts at `last`.
    fn phrase(self, phrase: &str, last: usize, emit: &mut impl FnMut(Gloss<'_>)) {
        if let Some(length) = self.longest(phrase, false).filter(|length| *length > last) {
            self.emit_of(&phrase[last..], phrase, length, emit);
        }
    }
}

#[cfg(test)]
mod tests;
