//! How the index follows a catalog: what is embedded of it, and what is never embedded twice.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use toolsieve::adapters::index::{AnnouncedIndex, EmbeddedIndex, EmbeddedIndexOptions};
use toolsieve::adapters::store::SqliteStore;
use toolsieve::domain::access::visibility::Visibility;
use toolsieve::domain::catalog::catalog::{self, Catalog, CatalogServer};
use toolsieve::domain::catalog::overlay::Overlay;
use toolsieve::domain::catalog::tool::ServerName;
use toolsieve::domain::selection::enrichment::{Author, Enrichment, Written, key};
use toolsieve::domain::selection::relevance::{LexicalModel, SparseVector};
use toolsieve::domain::text::canonical::Fingerprint;
use toolsieve::service::catalog::current::CurrentCatalog;
use toolsieve::service::catalog::indexing::Indexing;
use toolsieve::service::ports::{
    EmbedError, Embedder, IndexAnswer, IndexContents, IndexError, IndexQuery, IndexQueryText, IndexState, Store, ToolIndex,
};

use crate::harness::LONG;
use crate::harness::process::database::change;
use crate::harness::wait::eventually;

/// Directions instead of meanings: a text is one of eight axes. Counts what it is asked for.
#[derive(Default)]
struct Axes {
    passages: AtomicUsize,
    /// Batches with this word are refused.
    refuses: Option<&'static str>,
}

fn axis(text: &str) -> Arc<[f32]> {
    let place = text.bytes().map(usize::from).sum::<usize>() % 8;
    (0..8).map(|at| if at == place { 1.0 } else { 0.0 }).collect()
}

#[async_trait]
impl Embedder for Axes {
    fn model(&self) -> &'static str {
        "axes"
    }

    fn dimension(&self) -> usize {
        8
    }

    async fn embed_queries(&self, texts: &[&str]) -> Result<Vec<Arc<[f32]>>, EmbedError> {
        Ok(texts.iter().map(|text| axis(text)).collect())
    }

    async fn embed_passages(&self, texts: Vec<String>) -> Result<Vec<Arc<[f32]>>, EmbedError> {
        self.passages.fetch_add(texts.len(), Ordering::Relaxed);
        if texts.iter().any(|text| self.refuses.is_some_and(|word| text.contains(word))) {
            return Err(EmbedError::Failed("a word is not allowed".into()));
        }
        Ok(texts.iter().map(|text| axis(text)).collect())
    }
}

fn server(name: &str, instructions: Option<&str>, tools: &[&str]) -> CatalogServer {
    let name = ServerName::from(name);
    let tool = |tool: &&str| {
        let raw = json!({"name": tool, "description": format!("Does {tool} at once."), "inputSchema": {"type": "object"}});
        Arc::new(catalog::tool(&name, &raw).unwrap())
    };
    let tools = tools.iter().map(tool).collect();
    CatalogServer { instructions: instructions.map(str::to_owned), ..CatalogServer::untitled(name, tools) }
}

fn two_servers_and_an_empty_one() -> Catalog {
    let mail = server("work-mail", Some("Letters of the office."), &["send_letter", "readLetter"]);
    Catalog::new(vec![mail, server("clock", None, &["now"]), server("idle", Some("Nothing yet."), &[])])
}

struct Parts {
    index: Arc<dyn ToolIndex>,
    embedder: Arc<Axes>,
    indexing: Indexing,
}

/// A process that has just started: a new index over the same store.
fn start(folder: &Path, store: &Arc<dyn Store>) -> Parts {
    let options = EmbeddedIndexOptions { folder: folder.into(), model: "axes".into(), progress: Arc::new(|_| ()) };
    let index: Arc<dyn ToolIndex> = EmbeddedIndex::open(options).unwrap();
    let embedder = Arc::new(Axes::default());
    let current = Arc::new(CurrentCatalog::default());
    let indexing = Indexing::new(current, Arc::clone(store), Arc::clone(&index), Arc::clone(&embedder) as Arc<dyn Embedder>);
    Parts { index, embedder, indexing }
}

/// An index that takes [`Self::LONG`] to build.
struct Slow(Arc<dyn ToolIndex>);

impl Slow {
    const LONG: Duration = Duration::from_millis(500);
}

#[async_trait]
impl ToolIndex for Slow {
    async fn replace(&self, contents: IndexContents) -> Result<(), IndexError> {
        // The time that this takes is what is tested.
        sleep(Self::LONG).await;
        self.0.replace(contents).await
    }

    async fn search(&self, request: &IndexQuery<'_>) -> Result<IndexAnswer, IndexError> {
        self.0.search(request).await
    }

    fn state(&self) -> IndexState {
        self.0.state()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_long_build_the_next_one_waits_as_long() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&folder.path().join("t.db")).await.unwrap());
    let Parts { index, indexing, .. } = start(&folder.path().join("index"), &store);
    let indexing = Indexing { index: Arc::new(Slow(index)), ..indexing };
    let begun = Instant::now();
    // Without vectors, and with them.
    assert!(indexing.update(&two_servers_and_an_empty_one()).await);
    let rests_until = *indexing.rests_until.lock();
    assert!(rests_until >= begun + 3 * Slow::LONG, "{:?}", rests_until - begun);
    assert!(rests_until <= Instant::now() + begun.elapsed() * 3 / 4, "the time of the last build, not of all");
}

/// The servers that lie on the same axis as a text.
async fn on_the_axis_of(index: &Arc<dyn ToolIndex>, text: &str) -> Vec<String> {
    let texts = [IndexQueryText { dense: Some(axis(text)), sparse: SparseVector::default() }];
    let found = index.search(&IndexQuery { texts: &texts, visibility: &Visibility::default(), limit: 10, servers: true }).await.unwrap();
    let mut names: Vec<String> = found.servers.iter().map(|server| server.server.to_string()).collect();
    names.sort();
    assert_eq!(names, ["clock", "work-mail"], "an empty server is absent");
    found.servers.iter().filter(|server| server.dense > 0.9).map(|server| server.server.to_string()).collect()
}

const MAIL: &str = "work mail: Letters of the office. read Letter, send letter";
const CLOCK: &str = "clock: now";

#[tokio::test(flavor = "multi_thread")]
async fn servers_are_indexed_by_their_text_and_embedded_once() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&folder.path().join("t.db")).await.unwrap());
    let catalog = two_servers_and_an_empty_one();
    let first = start(&folder.path().join("one"), &store);
    assert!(first.indexing.update(&catalog).await);
    assert_ne!(axis(MAIL), axis(CLOCK), "the test tells them apart");
    assert_eq!(on_the_axis_of(&first.index, MAIL).await, ["work-mail"]);
    assert_eq!(on_the_axis_of(&first.index, CLOCK).await, ["clock"]);
    // Two passages for each of three tools, and one for each of two servers.
    assert_eq!(first.embedder.passages.load(Ordering::Relaxed), 8);

    let second = start(&folder.path().join("two"), &store);
    assert!(second.indexing.update(&catalog).await);
    assert_eq!(second.embedder.passages.load(Ordering::Relaxed), 0);
    assert_eq!(on_the_axis_of(&second.index, MAIL).await, ["work-mail"]);

    // Other instructions are another text, and the only one.
    let changed = vec![server("work-mail", Some("Post."), &["send_letter", "readLetter"]), server("clock", None, &["now"])];
    assert!(second.indexing.update(&Catalog::new(changed)).await);
    assert_eq!(second.embedder.passages.load(Ordering::Relaxed), 1);
}

/// Regression test: an endpoint with a content filter refused a batch, and no tool in it was ever found by its meaning.
#[tokio::test(flavor = "multi_thread")]
async fn a_text_that_the_embedder_refuses_costs_no_other_its_vector() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&folder.path().join("t.db")).await.unwrap());
    let parts = start(&folder.path().join("one"), &store);
    let embedder = Arc::new(Axes { refuses: Some("send"), ..Axes::default() });
    let indexing = Indexing { embedder: Arc::clone(&embedder) as Arc<dyn Embedder>, ..parts.indexing };
    assert!(indexing.update(&two_servers_and_an_empty_one()).await, "another attempt would bring nothing");
    assert_eq!((parts.index.state().documents, parts.index.state().embedded), (3, 2));
    let asked = embedder.passages.load(Ordering::Relaxed);
    assert!(indexing.update(&two_servers_and_an_empty_one()).await);
    assert_eq!(embedder.passages.load(Ordering::Relaxed), asked, "it is not asked again");
    // Nor is a catalog of which it refuses every text tried again for ever.
    assert!(indexing.update(&Catalog::new(vec![server("send", None, &["send"])])).await);
    // If it refuses everything, the texts are not the reason.
    let indexing = Indexing { embedder: Arc::new(Axes { refuses: Some(""), ..Axes::default() }), ..indexing };
    assert!(!indexing.update(&Catalog::new(vec![server("other", None, &["a", "b", "c", "d", "e"])])).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_of_servers_are_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&path).await.unwrap());
    let unused = Fingerprint::of_text("nobody needs this");
    store.save_vectors("axes", &[(unused, axis("nobody"))]).await.unwrap();
    let parts = start(&folder.path().join("one"), &store);
    assert!(parts.indexing.update(&two_servers_and_an_empty_one()).await);
    change(&path, "UPDATE vector SET used_at = 5").await;
    // Whatever was not in use for long is forgotten with the first complete update.
    parts.indexing.current.swap(two_servers_and_an_empty_one());
    let stop = CancellationToken::new();
    let indexing = parts.indexing;
    let following = {
        let stop = stop.clone();
        tokio::spawn(async move { indexing.follow(stop).await })
    };
    eventually("the unused vector is forgotten", async || store.vectors("axes", &[unused]).await.unwrap().is_empty()).await;
    stop.cancel();
    timeout(LONG, following).await.unwrap().unwrap();
    let texts = [MAIL, CLOCK].map(Fingerprint::of_text);
    assert_eq!(store.vectors("axes", &texts).await.unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_admin_writes_is_all_that_is_embedded_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&folder.path().join("t.db")).await.unwrap());
    let parts = start(&folder.path().join("one"), &store);
    assert!(parts.indexing.update(&two_servers_and_an_empty_one()).await);
    let with = |overlay: &Overlay| {
        let mut mail = server("work-mail", Some("Letters of the office."), &["readLetter"]);
        let raw = server("work-mail", None, &["send_letter"]).tools[0].raw.value();
        mail.tools.push(Arc::new(catalog::tool(&mail.name, &raw).unwrap().with(overlay)));
        Catalog::new(vec![mail, server("clock", None, &["now"])])
    };
    for (overlay, passages) in [
        (Overlay { tags: vec!["a".into()], pinned: true, ..Overlay::default() }, 0),
        (Overlay { synonyms: vec!["post".into()], ..Overlay::default() }, 1),
        (Overlay { description: Some("Writes to people.".into()), ..Overlay::default() }, 2),
        (Overlay::default(), 0),
    ] {
        let before = parts.embedder.passages.load(Ordering::Relaxed);
        let catalog = with(&overlay);
        assert!(parts.indexing.update(&catalog).await);
        assert_eq!(parts.embedder.passages.load(Ordering::Relaxed) - before, passages, "{overlay:?}");
    }
}

fn fields(tags: &[&str], queries: &[&str]) -> Written {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    Written { author: Author::Admin, enrichment: Enrichment { function: String::new(), tags: owned(tags), queries: owned(queries) } }
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_change_one_text_of_a_tool_and_each_query_adds_one() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&folder.path().join("t.db")).await.unwrap());
    let parts = start(&folder.path().join("one"), &store);
    let catalog = two_servers_and_an_empty_one();
    assert!(parts.indexing.update(&catalog).await);
    let letter = key(&catalog.tools()[0]);
    for (written, passages) in [
        (fields(&[], &[]), 0),
        (fields(&["stamp"], &[]), 1),
        (fields(&["stamp", "parrot"], &["write to Anna", "post this"]), 3),
        (fields(&["stamp"], &["post this"]), 0),
    ] {
        let before = parts.embedder.passages.load(Ordering::Relaxed);
        store.save_enrichment(&letter, &written).await.unwrap();
        assert!(parts.indexing.update(&catalog).await);
        assert_eq!(parts.embedder.passages.load(Ordering::Relaxed) - before, passages, "{written:?}");
    }
}

/// If the announced words were others than those in the index, the announcement would stand, and fields would never be searched.
#[tokio::test(flavor = "multi_thread")]
async fn the_words_of_fields_are_searched_while_they_are_there() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&folder.path().join("t.db")).await.unwrap());
    let Parts { index, embedder, .. } = start(&folder.path().join("one"), &store);
    let index: Arc<dyn ToolIndex> = Arc::new(AnnouncedIndex::over(index));
    let current = Arc::new(CurrentCatalog::default());
    current.swap(two_servers_and_an_empty_one());
    let indexing = Indexing::new(Arc::clone(&current), Arc::clone(&store), Arc::clone(&index), embedder);
    let feed = Arc::clone(&indexing.enrichment);
    let stop = CancellationToken::new();
    let following = {
        let stop = stop.clone();
        tokio::spawn(async move { indexing.follow(stop).await })
    };
    let by_word = async |word: &str| {
        let texts = [IndexQueryText { dense: None, sparse: LexicalModel::default().query_vector(word) }];
        let found =
            index.search(&IndexQuery { texts: &texts, visibility: &Visibility::default(), limit: 10, servers: false }).await.unwrap();
        let by_words = found.candidates.iter().filter(|candidate| candidate.lexical[0] > 0.0);
        by_words.map(|candidate| candidate.tool.name.to_string()).collect::<Vec<_>>()
    };
    eventually("the tools are searched", async || by_word("letter").await.contains(&"send_letter".to_owned())).await;
    assert!(by_word("parrot").await.is_empty());

    let catalog = current.snapshot();
    let now = catalog.tools().iter().find(|tool| &*tool.id.name == "now").unwrap();
    store.save_enrichment(&key(now), &fields(&["a parrot"], &[])).await.unwrap();
    feed.publish();
    eventually("the tag is searched", async || by_word("parrot").await == ["now"]).await;
    // Another catalog with the same tool announces it anew.
    current.swap(Catalog::new(vec![server("clock", None, &["now", "alarm"])]));
    eventually("the new tool is searched", async || by_word("alarm").await == ["alarm"]).await;
    eventually("and still the tag", async || by_word("parrot").await == ["now"]).await;
    store.remove_enrichment(&key(now), &Author::Admin).await.unwrap();
    feed.publish();
    eventually("the tag is gone", async || by_word("parrot").await.is_empty()).await;
    stop.cancel();
    timeout(LONG, following).await.unwrap().unwrap();
}
