//! Suggests names for misspelt ones. Suggestions are only shown, never applied.

/// Maximum length of compared names.
const LONGEST: usize = 128;

/// The known name most similar to a wrong one, if any is similar enough.
pub(crate) fn nearest<'a>(wrong: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    best(wrong, known, strsim::jaro_winkler, 0.8)
}

/// Like [`nearest`], but ignores the common prefix of the names.
pub(crate) fn nearest_of_family<'a>(wrong: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    best(wrong, known, strsim::normalized_damerau_levenshtein, 0.7)
}

/// The end of a message about a wrong name: `; did you mean …?`, or nothing. Compares like [`nearest_of_family`].
pub(crate) fn did_you_mean<'a>(wrong: &str, known: impl Iterator<Item = &'a str>) -> String {
    nearest_of_family(wrong, known).map(|meant| format!("; did you mean `{meant}`?")).unwrap_or_default()
}

fn best<'a>(wrong: &str, known: impl Iterator<Item = &'a str>, similarity: impl Fn(&str, &str) -> f64, least: f64) -> Option<&'a str> {
    if wrong.is_empty() || wrong.len() > LONGEST {
        return None;
    }
    let wrong = wrong.to_lowercase();
    known
        .filter(|name| name.len() <= LONGEST)
        .map(|name| (similarity(&wrong, &name.to_lowercase()), name))
        // On a tie, the first name wins.
        .fold(None, |best: Option<(f64, &str)>, next| if best.is_none_or(|best| next.0 > best.0) { Some(next) } else { best })
        .and_then(|(similarity, name)| (similarity >= least).then_some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        let known = ["title", "body", "labels"];
        assert_eq!(nearest("Titel", known.into_iter()), Some("title"));
        assert_eq!(nearest("assignee", known.into_iter()), None);
        let tools = ["github__create_issue", "github__list_issues", "jira__create_issue"];
        assert_eq!(nearest_of_family("github__create_isue", tools.into_iter()), Some("github__create_issue"));
        assert_eq!(nearest_of_family("github__delete_repository", tools.into_iter()), None);
        assert_eq!(nearest_of_family(&"x".repeat(1000), tools.into_iter()), None);
    }
}
