//! A wrapper around Qdrant Edge. No other file uses its types.
//!
//! Written for version 0.7.0, whose behaviour requires three precautions:
//! - `flush` panics if another thread writes, and dropping a shard flushes. So one thread builds a shard, and a shard in
//!   use for search is never written to.
//! - The write-ahead log is never replayed, so it is removed as soon as the points are flushed.
//! - Errors contain backtraces, and failed locks panic. This module turns both into a debug line in the log.

use std::any::Any;
use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use qdrant_edge::external::serde_json::json;
use qdrant_edge::{
    Condition, CreateIndex, Distance, EdgeConfig, EdgeShard, EdgeSparseVectorParams, EdgeVectorParams, FieldCondition,
    FieldIndexOperations, Filter, HasIdCondition, JsonPath, Match, MultiVectorComparator, MultiVectorConfig, NamedQuery, OperationError,
    PayloadFieldSchema, PayloadSchemaType, PointId, PointInsertOperations, PointOperations, PointStruct, PointStructPersisted, QueryEnum,
    QueryRequest, ScoringQuery, SearchParams, UpdateOperation, Vector, VectorInternal, VectorStorageDatatype, Vectors, WalOptions,
    WithPayloadInterface, WithVector,
};

use super::directory::Values;
use super::merged::Scored;
use crate::adapters::log;
use crate::domain::selection::relevance::SparseVector;
use crate::service::ports::{IndexDocument, IndexError, IndexServer};

const DENSE: &str = "dense";
const LEXICAL: &str = "lexical";
/// The name of a server's only vector.
const OF_SERVER: &str = "server";
const SERVER: &str = "server";
const CLASS: &str = "class";

/// Size of the candidate list in an approximate search. With 20,000 and with 100,000 tools, recall at 10 is .94; with the
/// engine's default it is .85 and .885.
const HNSW_EF: usize = 256;

/// A collection of points. A tool has up to two vectors: `dense`, a set of vectors compared by the largest cosine, and
/// `lexical`, a sparse vector of terms. A server has a set with another name, so searches for tools never match servers and
/// need no additional condition.
///
/// One multi-vector is cheaper than one named vector per passage: 0.18 ms for two passages instead of 2 × 0.14 ms (2,000
/// points, 384 dimensions). It also allows any number of passages.
pub(super) struct Engine {
    /// The engine's collection; `None` only while it is dropped.
    shard: Option<EdgeShard>,
    folder: PathBuf,
}

/// A filter condition on points.
#[derive(Clone)]
pub(super) struct PointFilter(Filter);

impl PointFilter {
    pub(super) fn of(values: Values) -> Self {
        let mut conditions = Vec::new();
        if let Some(servers) = values.servers {
            conditions.push(field(SERVER, Match::from(servers)));
        }
        if let Some(classes) = values.classes {
            conditions.push(field(CLASS, Match::from(classes.into_iter().map(i64::from).collect::<Vec<_>>())));
        }
        let mut filter = Filter::new();
        filter.must = Some(conditions);
        Self(filter)
    }

    /// The points that match a filter, without these.
    pub(super) fn without(filter: Option<&Self>, points: &[u32]) -> Self {
        let mut filter = filter.map_or_else(Filter::new, |filter| filter.0.clone());
        let ids: HasIdCondition = points.iter().map(|point| PointId::NumId(u64::from(*point))).collect();
        filter.must_not = Some(vec![Condition::HasId(ids)]);
        Self(filter)
    }
}

impl Engine {
    /// Creates a collection in an existing, empty folder. With dimension 0, it has no dense vectors.
    pub(super) fn create(folder: &Path, dimension: usize) -> Result<Self, IndexError> {
        guarded("create its files", || {
            let shard = EdgeShard::new(folder, configuration(dimension))?;
            for (name, kind) in [(SERVER, PayloadSchemaType::Keyword), (CLASS, PayloadSchemaType::Integer)] {
                shard.update(UpdateOperation::FieldIndexOperation(FieldIndexOperations::CreateIndex(CreateIndex {
                    field_name: path(name),
                    field_schema: Some(PayloadFieldSchema::FieldType(kind)),
                })))?;
            }
            Ok(Self { shard: Some(shard), folder: folder.to_owned() })
        })
    }

    /// Loads a collection that was closed.
    pub(super) fn load(folder: &Path) -> Result<Self, IndexError> {
        guarded("load its files", || Ok(Self { shard: Some(EdgeShard::load(folder, None)?), folder: folder.to_owned() }))
    }

    /// Adds documents as points, starting with the id `first`.
    pub(super) fn insert(&self, first: usize, documents: &[IndexDocument]) -> Result<(), IndexError> {
        self.upsert(documents.iter().zip(first..).map(|(document, id)| point(id, document)))
    }

    /// Adds servers as points, starting with the id `first`.
    pub(super) fn insert_servers(&self, first: usize, servers: &[IndexServer]) -> Result<(), IndexError> {
        self.upsert(servers.iter().zip(first..).map(|(server, id)| server_point(id, server)))
    }

    fn upsert(&self, points: impl Iterator<Item = Result<PointStructPersisted, OperationError>>) -> Result<(), IndexError> {
        guarded("store documents", || {
            let points = points.collect::<Result<Vec<_>, _>>()?;
            let insert = PointInsertOperations::PointsList(points);
            self.shard()?.update(UpdateOperation::PointOperation(PointOperations::UpsertPoints(insert)))
        })
    }

    /// Builds the graph for approximate search. Uses all cores: 5 s for 20,000 points, 44 s for 100,000.
    pub(super) fn optimize(&self) -> Result<(), IndexError> {
        guarded("optimize", || self.shard()?.optimize().map(drop))
    }

    /// Writes everything to disk and releases the folder.
    pub(super) fn close(mut self) -> Result<(), IndexError> {
        self.shut()
    }

    /// The number of points.
    pub(super) fn points(&self) -> Result<usize, IndexError> {
        guarded("count its points", || Ok(self.shard()?.info().points_count))
    }

    /// The points with the largest cosines, best first.
    pub(super) fn nearest(&self, query: &[f32], filter: Option<&PointFilter>, limit: usize) -> Result<Vec<Scored>, IndexError> {
        let params = SearchParams { hnsw_ef: Some(HNSW_EF), ..SearchParams::default() };
        self.search(dense_query(DENSE, query), filter.map(|filter| filter.0.clone()), limit, Some(params))
    }

    /// The cosines of these points, in no defined order. Points without a dense vector are omitted.
    pub(super) fn cosines(&self, query: &[f32], points: &[usize]) -> Result<Vec<Scored>, IndexError> {
        self.exact(dense_query(DENSE, query), points)
    }

    /// The cosines of these servers, in no defined order.
    pub(super) fn server_cosines(&self, query: &[f32], points: &[usize]) -> Result<Vec<Scored>, IndexError> {
        self.exact(dense_query(OF_SERVER, query), points)
    }

    /// The exact scores of these points, whatever the size of the collection.
    fn exact(&self, query: QueryEnum, points: &[usize]) -> Result<Vec<Scored>, IndexError> {
        let ids: HasIdCondition = points.iter().map(|point| PointId::NumId(*point as u64)).collect();
        let params = SearchParams { exact: true, ..SearchParams::default() };
        self.search(query, Some(Filter::new_must(Condition::HasId(ids))), points.len(), Some(params))
    }

    /// The best points, best first. A score is the sum over common terms of `query weight * document weight`.
    pub(super) fn lexical(&self, query: &SparseVector, filter: Option<&PointFilter>, limit: usize) -> Result<Vec<Scored>, IndexError> {
        let query = VectorInternal::Sparse(sparse(query));
        let query = QueryEnum::Nearest(NamedQuery::new(query, LEXICAL));
        self.search(query, filter.map(|filter| filter.0.clone()), limit, None)
    }

    fn search(
        &self,
        query: QueryEnum,
        filter: Option<Filter>,
        limit: usize,
        params: Option<SearchParams>,
    ) -> Result<Vec<Scored>, IndexError> {
        guarded("search", || {
            let found = self.shard()?.query(QueryRequest {
                prefetches: Vec::new(),
                query: Some(ScoringQuery::Vector(query)),
                filter,
                score_threshold: None,
                limit,
                offset: 0,
                params,
                with_vector: WithVector::Bool(false),
                with_payload: WithPayloadInterface::Bool(false),
            })?;
            Ok(found
                .into_iter()
                .filter_map(|point| match point.id {
                    PointId::NumId(id) => Some((usize::try_from(id).ok()?, point.score)),
                    PointId::Uuid(_) => None,
                })
                .collect())
        })
    }

    fn shard(&self) -> Result<&EdgeShard, OperationError> {
        self.shard.as_ref().ok_or_else(|| OperationError::service_error("the shard is closed"))
    }

    fn shut(&mut self) -> Result<(), IndexError> {
        let shard = self.shard.take();
        if shard.is_some() && !self.folder.exists() {
            tracing::warn!(folder = %self.folder.display(), "the folder of the index was deleted: the next start builds the index again");
        }
        // Dropping the shard flushes it, which panics if the folder is gone or the disk is full.
        log::expecting_panic(|| drop(shard)).map_err(|panic| panicked("write its files", panic.as_ref()))
    }
}

/// Closes the shard before it is dropped: dropping flushes it, which may panic.
impl Drop for Engine {
    fn drop(&mut self) {
        if self.shut().is_err() && self.folder.exists() {
            let folder = self.folder.display();
            tracing::warn!(%folder, "the index couldn't be written: the next start builds it again if needed");
        }
    }
}

fn configuration(dimension: usize) -> EdgeConfig {
    let dense = EdgeVectorParams {
        size: dimension,
        distance: Distance::Cosine,
        // Map the files and read them on demand. Otherwise blocks of 32 MB would be loaded into memory.
        on_disk: Some(true),
        multivector_config: Some(MultiVectorConfig { comparator: MultiVectorComparator::MaxSim }),
        // Halves the memory to scan; cosines differ by less than a thousandth.
        datatype: Some(VectorStorageDatatype::Float16),
        quantization_config: None,
        hnsw_config: None,
    };
    let lexical = EdgeSparseVectorParams {
        // Scan the lists of the terms instead of all points that match the filter.
        full_scan_threshold: Some(0),
        on_disk: None,
        // The weights of a query's terms already contain how rare these are, see `lists::Frequencies`.
        modifier: None,
        datatype: None,
    };
    EdgeConfig {
        on_disk_payload: true,
        vectors: [DENSE, OF_SERVER].into_iter().filter(|_| dimension > 0).map(|name| (name.to_owned(), dense.clone())).collect(),
        sparse_vectors: HashMap::from([(LEXICAL.to_owned(), lexical)]),
        // The default needs 32 MB.
        wal_options: Some(WalOptions { segment_capacity: 1 << 20, segment_queue_len: 0, retain_closed: NonZeroUsize::MIN }),
        ..EdgeConfig::default()
    }
}

fn point(id: usize, document: &IndexDocument) -> Result<PointStructPersisted, OperationError> {
    let mut vectors = Vec::with_capacity(2);
    if !document.dense.is_empty() {
        vectors.push((DENSE, set(&document.dense)?));
    }
    if !document.sparse.indices.is_empty() {
        vectors.push((LEXICAL, Vector::from(sparse(&document.sparse))));
    }
    let payload = json!({ SERVER: document.tool.server.as_str(), CLASS: document.class.0 });
    Ok(PointStruct::new(PointId::NumId(id as u64), Vectors::new_named(vectors), payload).into())
}

fn server_point(id: usize, server: &IndexServer) -> Result<PointStructPersisted, OperationError> {
    let classes: Vec<u32> = server.classes.iter().map(|class| class.0).collect();
    let payload = json!({ SERVER: server.server.as_str(), CLASS: classes });
    let vectors = Vectors::new_named([(OF_SERVER, set(&server.dense)?)]);
    Ok(PointStruct::new(PointId::NumId(id as u64), vectors, payload).into())
}

fn set(vectors: &[Arc<[f32]>]) -> Result<Vector, OperationError> {
    Vector::new_multi(vectors.iter().map(|vector| vector.to_vec()).collect::<Vec<_>>())
}

/// Converts a canonical vector, whose indices are ascending and distinct.
fn sparse(vector: &SparseVector) -> qdrant_edge::SparseVector {
    qdrant_edge::SparseVector { indices: vector.indices.clone(), values: vector.values.clone() }
}

fn dense_query(name: &str, query: &[f32]) -> QueryEnum {
    QueryEnum::Nearest(NamedQuery::new(VectorInternal::Dense(query.to_vec()), name))
}

fn field(name: &str, values: Match) -> Condition {
    Condition::Field(FieldCondition::new_match(path(name), values))
}

fn path(name: &str) -> JsonPath {
    JsonPath { first_key: name.to_owned(), rest: Vec::new() }
}

/// Calls the engine and logs its errors and panics.
fn guarded<T>(action: &'static str, work: impl FnOnce() -> Result<T, OperationError>) -> Result<T, IndexError> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => {
            tracing::debug!(action, %error, "the index engine failed");
            Err(IndexError::Engine { action })
        }
        Err(panic) => Err(panicked(action, panic.as_ref())),
    }
}

fn panicked(action: &'static str, panic: &(dyn Any + Send)) -> IndexError {
    let words = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    tracing::debug!(action, panic = words, "the index engine panicked");
    IndexError::Engine { action }
}
