//! `toolsieve audit`: the audit log of a running service.

use std::fmt::Write as _;

use clap::Args;
use reqwest::Method;
use serde_json::Value;

use crate::cli::admin::Shown;
use crate::cli::table::cell as text;
use crate::cli::{Outcome, table};
use crate::domain::publishing::document::encoded;

#[derive(Args)]
pub(super) struct Audit {
    /// Show only entries of this caller: key:NAME, user:ID, service-key, admin or anyone
    #[arg(long, value_name = "WHO")]
    principal: Option<String>,
    /// Show only this action, such as call, `key_create` or `policy_replace`; see GET /v1/admin/audit for all actions
    #[arg(long, value_name = "NAME")]
    action: Option<String>,
    /// Show only entries about this server
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    /// Show only entries about the tool with this name on its server
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
    /// Show only entries with this decision of the rules
    #[arg(long, value_parser = ["allow", "block"])]
    decision: Option<String>,
    /// Show only this outcome: success, `tool_error`, rejected, failed, cancelled, limited or `input_required`
    #[arg(long, value_name = "NAME")]
    outcome: Option<String>,
    /// Show only entries from this time on, such as 2027-01-31T00:00:00Z
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Show only entries before this time
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Show only entries before this number; the last line of a page prints the number for the next page
    #[arg(long, value_name = "NUMBER")]
    before: Option<u64>,
    /// Show at most this many entries, newest first
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    #[command(flatten)]
    shown: Shown,
}

impl Audit {
    pub(super) fn run(self) -> Outcome {
        let mut path = format!("/v1/admin/audit?limit={}", self.limit);
        let before = self.before.map(|before| before.to_string());
        let filters = [
            ("principal", &self.principal),
            ("action", &self.action),
            ("server", &self.server),
            ("tool", &self.tool),
            ("decision", &self.decision),
            ("outcome", &self.outcome),
            ("since", &self.since),
            ("until", &self.until),
            ("before", &before),
        ];
        for (name, value) in filters {
            if let Some(value) = value {
                let _ = write!(path, "&{name}={}", encoded(value));
            }
        }
        let answer = self.shown.ask(Method::GET, &path, None, as_table)?;
        if let Some(next) = answer["next"].as_u64().filter(|_| !self.shown.json) {
            eprintln!("For older entries: --before {next}");
        }
        Ok(())
    }
}

fn as_table(answer: &Value) -> String {
    let head = ["At", "Who", "What", "Server", "Tool or subject", "Decision", "Outcome", "ms"];
    table::of_list(&head, &answer["entries"], |entry| {
        let what = if entry["tool"].is_string() { &entry["tool"] } else { &entry["subject"] };
        [
            text(&entry["at"]),
            text(&entry["principal"]),
            text(&entry["action"]),
            text(&entry["server"]),
            text(what),
            text(&entry["decision"]),
            text(&entry["outcome"]),
            entry["took_ms"].to_string(),
        ]
    })
}
