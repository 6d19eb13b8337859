//! Shortens texts of others, so that they can't fill an answer.

use std::borrow::Cow;

/// The text, or its first `most` characters with an ellipsis.
pub(crate) fn short(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!((short("äöü", 3), short("äöüß", 3)), ("äöü".into(), "äöü…".into()));
    }
}
