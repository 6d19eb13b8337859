//! What the contract works with: documents and texts, and the port's definition computed without an index.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use toolsieve::domain::access::visibility::{Scope, Visibility, VisibilityClass};
use toolsieve::domain::catalog::tool::{ServerName, ToolId};
use toolsieve::domain::selection::relevance::SparseVector;
use toolsieve::service::ports::{IndexAnswer, IndexCandidate, IndexContents, IndexDocument, IndexQuery, IndexQueryText, IndexServer};

use super::index::Index;

/// What a cosine may be off by: an index may keep vectors in half precision.
const COSINE_ERROR: f32 = 1e-3;

/// The port's definition, computed without an index.
pub(crate) fn assert_matches_definition(
    found: &[IndexCandidate],
    documents: &[IndexDocument],
    visible: impl Fn(&IndexDocument) -> bool,
    query: &[IndexQueryText],
    limit: usize,
) {
    let shown: Vec<_> = documents.iter().filter(|document| visible(document)).collect();
    let mut expected: BTreeMap<&ToolId, Vec<f32>> = BTreeMap::new();
    // Too near to the last place of a list to say who has it.
    let mut doubtful: BTreeSet<&ToolId> = BTreeSet::new();
    for (position, text) in query.iter().enumerate() {
        if let Some(vector) = text.dense.as_deref() {
            let scores: Vec<_> = shown.iter().filter_map(|document| Some((&document.tool, cosine(document, vector)?))).collect();
            let listed = best(scores.iter().copied(), limit);
            let last = if scores.len() > limit { listed.last().map_or(f32::MIN, |(_, score)| *score) } else { f32::MIN };
            for (tool, score) in scores {
                if (score - last).abs() <= 2.0 * COSINE_ERROR {
                    doubtful.insert(tool);
                } else if score > last {
                    expected.entry(tool).or_insert_with(|| vec![0.0; query.len()]);
                }
            }
        }
        let lexical = shown.iter().map(|document| (&document.tool, lexical(documents, document, &text.sparse)));
        for (tool, score) in best(lexical.filter(|(_, score)| *score > 0.0), limit) {
            expected.entry(tool).or_insert_with(|| vec![0.0; query.len()])[position] = score;
        }
    }
    let sure: BTreeSet<String> = expected.keys().map(ToString::to_string).collect();
    let doubtful: BTreeSet<String> = doubtful.iter().map(ToString::to_string).collect();
    let found_names = names(found);
    assert_eq!(found.len(), found_names.len(), "every tool is there once");
    let wrong: Vec<_> = sure.symmetric_difference(&found_names).filter(|name| !doubtful.contains(*name)).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(doubtful.len() <= 2 + found.len() / 4, "{} of {} can't be compared", doubtful.len(), found.len());
    assert!(!found.is_empty(), "nothing was compared");
    for candidate in found {
        let document = documents.iter().find(|document| document.tool == candidate.tool).unwrap();
        for (position, text) in query.iter().enumerate() {
            let score = text.dense.as_deref().and_then(|vector| cosine(document, vector));
            assert_eq!(candidate.dense[position].is_some(), score.is_some());
            close(candidate.dense[position].or(Some(0.0)), score.unwrap_or(0.0));
            let lexical = expected.get(&candidate.tool).map_or(0.0, |scores| scores[position]);
            same(candidate.lexical[position], lexical);
        }
    }
}

/// The port's definition of the scores of servers.
pub(crate) fn assert_servers_match_definition(
    found: &IndexAnswer,
    servers: &[IndexServer],
    visible: impl Fn(&IndexServer) -> bool,
    query: &[IndexQueryText],
) {
    let best = |server: &IndexServer| {
        let vectors = query.iter().filter_map(|text| text.dense.as_deref());
        vectors.filter_map(|vector| best_cosine(&server.dense, vector)).max_by(f32::total_cmp)
    };
    let shown = servers.iter().filter(|server| visible(server));
    let expected: BTreeMap<String, f32> = shown.filter_map(|server| Some((server.server.to_string(), best(server)?))).collect();
    let scores = server_scores(found);
    assert_eq!(scores.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    assert!(!expected.is_empty(), "nothing was compared");
    for (name, score) in expected {
        close(scores.get(&name).copied(), score);
    }
}

fn best<'a>(scores: impl Iterator<Item = (&'a ToolId, f32)>, limit: usize) -> Vec<(&'a ToolId, f32)> {
    let mut scores: Vec<_> = scores.collect();
    scores.sort_by(|one, other| other.1.total_cmp(&one.1));
    scores.truncate(limit);
    scores
}

fn cosine(document: &IndexDocument, query: &[f32]) -> Option<f32> {
    best_cosine(&document.dense, query)
}

fn best_cosine(vectors: &[Arc<[f32]>], query: &[f32]) -> Option<f32> {
    let products = vectors.iter().map(|vector| vector.iter().zip(query).map(|(one, other)| one * other).sum());
    products.max_by(f32::total_cmp)
}

fn lexical(documents: &[IndexDocument], document: &IndexDocument, query: &SparseVector) -> f32 {
    let weight = |vector: &SparseVector, term: u32| -> f32 {
        vector.indices.iter().zip(&vector.values).filter(|(index, _)| **index == term).map(|(_, value)| value).sum()
    };
    let count = documents.iter().filter(|document| !document.sparse.indices.is_empty()).count() as f32;
    let terms: BTreeSet<u32> = query.indices.iter().copied().collect();
    terms
        .into_iter()
        .map(|term| {
            let frequency = documents.iter().filter(|document| document.sparse.indices.contains(&term)).count() as f32;
            let idf = (1.0 + (count - frequency + 0.5) / (frequency + 0.5)).ln();
            weight(query, term) * weight(&document.sparse, term) * idf
        })
        .sum()
}

// ----------------------------------------------------------------------------------------------------- helpers

/// With a point for each server, as near to a message as its first tool: it must not change what is found of tools.
pub(crate) async fn replace(index: &Index, dimension: usize, documents: Vec<IndexDocument>) {
    let servers = servers_of(&documents);
    replace_with(index, dimension, documents, servers).await;
}

pub(crate) async fn replace_with(index: &Index, dimension: usize, documents: Vec<IndexDocument>, servers: Vec<IndexServer>) {
    index.replace(contents(dimension, documents, servers)).await.unwrap();
}

pub(crate) fn contents(dimension: usize, documents: Vec<IndexDocument>, servers: Vec<IndexServer>) -> IndexContents {
    IndexContents { model: MODEL.into(), dimension, documents, servers, ..IndexContents::default() }
}

/// The servers of these documents: their classes, and the vectors of the first document that has any.
pub(crate) fn servers_of(documents: &[IndexDocument]) -> Vec<IndexServer> {
    let mut servers: BTreeMap<&ServerName, IndexServer> = BTreeMap::new();
    let mut documents: Vec<&IndexDocument> = documents.iter().collect();
    documents.sort_by_key(|document| &document.tool);
    for document in documents {
        let name = &document.tool.server;
        let server =
            servers.entry(name).or_insert_with(|| IndexServer { server: name.clone(), classes: BTreeSet::new(), dense: Vec::new() });
        server.classes.insert(document.class);
        if server.dense.is_empty() {
            server.dense.clone_from(&document.dense);
        }
    }
    servers.into_values().collect()
}

pub(crate) fn server(name: &str, classes: &[u32], dense: &[&[f32]]) -> IndexServer {
    IndexServer {
        server: ServerName::from(name),
        classes: classes.iter().map(|class| VisibilityClass(*class)).collect(),
        dense: dense.iter().map(|vector| Arc::from(*vector)).collect(),
    }
}

pub(crate) async fn search(index: &Index, texts: &[IndexQueryText], limit: usize) -> Vec<IndexCandidate> {
    search_as(index, texts, &Visibility::default(), limit).await
}

pub(crate) async fn search_as(index: &Index, texts: &[IndexQueryText], visibility: &Visibility, limit: usize) -> Vec<IndexCandidate> {
    answer_as(index, texts, visibility, limit).await.candidates
}

pub(crate) async fn answer_as(index: &Index, texts: &[IndexQueryText], visibility: &Visibility, limit: usize) -> IndexAnswer {
    let answer = index.search(&IndexQuery { texts, visibility, limit, servers: true }).await.unwrap();
    let state = index.state();
    let is_unembedded = texts.iter().any(|text| text.dense.is_some()) && state.documents > 0 && state.embedded == 0;
    if let Some(warning) = answer.warning {
        assert!(is_unembedded, "{warning}");
        assert_eq!(warning, "ranked by words alone: the tools are being embedded");
    }
    answer
}

/// The scores of the servers by name, each of which is there once.
pub(crate) fn server_scores(answer: &IndexAnswer) -> BTreeMap<String, f32> {
    let scores: BTreeMap<String, f32> = answer.servers.iter().map(|server| (server.server.to_string(), server.dense)).collect();
    assert_eq!(scores.len(), answer.servers.len(), "{:?}", answer.servers);
    scores
}

/// The model that the contract's contents name.
pub(crate) const MODEL: &str = "contract-model";

/// A document called `tool`.
pub(crate) fn document(server: &str, class: u32, dense: &[&[f32]], terms: &[(u32, f32)]) -> IndexDocument {
    IndexDocument {
        tool: ToolId::new(server, "tool"),
        class: VisibilityClass(class),
        dense: dense.iter().map(|vector| Arc::from(*vector)).collect(),
        sparse: sparse(terms),
    }
}

/// The same document under a number as its name.
pub(crate) fn named(document: &IndexDocument, number: u32) -> IndexDocument {
    IndexDocument { tool: ToolId::new(document.tool.server.clone(), number.to_string()), ..document.clone() }
}

pub(crate) fn text(dense: Option<&[f32]>, terms: &[(u32, f32)]) -> IndexQueryText {
    IndexQueryText { dense: dense.map(Arc::from), sparse: sparse(terms) }
}

fn sparse(terms: &[(u32, f32)]) -> SparseVector {
    let (indices, values) = terms.iter().copied().unzip();
    SparseVector { indices, values }
}

pub(crate) fn servers(names: &[&str]) -> Scope<ServerName> {
    Scope::Only(names.iter().map(|name| ServerName::from(*name)).collect())
}

pub(crate) fn classes(numbers: &[u32]) -> Scope<VisibilityClass> {
    Scope::Only(numbers.iter().map(|number| VisibilityClass(*number)).collect())
}

pub(crate) fn only_servers(names: &[&str]) -> Visibility {
    Visibility { servers: servers(names), classes: Scope::All, ..Visibility::default() }
}

pub(crate) fn only_classes(numbers: &[u32]) -> Visibility {
    Visibility { servers: Scope::All, classes: classes(numbers), ..Visibility::default() }
}

pub(crate) fn names(found: &[IndexCandidate]) -> BTreeSet<String> {
    found.iter().map(|candidate| candidate.tool.to_string()).collect()
}

pub(crate) fn by_name(found: Vec<IndexCandidate>) -> BTreeMap<String, IndexCandidate> {
    found.into_iter().map(|candidate| (candidate.tool.to_string(), candidate)).collect()
}

/// A cosine as exact as the port says.
pub(crate) fn close(score: Option<f32>, expected: f32) {
    let score = score.expect("a score");
    assert!((score - expected).abs() <= COSINE_ERROR, "{score} is not {expected}");
}

/// A lexical score.
pub(crate) fn same(score: f32, expected: f32) {
    assert!((score - expected).abs() <= 1e-5 * expected.abs().max(1.0), "{score} is not {expected}");
}

/// Documents with one to three passages (every seventh has none) and 5 to 25 terms, on six servers in three classes.
pub(crate) fn collection(count: u32, dimension: usize) -> Vec<IndexDocument> {
    let mut random = Random(1);
    (0..count)
        .map(|number| {
            let passages = if number % 7 == 6 { 0 } else { 1 + random.below(3) };
            IndexDocument {
                tool: ToolId::new(format!("server-{}", number % 6).as_str(), format!("tool-{number}")),
                class: VisibilityClass(number / 6 % 3),
                dense: (0..passages).map(|_| random.unit_vector(dimension)).collect(),
                sparse: {
                    let terms = 5 + random.below(21);
                    random.terms(terms as usize)
                },
            }
        })
        .collect()
}

/// `SplitMix64` (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        (((self.next() >> 32) * u64::from(bound)) >> 32) as u32
    }

    /// Between 0 and 1.
    pub(crate) fn fraction(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1_u32 << 24) as f32
    }

    pub(crate) fn unit_vector(&mut self, dimension: usize) -> Arc<[f32]> {
        let vector: Vec<f32> = (0..dimension).map(|_| self.fraction() - 0.5).collect();
        let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
        vector.into_iter().map(|value| value / length).collect()
    }

    /// Terms of a vocabulary of 2,000 in which, as in a language, a term's frequency falls with its rank.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and 2,000")]
    pub(crate) fn terms(&mut self, count: usize) -> SparseVector {
        let terms: BTreeMap<u32, f32> = (0..count).map(|_| ((2000_f32.powf(self.fraction())) as u32, 0.2 + self.fraction())).collect();
        let (indices, values) = terms.into_iter().unzip();
        SparseVector { indices, values }
    }

    pub(crate) fn text(&mut self, dimension: usize) -> IndexQueryText {
        IndexQueryText { dense: Some(self.unit_vector(dimension)), sparse: self.terms(12) }
    }
}
