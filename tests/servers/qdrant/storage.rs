//! What a cluster stores: collections of shards, each the real engine in a folder, and aliases.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use qdrant_client::qdrant::condition::ConditionOneOf;
use qdrant_client::qdrant::r#match::MatchValue;
use qdrant_client::qdrant::point_id::PointIdOptions;
use qdrant_client::qdrant::query::Variant as QueryVariant;
use qdrant_client::qdrant::value::Kind;
use qdrant_client::qdrant::vector_input::Variant as InputVariant;
use qdrant_client::qdrant::vectors::VectorsOptions;
use qdrant_client::qdrant::vectors_config::Config;
use qdrant_client::qdrant::{self as api};
use qdrant_edge::external::serde_json::{Map, Value, from_slice, json};
use qdrant_edge::{
    Condition, CreateIndex, Distance, EdgeConfig, EdgeShard, EdgeSparseVectorParams, EdgeVectorParams, FieldCondition,
    FieldIndexOperations, Filter, HasIdCondition, JsonPath, Match, Modifier, MultiVectorComparator, MultiVectorConfig, NamedQuery,
    OperationError, PayloadFieldSchema, PayloadSchemaType, PointId, PointInsertOperations, PointOperations, PointStruct, QueryEnum,
    QueryRequest, ScoredPoint, ScoringQuery, SearchParams, UpdateOperation, Vector, VectorInternal, VectorStorageDatatype, Vectors,
    WalOptions, WithPayloadInterface, WithVector,
};
use tempfile::TempDir;
use tonic::Status;
use uuid::Uuid;

/// The file that names the collections and aliases of a storage that outlives its process.
const STATE: &str = "state.json";

/// The state that all nodes of a cluster share.
pub(crate) struct Storage {
    collections: RwLock<BTreeMap<String, Arc<Collection>>>,
    aliases: Mutex<BTreeMap<String, String>>,
    made: AtomicUsize,
    /// Held while the state is written, if this storage outlives its process.
    saving: Option<Mutex<()>>,
    folder: PathBuf,
    // Last: the shards write when they are dropped.
    _removed_at_the_end: Option<TempDir>,
}

pub(super) struct Collection {
    shards: Vec<Shard>,
    /// Fields that may be filtered by.
    indexed: Mutex<BTreeSet<String>>,
    /// Whether each acknowledged change is on the disk.
    is_durable: bool,
}

struct Shard {
    /// Its folder in that of the storage.
    name: String,
    engine: RwLock<EdgeShard>,
}

impl Storage {
    pub(crate) fn new() -> Arc<Self> {
        let folder = tempfile::tempdir().unwrap();
        Arc::new(Self {
            collections: RwLock::default(),
            aliases: Mutex::default(),
            made: AtomicUsize::new(0),
            saving: None,
            folder: folder.path().to_owned(),
            _removed_at_the_end: Some(folder),
        })
    }

    /// One that outlives its process, however that ends, with what an earlier process has stored in this folder.
    pub(crate) fn open(folder: &Path) -> Arc<Self> {
        std::fs::create_dir_all(folder).unwrap();
        let state: Value = std::fs::read(folder.join(STATE)).map_or(Value::Null, |text| from_slice(&text).unwrap());
        let collections = object(&state["collections"]).filter_map(|(name, stored)| match Collection::load(folder, stored) {
            Ok(collection) => Some((name.clone(), Arc::new(collection))),
            Err(error) => {
                eprintln!("the collection {name} is lost: {error}");
                None
            }
        });
        let aliases = object(&state["aliases"]).map(|(alias, name)| (alias.clone(), text(name)));
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        let made = entries.filter_map(|name| name.to_str()?.parse::<usize>().ok()).max().map_or(0, |last| last + 1);
        Arc::new(Self {
            collections: RwLock::new(collections.collect()),
            aliases: Mutex::new(aliases.collect()),
            made: AtomicUsize::new(made),
            saving: Some(Mutex::default()),
            folder: folder.to_owned(),
            _removed_at_the_end: None,
        })
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.collections.read().unwrap().keys().cloned().collect()
    }

    pub(crate) fn aliases(&self) -> BTreeMap<String, String> {
        self.aliases.lock().unwrap().clone()
    }

    /// Loses everything.
    pub(crate) fn clear(&self) {
        self.collections.write().unwrap().clear();
        self.aliases.lock().unwrap().clear();
        self.save();
    }

    /// A collection by its name or an alias.
    pub(super) fn collection(&self, name: &str) -> Result<Arc<Collection>, Status> {
        let name = self.aliases.lock().unwrap().get(name).cloned().unwrap_or_else(|| name.to_owned());
        let found = self.collections.read().unwrap().get(&name).cloned();
        found.ok_or_else(|| Status::not_found(format!("Not found: Collection `{name}` doesn't exist!")))
    }

    pub(super) fn create(&self, request: &api::CreateCollection) -> Result<(), Status> {
        let mut collections = self.collections.write().unwrap();
        if collections.contains_key(&request.collection_name) {
            return Err(Status::already_exists(format!("Wrong input: Collection `{}` already exists!", request.collection_name)));
        }
        let mut shards = Vec::new();
        for _ in 0..request.shard_number.unwrap_or(1) {
            let name = self.made.fetch_add(1, Ordering::Relaxed).to_string();
            let folder = self.folder.join(&name);
            std::fs::create_dir(&folder).unwrap();
            shards.push(Shard { name, engine: RwLock::new(shard(&folder, request)?) });
        }
        let collection = Collection { shards, indexed: Mutex::default(), is_durable: self.saving.is_some() };
        collection.flush();
        collections.insert(request.collection_name.clone(), Arc::new(collection));
        drop(collections);
        self.save();
        Ok(())
    }

    /// Removes a collection and its aliases. Returns whether it was there.
    pub(super) fn remove(&self, name: &str) -> bool {
        let removed = self.collections.write().unwrap().remove(name);
        self.aliases.lock().unwrap().retain(|_, target| target != name);
        self.save();
        removed.is_some()
    }

    /// Points an alias to a collection.
    pub(super) fn point(&self, alias: String, name: String) -> Result<(), Status> {
        self.collection(&name)?;
        self.aliases.lock().unwrap().insert(alias, name);
        self.save();
        Ok(())
    }

    /// Removes an alias, if it is there.
    pub(super) fn unpoint(&self, alias: &str) {
        self.aliases.lock().unwrap().remove(alias);
        self.save();
    }

    pub(super) fn index(&self, name: &str, field: &str, kind: api::FieldType) -> Result<(), Status> {
        self.collection(name)?.index(field, kind)?;
        self.save();
        Ok(())
    }

    /// Writes what is there, if this storage outlives its process.
    fn save(&self) {
        let Some(saving) = &self.saving else { return };
        let _saving = saving.lock().unwrap();
        let collections: Map<String, Value> =
            self.collections.read().unwrap().iter().map(|(name, collection)| (name.clone(), collection.state())).collect();
        let state = json!({"collections": collections, "aliases": self.aliases()});
        let written = self.folder.join("state.new");
        std::fs::write(&written, state.to_string()).unwrap();
        std::fs::rename(written, self.folder.join(STATE)).unwrap();
    }
}

impl Collection {
    fn load(folder: &Path, state: &Value) -> Result<Self, OperationError> {
        let shards = list(&state["shards"]).map(|name| {
            let engine = EdgeShard::load(&folder.join(&name), None)?;
            Ok(Shard { name, engine: RwLock::new(engine) })
        });
        let indexed = list(&state["indexed"]).collect();
        Ok(Self { shards: shards.collect::<Result<_, OperationError>>()?, indexed: Mutex::new(indexed), is_durable: true })
    }

    fn state(&self) -> Value {
        let shards: Vec<&str> = self.shards.iter().map(|shard| shard.name.as_str()).collect();
        json!({"shards": shards, "indexed": &*self.indexed.lock().unwrap()})
    }

    /// Writes all changes to the disk, if they must outlive the process.
    fn flush(&self) {
        if self.is_durable {
            for shard in &self.shards {
                shard.engine.write().unwrap().flush();
            }
        }
    }

    fn index(&self, field: &str, kind: api::FieldType) -> Result<(), Status> {
        let kind = match kind {
            api::FieldType::Keyword => PayloadSchemaType::Keyword,
            api::FieldType::Integer => PayloadSchemaType::Integer,
            other => return Err(not_understood(format!("{other:?}"))),
        };
        for shard in &self.shards {
            let create = CreateIndex { field_name: path(field), field_schema: Some(PayloadFieldSchema::FieldType(kind)) };
            let operation = UpdateOperation::FieldIndexOperation(FieldIndexOperations::CreateIndex(create));
            shard.engine.write().unwrap().update(operation).map_err(engine)?;
        }
        self.flush();
        self.indexed.lock().unwrap().insert(field.to_owned());
        Ok(())
    }

    pub(super) fn upsert(&self, points: Vec<api::PointStruct>) -> Result<(), Status> {
        let mut by_shard: HashMap<usize, Vec<_>> = HashMap::new();
        for point in points {
            let id = point_id(point.id.ok_or_else(|| not_understood("a point without an id"))?)?;
            let PointId::Uuid(uuid) = id else { return Err(not_understood("a number as an id")) };
            let shard = usize::from(uuid.as_bytes()[15]) % self.shards.len();
            let named = match point.vectors.and_then(|vectors| vectors.vectors_options) {
                Some(VectorsOptions::Vectors(named)) => named.vectors,
                other => return Err(not_understood(format!("{other:?}"))),
            };
            let vectors = named.into_iter().map(|(name, stored)| Ok((name, vector(stored)?))).collect::<Result<Vec<_>, Status>>()?;
            let payload =
                point.payload.into_iter().map(|(name, stored)| Ok((name, value(stored)?))).collect::<Result<Map<_, _>, Status>>()?;
            let point = PointStruct::new(id, Vectors::new_named(vectors), Value::Object(payload));
            by_shard.entry(shard).or_default().push(point.into());
        }
        for (shard, points) in by_shard {
            let operation = UpdateOperation::PointOperation(PointOperations::UpsertPoints(PointInsertOperations::PointsList(points)));
            self.shards[shard].engine.write().unwrap().update(operation).map_err(engine)?;
        }
        self.flush();
        Ok(())
    }

    pub(super) fn count(&self) -> usize {
        self.shards.iter().map(|shard| shard.engine.read().unwrap().info().points_count).sum()
    }

    /// The best of all shards, best first.
    pub(super) fn query(&self, request: api::QueryPoints) -> Result<Vec<api::ScoredPoint>, Status> {
        let limit = usize::try_from(request.limit.unwrap_or(10)).unwrap();
        let using = request.using.ok_or_else(|| not_understood("a query without a name of a vector"))?;
        let Some(QueryVariant::Nearest(input)) = request.query.and_then(|query| query.variant) else {
            return Err(not_understood("a query that is not for the nearest"));
        };
        let query = QueryEnum::Nearest(NamedQuery::new(query_vector(input)?, using));
        let filter = request.filter.map(|filter| self.filter(filter)).transpose()?;
        let params = request.params.map(|params| SearchParams {
            hnsw_ef: params.hnsw_ef.map(|ef| usize::try_from(ef).unwrap()),
            exact: params.exact.unwrap_or_default(),
            ..SearchParams::default()
        });
        let mut found: Vec<ScoredPoint> = Vec::new();
        for shard in &self.shards {
            let request = QueryRequest {
                prefetches: Vec::new(),
                query: Some(ScoringQuery::Vector(query.clone())),
                filter: filter.clone(),
                score_threshold: None,
                limit,
                offset: 0,
                params,
                with_vector: WithVector::Bool(false),
                with_payload: WithPayloadInterface::Bool(false),
            };
            found.extend(shard.engine.read().unwrap().query(request).map_err(engine)?);
        }
        found.sort_by(|one, other| other.score.total_cmp(&one.score));
        found.truncate(limit);
        Ok(found.iter().map(scored).collect())
    }

    /// As a server in strict mode: only by fields with an index.
    fn filter(&self, filter: api::Filter) -> Result<Filter, Status> {
        if !filter.should.is_empty() || !filter.must_not.is_empty() || filter.min_should.is_some() {
            return Err(not_understood("a filter with more than must"));
        }
        let conditions = filter.must.into_iter().map(|condition| match condition.condition_one_of {
            Some(ConditionOneOf::HasId(ids)) => {
                let ids = ids.has_id.into_iter().map(point_id).collect::<Result<HasIdCondition, Status>>()?;
                Ok(Condition::HasId(ids))
            }
            Some(ConditionOneOf::Field(field)) => {
                if !self.indexed.lock().unwrap().contains(&field.key) {
                    return Err(Status::invalid_argument(format!("Index required but not found for \"{}\"", field.key)));
                }
                let values = match field.r#match.and_then(|values| values.match_value) {
                    Some(MatchValue::Keywords(values)) => Match::from(values.strings),
                    Some(MatchValue::Integers(values)) => Match::from(values.integers),
                    other => return Err(not_understood(format!("{other:?}"))),
                };
                Ok(Condition::Field(FieldCondition::new_match(path(&field.key), values)))
            }
            other => Err(not_understood(format!("{other:?}"))),
        });
        let mut filter = Filter::new();
        filter.must = Some(conditions.collect::<Result<_, Status>>()?);
        Ok(filter)
    }
}

fn shard(folder: &Path, request: &api::CreateCollection) -> Result<EdgeShard, Status> {
    let mut vectors = HashMap::new();
    match request.vectors_config.as_ref().and_then(|config| config.config.clone()) {
        None => {}
        Some(Config::ParamsMap(map)) => {
            for (name, params) in map.map {
                vectors.insert(name, dense_params(&params)?);
            }
        }
        Some(other) => return Err(not_understood(format!("{other:?}"))),
    }
    let mut sparse_vectors = HashMap::new();
    for (name, params) in request.sparse_vectors_config.iter().flat_map(|config| &config.map) {
        let params = EdgeSparseVectorParams {
            full_scan_threshold: params.index.and_then(|index| index.full_scan_threshold).map(|size| usize::try_from(size).unwrap()),
            on_disk: None,
            modifier: (params.modifier() == api::Modifier::Idf).then_some(Modifier::Idf),
            datatype: None,
        };
        sparse_vectors.insert(name.clone(), params);
    }
    let config = EdgeConfig {
        on_disk_payload: true,
        vectors,
        sparse_vectors,
        wal_options: Some(WalOptions { segment_capacity: 1 << 20, segment_queue_len: 0, retain_closed: NonZeroUsize::MIN }),
        ..EdgeConfig::default()
    };
    EdgeShard::new(folder, config).map_err(engine)
}

fn dense_params(params: &api::VectorParams) -> Result<EdgeVectorParams, Status> {
    let comparator = params.multivector_config.map(|config| config.comparator());
    if (params.distance(), params.datatype(), comparator)
        != (api::Distance::Cosine, api::Datatype::Float16, Some(api::MultiVectorComparator::MaxSim))
    {
        return Err(not_understood(format!("{params:?}")));
    }
    Ok(EdgeVectorParams {
        size: usize::try_from(params.size).unwrap(),
        distance: Distance::Cosine,
        on_disk: Some(true),
        multivector_config: Some(MultiVectorConfig { comparator: MultiVectorComparator::MaxSim }),
        datatype: Some(VectorStorageDatatype::Float16),
        quantization_config: None,
        hnsw_config: None,
    })
}

fn vector(stored: api::Vector) -> Result<Vector, Status> {
    use qdrant_client::qdrant::vector::Vector as Stored;
    match stored.vector {
        Some(Stored::MultiDense(rows)) => {
            Vector::new_multi(rows.vectors.into_iter().map(|row| row.data).collect::<Vec<_>>()).map_err(engine)
        }
        Some(Stored::Sparse(sparse)) => Ok(Vector::from(qdrant_edge::SparseVector { indices: sparse.indices, values: sparse.values })),
        other => Err(not_understood(format!("{other:?}"))),
    }
}

fn query_vector(input: api::VectorInput) -> Result<VectorInternal, Status> {
    match input.variant {
        Some(InputVariant::MultiDense(rows)) => {
            VectorInternal::try_from(rows.vectors.into_iter().map(|row| row.data).collect::<Vec<_>>()).map_err(engine)
        }
        Some(InputVariant::Sparse(sparse)) => {
            Ok(VectorInternal::Sparse(qdrant_edge::SparseVector { indices: sparse.indices, values: sparse.values }))
        }
        other => Err(not_understood(format!("{other:?}"))),
    }
}

fn value(stored: api::Value) -> Result<Value, Status> {
    match stored.kind {
        Some(Kind::StringValue(text)) => Ok(Value::from(text)),
        Some(Kind::IntegerValue(number)) => Ok(Value::from(number)),
        Some(Kind::ListValue(list)) => list.values.into_iter().map(value).collect(),
        other => Err(not_understood(format!("{other:?}"))),
    }
}

fn point_id(id: api::PointId) -> Result<PointId, Status> {
    match id.point_id_options {
        Some(PointIdOptions::Uuid(text)) => Uuid::parse_str(&text).map(PointId::Uuid).map_err(|_| not_understood(text)),
        Some(PointIdOptions::Num(number)) => Ok(PointId::NumId(number)),
        None => Err(not_understood("no id")),
    }
}

fn scored(point: &ScoredPoint) -> api::ScoredPoint {
    let id = match point.id {
        PointId::Uuid(uuid) => PointIdOptions::Uuid(uuid.to_string()),
        PointId::NumId(number) => PointIdOptions::Num(number),
    };
    api::ScoredPoint { id: Some(id.into()), score: point.score, ..api::ScoredPoint::default() }
}

fn object(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn list(value: &Value) -> impl Iterator<Item = String> {
    value.as_array().into_iter().flatten().map(text)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn path(name: &str) -> JsonPath {
    JsonPath { first_key: name.to_owned(), rest: Vec::new() }
}

/// The adapter sends something that this server was not written for.
fn not_understood(what: impl Into<String>) -> Status {
    Status::invalid_argument(format!("the test server does not understand {}", what.into()))
}

#[expect(clippy::needless_pass_by_value, reason = "given to map_err")]
fn engine(error: OperationError) -> Status {
    Status::invalid_argument(format!("Wrong input: {error}"))
}
