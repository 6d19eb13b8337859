//! Runs the service's selection for every message, and computes metrics from the results.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use indexmap::IndexMap;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use crate::cli::Failure;
use crate::cli::bench::data::{Query, Set, Tools};
use crate::cli::bench::estimate::Means;
use crate::cli::bench::metrics::{complete, hit, hits, ndcg, of_servers, recall, reciprocal_rank};
use crate::cli::bench::report::{Group, Latency, Missed, SetReport};
use crate::cli::catalog;
use crate::cli::retrieval::Retrieval;
use crate::domain::access::principal::Principal;
use crate::domain::catalog::tool::ToolId;
use crate::domain::selection::relevance::{QueryPlan, Role, is_weak, shares_word};
use crate::domain::selection::selection::Reason;
use crate::service::catalog::current::CurrentCatalog;
use crate::service::selection::request::{SelectRequest, Turn};
use crate::settings::{Rerank, Settings};

/// How many ranked tools the report shows for each missed message.
const SHOWN: usize = 5;
/// How many ranked tools count as the results of a search.
const RESULTS: usize = 10;

/// What the metrics count: tools or servers. A server has the rank of its best tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Level {
    Tool,
    Server,
}

/// The tools that one or several sets search.
pub(super) struct Corpus {
    pub(super) current: Arc<CurrentCatalog>,
    pub(super) ids: HashMap<ToolId, String>,
    server_of: HashMap<String, String>,
    /// Number of tools that the service rejects because of duplicate names or invalid schemas.
    left_out: usize,
}

impl Corpus {
    pub(super) fn of(tools: Tools, settings: &Settings) -> Self {
        let given: usize = tools.listings.iter().map(|listing| listing.tools.len()).sum();
        let catalog = catalog::known(&tools.listings, Vec::new(), settings, &catalog::Kept::default()).catalog;
        let server_of = tools.ids.iter().map(|(tool, id)| (id.clone(), tool.server.to_string())).collect();
        let left_out = given - catalog.tools().len().min(given);
        let current = Arc::new(CurrentCatalog::default());
        current.swap(catalog);
        Self { current, ids: tools.ids, server_of, left_out }
    }
}

/// The selection for one message.
pub(super) struct Answer {
    /// Ids of the ranked tools, best first.
    pub(super) ranked: Vec<String>,
    /// The cosine of each ranked tool, if it has one.
    cosines: Vec<Option<f32>>,
    /// For each ranked tool, whether a search would call it weak.
    weak: Vec<bool>,
    /// Whether a search would return nothing.
    is_nothing: bool,
    /// Ids of the tools that the model would get.
    pub(super) chosen: Vec<String>,
    /// Ids of the best tools without learning, with their scores. Empty if learning is off.
    pub(super) plain: Vec<(String, f32)>,
    /// The vector of the message.
    pub(super) vector: Option<Arc<[f32]>>,
    needs_tool: bool,
    tokens_before: u64,
    /// Tokens of all definitions that the model would get, including the search tool.
    tokens_after: u64,
    took: Duration,
}

/// The metrics of one set, and the data for averages and comparisons.
pub(super) struct Measured {
    pub(super) report: SetReport,
    pub(super) means: Means,
}

/// The options of a benchmark run.
pub(super) struct Measure<'a> {
    pub(super) ks: &'a [usize],
    pub(super) level: Level,
    /// Number of missed messages to list.
    pub(super) examples: usize,
    /// Folder to which the rankings are written.
    pub(super) runs: Option<&'a Path>,
}

impl Measure<'_> {
    /// Measures one set. `place` is the set's index among all sets.
    pub(super) async fn set(&self, set: &Set, place: u64, corpus: &Corpus, retrieval: &Retrieval) -> Result<Measured, Failure> {
        let progress = bar(&format!("{}: searching", set.name), set.queries.len());
        let caller = Principal::anyone();
        // The first message fills the caches and is not measured.
        answer("a first message", corpus, retrieval, &caller).await;
        let mut answers = Vec::with_capacity(set.queries.len());
        for query in &set.queries {
            answers.push(answer(&query.text, corpus, retrieval, &caller).await);
            progress.inc(1);
        }
        progress.finish_and_clear();
        if let Some(folder) = self.runs {
            write_run(folder, set, &answers)?;
        }
        let rows: Vec<Vec<f64>> = set.queries.iter().zip(&answers).map(|(query, answer)| self.row(query, answer, corpus)).collect();
        let rows: Vec<&[f64]> = rows.iter().map(Vec::as_slice).collect();
        let means = Means::of(&self.columns(), &rows, place);
        let catalog = corpus.current.snapshot();
        let languages = self.languages(set, &rows, place);
        let report = SetReport {
            name: set.name.clone(),
            queries: set.queries.len(),
            queries_without_tool: set.queries.iter().filter(|query| query.groups.is_empty()).count(),
            tools: catalog.tools().len(),
            tools_left_out: corpus.left_out,
            servers: catalog.servers().len(),
            tokens_before: answers.first().map_or(0, |answer| answer.tokens_before),
            metrics: means.figures(),
            kinds: self.kinds(set, &rows, place),
            languages: languages.iter().map(|(language, (queries, means))| (language.clone(), Group::of(*queries, means))).collect(),
            languages_average: (languages.len() > 1)
                .then(|| Means::average(&languages.values().map(|(_, means)| means).collect::<Vec<_>>()).figures()),
            latency_ms: latency(&answers),
            missed: self.missed(set, &answers, corpus),
        };
        Ok(Measured { report, means })
    }

    fn columns(&self) -> Vec<String> {
        let at = |name: &'static str| self.ks.iter().map(move |k| format!("{name}@{k}"));
        let ranking = ["recall", "hit", "ndcg", "complete", "server"].into_iter().flat_map(at);
        let others = ["mrr", "cut.recall", "cut.complete", "cut.tools", "cut.tokens", "cut.reduction", "cut.at_most_one_tool", "no_tool"];
        let by_need = ["cut.tools_if_needed", "gate.kept", "gate.left_alone", "weak.needed", "weak.not_needed", "weak.nothing"];
        ranking.chain(others.into_iter().chain(by_need).map(str::to_owned)).collect()
    }

    /// The values of the metrics in [`Measure::columns`]. Ranking metrics are undefined for a message that needs no
    /// tool.
    fn row(&self, query: &Query, answer: &Answer, corpus: &Corpus) -> Vec<f64> {
        let (groups, ranked) = self.view(query, &answer.ranked, corpus);
        let (_, chosen) = self.view(query, &answer.chosen, corpus);
        let count = groups.groups.len();
        let needs = |value: f64| if count == 0 { f64::NAN } else { value };
        let needs_none = |value: f64| if count == 0 { value } else { f64::NAN };
        let found = hits(&groups.groups, ranked.iter().copied());
        let of_chosen = hits(&groups.groups, chosen.iter().copied());
        let all = usize::MAX;
        let mut row = Vec::new();
        row.extend(self.ks.iter().map(|&k| needs(recall(&found, count, k))));
        row.extend(self.ks.iter().map(|&k| needs(hit(&found, k))));
        row.extend(self.ks.iter().map(|&k| needs(ndcg(&found, count, k))));
        row.extend(self.ks.iter().map(|&k| needs(complete(&found, count, k))));
        let of_servers = of_servers(query, &corpus.server_of).groups;
        // Counts as found if any tool from a right server is among the first k.
        let right = answer
            .ranked
            .iter()
            .position(|id| corpus.server_of.get(id).is_some_and(|server| of_servers.iter().any(|group| group.contains(server))));
        row.extend(self.ks.iter().map(|&k| needs(f64::from(right.is_some_and(|place| place < k)))));
        row.extend([
            needs(reciprocal_rank(&found)),
            needs(recall(&of_chosen, count, all)),
            needs(complete(&of_chosen, count, all)),
            answer.chosen.len() as f64,
            answer.tokens_after as f64,
            1.0 - answer.tokens_after as f64 / answer.tokens_before.max(1) as f64,
            f64::from(answer.chosen.len() <= 1),
            f64::from(!answer.needs_tool),
            needs(answer.chosen.len() as f64),
            needs(f64::from(answer.needs_tool)),
            needs_none(f64::from(!answer.needs_tool)),
            weak_share(answer, |id| query.groups.iter().any(|group| group.contains(id))),
            needs_none(weak_share(answer, |_| true)),
            needs_none(f64::from(answer.is_nothing)),
        ]);
        row
    }

    /// The message and its ranking at the measured level.
    fn view<'b>(&self, query: &Query, ranked: &'b [String], corpus: &'b Corpus) -> (Query, Vec<&'b str>) {
        match self.level {
            Level::Tool => (query.clone(), ranked.iter().map(String::as_str).collect()),
            Level::Server => {
                let servers = ranked.iter().filter_map(|id| corpus.server_of.get(id).map(String::as_str)).collect();
                (of_servers(query, &corpus.server_of), servers)
            }
        }
    }

    fn kinds(&self, set: &Set, rows: &[&[f64]], place: u64) -> IndexMap<String, Group> {
        let mut by_kind: IndexMap<&str, Vec<&[f64]>> = IndexMap::new();
        for (query, row) in set.queries.iter().zip(rows) {
            by_kind.entry(&query.kind).or_default().push(row);
        }
        if by_kind.len() < 2 {
            return IndexMap::new();
        }
        let columns = self.columns();
        by_kind.into_iter().map(|(kind, rows)| (kind.to_owned(), Group::of(rows.len(), &Means::of(&columns, &rows, place)))).collect()
    }

    /// The number of messages and the means by language; empty if no message names its language.
    fn languages(&self, set: &Set, rows: &[&[f64]], place: u64) -> IndexMap<String, (usize, Means)> {
        let mut by_language: IndexMap<&str, Vec<&[f64]>> = IndexMap::new();
        for (query, row) in set.queries.iter().zip(rows).filter(|(query, _)| !query.lang.is_empty()) {
            by_language.entry(&query.lang).or_default().push(row);
        }
        let columns = self.columns();
        by_language.into_iter().map(|(language, rows)| (language.to_owned(), (rows.len(), Means::of(&columns, &rows, place)))).collect()
    }

    /// Messages for which the first ranks miss a needed tool.
    fn missed(&self, set: &Set, answers: &[Answer], corpus: &Corpus) -> Vec<Missed> {
        let k = self.ks.iter().copied().max().unwrap_or(1);
        let all = set.queries.iter().zip(answers).filter_map(|(query, answer)| {
            let (groups, ranked) = self.view(query, &answer.ranked, corpus);
            let found = hits(&groups.groups, ranked.iter().copied());
            (found.len() < groups.groups.len() || found.iter().any(|&place| place > k)).then(|| Missed {
                id: query.id.clone(),
                lang: query.lang.clone(),
                query: query.text.clone(),
                needed: groups.groups.iter().map(|group| group.iter().cloned().collect()).collect(),
                found: ranked.iter().take(SHOWN).map(|id| (*id).to_owned()).collect(),
            })
        });
        all.take(self.examples).collect()
    }
}

/// Selects tools for a caller's message.
pub(super) async fn answer(message: &str, corpus: &Corpus, retrieval: &Retrieval, caller: &Principal) -> Answer {
    let view = corpus.current.view(caller);
    let catalog = &view.catalog;
    let started = Instant::now();
    let mut ranking = retrieval.retrieve.rank(&QueryPlan::new(message), &view, None, &[]).await;
    retrieval.retrieve.apply_learning(&mut ranking, &view, caller, |_| true);
    let took = started.elapsed();
    let turn = Turn { role: Role::User, text: message.to_owned(), called: Vec::new() };
    let request = SelectRequest { turns: vec![turn], rerank: Some(Rerank::Off), ..SelectRequest::default() };
    let selection = retrieval.select.select(request, caller).await;
    let id = |tool: &ToolId| corpus.ids.get(tool).cloned();
    let floor = retrieval.retrieve.weak_cosine(&ranking, catalog.tools().len());
    let ranked: Vec<_> =
        ranking.ranked.iter().filter_map(|ranked| Some((id(&catalog.tools().get(ranked.key as usize)?.id)?, ranked))).collect();
    let is_new = |reason: &Reason| matches!(reason, Reason::Relevant { .. } | Reason::Learned { .. } | Reason::Judged { .. });
    Answer {
        cosines: ranked.iter().map(|(_, ranked)| ranked.dense).collect(),
        weak: ranked.iter().map(|(_, ranked)| is_weak(ranked, floor)).collect(),
        is_nothing: ranked.iter().all(|(_, ranked)| is_weak(ranked, floor) && !shares_word(ranked)),
        ranked: ranked.into_iter().map(|(id, _)| id).collect(),
        chosen: selection.tools.iter().filter(|tool| is_new(&tool.reason)).filter_map(|tool| id(tool.id.as_ref()?)).collect(),
        plain: ranking.plain.iter().filter_map(|&(key, score)| Some((id(&catalog.tools().get(key as usize)?.id)?, score))).collect(),
        vector: ranking.vector.clone(),
        needs_tool: retrieval.retrieve.needs_tool(&ranking, catalog.tools().len()),
        tokens_before: selection.tokens_before,
        tokens_after: selection.tokens_after,
        took,
    }
}

/// The share of weak tools among the results of a search that are `counted`; NaN if there are none.
fn weak_share(answer: &Answer, counted: impl Fn(&String) -> bool) -> f64 {
    let results = answer.ranked.iter().zip(&answer.weak).take(RESULTS).filter(|(id, _)| counted(id));
    let (count, weak) = results.fold((0_u32, 0_u32), |(count, sum), (_, weak)| (count + 1, sum + u32::from(*weak)));
    f64::from(weak) / f64::from(count)
}

fn latency(answers: &[Answer]) -> Latency {
    let mut times: Vec<f64> = answers.iter().map(|answer| answer.took.as_secs_f64() * 1e3).collect();
    times.sort_by(f64::total_cmp);
    let quantile = |share: usize| times.get(times.len() * share / 100).copied().unwrap_or_default();
    Latency { p50: quantile(50), p95: quantile(95) }
}

fn write_run(folder: &Path, set: &Set, answers: &[Answer]) -> Result<(), Failure> {
    let path = folder.join(format!("{}.jsonl", set.name));
    let line = |(query, answer): (&Query, &Answer)| {
        let mut line = json!({"query_id": query.id, "ranked": answer.ranked, "cosines": answer.cosines});
        if !query.lang.is_empty() {
            line["lang"] = query.lang.as_str().into();
        }
        line.to_string()
    };
    let lines = set.queries.iter().zip(answers).map(line);
    let text = lines.collect::<Vec<_>>().join("\n") + "\n";
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(&path, text))
        .map_err(|error| Failure::failed(format!("error: {}: {error}", path.display())))
}

/// A progress bar on a terminal, and a single line otherwise.
pub(super) fn bar(what: &str, total: usize) -> ProgressBar {
    let bar = ProgressBar::new(total as u64);
    if bar.is_hidden() {
        eprintln!("{what}: {total}");
    }
    let style = ProgressStyle::with_template("{msg} {bar:30} {pos}/{len} {eta}").unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.with_style(style).with_message(what.to_owned())
}
