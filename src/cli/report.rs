//! `toolsieve report`: shows the cost and the results of sessions on a running service.

use std::path::PathBuf;

use clap::Args;
use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use serde_json::Value;

use crate::cli::admin::ServiceAccess;
use crate::cli::{Failure, Outcome, costs, print, table};

/// The rows of the table: each row's label, and its field in the response.
const ROWS: [(&str, &str); 15] = [
    ("Sessions", "sessions"),
    ("Messages", "selections"),
    ("Tools at first", "initial_tools"),
    ("Tools at last", "final_tools"),
    ("Tokens of all tools", "tokens_before"),
    ("Tokens sent", "tokens_after"),
    ("Finds", "finds"),
    ("Of what was not offered (share)", "recovered_finds"),
    ("Loads", "loads"),
    ("Unloads", "unloads"),
    ("Calls", "calls"),
    ("Errors", "errors"),
    ("Success (share)", "success_rate"),
    ("Load p50 ms", "load_p50_ms"),
    ("Load p95 ms", "load_p95_ms"),
];

#[derive(Args)]
pub(super) struct Report {
    /// Number of days to include, up to today
    #[arg(long, value_name = "DAYS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3650))]
    days: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write an HTML page with tables and plots to this file, instead of printing a table
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    html: Option<PathBuf>,
    #[command(flatten)]
    access: ServiceAccess,
}

impl Report {
    pub(super) fn run(self) -> Outcome {
        let since = Timestamp::now().saturating_sub(SignedDuration::from_hours(24 * i64::from(self.days))).unwrap_or(Timestamp::UNIX_EPOCH);
        let path = format!("/v1/admin/report?since={since:.0}");
        if let Some(file) = &self.html {
            let page = self.access.page(&path)?;
            let written = std::fs::write(file, page);
            return written.map_err(|error| Failure::failed(format!("error: {}: {error}", file.display())));
        }
        let answer = self.access.ask(Method::GET, &path, None)?;
        if self.json { print(&format!("{answer:#}")) } else { print(&as_text(&answer)) }
    }
}

fn as_text(answer: &Value) -> String {
    let arms = answer["arms"].as_array().map(Vec::as_slice).unwrap_or_default();
    if arms.is_empty() {
        return format!("No sessions in this period.\n\n{}", costs::as_summary(&answer["costs"]));
    }
    let heads: Vec<&str> = std::iter::once("Mean of a session").chain(arms.iter().filter_map(|arm| arm["arm"].as_str())).collect();
    let mut out = table::table(&heads);
    for (name, key) in ROWS {
        let cells = arms.iter().map(|arm| if arm[key].is_null() { String::new() } else { arm[key].to_string() });
        out.add_row(std::iter::once(name.to_owned()).chain(cells));
    }
    format!("{}\n\n{}", table::text(&out), costs::as_summary(&answer["costs"]))
}
