//! One line about a tool.

/// The first sentence of a description, cut at 200 characters on a character boundary.
pub fn summary(description: &str) -> &str {
    const LIMIT: usize = 200;
    let text = description.trim();
    let sentence = text
        .match_indices(['.', '\n', '。'])
        .find(|(position, mark)| {
            let rest = &text[position + mark.len()..];
            *mark != "." || rest.is_empty() || rest.starts_with(char::is_whitespace)
        })
        .map_or(text, |(position, mark)| if mark == "\n" { &text[..position] } else { &text[..position + mark.len()] });
    match sentence.char_indices().nth(LIMIT) {
        Some((end, _)) => &sentence[..end],
        None => sentence,
    }
}

#[cfg(test)]
mod tests {
    use super::summary;

    #[test]
    fn a_summary_is_the_first_sentence() {
        assert_eq!(summary("Get the time. In any zone."), "Get the time.");
        assert_eq!(summary("Version 1.2 of it\nmore"), "Version 1.2 of it");
        assert_eq!(summary("  "), "");
        assert_eq!(summary(&"é".repeat(300)).chars().count(), 200);
    }
}
