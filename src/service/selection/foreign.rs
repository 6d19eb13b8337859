//! Ranks foreign tools together with ours, by the definitions in the request.
//!
//! Each request contains its own definitions, so the work is bounded. Only the name and the first sentence are embedded, vectors
//! are cached, and the number of new ones per request is limited. Further tools are kept without a judgement. The work is done in
//! portions and ends with the request. Only if the embedder is slower than a request waits, the work for one request at a time goes on, so
//! that a later message finds the vectors.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use moka::sync::Cache;
use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;

use crate::domain::catalog::catalog::Catalog;
use crate::domain::catalog::texts::ToolText;
use crate::domain::selection::relevance::{LexicalModel, SparseVector, bounded_passage};
use crate::domain::text::canonical::Fingerprint;
use crate::service::ports::{EmbedError, Embedder};
use crate::service::spans;

/// A foreign tool to rank with ours, known only by its definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignTool {
    pub name: String,
    pub description: String,
}

/// Size of the cache for vectors of definitions, in bytes.
const CACHE_BYTES: u64 = 8 << 20;
/// Maximum number of new definitions embedded per request.
pub const NEW_PER_REQUEST: usize = 128;
/// Number of definitions that are embedded or tokenized before the task yields.
const PORTION: usize = 32;
/// Maximum wait for the embedder. A remote one may retry for longer. Open WebUI's filter waits 1.5 seconds for everything together.
const PATIENCE: Duration = Duration::from_millis(500);
/// Number of characters of a description that BM25 considers.
const DESCRIPTION_CHARACTERS: usize = 2_000;

/// A cache of vectors, by hash of the embedded text.
type Vectors = Cache<Fingerprint, Arc<[f32]>>;

pub(super) struct ForeignVectors {
    known: Vectors,
    patience: Duration,
    /// One permit for work that goes on after its request.
    going_on: Arc<Semaphore>,
}

/// The evidence about each foreign tool of a message, in the same order.
#[derive(Default)]
pub(super) struct Foreign {
    pub(super) known: Vec<Known>,
    pub(super) warning: Option<String>,
}

pub(super) enum Known {
    /// The vector, if any, and the BM25 score for each text of the message.
    Judged(Option<Arc<[f32]>>, Vec<f32>),
    /// Exceeds the limit of new definitions per request.
    TooMany,
}

impl Default for ForeignVectors {
    fn default() -> Self {
        let weight = |_: &Fingerprint, vector: &Arc<[f32]>| u32::try_from(size_of_val(&**vector) + 96).unwrap_or(u32::MAX);
        let known = Cache::builder().max_capacity(CACHE_BYTES).weigher(weight).build();
        Self { known, patience: PATIENCE, going_on: Arc::new(Semaphore::new(1)) }
    }
}

impl ForeignVectors {
    /// Collects the evidence about these tools for a message with these query vectors.
    pub(super) async fn judge(
        &self,
        tools: &[ForeignTool],
        embedder: &Arc<dyn Embedder>,
        lexical: &LexicalModel,
        catalog: &Catalog,
        queries: &[SparseVector],
    ) -> Foreign {
        let passages: Vec<String> = tools.iter().map(|tool| bounded_passage(&tool.name, &tool.description)).collect();
        let hashes: Vec<Fingerprint> = passages.iter().map(|passage| Fingerprint::of_text(passage)).collect();
        let mut vectors: Vec<Option<Arc<[f32]>>> = hashes.iter().map(|hash| self.known.get(hash)).collect();
        let missing: Vec<usize> = (0..tools.len()).filter(|&place| vectors[place].is_none()).collect();
        let (now, later) = missing.split_at(missing.len().min(NEW_PER_REQUEST));
        let new = now.iter().map(|&place| (hashes[place], passages[place].clone())).collect();
        let warning = match self.embedded(new, embedder).await {
            Ok(new) => {
                now.iter().zip(new).for_each(|(&place, vector)| vectors[place] = Some(vector));
                let count = later.len();
                (count > 0).then(|| format!("{count} of {} foreign tools are kept unjudged: too many new ones at once", tools.len()))
            }
            Err(reason) => {
                for &place in now {
                    vectors[place] = self.known.get(&hashes[place]);
                }
                Some(format!("foreign tools are judged by their words alone: {reason}"))
            }
        };
        let scores = scores(tools, lexical, catalog, queries).await;
        let mut known: Vec<Known> = vectors.into_iter().zip(scores).map(|(vector, scores)| Known::Judged(vector, scores)).collect();
        for &place in later {
            known[place] = Known::TooMany;
        }
        Foreign { known, warning }
    }

    /// The vectors of new passages, in their order, or the reason why there are none.
    async fn embedded(&self, new: Vec<(Fingerprint, String)>, embedder: &Arc<dyn Embedder>) -> Result<Vec<Arc<[f32]>>, &'static str> {
        if new.is_empty() {
            return Ok(Vec::new());
        }
        let work = embed(new, Arc::clone(embedder), self.known.clone());
        let mut work = AbortOnDropHandle::new(tokio::spawn(spans::within(spans::current(), work)));
        match tokio::time::timeout(self.patience, &mut work).await {
            Ok(Ok(embedded)) => embedded.map_err(|_| NO_ANSWER),
            Ok(Err(_)) => Err(NO_ANSWER),
            Err(_) => {
                if let Ok(permit) = Arc::clone(&self.going_on).try_acquire_owned() {
                    tokio::spawn(async move {
                        let _permit = permit;
                        drop(work.await);
                    });
                }
                Err("the embedder is too slow")
            }
        }
    }
}

const NO_ANSWER: &str = "the embedder does not answer";

/// Embeds passages in portions, and keeps each portion as soon as it is embedded.
async fn embed(new: Vec<(Fingerprint, String)>, embedder: Arc<dyn Embedder>, known: Vectors) -> Result<Vec<Arc<[f32]>>, EmbedError> {
    let mut vectors = Vec::with_capacity(new.len());
    for portion in new.chunks(PORTION) {
        let embedded = embedder.embed_passages(portion.iter().map(|(_, passage)| passage.clone()).collect()).await;
        let embedded = embedded.inspect_err(|error| tracing::warn!(%error, "foreign tools were not embedded"))?;
        portion.iter().zip(&embedded).for_each(|((hash, _), vector)| known.insert(*hash, Arc::clone(vector)));
        vectors.extend(embedded);
    }
    Ok(vectors)
}

/// The BM25 scores of each foreign tool for each query. Document frequencies include both our tools and these.
async fn scores(tools: &[ForeignTool], lexical: &LexicalModel, catalog: &Catalog, queries: &[SparseVector]) -> Vec<Vec<f32>> {
    let mut documents = Vec::with_capacity(tools.len());
    for portion in tools.chunks(PORTION) {
        for tool in portion {
            let end = tool.description.char_indices().nth(DESCRIPTION_CHARACTERS).map_or(tool.description.len(), |(at, _)| at);
            documents.push(lexical.document_vector(&ToolText {
                name: &tool.name,
                description: &tool.description[..end],
                ..ToolText::default()
            }));
        }
        tokio::task::yield_now().await;
    }
    let mut weights: HashMap<u32, f32> = HashMap::new();
    for &term in queries.iter().flat_map(|query| &query.indices) {
        weights.entry(term).or_insert_with(|| {
            let foreign = documents.iter().filter(|document| document.indices.binary_search(&term).is_ok()).count();
            let ours = catalog.texts().map_or(0, |texts| texts.vocabulary.tools_with(term));
            let (all, with) = ((catalog.tools().len() + tools.len()) as f32, (foreign + ours) as f32);
            (1.0 + (all - with + 0.5).max(0.0) / (with + 0.5)).ln()
        });
    }
    let weighted: Vec<SparseVector> = queries
        .iter()
        .map(|query| SparseVector {
            indices: query.indices.clone(),
            values: query
                .indices
                .iter()
                .zip(&query.values)
                .map(|(term, value)| value * weights.get(term).copied().unwrap_or(0.0))
                .collect(),
        })
        .collect();
    documents.iter().map(|document| weighted.iter().map(|query| query.dot(document)).collect()).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use async_trait::async_trait;
    use tokio::sync::Semaphore;

    use super::{Foreign, ForeignTool, ForeignVectors, Known};
    use crate::domain::catalog::catalog::Catalog;
    use crate::domain::selection::relevance::LexicalModel;
    use crate::service::ports::{EmbedError, Embedder};

    /// Answers when it may.
    struct Slow {
        permits: Semaphore,
        begun: AtomicUsize,
    }

    #[async_trait]
    impl Embedder for Slow {
        fn model(&self) -> &'static str {
            "slow"
        }

        fn dimension(&self) -> usize {
            1
        }

        async fn embed_queries(&self, _: &[&str]) -> Result<Vec<Arc<[f32]>>, EmbedError> {
            Ok(Vec::new())
        }

        async fn embed_passages(&self, texts: Vec<String>) -> Result<Vec<Arc<[f32]>>, EmbedError> {
            self.begun.fetch_add(1, Ordering::SeqCst);
            self.permits.acquire().await.unwrap().forget();
            Ok(vec![Arc::from([1.0]); texts.len()])
        }
    }

    /// Regression test: each message waited for the same definitions until the filter gave up, and none was ever kept.
    #[tokio::test]
    async fn an_embedder_that_is_too_slow_goes_on_for_the_next_message() {
        let slow = Arc::new(Slow { permits: Semaphore::new(0), begun: AtomicUsize::new(0) });
        let embedder: Arc<dyn Embedder> = Arc::clone(&slow) as _;
        let mut vectors = ForeignVectors { patience: Duration::from_millis(20), ..ForeignVectors::default() };
        let tools = [ForeignTool { name: "book_flight".to_owned(), description: "Book a flight".to_owned() }];
        let (lexical, catalog) = (LexicalModel::default(), Catalog::default());
        for _ in 0..3 {
            let Foreign { known, warning } = vectors.judge(&tools, &embedder, &lexical, &catalog, &[]).await;
            assert!(matches!(known[0], Known::Judged(None, _)) && warning.unwrap().contains("too slow"));
        }
        let idle = |vectors: &ForeignVectors| vectors.going_on.available_permits();
        assert_eq!((slow.begun.load(Ordering::SeqCst), idle(&vectors)), (3, 0), "the first one goes on");
        slow.permits.add_permits(1);
        drop(vectors.going_on.acquire().await.unwrap());
        vectors.patience = Duration::from_mins(1);
        let Foreign { known, warning } = vectors.judge(&tools, &embedder, &lexical, &catalog, &[]).await;
        assert!(matches!(known[0], Known::Judged(Some(_), _)) && warning.is_none());
        assert_eq!(slow.begun.load(Ordering::SeqCst), 3);
    }
}
