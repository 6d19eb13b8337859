//! Replaces parts of a text.

use std::ops::Range;

/// The text with new parts in place of these ranges, which must be in order. `None` if there are no ranges.
pub(super) fn splice<T: AsRef<str>>(text: &str, parts: impl IntoIterator<Item = (Range<usize>, T)>) -> Option<String> {
    let (mut spliced, mut copied) = (None, 0);
    for (range, new) in parts {
        let out = spliced.get_or_insert_with(|| String::with_capacity(text.len()));
        out.push_str(&text[copied..range.start]);
        out.push_str(new.as_ref());
        copied = range.end;
    }
    spliced.map(|out| out + &text[copied..])
}

#[cfg(test)]
mod tests {
    use super::splice;

    #[test]
    fn all_bytes_between_the_parts_stay() {
        assert_eq!(splice("a, b, c", [(0..1, "one"), (3..4, ""), (6..7, "three")]).as_deref(), Some("one, , three"));
        assert_eq!(splice::<&str>("a", []), None);
    }
}
