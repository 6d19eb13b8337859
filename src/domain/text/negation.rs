//! Whether a name in a message is negated: "in Jira, **not in** Linear".

use crate::domain::text::word_list::word_list;

/// Number of words before a name among which a negation is looked for: "not in the Linear board".
const BEFORE: usize = 3;
/// Number of words before a name among which a negation of a negation is looked for: "don't forget to update Jira".
const LONG_BEFORE: usize = 5;
/// Number of characters next to a name for scripts and languages that negate behind it or without spaces.
const CLOSE: usize = 10;
/// Words before what they negate, in lower case. One list serves all languages, so what means something else in another one is missing: English
/// "no" is mostly an answer ("no in Jira"), and Czech "ne" is Turkish for "what".
const NEGATIONS: &[&str] = word_list!(
    "not don't dont never without except nicht kein keine keinen statt anstatt anstelle ohne außer ausser pas sans non senza não nao niet geen \
     zonder nie zamiast bez не вместо без кроме замість крім inte ikke uden uten älä paitsi není ليس ليست لا بدل بدلا وليس"
);
/// A negation only right before a name. In Norwegian, it is an article.
const RIGHT_BEFORE_ONLY: &str = "ei";
/// Texts of several words, of which one alone may mean something else: "instead use Jira".
const PHRASES: [&str; 20] = [
    "instead of",
    "rather than",
    "plutôt que",
    "plutôt qu'",
    "lieu de",
    "lieu du",
    "lieu d'",
    "vez de",
    "vez do",
    "vez da",
    "lugar de",
    "invece che",
    "invece di",
    "invece del",
    "posto di",
    "posto del",
    "plaats van",
    "istället för",
    "stedet for",
    "místo ",
];
/// Words that negate unless they are negated themselves.
const FORGET: &[&str] = word_list!("forget vergiss oublie olvida dimentica esquece vergeet zapomnij забудь glöm");
/// Words that end what a negation before them reaches: "not Linear but Jira".
const BUT: &[&str] = word_list!("but sondern aber mais sino pero ma però mas maar ale lecz а но але men utan vaan mutta ama nýbrž بل لكن");
/// Words that turn a negation around: "not only in Linear".
const ONLY: &[&str] = word_list!(
    "only just nur bloß solo sólo solamente seulement soltanto apenas só alleen tylko только лишь тільки bara kun vain jen فقط sirf sadece"
);
/// Texts right before a negated name, in scripts without spaces between words.
const RIGHT_BEFORE: [&str; 7] = ["不是", "不在", "不要", "别用", "別用", "不用", "而非"];
/// Texts soon after a negated name.
const SOON_AFTER: [&str; 18] = [
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
    "nahi",
    "के बजाय",
    "की जगह",
    "ki jagah",
];
const ENDS_OF_CLAUSES: [char; 15] = [',', '.', ';', ':', '!', '?', '\n', '、', '。', '，', '；', '！', '？', '،', '؟'];

/// Whether the text before or after a name negates it.
pub(crate) fn is_negated(before: &str, after: &str) -> bool {
    let clause = before.rsplit(ENDS_OF_CLAUSES).next().unwrap_or_default();
    let words = clause.split_whitespace().rev().map(|word| word.to_lowercase().replace('’', "'"));
    let words: Vec<String> = words.take_while(|word| !is_in(BUT, word)).take(LONG_BEFORE).collect();
    let near = &words[..words.len().min(BEFORE)];
    if near.iter().any(|word| is_in(FORGET, word)) {
        return !words.iter().any(|word| is_in(NEGATIONS, word));
    }
    let phrase: String = near.iter().rev().flat_map(|word| [word, " "]).collect();
    let is_negated = near.iter().any(|word| is_in(NEGATIONS, word))
        || words.first().is_some_and(|word| word == RIGHT_BEFORE_ONLY)
        || PHRASES.iter().any(|known| phrase.contains(known));
    if is_negated {
        return !near.iter().any(|word| is_in(ONLY, word));
    }
    let close: String = after.split(ENDS_OF_CLAUSES).next().unwrap_or_default().chars().take(CLOSE).collect();
    let start = clause.trim_end().char_indices().rev().nth(2).map_or(0, |(at, _)| at);
    let right_before = &clause.trim_end()[start..];
    RIGHT_BEFORE.iter().any(|negation| right_before.contains(negation)) || SOON_AFTER.iter().any(|negation| close.contains(negation))
}

fn is_in(list: &[&str], word: &str) -> bool {
    list.binary_search(&word).is_ok()
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
            "not [Linear] but Jira",
            "forget [Linear], use Jira",
            "Jirassa, ei [Linearissa]",
            "[Linear] mein nahi, Jira mein",
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
            "not Linear but [Jira]",
            "inte i Linear, utan i [Jira]",
            "Instead use [Jira], Linear is down",
            "Plutôt dans [Jira] que dans Linear",
            "Crea otra vez en [Jira] la tarea de Linear",
            "Plaats dit in [Jira] en haal het uit Linear",
            "Linear'da ne varsa [Jira]'ya kopyala",
            "Kopiera varje uppgift med sin status till [Jira]",
            "Lag ei sak i [Jira]",
            "Don't forget to update [Jira]",
            "把任务分别在[Jira]里建",
        ] {
            assert!(!negates(text), "{text}");
        }
    }
}
