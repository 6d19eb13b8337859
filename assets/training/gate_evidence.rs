//! What the no-tool gate sees of many messages, as JSON lines: the data that `gate.py` fits its head to.
//!
//! `cargo run --release --example gate-evidence -- WEIGHTS TOOLLISTS FITTED HELD_OUT > evidence.jsonl`
//!
//! `WEIGHTS` is a file that `toolsieve model import` made. `FITTED` and `HELD_OUT` are files of messages, separated by commas, one
//! JSON object a line: `query`, `kind`, and `server` where a tool of that server is needed. Catalogues of 2 to all servers
//! are drawn (always the same ones), and every message is ranked in them by the service's own code.

#[path = "evidence.rs"]
mod evidence;

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use toolsieve::domain::catalog::catalog::{self, Catalog, CatalogServer};
use toolsieve::domain::catalog::tool::ServerName;
use toolsieve::domain::selection::relevance::QueryPlan;

use evidence::{Failure, Workshop, lines};

/// Servers of the drawn catalogues.
const SIZES: [usize; 8] = [2, 4, 6, 10, 16, 24, 40, 63];
/// Catalogues of each size.
const DRAWS: usize = 3;
/// Messages of one catalogue that need a tool, and as many held-out ones that need none.
const MOST: usize = 300;
/// Messages of one catalogue that need no tool, and are not held out.
const MOST_IDLE: usize = 1000;

struct Message {
    text: String,
    /// The server that it needs; none if it needs no tool.
    server: Option<String>,
    held_out: bool,
    kind: String,
    language: String,
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [weights, toollists, fitted, held_out] = arguments.as_slice() else {
        return Err("usage: gate-evidence WEIGHTS TOOLLISTS FITTED HELD_OUT".into());
    };
    let servers = servers(Path::new(toollists))?;
    let mut messages = Vec::new();
    for (files, held_out) in [(fitted, false), (held_out, true)] {
        for file in files.split(',').filter(|file| !file.is_empty()) {
            messages.extend(messages_of(Path::new(file), held_out)?);
        }
    }
    let workshop = Workshop::open(Path::new(weights)).await?;
    println!("{}", json!({"model": workshop.embedder.model()}));
    let mut random = Lcg(1);
    let mut written = HashSet::new();
    for (draw, size) in (0..DRAWS).flat_map(|_| SIZES).enumerate() {
        let drawn = random.choose(&servers, size);
        let names: HashSet<&str> = drawn.iter().map(|server| server.name.as_str()).collect();
        let catalog = Catalog::new(drawn.iter().map(|server| (*server).clone()).collect());
        let (retrieve, view) = workshop.indexed(catalog, &format!("index-{draw}")).await?;
        let wanted: Vec<&Message> =
            messages.iter().filter(|message| message.server.as_deref().is_some_and(|server| names.contains(server))).collect();
        let [idle, held] = [false, true]
            .map(|held_out| messages.iter().filter(|message| message.server.is_none() && message.held_out == held_out).collect::<Vec<_>>());
        let idle = [random.choose(&idle, MOST_IDLE), random.choose(&held, MOST)].concat();
        for message in random.choose(&wanted, MOST).into_iter().chain(idle).copied() {
            let ranking = retrieve.rank(&QueryPlan::new(&message.text), &view, None, &[]).await;
            let Some(vector) = ranking.vector.as_deref() else { continue };
            if written.insert(&message.text) {
                println!("{}", json!({"text": message.text, "vector": vector}));
            }
            let signals = retrieve.signals(&ranking, view.catalog.tools().len());
            println!(
                "{}",
                json!({"of": message.text, "needs": message.server.is_some(), "held_out": message.held_out, "kind": message.kind, "lang": message.language,
                       "catalog": draw, "gate": retrieve.needs_tool(&ranking, view.catalog.tools().len()), "signals": signals})
            );
        }
    }
    Ok(())
}

fn servers(folder: &Path) -> Result<Vec<CatalogServer>, Failure> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    let mut servers = Vec::new();
    for path in paths {
        let name = ServerName::from(path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default());
        let list: Value = serde_json::from_str(&fs::read_to_string(&path)?)?;
        let raw = list["tools"].as_array().cloned().unwrap_or_default();
        let tools = raw.into_iter().filter_map(|raw| catalog::tool(&name, &Arc::new(raw)).ok()).map(Arc::new).collect();
        servers.push(CatalogServer::untitled(name, tools));
    }
    Ok(servers)
}

fn messages_of(file: &Path, held_out: bool) -> Result<Vec<Message>, Failure> {
    let text = |line: &Value, key: &str| line[key].as_str().map(str::to_owned);
    let message = |line: &Value| Message {
        text: text(line, "query").unwrap_or_default(),
        server: text(line, "server"),
        held_out,
        kind: text(line, "kind").unwrap_or_default(),
        language: text(line, "lang").unwrap_or_else(|| "en".to_owned()),
    };
    Ok(lines(file)?.iter().map(message).collect())
}

/// A linear congruential generator (Numerical Recipes' constants): the same draws everywhere.
struct Lcg(u32);

impl Lcg {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 8) as usize % end.max(1)
    }

    fn choose<'a, T>(&mut self, from: &'a [T], count: usize) -> Vec<&'a T> {
        let mut places: HashMap<usize, usize> = HashMap::new();
        let mut chosen = Vec::new();
        // Fisher and Yates, the exchanged places in a map.
        for place in 0..count.min(from.len()) {
            let other = place + self.below(from.len() - place);
            let taken = places.get(&other).copied().unwrap_or(other);
            let here = places.get(&place).copied().unwrap_or(place);
            places.insert(other, here);
            chosen.push(&from[taken]);
        }
        chosen
    }
}
