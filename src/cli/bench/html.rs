//! Renders the report as one self-contained HTML page with tables and plots, without scripts.

use std::fmt::Write as _;

use crate::cli::bench::estimate::{Estimate, Figures, RESAMPLES};
use crate::cli::bench::report::{Group, Latency, Report, SetReport};
use crate::http::pages::plot::{Bar, Line, STYLE, bars, escape, lines, table};

pub(super) fn page(report: &Report) -> String {
    let mut out = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>Toolsieve: how tools are found</title><style>{STYLE}</style></head><body><h1>How tools are found</h1>"
    );
    let without = if report.without.is_empty() { String::new() } else { format!(" Without {}.", escape(&report.without.join(", "))) };
    let _ = write!(
        out,
        "<p>Toolsieve {}, model {}, level {}.{without} In brackets the 95 % interval ({RESAMPLES} bootstrap resamples).</p>",
        escape(report.toolsieve),
        escape(&report.model),
        report.level,
    );
    ranking(&mut out, report);
    sent(&mut out, report);
    kinds(&mut out, report);
    languages(&mut out, report);
    ablation(&mut out, report);
    missed(&mut out, report);
    out.push_str("</body></html>\n");
    out
}

fn ranking(out: &mut String, report: &Report) {
    let metrics = report.main_metrics();
    let heads: Vec<&str> =
        ["Set", "Messages", "Tools", "Servers"].into_iter().chain(metrics.iter().map(|(_, head)| head.as_str())).collect();
    let cells = |figures: &Figures| metrics.iter().map(|(name, _)| cell(figures.get(name))).collect::<Vec<_>>();
    let row = |set: &SetReport| {
        let counts = [set.queries, set.tools, set.servers].map(|count| count.to_string());
        [escape(&set.name)].into_iter().chain(counts).chain(cells(&set.metrics)).collect::<Vec<_>>()
    };
    let mut rows: Vec<Vec<String>> = report.sets.iter().map(row).collect();
    if let Some(average) = &report.average {
        let blank = ["<b>macro average</b>".to_owned(), String::new(), String::new(), String::new()];
        rows.push(blank.into_iter().chain(cells(average)).collect());
    }
    let name = if report.level == "server" { "hit" } else { "recall" };
    let _ = write!(out, "<h2>The ranking</h2>{}", table(&heads, &rows));
    let places: Vec<String> = report.k.iter().map(|k| format!("{name}@{k}")).collect();
    let curve = |label: &str, figures: &Figures| {
        let values = places.iter().map(|place| Some(figures.get(place)?.mean)).collect::<Option<Vec<f64>>>()?;
        Some(Line { label: label.to_owned(), values })
    };
    let curves: Vec<Line> = report.sets.iter().filter_map(|set| curve(&set.name, &set.metrics)).collect();
    if !curves.is_empty() {
        out.push_str(&lines("How many of the needed tools are among the first", &places, &curves));
    }
}

fn sent(out: &mut String, report: &Report) {
    let heads = ["Set", "Recall", "Complete", "Tools", "Tokens before", "After", "Reduction", "No tool", "p50 ms", "p95 ms"];
    let cells = |figures: &Figures| {
        ["cut.recall", "cut.complete", "cut.tools", "cut.tokens", "cut.reduction", "no_tool"].map(|name| match name {
            "cut.tokens" => figures.get(name).map_or_else(String::new, |estimate| format!("{:.0}", estimate.mean)),
            name => cell(figures.get(name)),
        })
    };
    let row = |name: String, before: String, figures: &Figures, times: [String; 2]| {
        let [recall, complete, tools, tokens, reduction, no_tool] = cells(figures);
        let [p50, p95] = times;
        vec![name, recall, complete, tools, before, tokens, reduction, no_tool, p50, p95]
    };
    let mut rows: Vec<Vec<String>> = Vec::new();
    for set in &report.sets {
        let Latency { p50, p95 } = set.latency_ms;
        rows.push(row(escape(&set.name), set.tokens_before.to_string(), &set.metrics, [p50, p95].map(|time| format!("{time:.2}"))));
    }
    if let Some(average) = &report.average {
        rows.push(row("<b>macro average</b>".to_owned(), String::new(), average, [String::new(), String::new()]));
    }
    let _ = write!(out, "<h2>What is sent</h2>{}", table(&heads, &rows));
    out.push_str("<p><small>Tokens are those of the function definitions (cl100k), of our own tools too. Times: embedding, search and fusion of one message, in process.</small></p>");
    let bar = |set: &SetReport, name: &str, colour: usize| {
        let estimate = set.metrics.get(name)?;
        let interval = Some((estimate.low, estimate.high));
        Some(Bar { label: set.name.clone(), value: estimate.mean, interval, text: format!("{:.3}", estimate.mean), colour })
    };
    out.push_str("<h3>Token reduction</h3>");
    out.push_str(&bars("Token reduction", &report.sets.iter().filter_map(|set| bar(set, "cut.reduction", 2)).collect::<Vec<_>>()));
    let recalls: Vec<Bar> = report.sets.iter().filter_map(|set| bar(set, "cut.recall", 0)).collect();
    if !recalls.is_empty() {
        let _ = write!(out, "<h3>Recall of what is sent</h3>{}", bars("Recall of what is sent", &recalls));
    }
    let times = report.sets.iter().flat_map(|set| {
        let bar = |share: &str, value: f64, colour| Bar {
            label: format!("{} {share}", set.name),
            value,
            interval: None,
            text: format!("{value:.2} ms"),
            colour,
        };
        [bar("p50", set.latency_ms.p50, 5), bar("p95", set.latency_ms.p95, 7)]
    });
    let _ = write!(out, "<h3>Time of one message</h3>{}", bars("Time of one message", &times.collect::<Vec<_>>()));
}

fn kinds(out: &mut String, report: &Report) {
    let metrics = report.kind_metrics();
    let heads: Vec<&str> = ["Kind", "Messages"].into_iter().chain(metrics.iter().map(|(_, head)| head.as_str())).collect();
    let middle = report.middle_k();
    for set in report.sets.iter().filter(|set| !set.kinds.is_empty()) {
        let rows: Vec<Vec<String>> = set
            .kinds
            .iter()
            .map(|(kind, group)| {
                let cells = metrics.iter().map(|(name, _)| cell(group.metrics.get(name)));
                [escape(kind), group.queries.to_string()].into_iter().chain(cells).collect()
            })
            .collect();
        let _ = write!(out, "<h2>{} by kind</h2>{}", escape(&set.name), table(&heads, &rows));
        let plotted = set.kinds.iter().filter_map(|(kind, group)| {
            let Estimate { mean, low, high } = *group.metrics.get(&format!("recall@{middle}"))?;
            Some(Bar { label: kind.clone(), value: mean, interval: Some((low, high)), text: format!("{mean:.3}"), colour: 3 })
        });
        let plotted: Vec<Bar> = plotted.collect();
        if !plotted.is_empty() {
            out.push_str(&bars(&format!("Recall at {middle} by kind"), &plotted));
        }
    }
}

fn languages(out: &mut String, report: &Report) {
    let metrics = report.language_metrics();
    let heads: Vec<&str> = ["Language", "Messages"].into_iter().chain(metrics.iter().map(|(_, head)| head.as_str())).collect();
    let cells = |figures: &Figures| metrics.iter().map(|(name, _)| cell(figures.get(name))).collect::<Vec<_>>();
    for set in report.sets.iter().filter(|set| !set.languages.is_empty()) {
        let row = |(language, group): (&String, &Group)| {
            [escape(language), group.queries.to_string()].into_iter().chain(cells(&group.metrics)).collect::<Vec<_>>()
        };
        let mut rows: Vec<Vec<String>> = set.languages.iter().map(row).collect();
        if let Some(average) = &set.languages_average {
            rows.push(["<b>average</b>".to_owned(), String::new()].into_iter().chain(cells(average)).collect());
        }
        let _ = write!(out, "<h2>{} by language</h2>{}", escape(&set.name), table(&heads, &rows));
    }
}

fn ablation(out: &mut String, report: &Report) {
    if report.ablation.is_empty() {
        return;
    }
    let metrics = report.main_metrics();
    let heads: Vec<&str> = ["Without", "Leaves"].into_iter().chain(metrics.iter().map(|(_, head)| head.as_str())).collect();
    let rows: Vec<Vec<String>> = report
        .ablation
        .iter()
        .map(|row| {
            let change = |(name, _): &(String, String)| {
                row.difference
                    .get(name)
                    .map_or_else(String::new, |Estimate { mean, low, high }| format!("{mean:+.3} <small>[{low:+.3}, {high:+.3}]</small>"))
            };
            [escape(row.without), escape(row.leaves)].into_iter().chain(metrics.iter().map(change)).collect()
        })
        .collect();
    let _ = write!(
        out,
        "<h2>What each part contributes</h2><p>The change of the macro average when it is left out.</p>{}",
        table(&heads, &rows)
    );
    let Some((name, head)) = metrics.get(report.k.iter().position(|&k| k == report.middle_k()).unwrap_or(0)) else { return };
    let changes: Vec<Bar> = report
        .ablation
        .iter()
        .filter_map(|row| {
            let Estimate { mean, low, high } = *row.difference.get(name)?;
            Some(Bar {
                label: format!("without {}", row.without),
                value: mean,
                interval: Some((low, high)),
                text: format!("{mean:+.3}"),
                colour: 4,
            })
        })
        .collect();
    out.push_str(&bars(&format!("Change of {head}"), &changes));
}

fn missed(out: &mut String, report: &Report) {
    for set in report.sets.iter().filter(|set| !set.missed.is_empty()) {
        let rows: Vec<Vec<String>> = set
            .missed
            .iter()
            .map(|missed| {
                let needed: Vec<String> = missed.needed.iter().map(|group| group.join(" or ")).collect();
                vec![escape(&missed.query), escape(&needed.join("; ")), escape(&missed.found.join(", "))]
            })
            .collect();
        let _ = write!(out, "<h2>{}: missed</h2>{}", escape(&set.name), table(&["Message", "Needs", "First found"], &rows));
    }
}

fn cell(estimate: Option<&Estimate>) -> String {
    estimate.map_or_else(String::new, |Estimate { mean, low, high }| format!("{mean:.3} <small>[{low:.3}, {high:.3}]</small>"))
}
