//! The index of tools.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use serde::Serialize;

use crate::domain::access::visibility::{Visibility, VisibilityClass};
use crate::domain::catalog::tool::{ServerName, ToolId};
use crate::domain::selection::relevance::SparseVector;

/// Finds tools by vectors. Visibility is part of the query, so that hidden tools never take up results.
#[async_trait]
pub trait ToolIndex: Send + Sync {
    /// Replaces the contents with these documents. Readers see the old contents until the new ones are complete.
    ///
    /// # Errors
    /// [`IndexError`]; the old contents stay, or are searched lexically if they are gone.
    async fn replace(&self, contents: IndexContents) -> Result<(), IndexError>;

    /// Announces the current tools before [`ToolIndex::replace`] adds them: new ones are found lexically at once. Dense vectors
    /// are ignored.
    fn announce(&self, _documents: Vec<IndexDocument>) {}

    /// Resolves when the contents must be supplied again: the index has lost them, or can now take what it could not before.
    async fn needs_contents(&self) {
        std::future::pending::<()>().await;
    }

    /// The merged candidates of all texts: every tool among the `limit` best of any text, by dense or lexical score, with its
    /// scores for all texts. A missing dense score is computed; a missing lexical one is 0. If requested and a text has a vector,
    /// all visible servers with vectors are scored too. The order of both is undefined. An unreachable index returns lexical
    /// scores and a warning.
    async fn search(&self, request: &IndexQuery<'_>) -> Result<IndexAnswer, IndexError>;

    /// Number and source of the documents, for `/readyz` and to skip a rebuild at start.
    fn state(&self) -> IndexState;
}

/// The complete contents of the index.
#[derive(Clone, Debug, Default)]
pub struct IndexContents {
    /// The embedder of the dense vectors.
    pub model: Arc<str>,
    /// Length of the dense vectors.
    pub dimension: usize,
    pub documents: Vec<IndexDocument>,
    pub servers: Vec<IndexServer>,
}

#[derive(Clone, Debug)]
pub struct IndexDocument {
    pub tool: ToolId,
    pub class: VisibilityClass,
    /// Unit vectors; a query's dense score is the largest cosine among them, rounded to a thousandth. Empty: not embedded yet,
    /// found lexically only.
    pub dense: Vec<Arc<[f32]>>,
    /// Term weights without inverse document frequency, which the index applies.
    pub sparse: SparseVector,
}

/// One server in the index: a point in the same collection as its tools.
#[derive(Clone, Debug)]
pub struct IndexServer {
    pub server: ServerName,
    /// Classes of its tools. A caller that sees one of them sees the server.
    pub classes: BTreeSet<VisibilityClass>,
    /// Unit vectors, like those of a tool. Empty: not embedded yet, not found.
    pub dense: Vec<Arc<[f32]>>,
}

/// A search for one message.
#[derive(Clone, Debug)]
pub struct IndexQuery<'a> {
    /// The whole message first, then its sentences if it was split.
    pub texts: &'a [IndexQueryText],
    pub visibility: &'a Visibility,
    /// Length of each merged list.
    pub limit: usize,
    /// Whether servers are scored as well.
    pub servers: bool,
}

#[derive(Clone, Debug)]
pub struct IndexQueryText {
    /// A unit vector; `None`: lexical search only.
    pub dense: Option<Arc<[f32]>>,
    pub sparse: SparseVector,
}

/// The results of a search.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IndexAnswer {
    pub candidates: Vec<IndexCandidate>,
    /// All visible servers, regardless of the limit.
    pub servers: Vec<IndexServerScore>,
    /// How many of the tools that the caller sees have vectors.
    pub coverage: Coverage,
    /// A warning for the caller about reduced quality.
    pub warning: Option<&'static str>,
}

/// How many of the tools that a caller sees have dense vectors in the index. If there is no tool, coverage counts as complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    pub tools: usize,
    pub embedded: usize,
}

impl Coverage {
    pub fn is_complete(self) -> bool {
        self.embedded >= self.tools
    }

    /// Whether too few tools have vectors for these to indicate the best match.
    pub fn is_poor(self) -> bool {
        2 * self.embedded < self.tools
    }
}

/// A candidate with its raw scores.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexCandidate {
    pub tool: ToolId,
    /// Cosine for each text of the query; `None` if the text or the tool has no vector.
    pub dense: Vec<Option<f32>>,
    /// BM25 score for each text of the query.
    pub lexical: Vec<f32>,
}

/// How well a visible server matches the message.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexServerScore {
    pub server: ServerName,
    /// The best cosine over the texts of the query.
    pub dense: f32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct IndexState {
    pub documents: usize,
    /// Number of tools with dense vectors.
    pub embedded: usize,
    /// Why the search is lexical only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<&'static str>,
    /// Only for an index on a Qdrant server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qdrant: Option<QdrantState>,
}

/// The nodes of a Qdrant cluster, as this process sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct QdrantState {
    pub nodes: usize,
    /// Number of nodes that respond.
    pub answering: usize,
    /// Whether searches go there. Otherwise they are lexical, in memory.
    pub searched: bool,
    /// The last node failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<&'static str>,
}

#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// The engine's own message is only in the log: it contains backtraces.
    #[error("the index could not {action}")]
    Engine { action: &'static str },
    #[error("index folder: {0}")]
    Io(#[from] std::io::Error),
    /// The client's own message is left out: it contains headers.
    #[error("Qdrant could not {action}: {reason}")]
    Qdrant { action: &'static str, reason: &'static str },
}
