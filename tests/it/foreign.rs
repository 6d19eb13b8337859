//! Definitions of other people's tools: judged with ours, for bounded work.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use tokio::sync::Semaphore;
use toolsieve::domain::access::principal::Principal;
use toolsieve::domain::selection::relevance::QueryPlan;
use toolsieve::service::catalog::current::CurrentCatalog;
use toolsieve::service::ports::{EmbedError, Embedder, IndexAnswer, IndexContents, IndexError, IndexQuery, IndexState, ToolIndex};
use toolsieve::service::selection::foreign::{ForeignTool, NEW_PER_REQUEST};
use toolsieve::service::selection::retrieve::{Ranking, Retrieve};

use crate::harness::wait::eventually;

/// Counts, and waits for a permit for each lot of passages.
struct Counting {
    permits: Semaphore,
    begun: AtomicUsize,
    passages: AtomicUsize,
    longest: AtomicUsize,
    queries: AtomicUsize,
    fails: bool,
}

impl Counting {
    fn new(permits: usize) -> Self {
        Self {
            permits: Semaphore::new(permits),
            begun: AtomicUsize::new(0),
            passages: AtomicUsize::new(0),
            longest: AtomicUsize::new(0),
            queries: AtomicUsize::new(0),
            fails: false,
        }
    }
}

#[async_trait]
impl Embedder for Counting {
    fn model(&self) -> &'static str {
        "counting"
    }

    fn dimension(&self) -> usize {
        2
    }

    async fn embed_queries(&self, texts: &[&str]) -> Result<Vec<Arc<[f32]>>, EmbedError> {
        self.queries.fetch_add(texts.len(), Ordering::SeqCst);
        if self.fails { Err(EmbedError::Failed("off".into())) } else { Ok(vec![Arc::from([1.0, 0.0]); texts.len()]) }
    }

    async fn embed_passages(&self, texts: Vec<String>) -> Result<Vec<Arc<[f32]>>, EmbedError> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        self.permits.acquire().await.unwrap().forget();
        if self.fails {
            return Err(EmbedError::Failed("off".into()));
        }
        self.passages.fetch_add(texts.len(), Ordering::SeqCst);
        let longest = texts.iter().map(|text| text.chars().count()).max().unwrap_or(0);
        self.longest.fetch_max(longest, Ordering::SeqCst);
        Ok(vec![Arc::from([0.6, 0.8]); texts.len()])
    }
}

/// None of ours.
struct Empty;

#[async_trait]
impl ToolIndex for Empty {
    async fn replace(&self, _: IndexContents) -> Result<(), IndexError> {
        Ok(())
    }

    async fn search(&self, _: &IndexQuery<'_>) -> Result<IndexAnswer, IndexError> {
        Ok(IndexAnswer::default())
    }

    fn state(&self) -> IndexState {
        IndexState::default()
    }
}

fn retrieve(embedder: &Arc<Counting>) -> Retrieve {
    Retrieve::new(Arc::clone(embedder) as Arc<dyn Embedder>, Arc::new(Empty))
}

fn definitions(count: usize, letters: usize) -> Vec<ForeignTool> {
    let tool =
        |number| ForeignTool { name: format!("tool_{number}"), description: format!("{number} {}", "abcdefghi ".repeat(letters / 10)) };
    (0..count).map(tool).collect()
}

async fn rank(retrieve: &Retrieve, message: &str, foreign: &[ForeignTool]) -> Ranking {
    let view = CurrentCatalog::default().view(&Principal::anyone());
    retrieve.rank(&QueryPlan::new(message), &view, None, foreign).await
}

/// 1,000 definitions of 500 letters took five to fifteen seconds of processor time for one message.
#[tokio::test]
async fn one_request_has_only_so_many_definitions_embedded() {
    let embedder = Arc::new(Counting::new(1_000));
    let retrieve = retrieve(&embedder);
    let foreign = definitions(1_000, 500);
    let ranking = rank(&retrieve, "book a flight", &foreign).await;
    assert_eq!(embedder.passages.load(Ordering::SeqCst), NEW_PER_REQUEST);
    assert!(embedder.longest.load(Ordering::SeqCst) <= 250, "{} letters at once", embedder.longest.load(Ordering::SeqCst));
    assert_eq!(embedder.queries.load(Ordering::SeqCst), 1, "the message alone is a query");
    assert_eq!(ranking.ranked.len() + ranking.not_judged.len(), 1_000, "the others are kept");
    assert!(ranking.warnings.iter().any(|warning| warning.contains("872 of 1000 foreign tools")), "{:?}", ranking.warnings);
}

#[tokio::test]
async fn a_definition_is_embedded_once() {
    let embedder = Arc::new(Counting::new(1_000));
    let retrieve = retrieve(&embedder);
    let foreign = definitions(100, 100);
    for message in ["book a flight", "water the plants", "thanks"] {
        let ranking = rank(&retrieve, message, &foreign).await;
        assert_eq!((ranking.ranked.len(), ranking.warnings.len()), (100, 0));
    }
    assert_eq!(embedder.passages.load(Ordering::SeqCst), 100);
}

/// The work went on for seconds after the client had gone.
#[tokio::test]
async fn a_request_that_is_dropped_ends_its_work() {
    let embedder = Arc::new(Counting::new(1));
    let retrieve = Arc::new(retrieve(&embedder));
    let task = {
        let retrieve = Arc::clone(&retrieve);
        tokio::spawn(async move { rank(&retrieve, "book a flight", &definitions(NEW_PER_REQUEST, 100)).await })
    };
    eventually("the second portion is begun", async || embedder.begun.load(Ordering::SeqCst) >= 2).await;
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    embedder.permits.add_permits(1_000);
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let begun = embedder.begun.load(Ordering::SeqCst);
    assert_eq!(begun, 2, "no portion is begun after the client has gone");
    assert!(embedder.passages.load(Ordering::SeqCst) < NEW_PER_REQUEST);
}

/// They had no words in common with any message.
#[tokio::test]
async fn definitions_are_found_by_their_words_too() {
    let embedder = Arc::new(Counting { fails: true, ..Counting::new(1_000) });
    let retrieve = retrieve(&embedder);
    let tool = |name: &str, description: &str| ForeignTool { name: name.into(), description: description.into() };
    let foreign = [
        tool("water_plants", "Switch on the garden irrigation"),
        tool("book_flight", "Book a flight between two airports"),
        tool("list_flights", "List what departs today"),
    ];
    let ranking = rank(&retrieve, "book me a flight from Rome to Oslo", &foreign).await;
    let keys: Vec<u32> = ranking.ranked.iter().map(|ranked| ranked.key).collect();
    assert_eq!(keys, [1, 2, 0]);
    assert!(ranking.ranked[0].lexical > ranking.ranked[1].lexical && ranking.ranked[2].lexical == 0.0);
    assert!(ranking.not_judged.is_empty());
}
