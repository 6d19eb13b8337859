//! The vocabulary of a catalog, for spelling correction.
//!
//! A word of a message that occurs in no tool is replaced by the nearest known word. The distance is optimal string alignment
//! (Damerau-Levenshtein, each part edited once: insert, delete, substitute, transpose). Short words may differ by one edit, long
//! ones by two. The first letter must match, as it does in most typos. Very short words are not corrected, because too many of
//! them are one edit apart.

use std::collections::{HashMap, HashSet};

use ahash::RandomState;

use super::ToolText;
use crate::domain::text::analysis::{Analyzer, Token, TokenKind};

/// Minimum length of corrected words.
const SHORTEST: usize = 5;
/// Minimum length of words that may differ by two edits.
const LONG: usize = 8;

/// The words of all tools of a catalog.
#[derive(Debug, Default)]
pub struct Vocabulary {
    /// Document frequency of each term: the number of tools that contain it.
    terms: HashMap<u32, u32, RandomState>,
    /// Words by first letter.
    words: HashMap<char, Vec<Word>, RandomState>,
}

#[derive(Debug)]
struct Word {
    text: Box<str>,
    letters: usize,
    /// The letters of the word, one bit each. Rules out most words without a comparison.
    mask: u32,
    term: u32,
    /// The number of tools that contain the word.
    tools: u32,
}

impl Vocabulary {
    /// Collects the words of these tools.
    pub fn of<'a>(analyzer: &Analyzer, tools: impl Iterator<Item = ToolText<'a>>) -> Self {
        let mut counts: HashMap<Box<str>, (u32, u32), RandomState> = HashMap::default();
        let mut terms: HashMap<u32, u32, RandomState> = HashMap::default();
        let mut seen: HashSet<u32, RandomState> = HashSet::default();
        let mut met: HashSet<u32, RandomState> = HashSet::default();
        for tool in tools {
            seen.clear();
            met.clear();
            let language = tool.language();
            let parameters = tool.parameters.iter().flat_map(|(name, description)| [&**name, &**description]);
            let synonyms = tool.synonyms.iter().map(String::as_str);
            for text in
                [tool.server, tool.name, tool.title.unwrap_or_default(), tool.description].into_iter().chain(parameters).chain(synonyms)
            {
                analyzer.for_each_token(text, language, |Token { term, kind }| {
                    *terms.entry(term).or_default() += u32::from(met.insert(term));
                    let TokenKind::Word(word) = kind else { return };
                    if !is_correctable(word) {
                        return;
                    }
                    let is_new = u32::from(seen.insert(term));
                    if let Some((_, tools)) = counts.get_mut(word) {
                        *tools += is_new;
                    } else {
                        counts.insert(word.into(), (term, 1));
                    }
                });
            }
        }
        let mut words: HashMap<char, Vec<Word>, RandomState> = HashMap::default();
        for (text, (term, tools)) in counts {
            let Some(first) = text.chars().next() else { continue };
            let (letters, mask) = (text.chars().count(), mask(&text));
            words.entry(first).or_default().push(Word { text, letters, mask, term, tools });
        }
        Self { terms, words }
    }

    /// Whether any tool contains this term.
    pub fn knows(&self, term: u32) -> bool {
        self.terms.contains_key(&term)
    }

    /// The number of tools that contain this term.
    pub fn tools_with(&self, term: u32) -> usize {
        self.terms.get(&term).map_or(0, |&tools| tools as usize)
    }

    /// The term of the word nearest to `word`, which must be lower case. On a tie, the word in more tools wins. `None` if no word
    /// is near enough.
    pub fn nearest(&self, word: &str) -> Option<u32> {
        if !is_correctable(word) {
            return None;
        }
        let letters = word.chars().count();
        let most = if letters < LONG { 1 } else { 2 };
        let own = mask(word);
        let near = self.words.get(&word.chars().next()?)?.iter().filter_map(|known| {
            // One substitution changes at most two bits.
            let differ = (known.mask ^ own).count_ones() as usize;
            if known.letters.abs_diff(letters) > most || differ > 2 * most {
                return None;
            }
            let distance = strsim::osa_distance(&known.text, word);
            (distance <= most).then_some((distance, std::cmp::Reverse(known.tools), &known.text, known.term))
        });
        near.min().map(|(.., term)| term)
    }
}

fn is_correctable(word: &str) -> bool {
    word.len() >= SHORTEST && word.chars().all(char::is_alphabetic) && word.chars().nth(SHORTEST - 1).is_some()
}

fn mask(word: &str) -> u32 {
    word.chars().fold(0, |mask, letter| mask | 1 << (u32::from(letter) % 32))
}

#[cfg(test)]
mod tests {
    use super::super::ToolText;
    use super::Vocabulary;
    use crate::domain::text::analysis::Analyzer;

    fn vocabulary() -> (Analyzer, Vocabulary) {
        let analyzer = Analyzer::default();
        let tools = [
            ToolText { server: "browser", name: "take_screenshot", description: "Takes a picture of the page", ..ToolText::default() },
            ToolText { server: "data", name: "analyzeTable", description: "Analyze rows. Verify pages.", ..ToolText::default() },
        ];
        let vocabulary = Vocabulary::of(&analyzer, tools.into_iter());
        (analyzer, vocabulary)
    }

    fn corrected(word: &str) -> Option<u32> {
        vocabulary().1.nearest(word)
    }

    fn term(word: &str) -> Option<u32> {
        vocabulary().0.terms(word).first().copied()
    }

    #[test]
    fn a_misspelt_word_is_the_one_that_it_was_meant_to_be() {
        assert_eq!(corrected("screenshoot"), term("screenshot"));
        assert_eq!(corrected("sreenshto"), term("screenshot"), "a letter less and two exchanged");
        assert_eq!(corrected("verifiy"), term("verify"));
        assert_eq!(corrected("analize"), term("analyze"));
        assert_eq!(corrected("pciture"), term("picture"), "two letters exchanged");
    }

    #[test]
    fn a_word_that_is_near_nothing_stays() {
        assert_eq!(corrected("umbrella"), None);
        assert_eq!(corrected("page"), None, "too short to tell");
        assert_eq!(corrected("zerify"), None, "the first letter counts");
        assert_eq!(corrected("pic7ure"), None, "not a word");
        assert_eq!(corrected(""), None);
    }

    #[test]
    fn it_knows_the_stems_of_its_words() {
        let (analyzer, vocabulary) = vocabulary();
        assert!(analyzer.terms("takes tables verified").iter().all(|term| vocabulary.knows(*term)));
        assert!(!analyzer.terms("umbrella").iter().any(|term| vocabulary.knows(*term)));
    }
}
