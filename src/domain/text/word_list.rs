//! Lists of words, sorted by the compiler for binary searches.

/// The words of a list, which is written as one text with a space between two words.
macro_rules! word_list {
    ($list:literal) => {{
        const WORDS: [&str; $crate::domain::text::word_list::count($list)] = $crate::domain::text::word_list::sorted($list);
        &WORDS
    }};
}

pub(crate) use word_list;

pub(crate) const fn count(list: &str) -> usize {
    let (mut words, mut at) = (1, 0);
    while at < list.len() {
        if list.as_bytes()[at] == b' ' {
            words += 1;
        }
        at += 1;
    }
    words
}

/// Splits a list at its spaces, and inserts each word where it belongs.
pub(crate) const fn sorted<const N: usize>(list: &str) -> [&str; N] {
    let (mut words, mut count, mut rest) = ([""; N], 0, list);
    while count < N {
        let mut end = 0;
        while end < rest.len() && rest.as_bytes()[end] != b' ' {
            end += 1;
        }
        let (word, after) = rest.split_at(end);
        let mut place = count;
        while place > 0 && is_before(word, words[place - 1]) {
            words[place] = words[place - 1];
            place -= 1;
        }
        words[place] = word;
        count += 1;
        rest = if after.is_empty() { after } else { after.split_at(1).1 };
    }
    words
}

/// The order of strings, which constants can't use yet.
const fn is_before(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() {
        if one[at] != other[at] {
            return one[at] < other[at];
        }
        at += 1;
    }
    one.len() < other.len()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_list_is_sorted_and_complete() {
        const LIST: &[&str] = word_list!("so this -le même thi");
        assert_eq!(LIST, ["-le", "même", "so", "thi", "this"]);
        assert!(LIST.is_sorted());
    }
}
