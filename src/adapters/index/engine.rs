//! Qdrant Edge, wrapped: the only file of the crate that names its types.
//!
//! Written for 0.7.0. What its behaviour asks for:
//! - `flush` panics when another thread writes, and dropping a shard flushes: one thread builds a shard, and a shard
//!   that is searched is never written to.
//! - The log (WAL) is never replayed, so it is removed as soon as the points are flushed.
//! - Errors carry backtraces and failed locks panic: both end here, as a line in the log at debug level.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use qdrant_edge::external::serde_json::json;
use qdrant_edge::{
    Condition, CreateIndex, Distance, EdgeConfig, EdgeShard, EdgeSparseVectorParams, EdgeVectorParams, FieldCondition,
    FieldIndexOperations, Filter, HasIdCondition, JsonPath, Match, Modifier, MultiVectorComparator, MultiVectorConfig, NamedQuery,
    OperationError, PayloadFieldSchema, PayloadSchemaType, PointId, PointInsertOperations, PointOperations, PointStruct,
    PointStructPersisted, QueryEnum, QueryRequest, ScoringQuery, SearchParams, UpdateOperation, Vector, VectorInternal,
    VectorStorageDatatype, Vectors, WalOptions, WithPayloadInterface, WithVector,
};

use super::directory::Values;
use super::merged::Scored;
use crate::domain::selection::relevance::SparseVector;
use crate::service::ports::{IndexDocument, IndexError, IndexServer};

const DENSE: &str = "dense";
const LEXICAL: &str = "lexical";
/// The vector of a server, which has no other one.
const OF_SERVER: &str = "server";
const SERVER: &str = "server";
const CLASS: &str = "class";

/// The list of candidates that an approximate search looks through. Recall at 10 is .94 on 20,000 and on 100,000
/// tools; with the engine's default it is .85 and .885.
const HNSW_EF: usize = 256;

/// A collection of points. A tool has up to two vectors: `dense`, a set of vectors compared by the largest cosine, and
/// `lexical`, a sparse one whose terms are weighted by inverse document frequency when it is searched. A server has a
/// set of another name, so that no search for tools meets it and no condition is needed for that.
///
/// One set costs less than one named vector per passage: 0.18 ms for two passages against 2 x 0.14 ms (2,000 points,
/// 384 dimensions), and a passage more or less needs no other configuration.
pub(super) struct Engine {
    /// `None` only while it is dropped.
    shard: Option<EdgeShard>,
}

/// A condition that points must meet to be found.
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
}

impl Engine {
    /// A new, empty collection in an existing, empty folder. With dimension 0 it holds no dense vectors.
    pub(super) fn create(folder: &Path, dimension: usize) -> Result<Self, IndexError> {
        guarded("create its files", || {
            let shard = EdgeShard::new(folder, configuration(dimension))?;
            for (name, kind) in [(SERVER, PayloadSchemaType::Keyword), (CLASS, PayloadSchemaType::Integer)] {
                shard.update(UpdateOperation::FieldIndexOperation(FieldIndexOperations::CreateIndex(CreateIndex {
                    field_name: path(name),
                    field_schema: Some(PayloadFieldSchema::FieldType(kind)),
                })))?;
            }
            Ok(Self { shard: Some(shard) })
        })
    }

    /// The collection in a folder that was closed.
    pub(super) fn load(folder: &Path) -> Result<Self, IndexError> {
        guarded("load its files", || Ok(Self { shard: Some(EdgeShard::load(folder, None)?) }))
    }

    /// Adds documents as the points `first..`.
    pub(super) fn insert(&self, first: usize, documents: &[IndexDocument]) -> Result<(), IndexError> {
        self.upsert(documents.iter().zip(first..).map(|(document, id)| point(id, document)))
    }

    /// Adds servers as the points `first..`.
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

    /// Builds the graph for approximate search. Takes every core: 5 s for 20,000 points, 44 s for 100,000.
    pub(super) fn optimize(&self) -> Result<(), IndexError> {
        guarded("optimize", || self.shard()?.optimize().map(drop))
    }

    /// Writes everything to disk and lets go of the folder.
    pub(super) fn close(mut self) -> Result<(), IndexError> {
        self.shut()
    }

    /// How many points there are.
    pub(super) fn points(&self) -> Result<usize, IndexError> {
        guarded("count its points", || Ok(self.shard()?.info().points_count))
    }

    /// The best points by the largest cosine over their dense vectors, best first.
    pub(super) fn nearest(&self, query: &[f32], filter: Option<&PointFilter>, limit: usize) -> Result<Vec<Scored>, IndexError> {
        let params = SearchParams { hnsw_ef: Some(HNSW_EF), ..SearchParams::default() };
        self.search(dense_query(DENSE, query), filter.map(|filter| filter.0.clone()), limit, Some(params))
    }

    /// The cosines of these points, in no order; those without a dense vector are left out.
    pub(super) fn cosines(&self, query: &[f32], points: &[usize]) -> Result<Vec<Scored>, IndexError> {
        self.exact(dense_query(DENSE, query), points)
    }

    /// The cosines of these points, which are servers, in no order.
    pub(super) fn server_cosines(&self, query: &[f32], points: &[usize]) -> Result<Vec<Scored>, IndexError> {
        self.exact(dense_query(OF_SERVER, query), points)
    }

    /// The scores of these points and no others: what there is beside them costs nothing.
    fn exact(&self, query: QueryEnum, points: &[usize]) -> Result<Vec<Scored>, IndexError> {
        let ids: HasIdCondition = points.iter().map(|point| PointId::NumId(*point as u64)).collect();
        let params = SearchParams { exact: true, ..SearchParams::default() };
        self.search(query, Some(Filter::new_must(Condition::HasId(ids))), points.len(), Some(params))
    }

    /// The best points by the sum over the common terms of
    /// `weight in the query * weight in the document * ln(1 + (n - df + 0.5) / (df + 0.5))`, best first. `n` counts
    /// all points that have terms, `df` all that have the term: the filter plays no part in either.
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
        guarded("write its files", || {
            drop(shard);
            Ok(())
        })
    }
}

/// A shard flushes when it is dropped and panics when it can't, for instance because its folder is gone.
impl Drop for Engine {
    fn drop(&mut self) {
        // There is nobody left to tell, and it is in the log.
        drop(self.shut());
    }
}

fn configuration(dimension: usize) -> EdgeConfig {
    let dense = EdgeVectorParams {
        size: dimension,
        distance: Distance::Cosine,
        // Mapped and read on demand: otherwise whole blocks of 32 MB are brought into memory.
        on_disk: Some(true),
        multivector_config: Some(MultiVectorConfig { comparator: MultiVectorComparator::MaxSim }),
        // Half the memory to go through; a cosine differs by less than a thousandth.
        datatype: Some(VectorStorageDatatype::Float16),
        quantization_config: None,
        hnsw_config: None,
    };
    let lexical = EdgeSparseVectorParams {
        // Go through the lists of the terms instead of all points that the filter leaves.
        full_scan_threshold: Some(0),
        on_disk: None,
        modifier: Some(Modifier::Idf),
        datatype: None,
    };
    EdgeConfig {
        on_disk_payload: true,
        vectors: [DENSE, OF_SERVER].into_iter().filter(|_| dimension > 0).map(|name| (name.to_owned(), dense.clone())).collect(),
        sparse_vectors: HashMap::from([(LEXICAL.to_owned(), lexical)]),
        // The default takes 32 MB.
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

/// Expects a canonical vector: ascending indices, each one once.
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

/// Runs the engine. What it says and where it panicked stays in the log.
fn guarded<T>(action: &'static str, work: impl FnOnce() -> Result<T, OperationError>) -> Result<T, IndexError> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => {
            tracing::debug!(action, %error, "the index engine failed");
            Err(IndexError::Engine { action })
        }
        Err(panic) => {
            let words = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            tracing::debug!(action, panic = words, "the index engine panicked");
            Err(IndexError::Engine { action })
        }
    }
}
