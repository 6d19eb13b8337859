//! The index of tools.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use serde::Serialize;

use crate::domain::access::visibility::{Visibility, VisibilityClass};
use crate::domain::catalog::tool::{ServerName, ToolId};
use crate::domain::selection::relevance::SparseVector;

/// Finds tools by vectors and terms. Queries contain the visibility, so that hidden tools do not displace visible ones.
#[async_trait]
pub trait ToolIndex: Send + Sync {
    /// Replaces the contents of the index. Until the new contents are complete, searches use the old ones.
    ///
    /// # Errors
    /// [`IndexError`]. The old contents stay; if they are gone, search is lexical.
    async fn replace(&self, contents: IndexContents) -> Result<(), IndexError>;

    /// Announces the current tools before [`ToolIndex::replace`], so that new ones are found by words at once. Ignores dense
    /// vectors.
    fn announce(&self, _documents: Vec<IndexDocument>) {}

    /// Waits until the contents must be supplied again, because the index has lost them or can now store contents that it could
    /// not store before.
    async fn needs_contents(&self) {
        std::future::pending::<()>().await;
    }

    /// Searches with all texts and merges the candidates: every tool that is among the `limit` best of any text, by dense or
    /// lexical score, with its scores for all texts. A missing dense score is computed; a missing lexical score is 0. On request,
    /// and if a text has a vector, scores all visible servers with vectors too. Neither list is sorted. If the
    /// index is unreachable, returns lexical scores and a warning.
    async fn search(&self, request: &IndexQuery<'_>) -> Result<IndexAnswer, IndexError>;

    /// The number of documents and the embedding model, for `/readyz` and to skip a rebuild at the start.
    fn state(&self) -> IndexState;
}

/// The complete contents of the index.
#[derive(Clone, Debug, Default)]
pub struct IndexContents {
    /// The model of the embedder that computed the dense vectors.
    pub model: Arc<str>,
    /// Length of the dense vectors.
    pub dimension: usize,
    pub documents: Vec<IndexDocument>,
    pub servers: Vec<IndexServer>,
    /// Documents with a vector that is still to be computed: one of their own, or their server's.
    pub incomplete: HashSet<ToolId>,
}

#[derive(Clone, Debug)]
pub struct IndexDocument {
    pub tool: ToolId,
    pub class: VisibilityClass,
    /// Unit vectors. The dense score of a query is the largest cosine among them, rounded to a thousandth. If empty, the tool is
    /// not embedded yet and is found only by words.
    pub dense: Vec<Arc<[f32]>>,
    /// Term weights. The index multiplies them by the inverse document frequency.
    pub sparse: SparseVector,
}

/// A server in the index: a point in the same collection as its tools.
#[derive(Clone, Debug)]
pub struct IndexServer {
    pub server: ServerName,
    /// The classes of the server's tools. A caller that sees one of them sees the server.
    pub classes: BTreeSet<VisibilityClass>,
    /// Unit vectors, as for tools. If empty, the server is not embedded yet and is not found.
    pub dense: Vec<Arc<[f32]>>,
}

/// A search with the texts of one message.
#[derive(Clone, Debug)]
pub struct IndexQuery<'a> {
    /// The whole message, followed by its sentences, its clauses, or its context.
    pub texts: &'a [IndexQueryText],
    pub visibility: &'a Visibility,
    /// Number of the best tools to merge per text and kind of score.
    pub limit: usize,
    /// Whether to score servers too.
    pub servers: bool,
}

#[derive(Clone, Debug)]
pub struct IndexQueryText {
    /// A unit vector; `None` for a lexical search.
    pub dense: Option<Arc<[f32]>>,
    pub sparse: SparseVector,
}

/// The results of a search.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IndexAnswer {
    pub candidates: Vec<IndexCandidate>,
    /// Scores of all visible servers, regardless of `limit`.
    pub servers: Vec<IndexServerScore>,
    /// Number of the caller's visible tools, and how many of them have vectors.
    pub coverage: Coverage,
    /// A warning for the caller that the search was limited.
    pub warning: Option<&'static str>,
}

/// The number of tools that a caller sees, and how many of them have dense vectors in the index. Without tools, coverage counts
/// as complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    pub tools: usize,
    pub embedded: usize,
}

impl Coverage {
    pub fn is_complete(self) -> bool {
        self.embedded >= self.tools
    }

    /// Whether too few tools have vectors for cosines to be meaningful.
    pub fn is_poor(self) -> bool {
        2 * self.embedded < self.tools
    }
}

/// A tool with its raw scores.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexCandidate {
    pub tool: ToolId,
    /// Cosine for each text of the query; `None` if the text or the tool has no vector.
    pub dense: Vec<Option<f32>>,
    /// BM25 score for each text of the query.
    pub lexical: Vec<f32>,
}

/// The score of a visible server.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexServerScore {
    pub server: ServerName,
    /// The best cosine over all texts of the query.
    pub dense: f32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct IndexState {
    pub documents: usize,
    /// Number of tools whose dense vectors are all computed.
    pub embedded: usize,
    /// The reason why search is lexical only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<&'static str>,
    /// The state of the cluster, for an index on Qdrant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qdrant: Option<QdrantState>,
}

/// The nodes of a Qdrant cluster, as this process sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct QdrantState {
    pub nodes: usize,
    /// Number of nodes that respond to requests.
    pub answering: usize,
    /// Whether searches use the cluster. If not, they are lexical and in memory.
    pub searched: bool,
    /// The last failure of a node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<&'static str>,
}

#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// The engine failed. Its own message is only in the log, because it contains backtraces.
    #[error("the index could not {action}")]
    Engine { action: &'static str },
    #[error("index folder: {0}")]
    Io(#[from] std::io::Error),
    /// Qdrant failed. The client's message is omitted, because it contains headers.
    #[error("Qdrant could not {action}: {reason}")]
    Qdrant { action: &'static str, reason: &'static str },
}
