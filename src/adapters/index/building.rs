//! What all builds of an index share: the progress, and the size from which an index is large.

/// Number of documents from which a graph is built and searches leave the async thread. Without a graph, a search over 20,000
/// tools takes 2 ms. A smaller index is built so quickly that it needs no overlay.
pub(super) const LARGE: usize = 10_000;

/// The progress of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexProgress {
    /// `done` of `total` documents are stored.
    Storing {
        done: usize,
        total: usize,
    },
    /// The graph of a large collection is being built. The engine reports no progress.
    Optimizing,
    Finished,
}
