//! The report as one self-contained HTML page, with tables and plots and without scripts.

use std::fmt::Write as _;

use super::{ArmBody, LearningReportBody, ReportBody, SessionFiguresBody};
use crate::http::pages::plot::{Bar, STYLE, bars, escape, table};
use crate::http::routes::admin::costs::{CostSummaryBody, SpendingBody};

/// A value of a group: its label, how to read it, and its number of decimals.
type Figure = (&'static str, fn(&ArmBody) -> Option<f64>, usize);

const FIGURES: [Figure; 14] = [
    ("Messages", |arm| arm.selections, 1),
    ("Tools at first", |arm| arm.initial_tools, 1),
    ("Tools at last", |arm| arm.final_tools, 1),
    ("Tokens of all", |arm| arm.tokens_before, 0),
    ("Tokens sent", |arm| arm.tokens_after, 0),
    ("Finds", |arm| arm.finds, 2),
    ("Finds of what was not offered", |arm| arm.recovered_finds, 2),
    ("Loads", |arm| arm.loads, 2),
    ("Unloads", |arm| arm.unloads, 2),
    ("Calls", |arm| arm.calls, 2),
    ("Errors", |arm| arm.errors, 2),
    ("Success", |arm| arm.success_rate, 3),
    ("Load p50 ms", |arm| arm.load_p50_ms, 1),
    ("Load p95 ms", |arm| arm.load_p95_ms, 1),
];

/// The labels of the values that are also plotted.
const PLOTTED: [&str; 6] = ["Tools at first", "Tools at last", "Tokens sent", "Finds", "Errors", "Success"];

pub(super) fn page(report: &ReportBody) -> String {
    let mut out = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>Toolsieve: sessions</title><style>{STYLE}</style></head><body><h1>Sessions</h1><p>{} to {}. Means over the sessions; \
         tokens are those of one message's definitions (cl100k).</p>",
        escape(&report.since),
        escape(&report.until),
    );
    if report.arms.is_empty() {
        out.push_str("<p>There was no session in this time.</p>");
    } else {
        compared(&mut out, &report.arms);
        latest(&mut out, &report.sessions);
    }
    costs(&mut out, &report.costs);
    learning(&mut out, report.learning.as_ref());
    out.push_str("</body></html>\n");
    out
}

fn compared(out: &mut String, arms: &[ArmBody]) {
    let heads: Vec<&str> = ["", "Sessions"].into_iter().chain(FIGURES.iter().map(|(name, ..)| *name)).collect();
    let row = |arm: &ArmBody| {
        let figures = FIGURES.iter().map(|(_, figure, digits)| figure(arm).map_or_else(String::new, |value| format!("{value:.digits$}")));
        [arm.arm.to_owned(), arm.sessions.to_string()].into_iter().chain(figures).collect::<Vec<_>>()
    };
    out.push_str(&table(&heads, &arms.iter().map(row).collect::<Vec<_>>()));
    for (name, figure, digits) in FIGURES.iter().filter(|(name, ..)| PLOTTED.contains(name)) {
        let bar = |(colour, arm): (usize, &ArmBody)| {
            let value = figure(arm)?;
            Some(Bar { label: arm.arm.to_owned(), value, interval: None, text: format!("{value:.digits$}"), colour })
        };
        let plotted: Vec<Bar> = arms.iter().enumerate().filter_map(bar).collect();
        if !plotted.is_empty() {
            let _ = write!(out, "<h3>{}</h3>{}", escape(name), bars(name, &plotted));
        }
    }
}

/// The table of savings and costs.
fn costs(out: &mut String, costs: &CostSummaryBody) {
    let CostSummaryBody { currency, figures } = costs;
    let currency = currency.as_deref().unwrap_or_default();
    let money = |amount: Option<f64>| amount.map_or_else(String::new, |amount| format!("{amount:.4} {currency}"));
    let spent = |name: &str, spending: &SpendingBody| {
        let tokens = format!("{} in, {} out", spending.input_tokens, spending.output_tokens);
        [name.to_owned(), spending.requests.to_string(), tokens, spending.estimated_requests.to_string(), money(spending.cost)]
    };
    let saved = [
        "Saved by selections".to_owned(),
        figures.messages.to_string(),
        figures.tokens_saved.to_string(),
        String::new(),
        money(figures.money_saved),
    ];
    let rows = [
        saved,
        spent("Language models", &figures.llm),
        spent("for reranking", &figures.judge),
        spent("for descriptions", &figures.enrich),
        spent("for smart_select", &figures.smart_select),
        spent("With users' own keys", &figures.own_keys),
    ];
    let rows: Vec<Vec<String>> = rows.map(Vec::from).into();
    let _ = write!(out, "<h2>Savings and costs</h2>{}", table(&["", "Messages or answers", "Tokens", "Estimated answers", "Money"], &rows));
    if figures.unpriced_tokens > 0 {
        let _ = write!(out, "<p>{} of these tokens have no price.</p>", figures.unpriced_tokens);
    }
}

/// For whom learning counts, and the last replay as a plot.
fn learning(out: &mut String, learning: Option<&LearningReportBody>) {
    out.push_str("<h2>Learning from use</h2>");
    let Some(LearningReportBody { mode, scopes, on, off, messages, replayed, before, after }) = learning else {
        out.push_str("<p>Learning is off.</p>");
        return;
    };
    let counts = [mode.to_string(), scopes.to_string(), on.to_string(), off.to_string(), messages.to_string(), replayed.to_string()];
    let heads = ["Mode", "Scopes", "that count", "that don't count", "Remembered messages", "Replayed scopes"];
    out.push_str(&table(&heads, &[counts.to_vec()]));
    if let (Some(before), Some(after)) = (before, after) {
        let bar =
            |label: &str, value: f64, colour| Bar { label: label.to_owned(), value, interval: None, text: format!("{value:.3}"), colour };
        let bars = bars("nDCG@5 in the last replay", &[bar("without learning", *before, 1), bar("with learning", *after, 0)]);
        let _ = write!(out, "<h3>nDCG@5 in the last replay</h3>{bars}");
    }
}

fn latest(out: &mut String, sessions: &[SessionFiguresBody]) {
    let heads = [
        "Last used",
        "Began",
        "Arm",
        "Messages",
        "Tools at first",
        "At last",
        "Tokens of all",
        "Sent",
        "Finds",
        "Loads",
        "Unloads",
        "Calls",
        "Errors",
        "Longest load ms",
    ];
    let row = |session: &SessionFiguresBody| {
        let counts = [
            session.selections,
            session.initial_tools,
            session.final_tools,
            session.tokens_before,
            session.tokens_after,
            session.finds,
            session.loads,
            session.unloads,
            session.calls,
            session.errors,
        ];
        [session.last_at.clone(), session.first_at.clone(), session.arm.to_owned()]
            .into_iter()
            .chain(counts.iter().map(ToString::to_string))
            .chain([session.longest_load_ms.map_or_else(String::new, |time| format!("{time:.1}"))])
            .collect::<Vec<_>>()
    };
    if !sessions.is_empty() {
        let _ = write!(out, "<h2>The last ones</h2>{}", table(&heads, &sessions.iter().map(row).collect::<Vec<_>>()));
    }
}
