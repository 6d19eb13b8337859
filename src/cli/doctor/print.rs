//! Prints the results of all checks as text.

use std::collections::BTreeMap;

use crate::cli::doctor::Report;
use crate::cli::doctor::checks::{Check, Level};
use crate::cli::doctor::compare::{ServerComparison, ToolComparison};
use crate::cli::table::{self, many};

pub(super) fn report(report: &Report) -> String {
    let mut checks = table::table(&["", "What", "Found"]);
    for check in &report.checks {
        checks.add_row([mark(check.level), &check.subject, &words(check)]);
    }
    let mut parts = vec![table::text(&checks)];
    if !report.mcpo.is_empty() {
        parts.push(comparison(&report.mcpo));
    }
    let count = |level| report.checks.iter().filter(|check| check.level == level).count();
    let servers = report.mcpo.iter().filter(|server| server.is_problem()).count();
    parts.push(match (count(Level::Problem) + servers, count(Level::Warning)) {
        (0, 0) => "Fine.".to_owned(),
        (0, warnings) => format!("Fine, with {}.", many(warnings, "warning")),
        (problems, warnings) => format!("{}, {}.", many(problems, "problem"), many(warnings, "warning")),
    });
    parts.join("\n\n")
}

fn comparison(servers: &[ServerComparison]) -> String {
    let mut overview = table::table(&["", "Server", "Same tools", "Only mcpo", "Only Toolsieve", "Gained", "Lost"]);
    for server in servers {
        let sum = |counts: fn(&ToolComparison) -> &BTreeMap<&'static str, usize>| {
            let mut sum: BTreeMap<&str, usize> = BTreeMap::new();
            for (keyword, count) in server.changed.iter().flat_map(counts) {
                *sum.entry(keyword).or_default() += count;
            }
            counted(&sum)
        };
        let level = if server.is_problem() { Level::Problem } else { Level::Fine };
        overview.add_row([
            mark(level),
            &server.server,
            &server.common.to_string(),
            &server.only_mcpo.len().to_string(),
            &server.only_toolsieve.len().to_string(),
            &sum(|tool| &tool.gained),
            &sum(|tool| &tool.lost),
        ]);
    }
    let mut lines = vec!["Compared with mcpo:".to_owned(), table::text(&overview)];
    for server in servers {
        if let Some(error) = &server.error {
            lines.push(format!("{}: {error}", server.server));
        }
        for (tools, side) in [(&server.only_mcpo, "mcpo"), (&server.only_toolsieve, "Toolsieve")] {
            if !tools.is_empty() {
                lines.push(format!("{}: only {side} publishes {}", server.server, tools.join(", ")));
            }
        }
        for tool in server.changed.iter().filter(|tool| tool.is_problem() || tool.summary.is_some()) {
            lines.push(format!("{}/{}: {}", server.server, tool.tool, differences(tool).join("; ")));
        }
    }
    lines.join("\n")
}

fn differences(tool: &ToolComparison) -> Vec<String> {
    let mut out = Vec::new();
    for (what, change) in [("operationId", &tool.operation_id), ("summary", &tool.summary)] {
        if let Some(change) = change {
            out.push(format!("{what} {} becomes {}", change.mcpo, change.toolsieve));
        }
    }
    if !tool.lost_parameters.is_empty() {
        out.push(format!("without the parameters {}", tool.lost_parameters.join(", ")));
    }
    if !tool.lost.is_empty() {
        out.push(format!("lost: {}", counted(&tool.lost)));
    }
    out
}

fn counted(counts: &BTreeMap<&str, usize>) -> String {
    counts.iter().map(|(keyword, count)| format!("{keyword} {count}")).collect::<Vec<_>>().join(", ")
}

fn words(check: &Check) -> String {
    match &check.remedy {
        Some(remedy) => format!("{}\n→ {remedy}", check.finding),
        None => check.finding.clone(),
    }
}

fn mark(level: Level) -> &'static str {
    match level {
        Level::Fine => "ok",
        Level::Warning => "warning",
        Level::Problem => "PROBLEM",
    }
}
