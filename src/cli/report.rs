//! `toolsieve report`: shows the cost and the results of sessions on a running service.

use std::path::PathBuf;

use clap::Args;
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
        let path = format!("/v1/admin/report?since={:.0}", costs::first_of(self.days));
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
        return format!("No sessions in this period.\n\n{}\n{}", costs::as_summary(&answer["costs"]), of_learning(&answer["learning"]));
    }
    let heads: Vec<&str> = std::iter::once("Mean of a session").chain(arms.iter().filter_map(|arm| arm["arm"].as_str())).collect();
    let mut out = table::table(&heads);
    for (name, key) in ROWS {
        let cells = arms.iter().map(|arm| if arm[key].is_null() { String::new() } else { arm[key].to_string() });
        out.add_row(std::iter::once(name.to_owned()).chain(cells));
    }
    format!("{}\n\n{}\n{}", table::text(&out), costs::as_summary(&answer["costs"]), of_learning(&answer["learning"]))
}

/// What learning changes, in sentences.
fn of_learning(learning: &Value) -> String {
    let Some(mode) = learning["mode"].as_str() else { return "Learning from use is off.".to_owned() };
    let (on, scopes) = (&learning["on"], &learning["scopes"]);
    let counts = format!("Learning from use is {mode}: uses count in {on} of {scopes} scopes.");
    match (learning["before"].as_f64(), learning["after"].as_f64()) {
        (Some(before), Some(after)) => {
            let replayed = &learning["replayed"];
            format!("{counts} The last replay of {replayed} scopes: nDCG@5 {before:.3} without learning, {after:.3} with it.")
        }
        _ => format!("{counts} No scope was replayed yet."),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::of_learning;

    #[test]
    fn learning_is_reported_in_sentences() {
        assert_eq!(of_learning(&json!(null)), "Learning from use is off.");
        let new = json!({"mode": "auto", "scopes": 3, "on": 2, "replayed": 0, "before": null, "after": null});
        assert_eq!(of_learning(&new), "Learning from use is auto: uses count in 2 of 3 scopes. No scope was replayed yet.");
        let replayed = json!({"mode": "auto", "scopes": 3, "on": 2, "replayed": 1, "before": 0.5, "after": 0.75});
        let text = of_learning(&replayed);
        assert!(text.ends_with("The last replay of 1 scopes: nDCG@5 0.500 without learning, 0.750 with it."), "{text}");
    }
}
