//! `toolsieve bench`: measures retrieval quality and token cost for messages with known tools.
//!
//! It runs the service's own code in this process: catalog, token counts, vectors, index, fusion, gate and selection.
//! It never calls a language model, and starts MCP servers only with `--config`.

mod data;
mod embed;
mod estimate;
mod html;
mod learn;
mod measure;
mod metrics;
mod parts;
mod report;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use indicatif::ProgressBar;
use serde::Serialize;

use crate::cli::bench::data::{Set, Tools};
use crate::cli::bench::estimate::Means;
use crate::cli::bench::learn::{LearnReport, Replay};
use crate::cli::bench::measure::{Corpus, Level, Measure, Measured, bar};
use crate::cli::bench::report::{Ablation, Bootstrap, Report};
use crate::cli::retrieval::{Recipe, Retrieval, VectorStore, open_embedder};
use crate::cli::{Failure, Outcome, SourceArgs, catalog, print, runtime};
use crate::service::catalog::indexing::OnProgress;
use crate::settings::{ServersSource, Settings};

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(super) struct Bench {
    #[command(subcommand)]
    other: Option<Other>,
    #[command(flatten)]
    retrieval: RetrievalArgs,
}

#[derive(Subcommand)]
enum Other {
    /// Measure how long the built-in embedder takes for each text, on one thread
    Embed(embed::Embed),
}

#[derive(Args)]
struct RetrievalArgs {
    /// Folder with queries.jsonl (or messages.jsonl, multi.jsonl, notool.jsonl), or one such file; for several, also
    /// print their average
    #[arg(long, value_name = "PATH", num_args = 1.., required = true)]
    data: Vec<PathBuf>,
    /// Read the messages from this file instead of the folder
    #[arg(long, value_name = "FILE")]
    queries: Option<PathBuf>,
    /// Folder with one `SERVER.json` per server, as returned by `tools/list`, or file with one server per line; used if
    /// the data has no tools.jsonl; may be repeated
    #[arg(long, value_name = "PATH", conflicts_with = "config")]
    toollists: Vec<PathBuf>,
    /// File with an `mcpServers` map; if the data has no tools.jsonl, start these servers and use their tools
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Use only this server's tools, with --toollists or --config; may be repeated
    #[arg(long, value_name = "NAME")]
    server: Vec<String>,
    /// Use the descriptions in servers.jsonl as the servers' instructions
    #[arg(long)]
    server_descriptions: bool,
    /// Cut-off ranks for metrics such as recall@k
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_value = "1,3,5,10,20", value_parser = clap::value_parser!(u16).range(1..=100))]
    k: Vec<u16>,
    /// Count tools, or count servers instead
    #[arg(long, value_enum, default_value_t = Level::Tool)]
    level: Level,
    /// Use only the messages in these languages, as named in the data
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    lang: Vec<String>,
    /// Use at most this many messages per set, evenly spaced
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    limit_queries: Option<u32>,
    /// Switch off this part of the retrieval; for several parts, switch them all off at once
    #[arg(long, value_name = "PART", value_delimiter = ',', value_parser = PossibleValuesParser::new(parts::names()))]
    without: Vec<String>,
    /// Switch off each of these parts in turn, and show the difference [default: all parts]
    #[arg(long, value_name = "PART", value_delimiter = ',', num_args = 0.., value_parser = PossibleValuesParser::new(parts::names()))]
    ablation: Option<Vec<String>>,
    /// Replay uses of tools, and measure messages that were not replayed
    #[arg(long, conflicts_with_all = ["ablation", "runs", "examples", "level", "k"])]
    learn: bool,
    /// With --learn, the maximum numbers of replayed messages per tool
    #[arg(long, value_name = "NUMBERS", requires = "learn", value_delimiter = ',', default_value = "0,1,2,5,10,20")]
    uses: Vec<usize>,
    /// With --learn, the percentages of calls that go to a wrong tool
    #[arg(long, value_name = "NUMBERS", requires = "learn", value_delimiter = ',', default_value = "0,10,30", value_parser = clap::value_parser!(u8).range(0..=100))]
    noise: Vec<u8>,
    /// With --learn, let this many people use the tools, and measure another person; with 1, measure the same person
    #[arg(long, value_name = "NUMBER", requires = "learn", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    people: u16,
    /// Write all results to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write an HTML page with tables and plots to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the rankings to this folder, one file per set
    #[arg(long, value_name = "DIR")]
    runs: Option<PathBuf>,
    /// Show up to this many missed messages per set in the reports, with their full text
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    examples: usize,
    /// TOML file with settings
    #[arg(long, value_name = "FILE", env = "TOOLSIEVE_SETTINGS")]
    settings: Option<PathBuf>,
    /// Data folder in which to keep the tools' vectors for the next run
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

impl Bench {
    pub(super) fn run(self) -> Outcome {
        match self.other {
            Some(Other::Embed(embed)) => embed.run(),
            None => self.retrieval.run(),
        }
    }
}

/// Message sets that search the same tools.
struct Searched {
    corpus: Corpus,
    sets: Vec<Set>,
}

impl RetrievalArgs {
    fn run(mut self) -> Outcome {
        if self.queries.is_some() && self.data.len() > 1 {
            return Err(Failure::invalid("error: --queries works only with a single --data folder"));
        }
        self.k.sort_unstable();
        self.k.dedup();
        let source = self.config.clone().map_or(ServersSource::Nothing, ServersSource::File);
        let settings = self.sources().load(source)?;
        if self.learn {
            let report = runtime()?.block_on(self.curves(&settings))?;
            self.write(&report, || report.page())?;
            return print(&report.tables());
        }
        let report = runtime()?.block_on(self.measure(&settings))?;
        self.write(&report, || html::page(&report))?;
        print(&report.tables())
    }

    /// Writes the requested files.
    fn write(&self, report: &impl Serialize, page: impl FnOnce() -> String) -> Outcome {
        if let Some(path) = &self.json {
            let text = serde_json::to_string_pretty(report).map_err(|error| Failure::failed(format!("error: {error}")))?;
            write(path, &(text + "\n"))?;
        }
        self.html.as_ref().map_or(Ok(()), |path| write(path, &page()))
    }

    fn sources(&self) -> SourceArgs {
        SourceArgs { settings: self.settings.clone(), data_dir: self.data_dir.clone() }
    }

    /// The retrieval to measure.
    fn recipe(&self, settings: &Settings) -> Recipe {
        let mut recipe = Recipe::of(settings);
        // A small catalog is measured too, as if it were a part of a larger one.
        recipe.settings.live.selection.narrow_above = None;
        for part in parts::named(&self.without) {
            (part.leave_out)(&mut recipe);
        }
        recipe
    }

    async fn vectors(&self) -> Result<VectorStore, Failure> {
        match &self.data_dir {
            Some(folder) => VectorStore::of(folder).await,
            None => VectorStore::passing().await,
        }
    }

    /// Replays the sets' messages as uses.
    async fn curves(&self, settings: &Settings) -> Result<LearnReport, Failure> {
        let (recipe, vectors) = (self.recipe(settings), self.vectors().await?);
        let replay = Replay { uses: self.uses.clone(), noise: self.noise.clone(), people: usize::from(self.people) };
        let mut curves = Vec::new();
        for Searched { corpus, sets } in self.searched(settings).await? {
            for set in &sets {
                curves.extend(replay.set(set, &corpus, &recipe, settings, &vectors).await?);
            }
        }
        let model = open_embedder(settings)?.model().to_owned();
        Ok(LearnReport { toolsieve: env!("CARGO_PKG_VERSION"), model, people: replay.people, curves })
    }

    async fn measure(&self, settings: &Settings) -> Result<Report, Failure> {
        let searched = self.searched(settings).await?;
        let (recipe, vectors) = (self.recipe(settings), self.vectors().await?);
        let all = self.all(&searched, &recipe, &vectors, true).await?;
        let average = Means::average(&all.iter().map(|measured| &measured.means).collect::<Vec<_>>());
        let mut ablation = Vec::new();
        let names: Vec<String> = match &self.ablation {
            None => Vec::new(),
            Some(names) if names.is_empty() => parts::names().map(str::to_owned).collect(),
            Some(names) => names.clone(),
        };
        for part in parts::named(&names) {
            eprintln!("without {}", part.name);
            let mut recipe = recipe.clone();
            (part.leave_out)(&mut recipe);
            let without = self.all(&searched, &recipe, &vectors, false).await?;
            let means: Vec<&Means> = without.iter().map(|measured| &measured.means).collect();
            ablation.push(Ablation {
                without: part.name,
                leaves: part.without,
                difference: Means::average(&means).less(&average).figures(),
                sets: without.iter().map(|measured| (measured.report.name.clone(), measured.means.figures())).collect(),
            });
        }
        Ok(Report {
            toolsieve: env!("CARGO_PKG_VERSION"),
            model: open_embedder(settings)?.model().to_owned(),
            level: if self.level == Level::Server { "server" } else { "tool" },
            k: self.ks(),
            without: self.without.clone(),
            bootstrap: Bootstrap::default(),
            average: (all.len() > 1).then(|| average.figures()),
            sets: all.into_iter().map(|measured| measured.report).collect(),
            ablation,
        })
    }

    fn ks(&self) -> Vec<usize> {
        self.k.iter().copied().map(usize::from).collect()
    }

    /// Measures every set with this recipe.
    async fn all(&self, searched: &[Searched], recipe: &Recipe, vectors: &VectorStore, is_first: bool) -> Result<Vec<Measured>, Failure> {
        let ks = self.ks();
        let runs = self.runs.as_deref().filter(|_| is_first);
        let measure = Measure { ks: &ks, level: self.level, examples: self.examples, runs };
        let mut all = Vec::new();
        for Searched { corpus, sets } in searched {
            let names: Vec<&str> = sets.iter().map(|set| set.name.as_str()).collect();
            let progress = embedding(names.join(", "));
            let retrieval = Retrieval::start(&corpus.current, recipe, vectors.store.clone(), progress).await?;
            for set in sets {
                all.push(measure.set(set, all.len() as u64, corpus, &retrieval).await?);
            }
        }
        Ok(all)
    }

    /// Loads the tools to search, in the order of the command line.
    async fn searched(&self, settings: &Settings) -> Result<Vec<Searched>, Failure> {
        let mut all: Vec<Searched> = Vec::new();
        // All sets without their own tools share the same tools.
        let mut shared: Option<usize> = None;
        for path in &self.data {
            for mut set in data::sets(path, self.queries.as_deref())? {
                set.queries.retain(|query| self.lang.is_empty() || self.lang.contains(&query.lang));
                if set.queries.is_empty() {
                    let which = if self.lang.is_empty() { "" } else { " in these languages" };
                    return Err(Failure::invalid(format!("error: --data: {} holds no messages{which}", path.display())));
                }
                self.thin(&mut set);
                let taken = |name: &String| all.iter().flat_map(|searched| &searched.sets).any(|set| set.name == *name);
                if taken(&set.name)
                    && let Some(name) = (2..=self.data.len() * 4).map(|number| format!("{}-{number}", set.name)).find(|name| !taken(name))
                {
                    set.name = name;
                }
                let own = set.tools.clone();
                if let (None, Some(at)) = (&own, shared) {
                    all[at].sets.push(set);
                    continue;
                }
                let tools = match &own {
                    Some(file) => Tools::of_file(file, self.server_descriptions)?,
                    None => self.tools(settings, path).await?,
                };
                if own.is_none() {
                    shared = Some(all.len());
                }
                all.push(Searched { corpus: Corpus::of(tools, settings), sets: vec![set] });
            }
        }
        for Searched { corpus, sets } in &all {
            let catalog = corpus.current.snapshot();
            let ids = corpus.ids.iter().filter(|(tool, _)| catalog.server(tool.server.as_str()).is_some()).map(|(_, id)| id.as_str());
            for warning in sets.iter().filter_map(|set| data::nonexistent(set, ids.clone())) {
                eprintln!("warning: {warning}");
            }
        }
        Ok(all)
    }

    async fn tools(&self, settings: &Settings, data: &Path) -> Result<Tools, Failure> {
        let mut tools = match (self.toollists.as_slice(), &self.config) {
            ([_, ..], _) => Tools::of_lists(&self.toollists)?,
            ([], Some(_)) => {
                let known = catalog::ask(settings).await?;
                if let Some((server, reason)) = known.missing.first() {
                    return Err(Failure::failed(format!("error: {server}: {reason}")));
                }
                Tools::of_catalog(&known.catalog)
            }
            ([], None) => {
                let remedy = "name a folder of tool lists with --toollists, or servers with --config";
                return Err(Failure::invalid(format!("error: --data: {} brings no tools.jsonl. {remedy}.", data.display())));
            }
        };
        tools.keep(&self.server)?;
        Ok(tools)
    }

    /// Reduces the set to the requested number of messages.
    fn thin(&self, set: &mut Set) {
        let (all, Some(limit)) = (set.queries.len(), self.limit_queries) else { return };
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        if limit < all {
            set.queries = (0..limit).map(|at| set.queries[at * all / limit].clone()).collect();
        }
    }
}

fn embedding(names: String) -> OnProgress {
    let shown: Mutex<Option<ProgressBar>> = Mutex::new(None);
    Arc::new(move |done, total| {
        let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
        let bar = shown.get_or_insert_with(|| bar(&format!("{names}: embedding tools"), total));
        bar.set_position(done as u64);
        if done >= total {
            bar.finish_and_clear();
        }
    })
}

fn write(path: &Path, text: &str) -> Outcome {
    fs::write(path, text).map_err(|error| Failure::failed(format!("error: {}: {error}", path.display())))
}
