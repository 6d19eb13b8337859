//! Synonyms configured by an administrator.
//!
//! A word of a message also finds tools by its synonyms, at a fraction of its weight: people write "mail" where a tool has
//! "email". Groups should contain few general, single words. Words specific to a tool belong in its own texts, and dense search
//! covers similar meanings.

use std::collections::HashMap;
use std::fmt;

use ahash::RandomState;

use crate::domain::text::analysis::Analyzer;

/// For each term, its synonyms.
#[derive(Default, Clone, PartialEq)]
pub struct Synonyms {
    others: HashMap<u32, Vec<u32>, RandomState>,
}

/// Prints only the number of words, because terms are meaningless hashes.
impl fmt::Debug for Synonyms {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} words", self.others.len())
    }
}

/// The reason why a group is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SynonymProblem {
    #[error("\"{0}\" is not a single searchable word")]
    NotAWord(String),
    #[error("\"{0}\" contains fewer than two different words")]
    TooFew(String),
}

impl Synonyms {
    /// Parses groups of words separated by whitespace or commas. A word may be in several groups.
    ///
    /// # Errors
    /// [`SynonymProblem`] for an invalid word (several parts, or a stop word), and for a group without effect.
    pub fn new(analyzer: &Analyzer, groups: &[impl AsRef<str>]) -> Result<Self, SynonymProblem> {
        let mut others: HashMap<u32, Vec<u32>, RandomState> = HashMap::default();
        for group in groups {
            let group = group.as_ref();
            let words = group.split(|character: char| character == ',' || character.is_whitespace()).filter(|word| !word.is_empty());
            let mut terms = words
                .map(|word| match analyzer.terms(word)[..] {
                    [term] => Ok(term),
                    _ => Err(SynonymProblem::NotAWord(word.to_owned())),
                })
                .collect::<Result<Vec<u32>, _>>()?;
            terms.sort_unstable();
            terms.dedup();
            if terms.len() < 2 {
                return Err(SynonymProblem::TooFew(group.to_owned()));
            }
            for term in &terms {
                let known = others.entry(*term).or_default();
                known.extend(terms.iter().filter(|other| *other != term));
                known.sort_unstable();
                known.dedup();
            }
        }
        Ok(Self { others })
    }

    /// The synonyms of a term, without the term itself.
    pub fn of(&self, term: u32) -> &[u32] {
        self.others.get(&term).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::{SynonymProblem, Synonyms};
    use crate::domain::text::analysis::Analyzer;

    #[test]
    fn words_of_a_group_stand_for_each_other_in_every_form() {
        let analyzer = Analyzer::default();
        let synonyms = Synonyms::new(&analyzer, &["mail email", "email, message", "delete removing"]).unwrap();
        let term = |word: &str| analyzer.terms(word)[0];
        assert_eq!(synonyms.of(term("mails")), [term("email")]);
        let mut both = vec![term("mail"), term("message")];
        both.sort_unstable();
        assert_eq!(synonyms.of(term("email")), both);
        assert_eq!(synonyms.of(term("removed")), [term("delete")]);
        assert!(synonyms.of(term("umbrella")).is_empty());
    }

    #[test]
    fn a_group_that_says_nothing_is_refused() {
        let refused = |group: &str| Synonyms::new(&Analyzer::default(), &[group]).unwrap_err();
        assert_eq!(refused("pull-request pr"), SynonymProblem::NotAWord("pull-request".into()));
        assert_eq!(refused("the mail"), SynonymProblem::NotAWord("the".into()));
        assert_eq!(refused("mail mails"), SynonymProblem::TooFew("mail mails".into()));
        assert_eq!(refused(""), SynonymProblem::TooFew(String::new()));
    }
}
