//! Builds requests to Qdrant and reads its responses, in the client's types.

use std::collections::HashMap;
use std::sync::Arc;

use qdrant_client::qdrant::point_id::PointIdOptions;
use qdrant_client::qdrant::{
    Condition, CreateCollection, CreateCollectionBuilder, Datatype, Distance, Filter, MultiVectorComparator, MultiVectorConfigBuilder,
    NamedVectors, PointId, PointStruct, Query, QueryPoints, QueryPointsBuilder, ScoredPoint, SearchParams, SparseIndexConfigBuilder,
    SparseVectorParamsBuilder, SparseVectorsConfigBuilder, Value, Vector, VectorInput, VectorParamsBuilder, VectorsConfigBuilder,
};
use sha2::{Digest, Sha256};
use uuid::{Builder, Uuid};

use super::super::directory::Values;
use crate::domain::catalog::tool::{ServerName, ToolId};
use crate::domain::selection::relevance::SparseVector;
use crate::service::ports::{IndexDocument, IndexServer};

/// Payload fields of a point: two for filters, and one for people.
pub(super) const SERVER: &str = "server";
pub(super) const CLASS: &str = "class";
const TOOL: &str = "tool";

const DENSE: &str = "dense";
const LEXICAL: &str = "lexical";
/// The name of a server's only vector.
const OF_SERVER: &str = "server";

/// Size of the candidate list in an approximate search.
const HNSW_EF: u64 = 256;

/// The distribution of a collection over a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    pub shards: u32,
    /// Number of copies of each shard.
    pub replicas: u32,
}

/// The id of a tool's point, the same on every replica and in every collection.
pub(super) fn id(tool: &ToolId) -> Uuid {
    let mut hash = Sha256::new();
    hash.update((tool.server.as_str().len() as u64).to_le_bytes());
    hash.update(tool.server.as_str());
    hash.update(&*tool.name);
    uuid(hash)
}

/// The id of a server's point. It never equals a tool's id, because the hash starts with a length that no name has.
pub(super) fn server_id(server: &ServerName) -> Uuid {
    let mut hash = Sha256::new();
    hash.update(u64::MAX.to_le_bytes());
    hash.update(server.as_str());
    uuid(hash)
}

fn uuid(hash: Sha256) -> Uuid {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.finalize()[..16]);
    Builder::from_custom_bytes(bytes).into_uuid()
}

/// Describes a collection with the same vectors as in the embedded index. Queries contain the term weights, because Qdrant would
/// compute them per shard.
pub(super) fn collection(name: &str, dimension: usize, spread: Spread) -> CreateCollection {
    let mut lexical = SparseVectorsConfigBuilder::default();
    // Scan the lists of the terms instead of all points that match the filter.
    let lists = SparseIndexConfigBuilder::default().full_scan_threshold(0_u64);
    lexical.add_named_vector_params(LEXICAL, SparseVectorParamsBuilder::default().index(lists));
    let collection =
        CreateCollectionBuilder::new(name).sparse_vectors_config(lexical).shard_number(spread.shards).replication_factor(spread.replicas);
    if dimension == 0 {
        return collection.build();
    }
    let mut dense = VectorsConfigBuilder::default();
    let passages = VectorParamsBuilder::new(dimension as u64, Distance::Cosine)
        .multivector_config(MultiVectorConfigBuilder::new(MultiVectorComparator::MaxSim))
        // Halves the memory to scan; cosines differ by less than a thousandth.
        .datatype(Datatype::Float16);
    dense.add_named_vector_params(DENSE, passages.clone());
    dense.add_named_vector_params(OF_SERVER, passages);
    collection.vectors_config(dense).build()
}

pub(super) fn point(document: &IndexDocument) -> PointStruct {
    let mut vectors = HashMap::new();
    if !document.dense.is_empty() {
        vectors.insert(DENSE.to_owned(), set(&document.dense));
    }
    let SparseVector { indices, values } = &document.sparse;
    if !indices.is_empty() {
        vectors.insert(LEXICAL.to_owned(), Vector::new_sparse(indices.clone(), values.clone()));
    }
    let payload = [
        (SERVER, Value::from(document.tool.server.as_str())),
        (TOOL, Value::from(&*document.tool.name)),
        (CLASS, Value::from(i64::from(document.class.0))),
    ];
    named(id(&document.tool), payload, vectors)
}

pub(super) fn server_point(server: &IndexServer) -> PointStruct {
    let classes: Vec<Value> = server.classes.iter().map(|class| Value::from(i64::from(class.0))).collect();
    let payload = [(SERVER, Value::from(server.server.as_str())), (CLASS, Value::from(classes))];
    named(server_id(&server.server), payload, HashMap::from([(OF_SERVER.to_owned(), set(&server.dense))]))
}

fn named<const N: usize>(id: Uuid, payload: [(&str, Value); N], vectors: HashMap<String, Vector>) -> PointStruct {
    PointStruct {
        id: Some(point_id(id)),
        payload: payload.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        vectors: Some(NamedVectors { vectors }.into()),
    }
}

fn set(vectors: &[Arc<[f32]>]) -> Vector {
    Vector::new_multi(vectors.iter().map(|vector| vector.to_vec()).collect::<Vec<_>>())
}

pub(super) fn filter(values: Values) -> Filter {
    let servers = values.servers.map(|servers| Condition::matches(SERVER, servers));
    let classes = values.classes.map(|classes| Condition::matches(CLASS, classes.into_iter().map(i64::from).collect::<Vec<_>>()));
    Filter::must(servers.into_iter().chain(classes))
}

/// Requests the points with the largest cosines.
pub(super) fn nearest(collection: &str, query: &[f32], filter: Option<Filter>, limit: usize, exact: bool) -> QueryPoints {
    by_cosine(collection, DENSE, query, filter, limit, exact)
}

/// Requests the cosines of the servers that match the filter.
pub(super) fn servers(collection: &str, query: &[f32], filter: Option<Filter>, limit: usize) -> QueryPoints {
    by_cosine(collection, OF_SERVER, query, filter, limit, true)
}

fn by_cosine(collection: &str, name: &str, query: &[f32], filter: Option<Filter>, limit: usize, exact: bool) -> QueryPoints {
    let params = SearchParams { hnsw_ef: Some(HNSW_EF), exact: Some(exact), ..SearchParams::default() };
    // A multi-vector is compared with another multi-vector, here with a single vector.
    let query = Query::new_nearest(VectorInput::new_multi(vec![query.to_vec()]));
    let query = QueryPointsBuilder::new(collection).query(query).using(name).limit(limit as u64).params(params).with_payload(false);
    match filter {
        Some(filter) => query.filter(filter).build(),
        None => query.build(),
    }
}

/// Requests the cosines of these points.
pub(super) fn cosines(collection: &str, query: &[f32], points: impl Iterator<Item = Uuid>) -> QueryPoints {
    let points: Vec<PointId> = points.map(point_id).collect();
    let limit = points.len();
    nearest(collection, query, Some(Filter::must([Condition::has_id(points)])), limit, true)
}

/// Requests the points with the largest sums of products of term weights.
pub(super) fn lexical(collection: &str, weighted: &SparseVector, filter: Option<Filter>, limit: usize) -> QueryPoints {
    let query = Query::new_nearest(VectorInput::new_sparse(weighted.indices.clone(), weighted.values.clone()));
    let query = QueryPointsBuilder::new(collection).query(query).using(LEXICAL).limit(limit as u64).with_payload(false);
    match filter {
        Some(filter) => query.filter(filter).build(),
        None => query.build(),
    }
}

/// The id and the score of a result; `None` for a point that is not ours.
pub(super) fn found(point: ScoredPoint) -> Option<(Uuid, f32)> {
    match point.id?.point_id_options? {
        PointIdOptions::Uuid(id) => Some((Uuid::parse_str(&id).ok()?, point.score)),
        PointIdOptions::Num(_) => None,
    }
}

fn point_id(id: Uuid) -> PointId {
    PointId::from(id.to_string())
}

#[cfg(test)]
mod tests {
    use super::{id, server_id};
    use crate::domain::catalog::tool::{ServerName, ToolId};

    #[test]
    fn an_id_depends_on_server_and_name_and_on_nothing_else() {
        // The ids are fixed, because other releases must find the points of this release.
        assert_eq!(id(&ToolId::new("time", "now")).to_string(), "bce687d4-99f3-8030-a9f9-6edf19fb2917");
        assert_eq!(server_id(&ServerName::from("time")).to_string(), "12e1bf9d-6b48-88eb-9925-b6b47ba6dc1d");
        assert_ne!(id(&ToolId::new("time", "now")), id(&ToolId::new("tim", "enow")));
        assert_ne!(server_id(&ServerName::from("time")), id(&ToolId::new("time", "")));
        assert_ne!(server_id(&ServerName::from("time")), server_id(&ServerName::from("tim")));
    }
}
