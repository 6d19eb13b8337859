//! `toolsieve usage`: usage of the tools of a running service.

use clap::Args;
use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use serde_json::Value;

use crate::cli::admin::ServiceAccess;
use crate::cli::{Outcome, print, table};

#[derive(Args)]
pub(super) struct Usage {
    /// Period: the last DAYS days
    #[arg(long, value_name = "DAYS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3650))]
    days: u32,
    /// Sort order of the tools
    #[arg(long, value_parser = ["called", "offered", "recovered"], default_value = "called")]
    order: String,
    /// Number of tools to show
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    access: ServiceAccess,
}

impl Usage {
    pub(super) fn run(self) -> Outcome {
        let since = Timestamp::now().saturating_sub(SignedDuration::from_hours(24 * i64::from(self.days))).unwrap_or(Timestamp::UNIX_EPOCH);
        let path = format!("/v1/admin/usage?since={since:.0}&order={}&limit={}", self.order, self.limit);
        let answer = self.access.ask(Method::GET, &path, None)?;
        if self.json { print(&format!("{answer:#}")) } else { print(&as_text(&answer)) }
    }
}

fn as_text(answer: &Value) -> String {
    let mut out = table::table(&["Server", "Tool", "Offered", "Called", "Succeeded", "Recovered", "p50 ms", "p95 ms", "Last called"]);
    let tools = answer["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
    for tool in tools {
        let rate = tool["success_rate"].as_f64().map_or_else(String::new, |rate| format!("{:.0} %", rate * 100.0));
        out.add_row([
            text(&tool["server"]),
            text(&tool["tool"]),
            text(&tool["offered"]),
            text(&tool["called"]),
            rate,
            text(&tool["recovered"]),
            text(&tool["p50_ms"]),
            text(&tool["p95_ms"]),
            text(&tool["last_called_at"]),
        ]);
    }
    let totals = &answer["totals"];
    let summary = format!(
        "{} selections: {} tokens of definitions before, {} after. {} searches, {} for what was not offered. {} calls, {} of what was not \
         offered. {} of {} tools are shown.",
        totals["selections"],
        totals["tokens_before"],
        totals["tokens_after"],
        totals["searches"],
        totals["recovered_searches"],
        totals["called"],
        totals["recovered"],
        tools.len(),
        answer["tool_count"],
    );
    format!("{}\n\n{summary}", table::text(&out))
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}
