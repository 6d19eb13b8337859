//! Makes new tools searchable by words as soon as they are announced, before the index contains them.
//!
//! Building an index takes a while, and its vectors may take minutes. Until the index contains the announced tools, lexical
//! scores of all tools are computed in memory, so that they are comparable. Cosines come from the index for the tools that it
//! contains. Each answer reports the number of tools without vectors.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use async_trait::async_trait;
use parking_lot::Mutex;

use super::contents::CanonicalContents;
use super::directory::{Directory, Point};
use super::lists::{TermLists, best_of};
use crate::domain::access::visibility::Visibility;
use crate::domain::text::canonical::Fingerprint;
use crate::service::ports::{
    Coverage, IndexAnswer, IndexCandidate, IndexContents, IndexDocument, IndexError, IndexQuery, IndexState, ToolIndex,
};

/// An index that also covers announced contents.
pub struct AnnouncedIndex {
    inner: Arc<dyn ToolIndex>,
    /// The announced contents, if the index lacks them.
    announced: ArcSwapOption<Announced>,
    /// The contents of the index since the last replacement; `None` before the first one.
    held: ArcSwapOption<Held>,
    /// Fingerprint of the tools' names and words in the index. Locked while the index or the announcement changes.
    words: Mutex<Option<Fingerprint>>,
}

struct Held {
    /// A tool without vectors counts as embedded if it waits for none, because the embedder refuses all its texts.
    directory: Directory,
    /// Number of tools with vectors.
    with_vectors: usize,
    /// Number of tools that wait for a vector.
    incomplete: usize,
}

struct Announced {
    words: Fingerprint,
    directory: Directory,
    terms: TermLists,
}

impl AnnouncedIndex {
    pub fn over(inner: Arc<dyn ToolIndex>) -> Self {
        Self { inner, announced: ArcSwapOption::empty(), held: ArcSwapOption::empty(), words: Mutex::default() }
    }
}

#[async_trait]
impl ToolIndex for AnnouncedIndex {
    fn announce(&self, documents: Vec<IndexDocument>) {
        let contents = of_words(&documents);
        let announced =
            Announced { words: contents.fingerprint, directory: Directory::of(&contents), terms: TermLists::of(&contents.documents) };
        let held = self.words.lock();
        // The index may have caught up in the meantime.
        let is_held = *held == Some(announced.words);
        self.announced.store((!is_held).then(|| Arc::new(announced)));
    }

    async fn replace(&self, contents: IndexContents) -> Result<(), IndexError> {
        let has_vector = |document: &IndexDocument| document.dense.iter().any(|vector| vector.len() == contents.dimension);
        let is_embedded = |document: &IndexDocument| has_vector(document) || !contents.incomplete.contains(&document.tool);
        let mut points: Vec<Point> = contents
            .documents
            .iter()
            .map(|document| Point { tool: document.tool.clone(), class: document.class.0, embedded: is_embedded(document) })
            .collect();
        points.sort_by(|one, other| one.tool.cmp(&other.tool));
        let with_vectors = contents.documents.iter().filter(|document| has_vector(document)).count();
        let (words, incomplete) = (of_words(&contents.documents).fingerprint, contents.incomplete.len());
        self.inner.replace(contents).await?;
        let mut held = self.words.lock();
        *held = Some(words);
        self.held.store(Some(Arc::new(Held { directory: Directory::new(points, Vec::new()), with_vectors, incomplete })));
        if self.announced.load().as_ref().is_some_and(|announced| announced.words == words) {
            self.announced.store(None);
        }
        Ok(())
    }

    async fn needs_contents(&self) {
        self.inner.needs_contents().await;
    }

    async fn search(&self, request: &IndexQuery<'_>) -> Result<IndexAnswer, IndexError> {
        let answer = self.inner.search(request).await?;
        let held = self.held.load();
        Ok(match self.announced.load().as_ref() {
            // At startup, the loaded index nearly always contains the announced tools, so only the numbers of tools are compared
            // until the first replacement.
            Some(announced) if held.is_none() && self.inner.state().embedded > 0 => {
                let (tools, embedded) = (announced.directory.len(), self.inner.state().embedded);
                // If the service was stopped during embedding, the index contains only some of the tools.
                let coverage = if embedded < tools { Coverage { tools, embedded } } else { Coverage::default() };
                IndexAnswer { coverage, candidates: announced.candidates(request, answer.candidates), ..answer }
            }
            Some(announced) => IndexAnswer {
                coverage: announced.coverage(held.as_ref().map(|held| &held.directory), request.visibility),
                candidates: announced.candidates(request, answer.candidates),
                ..answer
            },
            None => IndexAnswer {
                coverage: held.as_ref().map(|held| held.directory.coverage(request.visibility)).unwrap_or_default(),
                ..answer
            },
        })
    }

    /// Reports no tool as embedded that still waits for a vector.
    fn state(&self) -> IndexState {
        let state = self.inner.state();
        let Some(held) = &*self.held.load() else { return state };
        let complete = held.directory.len().saturating_sub(held.incomplete);
        let lacks_vectors = state.embedded < held.with_vectors;
        let embedded = if lacks_vectors { state.embedded.min(complete) } else { complete };
        IndexState { embedded, ..state }
    }
}

impl Announced {
    /// Drops candidates of the index that no longer exist, and adds lexical candidates from memory.
    fn candidates(&self, request: &IndexQuery<'_>, found: Vec<IndexCandidate>) -> Vec<IndexCandidate> {
        let visible = |position: usize| self.directory.is_visible(position, request.visibility);
        let scores: Vec<Vec<f32>> = request.texts.iter().map(|text| self.terms.scores(&self.terms.weighted(&text.sparse))).collect();
        let lexical = |position: usize| scores.iter().map(|of_text| of_text[position]).collect::<Vec<f32>>();
        let mut is_there = vec![false; self.directory.len()];
        let mut candidates = Vec::with_capacity(found.len());
        for candidate in found {
            if let Some(position) = self.directory.position(&candidate.tool).filter(|&position| visible(position)) {
                is_there[position] = true;
                candidates.push(IndexCandidate { lexical: lexical(position), ..candidate });
            }
        }
        for of_text in &scores {
            for (position, _) in best_of(of_text, visible, request.limit) {
                if !std::mem::replace(&mut is_there[position], true) {
                    let tool = self.directory.tool(position).clone();
                    candidates.push(IndexCandidate { tool, dense: vec![None; request.texts.len()], lexical: lexical(position) });
                }
            }
        }
        candidates
    }

    /// The number of the caller's visible tools, and how many of them wait for no vector in the index.
    fn coverage(&self, held: Option<&Directory>, visibility: &Visibility) -> Coverage {
        let mut coverage = Coverage::default();
        // Both lists are sorted by tool.
        let mut at = 0;
        for position in (0..self.directory.len()).filter(|&position| self.directory.is_visible(position, visibility)) {
            coverage.tools += 1;
            let Some(held) = held else { continue };
            let tool = self.directory.tool(position);
            while at < held.len() && held.tool(at) < tool {
                at += 1;
            }
            // The index filters by its own classes, so a tool that has another one since then is not found by its vector.
            let is_found = at < held.len() && held.tool(at) == tool && held.is_visible(at, visibility);
            coverage.embedded += usize::from(is_found && held.is_embedded(at));
        }
        coverage
    }
}

/// The contents without vectors.
fn of_words(documents: &[IndexDocument]) -> CanonicalContents {
    let of_words = |document: &IndexDocument| IndexDocument {
        tool: document.tool.clone(),
        class: document.class,
        dense: Vec::new(),
        sparse: document.sparse.clone(),
    };
    CanonicalContents::of(IndexContents { documents: documents.iter().map(of_words).collect(), ..IndexContents::default() })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use async_trait::async_trait;
    use parking_lot::Mutex;

    use super::AnnouncedIndex;
    use crate::domain::access::visibility::{Scope, Visibility, VisibilityClass};
    use crate::domain::catalog::tool::ToolId;
    use crate::domain::selection::relevance::SparseVector;
    use crate::service::ports::{
        Coverage, IndexAnswer, IndexCandidate, IndexContents, IndexDocument, IndexError, IndexQuery, IndexQueryText, IndexState, ToolIndex,
    };

    /// A fake index that returns all its documents with a cosine of 0.5.
    #[derive(Default)]
    struct Index(Mutex<Vec<IndexDocument>>);

    #[async_trait]
    impl ToolIndex for Index {
        async fn replace(&self, contents: IndexContents) -> Result<(), IndexError> {
            *self.0.lock() = contents.documents;
            Ok(())
        }

        async fn search(&self, _: &IndexQuery<'_>) -> Result<IndexAnswer, IndexError> {
            let found = |document: &IndexDocument| IndexCandidate {
                tool: document.tool.clone(),
                dense: vec![document.dense.first().map(|_| 0.5)],
                lexical: vec![0.1],
            };
            Ok(IndexAnswer { candidates: self.0.lock().iter().map(found).collect(), ..IndexAnswer::default() })
        }

        fn state(&self) -> IndexState {
            let documents = self.0.lock();
            let embedded = documents.iter().filter(|document| !document.dense.is_empty()).count();
            IndexState { documents: documents.len(), embedded, ..IndexState::default() }
        }
    }

    fn document(name: &str, term: u32, is_embedded: bool) -> IndexDocument {
        IndexDocument {
            tool: ToolId::new("server", name),
            class: VisibilityClass(0),
            dense: if is_embedded { vec![Arc::from([1.0_f32])] } else { Vec::new() },
            sparse: SparseVector { indices: vec![term], values: vec![1.0] },
        }
    }

    fn contents(documents: Vec<IndexDocument>) -> IndexContents {
        let incomplete = documents.iter().filter(|document| document.dense.is_empty()).map(|document| document.tool.clone()).collect();
        IndexContents { model: "m".into(), dimension: 1, documents, incomplete, ..IndexContents::default() }
    }

    async fn answer(index: &AnnouncedIndex, visibility: &Visibility) -> IndexAnswer {
        let texts = [IndexQueryText { dense: Some(Arc::from([1.0_f32])), sparse: SparseVector { indices: vec![2], values: vec![1.0] } }];
        index.search(&IndexQuery { texts: &texts, visibility, limit: 10, servers: false }).await.unwrap()
    }

    /// Searches and returns the tools' names with their cosines, whether each contains term 2, and the coverage.
    async fn found(index: &AnnouncedIndex) -> (Vec<(String, Option<f32>, bool)>, Coverage) {
        let answer = answer(index, &Visibility::default()).await;
        let mut names: Vec<_> =
            answer.candidates.iter().map(|one| (one.tool.name.to_string(), one.dense[0], one.lexical[0] > 0.2)).collect();
        names.sort_by(|one, other| one.0.cmp(&other.0));
        (names, answer.coverage)
    }

    #[tokio::test]
    async fn what_is_announced_is_found_by_its_words_until_the_index_holds_it() {
        let index = AnnouncedIndex::over(Arc::new(Index::default()));
        let (a, b) = (|is_embedded| document("a", 1, is_embedded), |is_embedded| document("b", 2, is_embedded));
        index.announce(vec![a(false), b(false)]);
        let by_words = ("b".to_owned(), None, true);
        assert_eq!(found(&index).await, (vec![by_words.clone()], Coverage { tools: 2, embedded: 0 }));
        // One tool is in the index, as after a start; another was removed since.
        index.replace(contents(vec![a(true), document("gone", 2, true)])).await.unwrap();
        let with_vector = ("a".to_owned(), Some(0.5), false);
        assert_eq!(found(&index).await, (vec![with_vector.clone(), by_words.clone()], Coverage { tools: 2, embedded: 1 }));
        // From here on, the index itself answers, even for tools without a vector.
        index.replace(contents(vec![a(true), b(false)])).await.unwrap();
        assert_eq!(found(&index).await, (vec![with_vector.clone(), ("b".to_owned(), None, false)], Coverage { tools: 2, embedded: 1 }));
        index.replace(contents(vec![a(true), b(true)])).await.unwrap();
        assert_eq!(found(&index).await.1, Coverage { tools: 2, embedded: 2 });
        assert_eq!(index.state().embedded, 2);
        // A tool with only some of its vectors is found by them, but is not done.
        index.replace(IndexContents { incomplete: [b(true).tool].into(), ..contents(vec![a(true), b(true)]) }).await.unwrap();
        assert_eq!((found(&index).await.1, index.state().embedded), (Coverage { tools: 2, embedded: 2 }, 1));
        // One that gets no vector is done.
        index.replace(IndexContents { incomplete: [].into(), ..contents(vec![a(true), b(false)]) }).await.unwrap();
        assert_eq!((found(&index).await.1, index.state().embedded), (Coverage { tools: 2, embedded: 2 }, 2));
        index.replace(contents(vec![a(true), b(true)])).await.unwrap();
        // The index was updated before the announcement.
        index.announce(vec![b(false), a(false)]);
        assert_eq!(found(&index).await.0, [with_vector, ("b".to_owned(), Some(0.5), false)]);
        // After a change of the rules, the index still filters by the former class of `b`.
        index.announce(vec![a(false), IndexDocument { class: VisibilityClass(1), ..b(false) }]);
        assert_eq!(found(&index).await.1, Coverage { tools: 2, embedded: 2 }, "without restrictions, it doesn't matter");
        let one = Visibility { classes: Scope::Only([VisibilityClass(1)].into()), ..Visibility::default() };
        assert_eq!(answer(&index, &one).await.coverage, Coverage { tools: 1, embedded: 0 });
    }
}
