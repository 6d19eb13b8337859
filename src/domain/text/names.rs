//! Names of products, and borrowed English words, in other scripts: `트렐로` is Trello, `カード` is a card.
//!
//! People write such words as they sound. The table (`names.txt`) maps them to the English word, which then finds the tool. Words
//! that are written like English belong to the spelling correction instead.

use std::collections::HashMap;
use std::sync::LazyLock;

use ahash::RandomState;

use super::folding::{clean, fold};
use super::words::{Segment, is_unspaced, segments};

/// The table. Each line has the English words, a colon, and their forms in other scripts, separated by spaces.
const NAMES: &str = include_str!("names.txt");

/// Maximum length of an ending that is glued to a name in a script with spaces, in characters.
const LONGEST_ENDING: usize = 3;
/// Minimum length of a name before an ending.
const SHORTEST_BEFORE_ENDING: usize = 3;
/// Minimum length of a stem of a name, in characters.
const SHORTEST_STEM: usize = 4;
/// The endings of borrowed words in Russian and Ukrainian. Other letters make another word: `поставь` is no post.
const CYRILLIC_ENDINGS: &str = "а ам ами ах е ем ею ей еві и ии ию ия ів ом ов ові ой ою у ы ю я ям ями ях єм і";

static TABLE: LazyLock<Table> = LazyLock::new(|| Table::read(NAMES));

#[derive(Default)]
struct Table {
    english: HashMap<String, &'static str, RandomState>,
    /// For each first character, the length of the longest name in characters.
    longest: HashMap<char, usize, RandomState>,
}

impl Table {
    fn read(text: &'static str) -> Self {
        let mut table = Self::default();
        let mut folded = String::new();
        for (english, forms) in text.lines().filter_map(|line| line.split_once(':')) {
            for form in forms.split_whitespace() {
                let form = clean(form);
                let form = if form.starts_with(is_unspaced) {
                    without_long_vowel(&form)
                } else {
                    fold(&form, &mut folded);
                    &folded
                };
                let Some(first) = form.chars().next() else { continue };
                let longest = table.longest.entry(first).or_default();
                *longest = form.chars().count().max(*longest);
                table.english.insert(form.to_owned(), english);
            }
        }
        table.add_stems();
        table
    }

    /// Adds what remains of Cyrillic names in other cases: `джир` of `джира`, for `джире`.
    fn add_stems(&mut self) {
        let stem = |(form, english): (&String, &&'static str)| {
            let stem = form.strip_suffix(['а', 'я'])?;
            (stem.chars().count() >= SHORTEST_STEM).then(|| (stem.to_owned(), *english))
        };
        let stems: Vec<(String, &'static str)> = self.english.iter().filter_map(stem).collect();
        for (stem, english) in stems {
            self.english.entry(stem).or_insert(english);
        }
    }

    /// The longest name at the start of `text` that what follows permits: its English words, and its length in bytes.
    fn longest_at_start(&self, text: &str, is_followed: impl Fn(&str, &str) -> bool) -> Option<(&'static str, usize)> {
        let longest = *self.longest.get(&text.chars().next()?)?;
        let ends = text.char_indices().map(|(at, character)| at + character.len_utf8()).take(longest);
        // At most `LONGEST_NAME` characters, so this is no loop over the text.
        let mut lengths = [0; LONGEST_NAME];
        let count = lengths.iter_mut().zip(ends).map(|(length, end)| *length = end).count();
        let name =
            |&length: &usize| Some((*self.english.get(&text[..length])?, length)).filter(|_| is_followed(&text[..length], &text[length..]));
        lengths[..count].iter().rev().find_map(name)
    }
}

/// Maximum length of a name in characters. A test checks the table.
const LONGEST_NAME: usize = 16;

/// The English words for a folded word in a script with spaces. The word may have a case ending, and in Arabic and Hebrew a glued
/// article, conjunction or preposition.
pub(super) fn english_for_word(word: &str) -> Option<&'static str> {
    if let Some(english) = TABLE.english.get(word) {
        return Some(english);
    }
    let has_ending =
        |name: &str, ending: &str| ending.is_empty() || (name.chars().nth(SHORTEST_BEFORE_ENDING - 1).is_some() && is_ending(ending));
    let mut rest = word;
    for _ in 0..=LONGEST_PREFIX {
        if let Some((english, _)) = TABLE.longest_at_start(rest, has_ending) {
            return Some(english);
        }
        rest = rest.strip_prefix(GLUED)?;
    }
    None
}

fn is_ending(text: &str) -> bool {
    match text.chars().next() {
        Some('\u{0400}'..='\u{052F}') => CYRILLIC_ENDINGS.split(' ').any(|ending| ending == text),
        _ => text.chars().nth(LONGEST_ENDING).is_none(),
    }
}

/// Letters of Arabic and Hebrew articles, conjunctions and prepositions.
const GLUED: [char; 13] = ['ا', 'ل', 'ب', 'و', 'ف', 'ك', 'ع', 'ה', 'ו', 'ב', 'ל', 'מ', 'ש'];
const LONGEST_PREFIX: usize = 4;

/// Calls `emit` with each name in a run of a script without spaces, and with its English words. In Hangul and Katakana, a name starts
/// where its run or the previous name ends.
pub(super) fn english_in_run<'a>(run: &'a str, mut emit: impl FnMut(&'a str, &'static str)) {
    let mut at = 0;
    let mut may_start = true;
    while let Some(first) = run[at..].chars().next() {
        let found = if may_start || !is_phonetic(first) { TABLE.longest_at_start(&run[at..], |_, _| true) } else { None };
        if let Some((english, length)) = found {
            emit(&run[at..at + length], english);
            at += length;
            may_start = true;
        } else {
            at += first.len_utf8();
            may_start = first == LONG_VOWEL && may_start;
        }
        if run[at..].chars().next().is_some_and(|next| is_phonetic(first) != is_phonetic(next)) {
            may_start = true;
        }
    }
}

/// The names of a clean text that are written in other scripts, each with its English words.
pub(in crate::domain) fn names_in(text: &str) -> Vec<(&str, &'static str)> {
    let (mut names, mut word) = (Vec::new(), String::new());
    for segment in segments(text) {
        match segment {
            Segment::Word(run) | Segment::Compound(run) => {
                fold(run, &mut word);
                names.extend(english_for_word(&word).map(|english| (run, english)));
            }
            Segment::Unspaced(run) => english_in_run(run, |name, english| names.push((name, english))),
        }
    }
    names
}

fn is_phonetic(character: char) -> bool {
    matches!(character, '\u{30A1}'..='\u{30FF}' | '\u{AC00}'..='\u{D7AF}')
}

const LONG_VOWEL: char = 'ー';

/// Writers often leave out the long vowel at the end of a Katakana word.
fn without_long_vowel(word: &str) -> &str {
    word.strip_suffix(LONG_VOWEL).filter(|rest| rest.chars().nth(2).is_some()).unwrap_or(word)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{LONGEST_NAME, NAMES, english_for_word, english_in_run, names_in};

    fn in_run(run: &str) -> Vec<&'static str> {
        let mut found = Vec::new();
        english_in_run(run, |_, english| found.push(english));
        found
    }

    #[test]
    fn the_table_is_well_formed() {
        let mut seen = HashSet::new();
        for line in NAMES.lines() {
            let (english, forms) = line.split_once(": ").unwrap_or_else(|| panic!("{line}"));
            assert!(english.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b' '), "{line}");
            for form in forms.split(' ') {
                assert!(!form.is_ascii() && form.chars().all(|character| !character.is_ascii_alphanumeric()), "{line}");
                assert!((1..=LONGEST_NAME).contains(&form.chars().count()), "{form}");
                assert!(seen.insert(form), "{form} is there twice");
            }
        }
        assert!(seen.len() > 1_000, "{}", seen.len());
    }

    #[test]
    fn a_name_is_known_with_its_ending_or_its_article() {
        for (word, english) in [
            ("кликхаус", "clickhouse"),
            ("кликхаусе", "clickhouse"),
            ("дискорді", "discord"),
            ("джире", "jira"),
            ("фигмой", "figma"),
            ("группам", "group"),
            ("بالديسكورد", "discord"),
            ("والفيسبوك", "facebook"),
            ("בפיגמה", "figma"),
            ("τρελο", "trello"),
        ] {
            assert_eq!(english_for_word(word), Some(english), "{word}");
        }
        for word in ["", "слон", "поставь", "сторона", "файлообменникам", "كتاب"] {
            assert_eq!(english_for_word(word), None, "{word}");
        }
    }

    #[test]
    fn names_are_found_where_they_stand() {
        assert_eq!(names_in("создай в джире, 用谷歌"), [("джире", "jira"), ("谷歌", "google")]);
        assert!(names_in("in Jira").is_empty());
    }

    #[test]
    fn names_in_a_run_are_found_one_after_another() {
        assert_eq!(in_run("트렐로에서"), ["trello"]);
        assert_eq!(in_run("トレロボードのカード"), ["trello", "board", "card"]);
        assert_eq!(in_run("サーバーとサーバ"), ["server", "server"]);
        assert_eq!(in_run("用谷歌搜索微信文章"), ["google", "wechat weixin"]);
        assert_eq!(in_run("บอร์ดในเทรลโล"), ["board", "trello"]);
        assert!(in_run("キャンセル").is_empty());
        assert!(in_run("オフカード").is_empty(), "it is a part of another word");
        assert!(in_run("").is_empty());
    }
}
