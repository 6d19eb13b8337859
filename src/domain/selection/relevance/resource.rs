//! Recognises messages that name a file, an address or a handle.

/// Whether a word of the message is a file name, a path, a URL, an e-mail address or a handle.
pub(super) fn names_resource(message: &str) -> bool {
    message.split_whitespace().any(|word| {
        let word = word.trim_matches(|character: char| ".,;:!?()\"'`".contains(character));
        let starts_with_word = |text: &str| text.starts_with(|character: char| character.is_alphanumeric() || character == '_');
        let extension = || {
            word.rsplit_once('.').is_some_and(|(stem, ending)| {
                stem.ends_with(|character: char| character.is_alphanumeric() || character == '_')
                    && (2..=5).contains(&ending.len())
                    && ending.starts_with(|character: char| character.is_ascii_alphabetic())
                    && ending.chars().all(|character| character.is_ascii_alphanumeric())
            })
        };
        let path = || ["/", "~/"].iter().any(|root| word.strip_prefix(root).is_some_and(starts_with_word));
        let handle = || word.split_once('@').is_some_and(|(_, name)| starts_with_word(name));
        word.contains("://") || path() || handle() || extension()
    })
}
