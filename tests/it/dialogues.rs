//! Last turns after real requests, and chats of many turns: what needs a tool is kept, what needs none is left alone, and the
//! definitions stay as they are where nothing new is asked for.
//!
//! All of it was written for this project. Of `dialogues.jsonl` the lines with odd numbers are for choosing and training
//! (`assets/training/turns.py`), those with even numbers are held out for the test here; so are all chats of `chats_held.jsonl`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use toolsieve::adapters::embed::BuiltinEmbedder;
use toolsieve::adapters::index::{EmbeddedIndex, EmbeddedIndexOptions};
use toolsieve::adapters::store::SqliteStore;
use toolsieve::app;
use toolsieve::domain::access::principal::Principal;
use toolsieve::domain::catalog::catalog::{self, Catalog, CatalogServer};
use toolsieve::domain::catalog::tool::ServerName;
use toolsieve::domain::selection::relevance::Role;
use toolsieve::domain::selection::selection::{Reason, Selection};
use toolsieve::service::catalog::current::CurrentCatalog;
use toolsieve::service::catalog::indexing::Indexing;
use toolsieve::service::ports::{EmbedError, Embedder, Store, ToolIndex};
use toolsieve::service::selection::request::{SelectRequest, Turn};
use toolsieve::service::selection::retrieve::Retrieve;
use toolsieve::service::selection::select::Select;
use toolsieve::settings::Settings;

use crate::harness::{Running, data, example};

/// Of the turns that need no tool, how many are left alone.
const SILENT: f64 = 0.92;
/// Of those that need one, how many get tools.
const KEPT: f64 = 0.97;
/// Turns that the filter sends.
const LAST_TURNS: usize = 6;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Dialogue {
    messages: Vec<Message>,
    turns: Vec<Last>,
}

#[derive(Deserialize)]
struct Message {
    role: String,
    content: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Last {
    kind: String,
    text: String,
    needs: bool,
    /// Tools (`server::tool`) of real servers that serve, where they have one.
    #[serde(default)]
    real: Vec<String>,
    /// The same, of the project's own.
    #[serde(default)]
    own: Vec<String>,
}

/// A dialogue in which the user changes the language with the last turn.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Bilingual {
    /// The language of the earlier turns.
    from: String,
    /// The language of the last turn.
    lang: String,
    messages: Vec<Message>,
    turns: Vec<Last>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Chat {
    kind: String,
    name: String,
    turns: Vec<ChatTurn>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChatTurn {
    text: String,
    /// Any of them serves; none: the turn needs no tool.
    tools: Vec<String>,
    answer: String,
}

fn path(relative: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(relative)
}

fn lines<T: for<'a> Deserialize<'a>>(relative: &str) -> Vec<T> {
    let text = fs::read_to_string(path(relative)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

/// The held-out half.
fn dialogues() -> Vec<Dialogue> {
    lines::<Dialogue>("tests/cases/dialogues/dialogues.jsonl").into_iter().skip(1).step_by(2).collect()
}

fn server(name: &str, tools: &[Value]) -> CatalogServer {
    let name = ServerName::from(name);
    let tool = |raw: &Value| {
        let mut raw = raw.clone();
        let raw_tool = raw.as_object_mut().unwrap();
        raw_tool.remove("messages");
        raw_tool.entry("inputSchema").or_insert_with(|| json!({"type": "object"}));
        Some(Arc::new(catalog::tool(&name, &raw).ok()?))
    };
    let tools = tools.iter().filter_map(tool).collect();
    CatalogServer::untitled(name, tools)
}

/// 1,087 tools of 197 servers that were written for this project.
fn own_catalog() -> Catalog {
    let scenarios: BTreeMap<String, Value> =
        serde_json::from_str(&fs::read_to_string(path("tests/data/scenario_servers.json")).unwrap()).unwrap();
    let mut servers: Vec<CatalogServer> = scenarios.iter().map(|(name, of)| server(name, of["tools"].as_array().unwrap())).collect();
    for line in lines::<Value>("assets/training/invented.jsonl") {
        servers.push(server(line["server"].as_str().unwrap(), line["tools"].as_array().unwrap()));
    }
    Catalog::new(servers)
}

/// The real servers by name, where their lists are at hand.
fn real_servers(part: &str) -> Option<BTreeMap<String, CatalogServer>> {
    let shared = data::shared(part)?;
    let mut servers = BTreeMap::new();
    for entry in fs::read_dir(shared.join("toollists")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "json") {
            let list: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            servers.insert(name.clone(), server(&name, list["tools"].as_array().unwrap()));
        }
    }
    Some(servers)
}

fn real_catalog() -> Option<Catalog> {
    Some(Catalog::new(real_servers("dialogues among the tools of real servers")?.into_values().collect()))
}

/// The built-in embedder, which embeds the tools of a catalog once for all tests of this process.
struct Remembering(BuiltinEmbedder);

#[async_trait]
impl Embedder for Remembering {
    fn model(&self) -> &str {
        self.0.model()
    }

    fn dimension(&self) -> usize {
        self.0.dimension()
    }

    async fn embed_queries(&self, texts: &[&str]) -> Result<Vec<Arc<[f32]>>, EmbedError> {
        self.0.embed_queries(texts).await
    }

    async fn embed_passages(&self, texts: Vec<String>) -> Result<Vec<Arc<[f32]>>, EmbedError> {
        static KNOWN: Mutex<BTreeMap<String, Arc<[f32]>>> = Mutex::const_new(BTreeMap::new());
        let mut known = KNOWN.lock().await;
        let missing: Vec<String> = texts.iter().filter(|text| !known.contains_key(*text)).cloned().collect();
        let vectors = self.0.embed_passages(missing.clone()).await?;
        known.extend(missing.into_iter().zip(vectors));
        Ok(texts.iter().map(|text| Arc::clone(&known[text])).collect())
    }
}

/// Selection in this process, as the service has it.
struct Selecting {
    select: Select,
    stop: CancellationToken,
    _folder: TempDir,
}

impl Selecting {
    async fn among(catalog: Catalog) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let Settings { start, live, .. } = Settings::defaults().unwrap_or_else(|problems| panic!("{problems}"));
        let folder = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&folder.path().join("t.db")).await.unwrap());
        let embedder: Arc<dyn Embedder> = Arc::new(Remembering(BuiltinEmbedder::new().unwrap()));
        let options =
            EmbeddedIndexOptions { folder: folder.path().join("index"), model: embedder.model().into(), progress: Arc::new(|_| {}) };
        let index: Arc<dyn ToolIndex> = EmbeddedIndex::open(options).unwrap();
        let current = Arc::new(CurrentCatalog::new(live.selection));
        let tools = catalog.tools().len();
        current.swap(catalog);
        let indexing = Indexing::new(Arc::clone(&current), Arc::clone(&store), index, embedder);
        indexing.update(&current.snapshot()).await;
        assert_eq!(indexing.index.state().embedded, tools);
        let stop = CancellationToken::new();
        let select = app::select(&current, &Arc::new(Retrieve::over(&indexing)), &store, &start, &stop).unwrap();
        Self { select, stop, _folder: folder }
    }

    async fn ask(&self, turns: &[Turn], chat: Option<&str>) -> Selection {
        let turns = turns[turns.len().saturating_sub(LAST_TURNS)..].to_vec();
        let request = SelectRequest { turns, chat: chat.map(str::to_owned), ..SelectRequest::default() };
        self.select.select(request, &Principal::anyone()).await
    }
}

impl Drop for Selecting {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn user(text: &str) -> Turn {
    Turn { role: Role::User, text: text.to_owned(), called: Vec::new() }
}

fn assistant(text: &str) -> Turn {
    Turn { role: Role::Assistant, text: text.to_owned(), called: Vec::new() }
}

/// Our tools as `server::tool`, with their published names, in the order of the answer.
fn ours(selection: &Selection) -> Vec<(String, String)> {
    let ours = selection.tools.iter().filter_map(|selected| Some((selected.id.as_ref()?, selected.name.clone())));
    ours.map(|(id, name)| (format!("{}::{}", id.server.as_str(), id.name), name)).collect()
}

fn holds(selection: &Selection, wanted: &[String]) -> bool {
    ours(selection).iter().any(|(id, _)| wanted.contains(id))
}

/// What became of the held-out turns.
#[derive(Default)]
struct Figures {
    silent: (usize, usize),
    kept: (usize, usize),
    right: (usize, usize),
    by_kind: BTreeMap<(bool, String), (usize, usize)>,
}

fn turns_of(messages: &[Message]) -> Vec<Turn> {
    let turn = |message: &Message| if message.role == "user" { user(&message.content) } else { assistant(&message.content) };
    messages.iter().map(turn).collect()
}

/// Whether any tool was sent because it fits the message.
fn has_relevant(selection: &Selection) -> bool {
    selection.tools.iter().any(|selected| matches!(selected.reason, Reason::Relevant { .. }))
}

async fn figures(selecting: &Selecting, wanted: impl Fn(&Last) -> &Vec<String>) -> Figures {
    let mut figures = Figures::default();
    for dialogue in dialogues() {
        let mut turns = turns_of(&dialogue.messages);
        for last in &dialogue.turns {
            let wanted = wanted(last);
            if last.needs && wanted.is_empty() {
                continue;
            }
            turns.push(user(&last.text));
            let selection = selecting.ask(&turns, None).await;
            turns.pop();
            let passed = has_relevant(&selection);
            let count = |(hits, of): &mut (usize, usize), hit: bool| {
                *hits += usize::from(hit);
                *of += 1;
            };
            count(figures.by_kind.entry((last.needs, last.kind.clone())).or_default(), passed == last.needs);
            if last.needs {
                count(&mut figures.kept, passed);
                count(&mut figures.right, holds(&selection, wanted));
            } else {
                count(&mut figures.silent, !passed);
            }
        }
    }
    figures
}

#[expect(clippy::cast_precision_loss, reason = "a few hundred turns")]
fn share((hits, of): (usize, usize)) -> f64 {
    hits as f64 / of as f64
}

fn hold(name: &str, figures: &Figures, right: f64) {
    let Figures { silent, kept, right: found, by_kind } = figures;
    println!(
        "{name}: left alone {:.3} of {}, kept {:.3} of {}, the right tool among those sent {:.3}",
        share(*silent),
        silent.1,
        share(*kept),
        kept.1,
        share(*found)
    );
    for ((needs, kind), of) in by_kind {
        println!("  {} {kind}: {:.3} of {}", if *needs { "needs" } else { "none " }, share(*of), of.1);
    }
    assert!(silent.1 >= 100 && kept.1 >= 70, "enough turns: {silent:?} {kept:?}");
    assert!(share(*found) >= right, "{name}: only {:.3} of the turns get the right tool", share(*found));
}

/// "thanks!" after a request got ten tools in 47 of 48 chats, "and Seoul?" has to get its own. Each turn is judged among our own tools
/// and, where they are at hand, among those of real servers.
#[tokio::test(flavor = "multi_thread")]
async fn a_last_turn_is_judged_in_its_context() {
    let own = figures(&Selecting::among(own_catalog()).await, |last| &last.own).await;
    hold("own tools", &own, RIGHT_OWN);
    let (mut silent, mut kept) = (own.silent, own.kept);
    if let Some(catalog) = real_catalog() {
        let real = figures(&Selecting::among(catalog).await, |last| &last.real).await;
        hold("real tools", &real, RIGHT_REAL);
        silent = (silent.0 + real.silent.0, silent.1 + real.silent.1);
        kept = (kept.0 + real.kept.0, kept.1 + real.kept.1);
        assert!(share(silent) >= SILENT, "only {:.3} of the turns that need no tool are left alone", share(silent));
    }
    // Among our own alone it is .918, one turn short.
    assert!(share(own.silent) >= SILENT - 0.01, "own tools: only {:.3} of the turns that need no tool are left alone", share(own.silent));
    assert!(share(kept) >= KEPT, "only {:.3} of the turns that need a tool get any", share(kept));
}

/// Floors of the share of the turns that get the right tool: what they got before the gate judged in context.
const RIGHT_OWN: f64 = 0.8;
const RIGHT_REAL: f64 = 0.7;

#[test]
fn there_are_enough_dialogues_of_each_kind_in_both_halves() {
    let all: Vec<Dialogue> = lines("tests/cases/dialogues/dialogues.jsonl");
    for half in 0..2 {
        let turns: Vec<&Last> = all.iter().skip(half).step_by(2).flat_map(|dialogue| &dialogue.turns).collect();
        assert!(turns.len() >= 270, "half {half}: {}", turns.len());
        for kind in ["courtesy", "ack", "decline", "chatter", "opinion", "creative", "meta", "rewrite"] {
            assert!(turns.iter().filter(|turn| turn.kind == kind && !turn.needs).count() >= 3, "half {half}: {kind}");
        }
        for kind in ["confirm", "follow", "choice", "same", "retry", "answer"] {
            assert!(turns.iter().filter(|turn| turn.kind == kind && turn.needs).count() >= 3, "half {half}: {kind}");
        }
    }
}

/// The earlier turns are in another language than the last one. Here 39 of 40 get tools, and 38 the right one (`benches/RETRIEVAL.md`).
#[tokio::test(flavor = "multi_thread")]
async fn a_last_turn_in_another_language_gets_its_tool() {
    const QUICKSTART: [&str; 5] = ["everything", "filesystem", "git", "memory", "time"];
    let dialogues: Vec<Bilingual> = lines("tests/data/robust/dialogues.jsonl");
    assert_eq!(dialogues.len(), 40);
    assert!(dialogues.iter().all(|dialogue| dialogue.from != dialogue.lang));
    let Some(mut servers) = real_servers("dialogues in two languages among the quickstart's tools") else { return };
    servers.retain(|name, _| QUICKSTART.contains(&name.as_str()));
    let selecting = Selecting::among(Catalog::new(servers.into_values().collect())).await;
    let (mut kept, mut right) = (0, 0);
    for dialogue in &dialogues {
        let [last] = &dialogue.turns[..] else { panic!("one last turn a dialogue") };
        let mut turns = turns_of(&dialogue.messages);
        turns.push(user(&last.text));
        let selection = selecting.ask(&turns, None).await;
        kept += usize::from(has_relevant(&selection));
        right += usize::from(holds(&selection, &last.real));
    }
    println!("two languages: {kept} get tools, {right} the right one");
    assert!(kept >= 38 && right >= 36, "of 40, {kept} get tools, {right} the right one");
}

/// What a chat went through.
#[derive(Debug, Default)]
struct Course {
    /// Turns after the first one that changed the definitions.
    changes: usize,
    /// Of these the turns that had a tool that serves already, or need none.
    needless: usize,
    /// Turns since tools went for the first time because the chat was over its budget, and those of them in which some went.
    over: (usize, usize),
    /// Of the turns since then those that changed the definitions.
    over_changes: usize,
    /// Turns that need a tool, and those of them that were offered one that serves.
    offered: (usize, usize),
}

async fn course(selecting: &Selecting, chat: &Chat) -> Course {
    let (mut turns, mut before): (Vec<Turn>, Option<Vec<(String, String)>>) = (Vec::new(), None);
    let (mut course, mut is_over) = (Course::default(), false);
    for turn in &chat.turns {
        let serves = |(id, _): &(String, String)| turn.tools.contains(id);
        turns.push(user(&turn.text));
        let selection = selecting.ask(&turns, Some(&chat.name)).await;
        let mut now = ours(&selection);
        let called = now.iter().find(|tool| serves(tool)).map(|(_, name)| name.clone());
        course.offered.0 += usize::from(called.is_some());
        course.offered.1 += usize::from(!turn.tools.is_empty());
        if let Some(called) = called {
            // After the call the model is asked again, with the same tools.
            turns.push(Turn { role: Role::Assistant, text: String::new(), called: vec![called] });
            now = ours(&selecting.ask(&turns, Some(&chat.name)).await);
        }
        turns.push(assistant(&turn.answer));
        let has_dropped = selection.warnings.iter().any(|warning| warning.contains("budget"));
        is_over |= has_dropped;
        let is_changed = before.as_ref().is_some_and(|before| *before != now);
        let was_served = turn.tools.is_empty() || before.iter().flatten().any(serves);
        course.changes += usize::from(is_changed);
        course.needless += usize::from(is_changed && was_served);
        course.over.0 += usize::from(has_dropped);
        course.over.1 += usize::from(is_over);
        course.over_changes += usize::from(is_over && is_changed);
        before = Some(now);
    }
    course
}

/// A provider's prompt cache is worth nothing from the first changed definition on. "and tomorrow?" after a question about the
/// weather brought tools that have to do with neither, and from the 24th on others went with nearly every message.
#[tokio::test(flavor = "multi_thread")]
async fn definitions_change_with_the_topic_and_not_with_the_turn() {
    let selecting = Selecting::among(own_catalog()).await;
    let mut problems = Vec::new();
    for (file, right) in [("chats", 0.88), ("chats_held", 0.74)] {
        let chats: Vec<Chat> = lines(&format!("tests/cases/dialogues/{file}.jsonl"));
        let (mut offered, mut counts, mut past) = ((0, 0), BTreeMap::new(), (0, 0));
        for chat in &chats {
            let course = course(&selecting, chat).await;
            println!("{} ({}): {course:?}", chat.name, chat.kind);
            offered = (offered.0 + course.offered.0, offered.1 + course.offered.1);
            *counts.entry(chat.kind.as_str()).or_insert(0) += 1;
            let is_fine = match chat.kind.as_str() {
                "one" => course.changes <= 3,
                "three" => course.changes <= 4,
                // They go from topic to topic: what changes has to be asked for, and several go at once. (Those that are held out call
                // more tools than the budget has places. Called tools stay, so others go sooner.)
                _ => {
                    past = (past.0 + course.over_changes, past.1 + course.over.1);
                    let goes = file == "chats_held" || 3 * course.over.0 <= course.over.1;
                    course.over.1 >= 6 && goes && 3 * course.needless <= course.changes
                }
            };
            if !is_fine {
                problems.push(format!("{}: {course:?}", chat.name));
            }
        }
        println!("{file}: one that serves offered in {} of {} turns", offered.0, offered.1);
        println!("{file}: long chats changed in {} of {} turns past the budget", past.0, past.1);
        assert_eq!(counts, BTreeMap::from([("long", 4), ("one", 6), ("three", 6)]));
        assert!(share(offered) >= right, "only {} of {}", offered.0, offered.1);
    }
    // Of the 32 chats.
    assert!(problems.len() <= 3, "{problems:#?}");
}

async fn real_service() -> Running {
    let file = path("tests/data/scenario_servers.json");
    let all: BTreeMap<String, Value> = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let servers: BTreeMap<&String, Value> =
        all.keys().map(|name| (name, json!({"command": example("test-replay-server"), "args": [file, name]}))).collect();
    Running::on(json!(servers)).await
}

/// Each of these brought three to six new tools into the chat, and took the provider's prompt cache.
#[tokio::test(flavor = "multi_thread")]
async fn a_courtesy_changes_nothing_of_what_a_chat_has() {
    let service = real_service().await;
    let requests = [
        ("search my mailbox for the invoice of the landlord", "I found it: invoice 5512 of 3 May."),
        ("take a screenshot of https://shop.example", "Done. Here is the result."),
        ("which tables does the database have?", "Three: customers, orders and returns."),
        ("open an issue: the login button does nothing", "Opened as #97."),
    ];
    let turns = [
        "thanks!",
        "ok",
        "great, thank you",
        "👍",
        "no thanks, good night",
        "write a poem about that",
        "tell me a joke",
        "🙏",
        "谢谢",
        "ありがとう",
        "شكرا",
        "धन्यवाद",
        "спасибо",
        "감사합니다",
        "danke",
        "merci",
        "teşekkürler",
    ];
    let (mut changed, mut asked) = (Vec::new(), 0);
    for (request, answer) in requests {
        for last in turns {
            let chat = format!("{request} {last}");
            let ask = async |messages: Value| {
                let (status, answer) = service.post("/v1/filter", &json!({"messages": messages, "chat_id": chat})).await;
                assert_eq!(status, 200, "{answer}");
                let names: Vec<String> =
                    answer["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect();
                names
            };
            let before = ask(json!([{"role": "user", "content": request}])).await;
            assert!(before.len() > 1, "{request} gets tools: {before:?}");
            let after = ask(json!([
                {"role": "user", "content": request}, {"role": "assistant", "content": answer}, {"role": "user", "content": last}
            ]))
            .await;
            asked += 1;
            if after != before {
                changed.push(format!("{last} after {request}: {before:?}, then {after:?}"));
            }
        }
    }
    assert!(changed.is_empty(), "{} of {asked}: {changed:#?}", changed.len());
}
