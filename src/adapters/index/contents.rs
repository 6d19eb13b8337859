//! Puts documents into canonical form, so that equal contents have equal hashes and the engine gets only valid input.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::domain::selection::relevance::SparseVector;
use crate::domain::text::canonical::Fingerprint;
use crate::service::ports::{IndexContents, IndexDocument, IndexServer};

/// Documents sorted by tool, without duplicates and invalid vectors, and servers in the same form.
pub(super) struct CanonicalContents {
    pub(super) model: Arc<str>,
    /// Length of every dense vector; 0 if there are no vectors.
    pub(super) dimension: usize,
    pub(super) documents: Vec<IndexDocument>,
    /// The searchable servers, which have a vector and a class.
    pub(super) servers: Vec<IndexServer>,
    /// SHA-256 of the fields above.
    pub(super) fingerprint: Fingerprint,
    /// The start of each point's SHA-256, in the order of the points.
    pub(super) hashes: Vec<u64>,
}

impl CanonicalContents {
    /// Sorts documents by tool and keeps the last one of each tool. Drops dense vectors with a wrong length or with non-finite
    /// values; their tools are then found only by words. Treats servers in the same way.
    pub(super) fn of(contents: IndexContents) -> Self {
        let IndexContents { model, dimension, mut documents, mut servers, .. } = contents;
        sort_last_of_each(&mut documents, |document| &document.tool);
        sort_last_of_each(&mut servers, |server| &server.server);
        let mut unusable = 0;
        let mut clean = |vectors: &mut Vec<Arc<[f32]>>| {
            let before = vectors.len();
            vectors.retain(|vector| vector.len() == dimension && vector.iter().all(|value| value.is_finite()));
            unusable += before - vectors.len();
        };
        for document in &mut documents {
            clean(&mut document.dense);
            document.sparse = canonical_sparse(&document.sparse);
        }
        for server in &mut servers {
            clean(&mut server.dense);
        }
        servers.retain(|server| !server.dense.is_empty() && !server.classes.is_empty());
        if unusable > 0 {
            tracing::warn!(vectors = unusable, dimension, "ignored vectors with a wrong length or non-finite values");
        }
        let (fingerprint, hashes) = hashed(&model, dimension, &documents, &servers);
        Self { model, dimension, documents, servers, fingerprint, hashes }
    }

    /// The contents that consist of these documents and servers of this one, whose positions ascend.
    pub(super) fn part(&self, documents: &[usize], servers: &[usize]) -> Self {
        let documents: Vec<_> = documents.iter().map(|place| self.documents[*place].clone()).collect();
        let servers: Vec<_> = servers.iter().map(|place| self.servers[*place].clone()).collect();
        let (fingerprint, hashes) = hashed(&self.model, self.dimension, &documents, &servers);
        Self { model: Arc::clone(&self.model), dimension: self.dimension, documents, servers, fingerprint, hashes }
    }

    /// The number of points: one per tool, followed by one per server.
    pub(super) fn points(&self) -> usize {
        self.documents.len() + self.servers.len()
    }
}

/// Sorts by key and keeps the last item of each key.
fn sort_last_of_each<T, K: Ord>(items: &mut Vec<T>, key: impl Fn(&T) -> &K) {
    items.sort_by(|one, other| key(one).cmp(key(other)));
    // `dedup_by` removes its first argument, which is the later item, so swap their contents.
    items.dedup_by(|later, kept| {
        let same = key(later) == key(kept);
        if same {
            std::mem::swap(later, kept);
        }
        same
    });
}

/// Returns an equivalent vector in canonical form: indices ascending and distinct (weights of equal indices are added), without
/// zero or non-finite weights. The engine rejects duplicates.
pub(super) fn canonical_sparse(vector: &SparseVector) -> SparseVector {
    let mut terms: Vec<(u32, f32)> = vector
        .indices
        .iter()
        .copied()
        .zip(vector.values.iter().copied())
        .filter(|(_, weight)| weight.is_finite() && *weight != 0.0)
        .collect();
    terms.sort_by_key(|(index, _)| *index);
    terms.dedup_by(|later, kept| {
        let same = later.0 == kept.0;
        if same {
            kept.1 += later.1;
        }
        same
    });
    let (indices, values) = terms.into_iter().unzip();
    SparseVector { indices, values }
}

/// Hashes the contents and each of their points. Each list is preceded by its length, so that different contents never yield the
/// same bytes.
fn hashed(model: &str, dimension: usize, documents: &[IndexDocument], servers: &[IndexServer]) -> (Fingerprint, Vec<u64>) {
    let (mut hash, mut hashes) = (Sha256::new(), Vec::with_capacity(documents.len() + servers.len()));
    let mut bytes = Vec::with_capacity(8 * 1024);
    write_text(model, &mut bytes);
    for length in [dimension, documents.len(), servers.len()] {
        write_length(length, &mut bytes);
    }
    hash.update(&bytes);
    let mut add = |bytes: &mut Vec<u8>| {
        let of_point: [u8; 32] = Sha256::digest(&*bytes).into();
        hash.update(of_point);
        hashes.push(of_point.first_chunk().map_or(0, |start| u64::from_le_bytes(*start)));
        bytes.clear();
    };
    bytes.clear();
    for document in documents {
        write_text(document.tool.server.as_str(), &mut bytes);
        write_text(&document.tool.name, &mut bytes);
        bytes.extend_from_slice(&document.class.0.to_le_bytes());
        write_vectors(&document.dense, &mut bytes);
        write_length(document.sparse.indices.len(), &mut bytes);
        for (index, weight) in document.sparse.indices.iter().zip(&document.sparse.values) {
            bytes.extend_from_slice(&index.to_le_bytes());
            bytes.extend_from_slice(&weight.to_le_bytes());
        }
        add(&mut bytes);
    }
    for server in servers {
        write_text(server.server.as_str(), &mut bytes);
        write_length(server.classes.len(), &mut bytes);
        for class in &server.classes {
            bytes.extend_from_slice(&class.0.to_le_bytes());
        }
        write_vectors(&server.dense, &mut bytes);
        add(&mut bytes);
    }
    (Fingerprint::from_bytes(hash.finalize().into()), hashes)
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    write_length(text.len(), out);
    out.extend_from_slice(text.as_bytes());
}

/// Appends vectors of equal length. The length is written elsewhere.
fn write_vectors(vectors: &[Arc<[f32]>], out: &mut Vec<u8>) {
    write_length(vectors.len(), out);
    for value in vectors.iter().flat_map(|vector| vector.iter()) {
        out.extend_from_slice(&value.to_le_bytes());
    }
}

fn write_length(length: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&(length as u64).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{CanonicalContents, canonical_sparse};
    use crate::domain::access::visibility::VisibilityClass;
    use crate::domain::catalog::tool::{ServerName, ToolId};
    use crate::domain::selection::relevance::SparseVector;
    use crate::service::ports::{IndexContents, IndexDocument, IndexServer};

    fn document(name: &str, dense: &[&[f32]]) -> IndexDocument {
        IndexDocument {
            tool: ToolId::new("server", name),
            class: VisibilityClass(1),
            dense: dense.iter().map(|vector| Arc::from(*vector)).collect(),
            sparse: SparseVector { indices: vec![7], values: vec![1.0] },
        }
    }

    fn server(name: &str, classes: &[u32], dense: &[&[f32]]) -> IndexServer {
        IndexServer {
            server: ServerName::from(name),
            classes: classes.iter().map(|class| VisibilityClass(*class)).collect(),
            dense: dense.iter().map(|vector| Arc::from(*vector)).collect(),
        }
    }

    fn canonical(documents: Vec<IndexDocument>) -> CanonicalContents {
        CanonicalContents::of(IndexContents { model: "m".into(), dimension: 2, documents, ..IndexContents::default() })
    }

    fn with_servers(servers: Vec<IndexServer>) -> CanonicalContents {
        let documents = vec![document("a", &[&[1.0, 0.0]])];
        CanonicalContents::of(IndexContents { model: "m".into(), dimension: 2, documents, servers, ..IndexContents::default() })
    }

    #[test]
    fn order_does_not_change_the_fingerprint_and_contents_do() {
        let (one, two) = (document("a", &[&[1.0, 0.0]]), document("b", &[&[0.0, 1.0]]));
        let base = canonical(vec![one.clone(), two.clone()]).fingerprint;
        assert_eq!(base, canonical(vec![two.clone(), one.clone()]).fingerprint);

        let changed = |change: fn(&mut IndexDocument)| {
            let mut other = one.clone();
            change(&mut other);
            canonical(vec![other, two.clone()]).fingerprint
        };
        assert_ne!(base, changed(|document| document.class = VisibilityClass(2)));
        assert_ne!(base, changed(|document| document.dense = vec![Arc::from([0.6, 0.8])]));
        assert_ne!(base, changed(|document| document.dense.clear()));
        assert_ne!(base, changed(|document| document.sparse.values[0] = 2.0));
        assert_ne!(base, changed(|document| document.tool = ToolId::new("server", "c")));
        assert_ne!(base, canonical(vec![one]).fingerprint);
    }

    #[test]
    fn servers_are_a_part_of_the_fingerprint_in_any_order() {
        let (one, two) = (server("a", &[1, 2], &[&[1.0, 0.0]]), server("b", &[1], &[&[0.0, 1.0]]));
        let base = with_servers(vec![one.clone(), two.clone()]).fingerprint;
        assert_eq!(base, with_servers(vec![two.clone(), one.clone()]).fingerprint);
        for other in [
            server("c", &[1, 2], &[&[1.0, 0.0]]),
            server("a", &[1], &[&[1.0, 0.0]]),
            server("a", &[1, 2], &[&[0.6, 0.8]]),
            server("a", &[1, 2], &[&[1.0, 0.0], &[0.6, 0.8]]),
        ] {
            assert_ne!(base, with_servers(vec![other, two.clone()]).fingerprint);
        }
        assert_ne!(base, with_servers(vec![one]).fingerprint);
    }

    #[test]
    fn servers_that_nobody_could_find_are_left_out_and_the_last_of_a_name_stays() {
        let contents = with_servers(vec![
            server("wrong", &[1], &[&[1.0], &[f32::NAN, 0.0]]),
            server("twice", &[1], &[&[1.0, 0.0]]),
            server("empty", &[], &[&[1.0, 0.0]]),
            server("twice", &[2], &[&[1.0], &[0.0, 1.0]]),
            server("none", &[1], &[]),
        ]);
        let [twice] = contents.servers.as_slice() else { panic!("{:?}", contents.servers) };
        assert_eq!((twice.classes.first(), &*twice.dense[0]), (Some(&VisibilityClass(2)), &[0.0, 1.0][..]));
        assert_eq!(contents.points(), 2);
        assert_eq!(contents.fingerprint, with_servers(vec![twice.clone()]).fingerprint);
    }

    #[test]
    fn the_last_document_of_a_tool_stays() {
        let contents = canonical(vec![document("a", &[&[1.0, 0.0]]), document("b", &[]), document("a", &[&[0.0, 1.0]])]);
        assert_eq!(contents.documents.len(), 2);
        assert_eq!(*contents.documents[0].dense[0], [0.0, 1.0]);
    }

    #[test]
    fn vectors_that_the_engine_would_refuse_are_left_out() {
        let contents = canonical(vec![document("a", &[&[1.0], &[f32::NAN, 0.0], &[1.0, 0.0]])]);
        assert_eq!(contents.documents[0].dense.len(), 1);
    }

    #[test]
    fn a_sparse_vector_has_every_index_once_in_order() {
        let vector = SparseVector { indices: vec![9, 2, 9, 4, 5], values: vec![1.0, 2.0, 0.5, 0.0, f32::INFINITY] };
        let clean = canonical_sparse(&vector);
        assert_eq!((clean.indices, clean.values), (vec![2, 9], vec![2.0, 1.5]));
    }
}
