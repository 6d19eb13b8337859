//! Prints tables for people. Programs use `--json` instead.

use std::io::IsTerminal;

use comfy_table::{ContentArrangement, Table, presets};
use serde_json::Value;

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
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// The strings in a JSON list, as the text for one cell.
pub(super) fn list(value: &Value) -> String {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
}

/// A number with its noun, such as `2 tools`.
pub(super) fn many(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}
