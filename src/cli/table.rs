//! Tables for people. Programs use `--json`.

use std::io::IsTerminal;

use comfy_table::{ContentArrangement, Table, presets};
use serde_json::Value;

/// A table with these columns: with borders on a terminal, plain elsewhere.
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

/// The lines without trailing padding.
pub(super) fn text(table: &Table) -> String {
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

/// The texts of a JSON list, in one cell.
pub(super) fn list(value: &Value) -> String {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
}
