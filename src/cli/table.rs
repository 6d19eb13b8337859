//! Prints tables for people. Programs use `--json` instead.

use std::io::IsTerminal;

use comfy_table::{ContentArrangement, Table, presets};
use serde_json::Value;

use crate::domain::catalog::hidden_text::is_unseen;

/// Creates a table with these columns. It has borders on a terminal, and none elsewhere.
pub(super) fn table(head: &[&str]) -> Table {
    let mut table = Table::new();
    if std::io::stdout().is_terminal() {
        table.load_preset(presets::UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    } else {
        table.load_preset(presets::NOTHING);
    }
    table.set_header(head);
    table
}

/// The table's lines, without spaces at their ends.
pub(super) fn text(table: &Table) -> String {
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

/// A table with one row for each item in a JSON list.
pub(super) fn of_list<Row: IntoIterator<Item = String>>(head: &[&str], list: &Value, row: impl Fn(&Value) -> Row) -> String {
    let mut table = table(head);
    table.add_rows(list.as_array().into_iter().flatten().map(row));
    text(&table)
}

/// The cell text for a JSON value: strings without quotes, and an empty string for `null`.
pub(super) fn cell(value: &Value) -> String {
    match value {
        Value::String(text) => printable(text),
        Value::Null => String::new(),
        other => printable(&other.to_string()),
    }
}

/// The text on one line, without control characters and hidden characters. Names from servers and users could otherwise control the
/// terminal, or show something else in its place.
pub(super) fn printable(text: &str) -> String {
    let on_one_line = text.chars().map(|character| if matches!(character, '\n' | '\r' | '\t') { ' ' } else { character });
    on_one_line.filter(|character| !is_unseen(*character)).collect()
}

/// The strings in a JSON list, as the text for one cell.
pub(super) fn list(value: &Value) -> String {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(printable).collect::<Vec<_>>().join(", ")
}

/// A number with its noun, such as `2 tools`.
pub(super) fn many(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{cell, list, printable};

    #[test]
    fn names_can_control_no_terminal() {
        for (given, shown) in [
            ("a/\u{1b}[31mred\n", "a/[31mred "),
            ("a\u{9b}2J\u{7}", "a2J"),
            ("\u{202e}live\u{202c} \u{2066}x\u{2069}\u{200f}", "live x"),
            ("two\tcells\r\nin one", "two cells  in one"),
            ("Zoë ✈\u{fe0f} 名前", "Zoë ✈\u{fe0f} 名前"),
        ] {
            assert_eq!(printable(given), shown);
            assert_eq!((cell(&json!(given)), list(&json!([given, 1]))), (shown.to_owned(), shown.to_owned()));
            assert_eq!(cell(&json!({"name": given})).chars().filter(|character| character.is_control()).count(), 0);
        }
        assert_eq!((cell(&json!(null)), cell(&json!(7))), (String::new(), "7".to_owned()));
    }
}
