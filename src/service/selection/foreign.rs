//! Ranks foreign tools together with ours, by the definitions in the request.
//!
//! Each request contains its own definitions, so the work is bounded. Only the name and the first sentence are embedded, vectors
//! are cached, and the number of new ones per request is limited. Further tools are kept without a judgement. The work is done in
//! portions and ends with the request.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use moka::sync::Cache;

use crate::domain::catalog::catalog::Catalog;
use crate::domain::catalog::texts::ToolText;
use crate::domain::selection::relevance::{LexicalModel, SparseVector, bounded_passage};
use crate::domain::text::canonical::Fingerprint;
use crate::service::ports::Embedder;

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
/// Maximum wait for the embedder. A remote one may retry for longer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Number of characters of a description that BM25 considers.
const DESCRIPTION_CHARACTERS: usize = 2_000;

/// A cache of vectors, by hash of the embedded text.
pub(super) struct ForeignVectors(Cache<Fingerprint, Arc<[f32]>>);

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
        Self(Cache::builder().max_capacity(CACHE_BYTES).weigher(weight).build())
    }
}

impl ForeignVectors {
    /// Collects the evidence about these tools for a message with these query vectors.
    pub(super) async fn judge(
        &self,
        tools: &[ForeignTool],
        embedder: &dyn Embedder,
        lexical: &LexicalModel,
        catalog: &Catalog,
        queries: &[SparseVector],
    ) -> Foreign {
        let passages: Vec<String> = tools.iter().map(|tool| bounded_passage(&tool.name, &tool.description)).collect();
        let hashes: Vec<Fingerprint> = passages.iter().map(|passage| Fingerprint::of_text(passage)).collect();
        let mut vectors: Vec<Option<Arc<[f32]>>> = hashes.iter().map(|hash| self.0.get(hash)).collect();
        let missing: Vec<usize> = (0..tools.len()).filter(|&place| vectors[place].is_none()).collect();
        let (now, later) = missing.split_at(missing.len().min(NEW_PER_REQUEST));
        let embedded = tokio::time::timeout(PATIENCE, async {
            for portion in now.chunks(PORTION) {
                let texts = portion.iter().map(|&place| passages[place].clone()).collect();
                for (&place, vector) in portion.iter().zip(embedder.embed_passages(texts).await?) {
                    self.0.insert(hashes[place], Arc::clone(&vector));
                    vectors[place] = Some(vector);
                }
            }
            Ok::<(), crate::service::ports::EmbedError>(())
        });
        let embedded = embedded.await;
        let warning = match embedded {
            Ok(Ok(())) if later.is_empty() => None,
            Ok(Ok(())) => Some(format!("{} of {} foreign tools are kept unjudged: too many new ones at once", later.len(), tools.len())),
            Ok(Err(error)) => {
                tracing::warn!(error = %error, "foreign tools were not embedded");
                Some("foreign tools are judged by their words alone: the embedder does not answer".to_owned())
            }
            Err(_) => Some("foreign tools are judged by their words alone: the embedder is too slow".to_owned()),
        };
        let scores = scores(tools, lexical, catalog, queries).await;
        let mut known: Vec<Known> = vectors.into_iter().zip(scores).map(|(vector, scores)| Known::Judged(vector, scores)).collect();
        for &place in later {
            known[place] = Known::TooMany;
        }
        Foreign { known, warning }
    }
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
