//! The index of tools.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use serde::Serialize;

use crate::domain::access::visibility::{Visibility, VisibilityClass};
use crate::domain::catalog::tool::{ServerName, ToolId};
use crate::domain::selection::relevance::SparseVector;

/// Finds tools by vectors. The visibility is part of the query, so that a hidden tool never takes a place.
#[async_trait]
pub trait ToolIndex: Send + Sync {
    /// Makes the index hold exactly these documents. Readers see the old contents until the new ones are complete.
    ///
    /// # Errors
    /// [`IndexError`]; the old contents stay, or are found by words alone where they are gone.
    async fn replace(&self, contents: IndexContents) -> Result<(), IndexError>;

    /// Tells which tools there are, before [`ToolIndex::replace`] makes the index hold them: whatever it lacks of these is found
    /// by its words at once. Their dense vectors don't matter.
    fn announce(&self, _documents: Vec<IndexDocument>) {}

    /// Resolves when the contents must be handed over again: the index has lost them, or could not take them before
    /// and can now.
    async fn needs_contents(&self) {
        std::future::pending::<()>().await;
    }

    /// The candidates of each text, merged: for every tool that is among the `limit` best of any text by dense or by
    /// lexical score, its scores for all texts. A dense score that a list did not bring is computed, a lexical
    /// one is 0. With them, where it is asked for and a text has a vector, all visible servers that have one. The order of both is not
    /// defined. An index that can't be reached answers with lexical scores and a warning.
    ///
    /// # Errors
    /// [`IndexError`]
    async fn search(&self, request: &IndexQuery<'_>) -> Result<IndexAnswer, IndexError>;

    /// How many documents it holds and from which contents, for `/readyz` and for skipping a rebuild at start.
    fn state(&self) -> IndexState;
}

/// Everything that the index shall hold.
#[derive(Clone, Debug, Default)]
pub struct IndexContents {
    /// Which embedder made the dense vectors.
    pub model: Arc<str>,
    /// Length of every dense vector.
    pub dimension: usize,
    pub documents: Vec<IndexDocument>,
    pub servers: Vec<IndexServer>,
}

/// One tool in the index.
#[derive(Clone, Debug)]
pub struct IndexDocument {
    pub tool: ToolId,
    pub class: VisibilityClass,
    /// One or more unit vectors; a query's dense score is the largest cosine over them, to a thousandth. Empty: not embedded yet,
    /// found lexically only.
    pub dense: Vec<Arc<[f32]>>,
    /// Term weights without the inverse document frequency, which the index applies.
    pub sparse: SparseVector,
}

/// One server in the index: a point beside those of its tools, in the same collection.
#[derive(Clone, Debug)]
pub struct IndexServer {
    pub server: ServerName,
    /// Those of its tools. Who sees one of them sees the server.
    pub classes: BTreeSet<VisibilityClass>,
    /// Unit vectors, as those of a tool. Empty: not embedded yet, not found.
    pub dense: Vec<Arc<[f32]>>,
}

/// A search for one message.
#[derive(Clone, Debug)]
pub struct IndexQuery<'a> {
    /// The whole message first, then its sentences where it was split.
    pub texts: &'a [IndexQueryText],
    pub visibility: &'a Visibility,
    /// Length of each of the lists that are merged.
    pub limit: usize,
    /// Whether servers are scored as well.
    pub servers: bool,
}

/// One text of a search.
#[derive(Clone, Debug)]
pub struct IndexQueryText {
    /// A unit vector; `None` searches lexically only.
    pub dense: Option<Arc<[f32]>>,
    pub sparse: SparseVector,
}

/// What a search brought.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IndexAnswer {
    pub candidates: Vec<IndexCandidate>,
    /// However many there are, and whatever the limit.
    pub servers: Vec<IndexServerScore>,
    /// How much of what the caller sees was compared by meaning.
    pub coverage: Coverage,
    /// Why the answer is worse than it could be, for the caller.
    pub warning: Option<&'static str>,
}

/// How many of the tools that a caller sees have dense vectors in the index. Without any tool: nothing is known, and all have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    pub tools: usize,
    pub embedded: usize,
}

impl Coverage {
    #[must_use]
    pub fn is_complete(self) -> bool {
        self.embedded >= self.tools
    }

    /// Whether so few have vectors that these say little about which tool fits.
    #[must_use]
    pub fn is_poor(self) -> bool {
        2 * self.embedded < self.tools
    }
}

/// A tool that one of the lists brought, with its raw scores.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexCandidate {
    pub tool: ToolId,
    /// Cosine per text of the query; `None` where the text or the tool has no vector.
    pub dense: Vec<Option<f32>>,
    /// BM25 score per text of the query.
    pub lexical: Vec<f32>,
}

/// How near a visible server lies to the message.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexServerScore {
    pub server: ServerName,
    /// The best cosine over the texts of the query.
    pub dense: f32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct IndexState {
    pub documents: usize,
    /// How many of them are searched by a dense vector.
    pub embedded: usize,
    /// Why tools are found by their words alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<&'static str>,
    /// Only of an index on a Qdrant server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qdrant: Option<QdrantState>,
}

/// The nodes of a Qdrant cluster as they are seen from here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct QdrantState {
    pub nodes: usize,
    /// How many of them answer.
    pub answering: usize,
    /// Whether searches go there. Otherwise tools are found by words alone, in memory.
    pub searched: bool,
    /// What the last node that failed failed of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<&'static str>,
}

#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// The engine's own words stay out: they carry backtraces. They are in the log.
    #[error("the index could not {action}")]
    Engine { action: &'static str },
    #[error("index folder: {0}")]
    Io(#[from] std::io::Error),
    /// The client's own words stay out: they carry headers.
    #[error("Qdrant could not {action}: {reason}")]
    Qdrant { action: &'static str, reason: &'static str },
}
