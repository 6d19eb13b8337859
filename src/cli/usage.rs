//! `toolsieve usage`: shows how the tools of a running service are used, and what selections save and cost.

use clap::Args;
use serde_json::Value;

use crate::cli::admin::Shown;
use crate::cli::table::cell as text;
use crate::cli::{Outcome, costs, table};

#[derive(Args)]
pub(super) struct Usage {
    /// Number of days to include, up to today
    #[arg(long, value_name = "DAYS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3650))]
    days: u32,
    /// Column by which to sort the tools
    #[arg(long, value_parser = ["called", "offered", "recovered"], default_value = "called")]
    order: String,
    /// Show at most this many tools, models, groups or users
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// Show savings and costs by day, model, group or user, instead of the tools
    #[arg(long, value_name = "WHAT", value_parser = ["day", "model", "group", "user"], conflicts_with = "order")]
    by: Option<String>,
    #[command(flatten)]
    shown: Shown,
}

impl Usage {
    pub(super) fn run(self) -> Outcome {
        let path = format!("/v1/admin/usage?since={:.0}&order={}&limit={}", costs::first_of(self.days), self.order, self.limit);
        self.shown.get(&path, |answer| self.by.as_deref().map_or_else(|| as_text(answer), |by| costs::as_table(&answer["costs"], by)))
    }
}

fn as_text(answer: &Value) -> String {
    let head = ["Server", "Tool", "Offered", "Called", "Succeeded", "Recovered", "p50 ms", "p95 ms", "Last called"];
    let rows = table::of_list(&head, &answer["tools"], |tool| {
        let rate = tool["success_rate"].as_f64().map_or_else(String::new, |rate| format!("{:.0} %", rate * 100.0));
        [
            text(&tool["server"]),
            text(&tool["tool"]),
            text(&tool["offered"]),
            text(&tool["called"]),
            rate,
            text(&tool["recovered"]),
            text(&tool["p50_ms"]),
            text(&tool["p95_ms"]),
            text(&tool["last_called_at"]),
        ]
    });
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
        answer["tools"].as_array().map_or(0, Vec::len),
        answer["tool_count"],
    );
    format!("{rows}\n\n{summary}\n\n{}", costs::as_summary(&answer["costs"]))
}
