//! Whether a name in a message is negated: "in Jira, **not in** Linear".

use crate::domain::text::word_list::word_list;

/// Number of words before a name among which a negation is looked for: "not in the Linear board".
const BEFORE: usize = 3;
/// Number of characters next to a name for scripts and languages that negate behind it or without spaces.
const CLOSE: usize = 10;
/// Words before what they negate or replace, in lower case. English "no" is missing: mostly, it is an answer ("no in Jira").
const NEGATIONS: &[&str] = word_list!(
    "not don't dont forget vergiss oublie olvida dimentica esquece vergeet zapomnij забудь glöm unuta doesn't isn't never without except instead rather than nicht kein keine keinen statt anstatt anstelle ohne außer ausser \
     pas sans lieu plutôt sin vez lugar non senza invece posto não nao sem niet geen plaats zonder nie zamiast bez не вместо без кроме \
     замість крім inte istället utan ikke stedet uden uten ei älä paitsi ne místo není ليس ليست لا بدل بدلا وليس nahi nahin"
);
/// Words that turn a negation around: "not only in Linear".
const ONLY: &[&str] = word_list!(
    "only just nur bloß solo sólo solamente seulement soltanto apenas só alleen tylko только лишь тільки bara kun vain jen فقط sirf sadece"
);
/// Texts right before a negated name, in scripts without spaces between words.
const RIGHT_BEFORE: [&str; 7] = ["不是", "不在", "不要", "别", "別", "不用", "而非"];
/// Texts soon after a negated name.
const SOON_AFTER: [&str; 17] = [
    "ではなく",
    "じゃなく",
    "でなく",
    "じゃない",
    "ではない",
    "の代わり",
    "말고",
    "아니라",
    "아니고",
    "아닌",
    "대신",
    "değil",
    "yerine",
    "नहीं",
    "के बजाय",
    "की जगह",
    "ki jagah",
];
const ENDS_OF_CLAUSES: [char; 15] = [',', '.', ';', ':', '!', '?', '\n', '、', '。', '，', '；', '！', '？', '،', '؟'];

/// Whether the text before or after a name negates it.
pub(crate) fn is_negated(before: &str, after: &str) -> bool {
    let clause = before.rsplit(ENDS_OF_CLAUSES).next().unwrap_or_default();
    let words: Vec<String> = clause.split_whitespace().rev().take(BEFORE).map(|word| word.to_lowercase().replace('’', "'")).collect();
    let has = |list: &[&str]| words.iter().any(|word| list.binary_search(&word.as_str()).is_ok());
    if has(NEGATIONS) {
        return !has(ONLY);
    }
    let close: String = after.split(ENDS_OF_CLAUSES).next().unwrap_or_default().chars().take(CLOSE).collect();
    let start = clause.trim_end().char_indices().rev().nth(2).map_or(0, |(at, _)| at);
    let right_before = &clause.trim_end()[start..];
    RIGHT_BEFORE.iter().any(|negation| right_before.contains(negation)) || SOON_AFTER.iter().any(|negation| close.contains(negation))
}

#[cfg(test)]
mod tests {
    use super::is_negated;

    /// A text with its name in brackets.
    fn negates(text: &str) -> bool {
        let (before, rest) = text.split_once('[').unwrap();
        is_negated(before, rest.split_once(']').unwrap().1)
    }

    #[test]
    fn names_are_negated_in_many_languages() {
        for text in [
            "create it in Jira, not in [Linear]",
            "don't use [Linear]",
            "In Jira bitte, nicht in [Linear]",
            "in Jira statt in [Linear]",
            "dans Jira, pas dans [Linear]",
            "dans Jira au lieu de [Linear]",
            "en Jira en vez de [Linear]",
            "in Jira invece che in [Linear]",
            "no Jira, não no [Linear]",
            "w Jirze, nie w [Linear]",
            "в Jira, а не в [Linear]",
            "في Jira وليس في [Linear]",
            "in Jira, niet in [Linear]",
            "[Linear]ではなくJiraに",
            "[Linear] 말고 Jira에",
            "不是[Linear]，是Jira",
            "[Linear]'da değil, Jira'da",
            "[Linear] में नहीं, Jira में",
        ] {
            assert!(negates(text), "{text}");
        }
    }

    #[test]
    fn names_that_only_follow_a_no_are_not_negated() {
        for text in [
            "no, in [Jira]",
            "Nein, nicht das. In [Jira]!",
            "not only in [Jira] but also there",
            "nicht nur in [Jira]",
            "it is not there, is it in [Jira]?",
            "I have not found the page that they wrote in [Confluence]",
            "在[Jira]里，不是那个",
            "[Jira]",
        ] {
            assert!(!negates(text), "{text}");
        }
    }
}
