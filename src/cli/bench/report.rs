//! The results of a benchmark: JSON with stable keys, and tables.
//!
//! Every metric is an object `{"mean", "low", "high"}` with a 95 % confidence interval. The ranking metrics are
//! `recall@k`, `hit@k`, `ndcg@k`, `complete@k`, `mrr` and `server@k`. The last one shows whether the first k tools
//! include one from a right server. The metrics for the selected tools are `cut.recall`, `cut.complete`, `cut.tools`,
//! `cut.tokens`, `cut.reduction` and `cut.at_most_one_tool`. `no_tool` is the share of messages that need no tool,
//! according to the gate.
//!
//! Some metrics cover only the messages that need a tool: `cut.tools_if_needed`, `gate.kept` (the gate lets the message
//! pass) and `weak.needed` (the share of needed tools among the first ten that a search would call weak). Others cover
//! only the messages that need none: `gate.left_alone`, `weak.not_needed` (the share of the first ten tools that a search
//! would call weak) and `weak.nothing` (a search would return nothing). A metric that is undefined for every message is
//! absent.

use indexmap::IndexMap;
use serde::Serialize;

use crate::cli::bench::estimate::{Estimate, Figures, Means, RESAMPLES, SEED};
use crate::cli::table;

#[derive(Serialize)]
pub(super) struct Report {
    /// The program's version.
    pub(super) toolsieve: &'static str,
    /// The embedder's id.
    pub(super) model: String,
    /// The measured level: `tool` or `server`.
    pub(super) level: &'static str,
    pub(super) k: Vec<usize>,
    /// Parts that are switched off in all results, except those in `ablation`.
    pub(super) without: Vec<String>,
    pub(super) bootstrap: Bootstrap,
    pub(super) sets: Vec<SetReport>,
    /// The average in which every set has the same weight; absent if there is only one set.
    #[serde(rename = "macro", skip_serializing_if = "Option::is_none")]
    pub(super) average: Option<Figures>,
    /// One entry for each part that was switched off in turn.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) ablation: Vec<Ablation>,
}

#[derive(Serialize)]
pub(super) struct Bootstrap {
    resamples: usize,
    seed: u64,
}

impl Default for Bootstrap {
    fn default() -> Self {
        Self { resamples: RESAMPLES, seed: SEED }
    }
}

#[derive(Serialize)]
pub(super) struct SetReport {
    pub(super) name: String,
    pub(super) queries: usize,
    pub(super) queries_without_tool: usize,
    pub(super) tools: usize,
    /// Number of tools that the service rejects, for example because of duplicate names.
    pub(super) tools_left_out: usize,
    pub(super) servers: usize,
    /// cl100k tokens of all function definitions, including the meta-tools.
    pub(super) tokens_before: u64,
    pub(super) metrics: Figures,
    /// Metrics by the messages' `kind`, if there are several kinds.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub(super) kinds: IndexMap<String, Group>,
    /// Metrics by the messages' `lang`, if they name it.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub(super) languages: IndexMap<String, Group>,
    /// The average in which every language has the same weight; absent if there are fewer than two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) languages_average: Option<Figures>,
    /// How long embedding, search and fusion of one message take, without HTTP.
    pub(super) latency_ms: Latency,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) missed: Vec<Missed>,
}

#[derive(Serialize)]
pub(super) struct Group {
    pub(super) queries: usize,
    pub(super) metrics: Figures,
}

impl Group {
    pub(super) fn of(queries: usize, means: &Means) -> Self {
        Self { queries, metrics: means.figures() }
    }
}

#[derive(Clone, Copy, Serialize)]
pub(super) struct Latency {
    pub(super) p50: f64,
    pub(super) p95: f64,
}

/// A message for which the ranking misses a needed tool.
#[derive(Serialize)]
pub(super) struct Missed {
    pub(super) id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) lang: String,
    pub(super) query: String,
    /// The message needs one tool from each group.
    pub(super) needed: Vec<Vec<String>>,
    /// The first tools of the ranking.
    pub(super) found: Vec<String>,
}

#[derive(Serialize)]
pub(super) struct Ablation {
    pub(super) without: &'static str,
    /// Describes the retrieval without the part.
    pub(super) leaves: &'static str,
    /// Metrics by the name of the set.
    pub(super) sets: IndexMap<String, Figures>,
    /// How the macro average changes without the part, paired by message.
    pub(super) difference: Figures,
}

impl Report {
    /// The k nearest to 5, which the main metrics use.
    pub(super) fn middle_k(&self) -> usize {
        let near = |k: &&usize| k.abs_diff(5);
        self.k.iter().min_by_key(near).copied().unwrap_or(5)
    }

    fn largest_complete(&self) -> usize {
        self.k.iter().min_by_key(|k| k.abs_diff(10)).copied().unwrap_or(10)
    }

    /// The metrics of the first table, with their column headings.
    pub(super) fn main_metrics(&self) -> Vec<(String, String)> {
        let (name, short) = if self.level == "server" { ("hit", "hit") } else { ("recall", "R") };
        let mut metrics: Vec<(String, String)> = self.k.iter().map(|k| (format!("{name}@{k}"), format!("{short}@{k}"))).collect();
        let (middle, complete) = (self.middle_k(), self.largest_complete());
        metrics.push((format!("ndcg@{middle}"), format!("nDCG@{middle}")));
        metrics.push(("mrr".to_owned(), "MRR".to_owned()));
        metrics.push((format!("complete@{complete}"), format!("complete@{complete}")));
        metrics
    }

    pub(super) fn tables(&self) -> String {
        let mut parts = vec![self.ranking_table(), self.cut_table()];
        if self.sets.iter().any(|set| !set.kinds.is_empty()) {
            parts.push(self.kinds_table());
        }
        if self.sets.iter().any(|set| !set.languages.is_empty()) {
            parts.push(self.languages_table());
        }
        if !self.ablation.is_empty() {
            parts.push(self.ablation_table());
        }
        let left_out: usize = self.sets.iter().map(|set| set.tools_left_out).sum();
        if left_out > 0 {
            parts.push(format!("{left_out} tools of the data are not searched: a server has one tool of a name, with a schema."));
        }
        parts.push(format!("± is half the 95 % interval ({RESAMPLES} bootstrap resamples). Model: {}.", self.model));
        parts.join("\n\n")
    }

    fn ranking_table(&self) -> String {
        let metrics = self.main_metrics();
        let heads: Vec<&str> = ["Set", "Messages", "Tools"].into_iter().chain(metrics.iter().map(|(_, head)| head.as_str())).collect();
        let mut out = table::table(&heads);
        let values = |figures: &Figures| metrics.iter().map(|(name, _)| with_interval(figures.get(name))).collect::<Vec<_>>();
        for set in &self.sets {
            out.add_row([set.name.clone(), set.queries.to_string(), set.tools.to_string()].into_iter().chain(values(&set.metrics)));
        }
        if let Some(average) = &self.average {
            out.add_row(["macro average".to_owned(), String::new(), String::new()].into_iter().chain(values(average)));
        }
        table::text(&out)
    }

    fn cut_table(&self) -> String {
        let mut out = table::table(&[
            "What is sent",
            "Recall",
            "Complete",
            "Tools",
            "Tokens before",
            "After",
            "Reduction",
            "No tool",
            "p50 ms",
            "p95 ms",
        ]);
        let figures = |figures: &Figures| {
            let plain = |name: &str, digits: usize| figures.get(name).map_or_else(dash, |estimate| format!("{:.digits$}", estimate.mean));
            let percent = |name: &str| figures.get(name).map_or_else(dash, |estimate| format!("{:.1} %", estimate.mean * 100.0));
            [
                with_interval(figures.get("cut.recall")),
                with_interval(figures.get("cut.complete")),
                plain("cut.tools", 1),
                plain("cut.tokens", 0),
                percent("cut.reduction"),
                percent("no_tool"),
            ]
        };
        for set in &self.sets {
            let [recall, complete, tools, tokens, reduction, no_tool] = figures(&set.metrics);
            let Latency { p50, p95 } = set.latency_ms;
            let before = set.tokens_before.to_string();
            let times = [p50, p95].map(|time| format!("{time:.2}"));
            let [p50, p95] = times;
            out.add_row([set.name.clone(), recall, complete, tools, before, tokens, reduction, no_tool, p50, p95]);
        }
        if let Some(average) = &self.average {
            let [recall, complete, tools, tokens, reduction, no_tool] = figures(average);
            let name = "macro average".to_owned();
            out.add_row([name, recall, complete, tools, String::new(), tokens, reduction, no_tool, String::new(), String::new()]);
        }
        table::text(&out)
    }

    /// The metrics of each kind of message, with their column headings.
    pub(super) fn kind_metrics(&self) -> Vec<(String, String)> {
        let (least, middle) = (self.k.first().copied().unwrap_or(1), self.middle_k());
        [
            (format!("recall@{least}"), format!("R@{least}")),
            (format!("recall@{middle}"), format!("R@{middle}")),
            (format!("server@{least}"), format!("Right server@{least}")),
            (format!("server@{middle}"), format!("Right server@{middle}")),
            (format!("ndcg@{middle}"), format!("nDCG@{middle}")),
            ("mrr".to_owned(), "MRR".to_owned()),
            ("no_tool".to_owned(), "No tool".to_owned()),
        ]
        .into()
    }

    fn kinds_table(&self) -> String {
        let metrics = self.kind_metrics();
        let heads: Vec<&str> = ["Kind", "Messages"].into_iter().chain(metrics.iter().map(|(_, head)| head.as_str())).collect();
        let mut out = table::table(&heads);
        for (set, kind, group) in self.sets.iter().flat_map(|set| set.kinds.iter().map(move |(kind, group)| (set, kind, group))) {
            let values = metrics.iter().map(|(name, _)| with_interval(group.metrics.get(name)));
            out.add_row([format!("{} / {kind}", set.name), group.queries.to_string()].into_iter().chain(values));
        }
        table::text(&out)
    }

    /// The metrics of each language, with their column headings.
    pub(super) fn language_metrics(&self) -> Vec<(String, String)> {
        let (least, middle) = (self.k.first().copied().unwrap_or(1), self.middle_k());
        [
            (format!("recall@{least}"), format!("R@{least}")),
            (format!("recall@{middle}"), format!("R@{middle}")),
            ("cut.recall".to_owned(), "Sent recall".to_owned()),
            ("cut.tools_if_needed".to_owned(), "Sent tools".to_owned()),
            ("gate.kept".to_owned(), "Kept".to_owned()),
            ("gate.left_alone".to_owned(), "Left alone".to_owned()),
        ]
        .into()
    }

    fn languages_table(&self) -> String {
        let metrics = self.language_metrics();
        let heads: Vec<&str> = ["Language", "Messages"].into_iter().chain(metrics.iter().map(|(_, head)| head.as_str())).collect();
        let mut out = table::table(&heads);
        let values = |figures: &Figures| metrics.iter().map(|(name, _)| with_interval(figures.get(name))).collect::<Vec<_>>();
        for set in &self.sets {
            for (language, group) in &set.languages {
                let name = format!("{} / {language}", set.name);
                out.add_row([name, group.queries.to_string()].into_iter().chain(values(&group.metrics)));
            }
            if let Some(average) = &set.languages_average {
                let name = format!("{} / average", set.name);
                out.add_row([name, String::new()].into_iter().chain(values(average)));
            }
        }
        table::text(&out)
    }

    fn ablation_table(&self) -> String {
        let metrics: Vec<(String, String)> =
            self.main_metrics().into_iter().chain([("cut.recall".to_owned(), "sent recall".to_owned())]).collect();
        let heads: Vec<String> = metrics.iter().map(|(_, head)| format!("Δ {head}")).collect();
        let heads: Vec<&str> = ["Without", "Leaves"].into_iter().chain(heads.iter().map(String::as_str)).collect();
        let mut out = table::table(&heads);
        for row in &self.ablation {
            let values = metrics.iter().map(|(name, _)| match row.difference.get(name) {
                Some(Estimate { mean, low, high }) => format!("{mean:+.3} ±{:.3}", (high - low) / 2.0),
                None => dash(),
            });
            out.add_row([row.without.to_owned(), row.leaves.to_owned()].into_iter().chain(values));
        }
        table::text(&out)
    }
}

fn with_interval(estimate: Option<&Estimate>) -> String {
    estimate.map_or_else(dash, |Estimate { mean, low, high }| format!("{mean:.3} ±{:.3}", (high - low) / 2.0))
}

fn dash() -> String {
    "-".to_owned()
}
