//! `toolsieve bench --learn`: replays uses of tools, and measures messages that were not replayed.
//!
//! Three of ten messages are kept for the measurement. Of the others, up to a number of messages per tool are replayed: the service
//! selects tools for the message, and the needed tool is called. With noise, a share of the calls goes to a wrong tool with a high rank
//! instead. Every point of a curve starts without anything learned, and its differences are paired by message.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::cli::Failure;
use crate::cli::bench::data::{Query, Set};
use crate::cli::bench::estimate::{Estimate, Figures, Means, SEED};
use crate::cli::bench::measure::{Answer, Corpus, answer, bar};
use crate::cli::bench::metrics::{hits, ndcg, recall};
use crate::cli::retrieval::{Recipe, Retrieval, VectorStore, open_embedder};
use crate::cli::table;
use crate::domain::access::principal::{GroupTable, Principal, User};
use crate::domain::catalog::tool::ToolId;
use crate::domain::learning::arguments::{CallArguments, id_of_words};
use crate::domain::learning::evidence::EvidenceKind;
use crate::domain::learning::memory::RememberedMessage;
use crate::domain::learning::vector::MessageVector;
use crate::http::pages::plot::{self, Line};
use crate::service::learning::learn::{Learning, Used};
use crate::service::ports::Forgotten;
use crate::settings::{LearnedArguments, LearningMode, LearningSettings, Settings};

/// How many of ten messages are measured. The others are replayed.
const MEASURED: usize = 3;
/// A wrong call goes to one of this many wrong tools with the highest ranks.
const WRONG: usize = 5;
const COLUMNS: [&str; 6] = ["ndcg@5", "recall@1", "recall@3", "recall@5", "sent.recall", "sent.tools"];

/// What to replay.
#[derive(Clone, Debug)]
pub(super) struct Replay {
    /// Maximum numbers of replayed messages per tool, one for each point of a curve.
    pub(super) uses: Vec<usize>,
    /// Percentages of wrong calls, one for each curve.
    pub(super) noise: Vec<u8>,
    /// Number of people who take turns. With 1, the same person is measured, and otherwise a person without own uses.
    pub(super) people: usize,
}

#[derive(Serialize)]
pub(super) struct LearnReport {
    pub(super) toolsieve: &'static str,
    pub(super) model: String,
    pub(super) people: usize,
    pub(super) curves: Vec<Curve>,
}

#[derive(Serialize)]
pub(super) struct Curve {
    pub(super) set: String,
    /// Number of measured messages.
    pub(super) measured: usize,
    /// Percentage of wrong calls.
    pub(super) noise: u8,
    pub(super) points: Vec<Point>,
}

#[derive(Serialize)]
pub(super) struct Point {
    /// Maximum number of replayed messages per tool.
    pub(super) uses: usize,
    /// Number of replayed messages.
    pub(super) replayed: usize,
    pub(super) metrics: Figures,
    /// The difference from the ranking without learning.
    pub(super) difference: Figures,
}

/// The messages of a set, and what the service selects for them without learning.
struct Prepared<'a> {
    measured: Vec<&'a Query>,
    /// In the order of the replay. With the vector of the words of the call's arguments, if they teach.
    replayed: Vec<(&'a Query, Answer, Option<MessageVector>)>,
    tools: HashMap<String, ToolId>,
}

impl Replay {
    /// Measures one set.
    pub(super) async fn set(
        &self,
        set: &Set,
        corpus: &Corpus,
        recipe: &Recipe,
        settings: &Settings,
        vectors: &VectorStore,
    ) -> Result<Vec<Curve>, Failure> {
        let scratch = VectorStore::passing().await?;
        let mode = if settings.start.learning.mode == LearningMode::Off { LearningMode::Auto } else { settings.start.learning.mode };
        let options = LearningSettings { mode, ..settings.start.learning };
        let stop = CancellationToken::new();
        let model = open_embedder(settings)?.model().to_owned();
        let kept = (model.as_str(), settings.start.store.event_retention);
        let (learning, writing) = Learning::start(scratch.store.clone(), options, kept, stop.clone()).await;
        let recipe = Recipe { learning: Some(learning.clone()), ..recipe.clone() };
        let retrieval = Retrieval::start(&corpus.current, &recipe, vectors.store.clone(), Arc::new(|_, _| {})).await?;
        let prepared = Prepared::of(set, corpus, &retrieval, options.arguments == LearnedArguments::Vector).await;
        let progress = bar(&format!("{}: replaying", set.name), self.noise.len() * self.uses.len());
        let mut curves = Vec::new();
        let plain = self.means(&prepared, corpus, &retrieval).await;
        for &noise in &self.noise {
            let mut points = Vec::new();
            for &uses in &self.uses {
                let replayed = self.replay(&prepared, &learning, uses, noise);
                let means = if replayed == 0 { plain.clone() } else { self.means(&prepared, corpus, &retrieval).await };
                points.push(Point { uses, replayed, metrics: means.figures(), difference: means.less(&plain).figures() });
                learning.forget(&Forgotten::All).await.map_err(|error| Failure::failed(format!("error: {error}")))?;
                progress.inc(1);
            }
            curves.push(Curve { set: set.name.clone(), measured: prepared.measured.len(), noise, points });
        }
        progress.finish_and_clear();
        stop.cancel();
        let _ = writing.await;
        Ok(curves)
    }

    /// Replays up to `uses` messages per tool. Returns how many messages were replayed.
    fn replay(&self, prepared: &Prepared<'_>, learning: &Learning, uses: usize, noise: u8) -> usize {
        let mut random = StdRng::seed_from_u64(SEED);
        let mut counts: HashMap<&str, usize> = HashMap::new();
        let mut replayed = 0;
        for (query, before, words) in &prepared.replayed {
            // Drawn for every message, so that all points of a curve have the same wrong calls.
            let (is_wrong, wrong) = (random.random_range(0..100) < noise, random.random_range(0..WRONG));
            let Some(vector) = before.vector.as_deref().and_then(MessageVector::of) else { continue };
            let rivals = before.plain.iter().filter_map(|(id, score)| Some((prepared.tools.get(id)?.clone(), *score)));
            let message = RememberedMessage { id: query.id.as_str().into(), vector, rivals: rivals.collect() };
            let caller = self.caller(replayed);
            let message = learning.open(&caller, message);
            let mut is_replayed = false;
            for right in query.groups.iter().filter_map(|group| group.iter().find(|id| prepared.tools.contains_key(*id))) {
                let count = counts.entry(right).or_default();
                if *count >= uses {
                    continue;
                }
                *count += 1;
                is_replayed = true;
                let others = before.ranked.iter().filter(|id| !query.groups.iter().any(|group| group.contains(*id)));
                let called = others.clone().nth(wrong).filter(|_| is_wrong).unwrap_or(right);
                let kind = if before.chosen.contains(called) { EvidenceKind::Called } else { EvidenceKind::Found };
                let first = before.chosen.first().and_then(|id| prepared.tools.get(id));
                let Some(tool) = prepared.tools.get(called) else { continue };
                learning.learn_call(&caller, &message, &Used { tool, kind, first });
                if let Some(vector) = words.clone() {
                    let message = RememberedMessage { id: id_of_words(&query.id, tool), vector, rivals: [].into() };
                    let message = learning.open(&caller, message);
                    learning.learn_call(&caller, &message, &Used { tool, kind, first: None });
                }
            }
            replayed += usize::from(is_replayed);
        }
        learning.refit();
        replayed
    }

    async fn means(&self, prepared: &Prepared<'_>, corpus: &Corpus, retrieval: &Retrieval) -> Means {
        let caller = if self.people == 1 { self.caller(0) } else { person("newcomer") };
        let mut rows = Vec::with_capacity(prepared.measured.len());
        for query in &prepared.measured {
            let answer = answer(&query.text, corpus, retrieval, &caller).await;
            let (found, sent) = (hits(&query.groups, names(&answer.ranked)), hits(&query.groups, names(&answer.chosen)));
            let groups = query.groups.len();
            let of_ranking = [1, 3, 5].map(|k| recall(&found, groups, k));
            let of_sent = [recall(&sent, groups, usize::MAX), answer.chosen.len() as f64];
            rows.push([&[ndcg(&found, groups, 5)][..], &of_ranking, &of_sent].concat());
        }
        Means::of(&COLUMNS.map(str::to_owned), &rows.iter().map(Vec::as_slice).collect::<Vec<_>>(), 0)
    }

    fn caller(&self, turn: usize) -> Principal {
        person(&format!("person{}", turn % self.people))
    }
}

impl<'a> Prepared<'a> {
    async fn of(set: &'a Set, corpus: &Corpus, retrieval: &Retrieval, with_words: bool) -> Self {
        let tools: HashMap<String, ToolId> = corpus.ids.iter().map(|(tool, id)| (id.clone(), tool.clone())).collect();
        let mut seen = HashSet::new();
        // The same text must not be both replayed and measured.
        let is_usable = |query: &&Query| query.groups.iter().any(|group| group.iter().any(|id| tools.contains_key(id)));
        let mut queries: Vec<&Query> = set.queries.iter().filter(is_usable).filter(|query| seen.insert(query.text.trim())).collect();
        queries.shuffle(&mut StdRng::seed_from_u64(SEED));
        let rest = queries.split_off(queries.len() * MEASURED / 10);
        let progress = bar(&format!("{}: selecting", set.name), rest.len());
        let mut replayed = Vec::with_capacity(rest.len());
        for query in rest {
            let before = answer(&query.text, corpus, retrieval, &person("nobody")).await;
            replayed.push((query, before, if with_words { words(query, corpus, retrieval, &tools).await } else { None }));
            progress.inc(1);
        }
        progress.finish_and_clear();
        Self { measured: queries, replayed, tools }
    }
}

/// The vector of the words of a call's arguments.
async fn words(query: &Query, corpus: &Corpus, retrieval: &Retrieval, tools: &HashMap<String, ToolId>) -> Option<MessageVector> {
    let tool = tools.get(query.groups.first()?.first()?)?;
    let tool = Arc::clone(corpus.current.snapshot().tool(tool)?);
    let text = CallArguments::of(&tool, query.arguments.as_ref()?.get(), true).text?;
    retrieval.retrieve.message_vector(&text).await.ok()?
}

fn person(id: &str) -> Principal {
    let key = Principal { vouches: true, ..Principal::service_key() };
    key.on_behalf_of(User { id: id.to_owned(), ..User::default() }, &GroupTable::default())
}

fn names(ids: &[String]) -> impl Iterator<Item = &str> {
    ids.iter().map(String::as_str)
}

impl LearnReport {
    pub(super) fn tables(&self) -> String {
        let mut out = table::table(&["Set", "Noise", "Uses", "Replayed", "nDCG@5", "Δ", "R@1", "R@3", "R@5", "Sent recall", "Sent tools"]);
        for curve in &self.curves {
            for point in &curve.points {
                let plain = |name: &str, digits: usize| {
                    point.metrics.get(name).map_or_else(|| "-".to_owned(), |estimate| format!("{:.digits$}", estimate.mean))
                };
                let difference = point.difference.get("ndcg@5");
                let difference = difference
                    .map_or_else(|| "-".to_owned(), |Estimate { mean, low, high }| format!("{mean:+.3} ±{:.3}", (high - low) / 2.0));
                let head = [curve.set.clone(), format!("{} %", curve.noise), point.uses.to_string(), point.replayed.to_string()];
                let ranking = [plain("ndcg@5", 3), difference, plain("recall@1", 3), plain("recall@3", 3), plain("recall@5", 3)];
                out.add_row(head.into_iter().chain(ranking).chain([plain("sent.recall", 3), plain("sent.tools", 1)]));
            }
        }
        let people = if self.people == 1 { "one person".to_owned() } else { format!("{} people, for another one", self.people) };
        format!("{}\n\nUses by {people}. ± is half the 95 % interval of the paired difference. Model: {}.", table::text(&out), self.model)
    }

    /// A page with one plot for each set.
    pub(super) fn page(&self) -> String {
        let mut out = format!(
            "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Toolsieve: learning from use</title><style>{}</style>\
             </head><body><h1>Learning from use</h1><p>nDCG@5 of messages that were not replayed, by the number of replayed messages per \
             tool and the share of wrong calls. Toolsieve {}, model {}.</p>",
            plot::STYLE,
            plot::escape(self.toolsieve),
            plot::escape(&self.model)
        );
        for curves in self.curves.chunk_by(|one, other| one.set == other.set) {
            let places: Vec<String> = curves[0].points.iter().map(|point| point.uses.to_string()).collect();
            let value = |point: &Point| point.metrics.get("ndcg@5").map_or(0.0, |estimate| estimate.mean);
            let line =
                |curve: &Curve| Line { label: format!("{} % wrong calls", curve.noise), values: curve.points.iter().map(value).collect() };
            out.push_str(&plot::lines(&curves[0].set, &places, &curves.iter().map(line).collect::<Vec<_>>()));
        }
        out.push_str("</body></html>\n");
        out
    }
}
