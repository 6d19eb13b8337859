//! Recognises what a person pasted into a message without a fence: logs, traces, code and data.
//!
//! Words of a paste lead away from the request: "total" in a function to `get-sum`. Such lines have far more digits and punctuation
//! than prose in any language has, so no list of languages or formats is needed.

/// Minimum share of digits and [`PUNCTUATION`] among the characters of a pasted line.
const DENSE: f32 = 0.22;
/// The same for a line that stands alone.
const DENSE_ALONE: f32 = 0.25;
/// Minimum number of characters of a line that stands alone.
const LONG_ALONE: usize = 60;
/// Punctuation that prose hardly contains.
const PUNCTUATION: &str = "{}[]()<>=;|\"'\\/_#$%&*+~^@:`";

/// For each line, whether it belongs to a paste: to at least two adjacent lines of it, or it is a long one. Indented lines next to such
/// a line belong to it.
pub(super) fn pasted_lines(lines: &[&str]) -> Vec<bool> {
    let mut pasted = vec![false; lines.len()];
    let mut start = 0;
    while start < lines.len() {
        let length = lines[start..].iter().take_while(|line| is_indented(line) || is_dense(line, DENSE)).count();
        let run = &lines[start..start + length];
        let mut dense = run.iter().filter(|line| is_dense(line, DENSE));
        let is_paste = match (dense.next(), dense.next()) {
            (Some(_), Some(_)) => true,
            (Some(only), None) => length > 1 || (only.trim().chars().count() >= LONG_ALONE && is_dense(only, DENSE_ALONE)),
            _ => false,
        };
        pasted[start..start + length].fill(is_paste);
        start += length.max(1);
    }
    pasted
}

fn is_indented(line: &str) -> bool {
    !line.trim().is_empty() && (line.starts_with('\t') || line.starts_with("  "))
}

/// Whether a line consists of digits and punctuation to this share at least. A question doesn't, because people write those.
fn is_dense(line: &str, share: f32) -> bool {
    let line = line.trim();
    if line.is_empty() || line.ends_with(['?', '？', '؟']) {
        return false;
    }
    let (mut all, mut marks) = (0_usize, 0_usize);
    for character in line.chars().filter(|character| !character.is_whitespace()) {
        all += 1;
        marks += usize::from(character.is_numeric() || PUNCTUATION.contains(character));
    }
    marks as f32 >= share * all as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prose(message: &str) -> String {
        let lines: Vec<&str> = message.lines().collect();
        let pasted = pasted_lines(&lines);
        lines.iter().zip(pasted).filter(|(line, pasted)| !pasted && !line.is_empty()).map(|(line, _)| *line).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn logs_code_and_data_are_pastes() {
        for (message, expected) in [
            (
                "2026-03-02T08:11:04Z INFO started\n2026-03-02T08:14:44Z ERROR 3 died\n\n08:14 UTC, what's that in Chicago?",
                "08:14 UTC, what's that in Chicago?",
            ),
            ("save this as a.json\n{\"id\": 8812, \"total\": 119.90},\n{\"id\": 8813, \"total\": 42.00}", "save this as a.json"),
            ("Add a person:\n{\"name\": \"Tomasz Wrona\", \"role\": \"site manager\", \"site\": \"Gdynia\"}", "Add a person:"),
            ("<a>\n  <b>text of the element</b>\n</a>\nlink the two", "link the two"),
            ("119,90;19;paper\n42,00;7;book\nwhat's 119.90 plus 42.00?", "what's 119.90 plus 42.00?"),
            ("Мой лог:\n[12:01:07] ошибка 502 /api/v1\n[12:01:09] ошибка 502 /api/v1\nнайди причину", "Мой лог:\nнайди причину"),
        ] {
            assert_eq!(prose(message), expected);
        }
    }

    #[test]
    fn prose_lists_and_single_short_lines_are_no_pastes() {
        for message in [
            "Hello\n\nplease close issue 42 in acme/shop\nand tell Ana",
            "- rename a.txt\n- move b.txt\n- delete c.txt",
            "  indented\n  as mail programs do",
            "in billing.py:\ntotal += item.price",
            "東京の天気は？\n明日の予定も教えて",
        ] {
            assert_eq!(prose(message), message.lines().filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n"));
        }
    }
}
