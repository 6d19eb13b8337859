//! The weights of query terms, and lexical search in memory with inverted lists, with the same scores as the engine.
//!
//! The lists cover tools that the index lacks, and replace the index if Qdrant fails or the disk is full. The weights are computed
//! here, because the engine counts document frequencies per collection, and Qdrant per shard: a tool's score would depend on where
//! it is stored.

use ahash::AHashMap;
use serde::{Deserialize, Serialize};

use super::contents::{CanonicalContents, canonical_sparse};
use super::directory::Directory;
use super::merged::{Merged, Scored};
use crate::domain::selection::relevance::SparseVector;
use crate::service::ports::{IndexAnswer, IndexDocument, IndexQuery};

/// The tools and their terms, for lexical search only.
pub(super) struct Words {
    directory: Directory,
    terms: TermLists,
}

impl Words {
    pub(super) fn of(contents: &CanonicalContents) -> Self {
        Self { directory: Directory::of(contents), terms: TermLists::of(&contents.documents) }
    }

    pub(super) fn len(&self) -> usize {
        self.directory.len()
    }

    pub(super) fn search(&self, request: &IndexQuery<'_>) -> IndexAnswer {
        by_words(&self.directory, &self.terms, request)
    }
}

/// Searches the lists in memory and returns lexical candidates.
pub(super) fn by_words(directory: &Directory, terms: &TermLists, request: &IndexQuery<'_>) -> IndexAnswer {
    let mut merged = Merged::new(request.texts.len(), directory.len(), request.limit.min(directory.len()));
    for (position, text) in request.texts.iter().enumerate() {
        let weighted = terms.weighted(&text.sparse);
        merged.add_lexical(position, terms.best(&weighted, |point| directory.is_visible(point, request.visibility), request.limit));
    }
    IndexAnswer { candidates: directory.candidates(&merged, request.visibility), ..IndexAnswer::default() }
}

/// For each term, the documents that contain it.
#[derive(Default)]
pub(super) struct TermLists {
    /// For each term, the documents (by position) that contain it, with its weight in each.
    lists: AHashMap<u32, Vec<(u32, f32)>>,
    /// Number of documents with at least one term.
    documents: usize,
    /// Total number of documents.
    positions: usize,
}

impl TermLists {
    /// Builds the lists from documents with canonical sparse vectors.
    pub(super) fn of(documents: &[IndexDocument]) -> Self {
        let mut lists: AHashMap<u32, Vec<(u32, f32)>> = AHashMap::new();
        for (position, document) in (0_u32..).zip(documents) {
            for (term, weight) in document.sparse.indices.iter().zip(&document.sparse.values) {
                lists.entry(*term).or_default().push((position, *weight));
            }
        }
        let with_terms = documents.iter().filter(|document| !document.sparse.indices.is_empty()).count();
        Self { lists, documents: with_terms, positions: documents.len() }
    }

    /// The known terms of a query, multiplied by their inverse document frequencies over all documents.
    pub(super) fn weighted(&self, query: &SparseVector) -> SparseVector {
        weighted(query, |term| Some(rarity(self.documents, self.lists.get(&term)?.len())))
    }

    /// The score of every document for a weighted query.
    pub(super) fn scores(&self, weighted: &SparseVector) -> Vec<f32> {
        let mut scores = vec![0.0_f32; self.positions];
        for (term, weight) in weighted.indices.iter().zip(&weighted.values) {
            for (position, in_document) in self.lists.get(term).into_iter().flatten() {
                scores[*position as usize] += weight * in_document;
            }
        }
        scores
    }

    /// The best visible documents for a weighted query, best first. Ties are ordered by position.
    pub(super) fn best(&self, weighted: &SparseVector, visible: impl Fn(usize) -> bool, limit: usize) -> Vec<Scored> {
        best_of(&self.scores(weighted), visible, limit)
    }
}

/// How many documents contain each term, without the documents.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Frequencies {
    /// Number of documents with at least one term.
    documents: usize,
    /// The terms of several documents, ascending, and their numbers of documents. Any other term counts as one of a single
    /// document, so that the many terms that occur once take no space.
    terms: Vec<(u32, u32)>,
}

impl Frequencies {
    /// Counts the terms of documents with canonical sparse vectors.
    pub(super) fn of(documents: &[IndexDocument]) -> Self {
        let mut counts: AHashMap<u32, u32> = AHashMap::new();
        for term in documents.iter().flat_map(|document| &document.sparse.indices) {
            *counts.entry(*term).or_default() += 1;
        }
        let mut terms: Vec<(u32, u32)> = counts.into_iter().filter(|(_, count)| *count > 1).collect();
        terms.sort_unstable();
        Self { documents: documents.iter().filter(|document| !document.sparse.indices.is_empty()).count(), terms }
    }

    /// The terms of a query, multiplied by their inverse document frequencies.
    pub(super) fn weighted(&self, query: &SparseVector) -> SparseVector {
        weighted(query, |term| {
            let place = self.terms.binary_search_by_key(&term, |(term, _)| *term);
            Some(rarity(self.documents, place.map_or(1, |place| self.terms[place].1 as usize)))
        })
    }
}

/// The terms of a query with a rarity, multiplied by it.
fn weighted(query: &SparseVector, rarity: impl Fn(u32) -> Option<f32>) -> SparseVector {
    let query = canonical_sparse(query);
    let terms = query.indices.into_iter().zip(query.values);
    let (indices, values) = terms.filter_map(|(term, weight)| Some((term, weight * rarity(term)?))).unzip();
    SparseVector { indices, values }
}

/// The inverse document frequency of a term that `frequency` of `documents` contain: `ln(1 + (n - df + 0.5) / (df + 0.5))`.
fn rarity(documents: usize, frequency: usize) -> f32 {
    let (documents, frequency) = (documents as f32, frequency as f32);
    (1.0 + (documents - frequency + 0.5) / (frequency + 0.5)).ln()
}

/// The positions of the best visible scores, best first. Ties are ordered by position.
pub(super) fn best_of(scores: &[f32], visible: impl Fn(usize) -> bool, limit: usize) -> Vec<Scored> {
    let mut found: Vec<Scored> =
        scores.iter().copied().enumerate().filter(|(position, score)| *score > 0.0 && visible(*position)).collect();
    let better = |one: &Scored, other: &Scored| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0));
    if limit < found.len() {
        found.select_nth_unstable_by(limit, better);
        found.truncate(limit);
    }
    found.sort_unstable_by(better);
    found
}

#[cfg(test)]
mod tests {
    use super::{Frequencies, TermLists};
    use crate::domain::access::visibility::VisibilityClass;
    use crate::domain::catalog::tool::ToolId;
    use crate::domain::selection::relevance::SparseVector;
    use crate::service::ports::IndexDocument;

    fn sparse(terms: &[(u32, f32)]) -> SparseVector {
        let (indices, values) = terms.iter().copied().unzip();
        SparseVector { indices, values }
    }

    fn documents(documents: &[&[(u32, f32)]]) -> Vec<IndexDocument> {
        let document = |terms: &&[(u32, f32)]| IndexDocument {
            tool: ToolId::new("server", "tool"),
            class: VisibilityClass(0),
            dense: Vec::new(),
            sparse: sparse(terms),
        };
        documents.iter().map(document).collect()
    }

    fn lists(of: &[&[(u32, f32)]]) -> TermLists {
        TermLists::of(&documents(of))
    }

    #[test]
    fn terms_weigh_by_how_rare_they_are_among_documents_with_terms() {
        let documents = documents(&[&[(1, 1.0)], &[(1, 1.0), (2, 1.0)], &[]]);
        let query = sparse(&[(2, 2.0), (1, 1.0), (404, 9.0)]);
        let weighted = TermLists::of(&documents).weighted(&query);
        assert_eq!(weighted.indices, [1, 2]);
        let expected = [(1.0_f32 + 0.5 / 2.5).ln(), 2.0 * (1.0_f32 + 1.5 / 1.5).ln()];
        assert!(weighted.values.iter().zip(expected).all(|(one, other)| (one - other).abs() < 1e-6), "{weighted:?}");
        // The frequencies alone weigh alike, and keep terms that no document contains.
        let by_frequency = Frequencies::of(&documents).weighted(&query);
        assert_eq!((&by_frequency.indices[..2], &by_frequency.values[..2]), (&weighted.indices[..], &weighted.values[..]));
        assert_eq!(by_frequency.indices[2..], [404]);
    }

    #[test]
    fn the_best_visible_ones_come_first_and_equals_by_position() {
        let lists = lists(&[&[(1, 1.0)], &[(1, 3.0)], &[(1, 1.0)], &[(1, 9.0)], &[(2, 9.0)]]);
        let query = sparse(&[(1, 1.0)]);
        let found =
            |limit| lists.best(&query, |position| position != 3, limit).into_iter().map(|(position, _)| position).collect::<Vec<_>>();
        assert_eq!(found(10), [1, 0, 2]);
        assert_eq!(found(2), [1, 0]);
        assert_eq!(found(0), Vec::<usize>::new());
    }
}
