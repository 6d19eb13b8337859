//! The services of a node.

use std::sync::Arc;

use async_trait::async_trait;
use qdrant_client::qdrant::alias_operations::Action;
use qdrant_client::qdrant::collections_server::Collections;
use qdrant_client::qdrant::points_server::Points;
use qdrant_client::qdrant::qdrant_server::Qdrant;
use qdrant_client::qdrant::{
    AliasDescription, BatchResult, ChangeAliases, CollectionDescription, CollectionExists, CollectionExistsRequest,
    CollectionExistsResponse, CollectionOperationResponse, CountPoints, CountResponse, CountResult, CreateCollection,
    CreateFieldIndexCollection, DeleteCollection, HealthCheckReply, HealthCheckRequest, ListAliasesRequest, ListAliasesResponse,
    ListCollectionsRequest, ListCollectionsResponse, PointsOperationResponse, QueryBatchPoints, QueryBatchResponse, UpdateResult,
    UpdateStatus, UpsertPoints,
};
use tonic::{Request, Response, Status};

use super::{Behaviour, Storage};

#[derive(Clone)]
pub(super) struct Service {
    pub(super) storage: Arc<Storage>,
    pub(super) behaviour: Arc<Behaviour>,
}

type Answer<T> = Result<Response<T>, Status>;

/// An implementation of a service with the methods that are not there.
macro_rules! service {
    ($service:ident { $($there:tt)* } refuses { $($method:ident($request:ident) -> $answer:ident;)* }) => {
        #[async_trait]
        impl $service for Service {
            $($there)*
            $(
                async fn $method(
                    &self,
                    _: Request<qdrant_client::qdrant::$request>,
                ) -> Answer<qdrant_client::qdrant::$answer> {
                    Err(Status::unimplemented(stringify!($method)))
                }
            )*
        }
    };
}

#[async_trait]
impl Qdrant for Service {
    async fn health_check(&self, request: Request<HealthCheckRequest>) -> Answer<HealthCheckReply> {
        self.behaviour.admit(&request, "health_check").await?;
        Ok(Response::new(HealthCheckReply { title: "a test".into(), version: "1.20.0".into(), commit: None }))
    }
}

service! {
    Collections {
        async fn create(&self, request: Request<CreateCollection>) -> Answer<CollectionOperationResponse> {
            self.behaviour.admit(&request, "create").await?;
            self.storage.create(request.get_ref())?;
            Ok(done())
        }

        async fn delete(&self, request: Request<DeleteCollection>) -> Answer<CollectionOperationResponse> {
            self.behaviour.admit(&request, "delete_collection").await?;
            let result = self.storage.remove(&request.get_ref().collection_name);
            Ok(Response::new(CollectionOperationResponse { result, time: 0.0 }))
        }

        async fn list(&self, request: Request<ListCollectionsRequest>) -> Answer<ListCollectionsResponse> {
            self.behaviour.admit(&request, "list").await?;
            let collections = self.storage.names().into_iter().map(|name| CollectionDescription { name }).collect();
            Ok(Response::new(ListCollectionsResponse { collections, time: 0.0 }))
        }

        async fn collection_exists(&self, request: Request<CollectionExistsRequest>) -> Answer<CollectionExistsResponse> {
            self.behaviour.admit(&request, "collection_exists").await?;
            let exists = self.storage.collection(&request.get_ref().collection_name).is_ok();
            Ok(Response::new(CollectionExistsResponse { result: Some(CollectionExists { exists }), time: 0.0 }))
        }

        async fn update_aliases(&self, request: Request<ChangeAliases>) -> Answer<CollectionOperationResponse> {
            self.behaviour.admit(&request, "update_aliases").await?;
            for operation in request.into_inner().actions {
                match operation.action {
                    Some(Action::CreateAlias(create)) => self.storage.point(create.alias_name, create.collection_name)?,
                    Some(Action::DeleteAlias(delete)) => self.storage.unpoint(&delete.alias_name),
                    _ => return Err(Status::unimplemented("an operation on aliases")),
                }
            }
            Ok(done())
        }

        async fn list_aliases(&self, request: Request<ListAliasesRequest>) -> Answer<ListAliasesResponse> {
            self.behaviour.admit(&request, "list_aliases").await?;
            let aliases = self.storage.aliases().into_iter();
            let aliases = aliases.map(|(alias_name, collection_name)| AliasDescription { alias_name, collection_name }).collect();
            Ok(Response::new(ListAliasesResponse { aliases, time: 0.0 }))
        }
    } refuses {
        get(GetCollectionInfoRequest) -> GetCollectionInfoResponse;
        update(UpdateCollection) -> CollectionOperationResponse;
        collection_cluster_info(CollectionClusterInfoRequest) -> CollectionClusterInfoResponse;
        list_collection_aliases(ListCollectionAliasesRequest) -> ListAliasesResponse;
        update_collection_cluster_setup(UpdateCollectionClusterSetupRequest) -> UpdateCollectionClusterSetupResponse;
        create_shard_key(CreateShardKeyRequest) -> CreateShardKeyResponse;
        delete_shard_key(DeleteShardKeyRequest) -> DeleteShardKeyResponse;
        list_shard_keys(ListShardKeysRequest) -> ListShardKeysResponse;
    }
}

service! {
    Points {
        async fn upsert(&self, request: Request<UpsertPoints>) -> Answer<PointsOperationResponse> {
            self.behaviour.admit(&request, "upsert").await?;
            let request = request.into_inner();
            self.storage.collection(&request.collection_name)?.upsert(request.points)?;
            Ok(stored())
        }

        async fn create_field_index(&self, request: Request<CreateFieldIndexCollection>) -> Answer<PointsOperationResponse> {
            self.behaviour.admit(&request, "create_field_index").await?;
            let request = request.into_inner();
            self.storage.index(&request.collection_name, &request.field_name, request.field_type())?;
            Ok(stored())
        }

        async fn count(&self, request: Request<CountPoints>) -> Answer<CountResponse> {
            self.behaviour.admit(&request, "count").await?;
            let count = self.storage.collection(&request.get_ref().collection_name)?.count() as u64;
            Ok(Response::new(CountResponse { result: Some(CountResult { count }), ..CountResponse::default() }))
        }

        async fn query_batch(&self, request: Request<QueryBatchPoints>) -> Answer<QueryBatchResponse> {
            self.behaviour.admit(&request, "query_batch").await?;
            let request = request.into_inner();
            let collection = self.storage.collection(&request.collection_name)?;
            let lists = request.query_points.into_iter().map(|query| Ok(BatchResult { result: collection.query(query)? }));
            let result = lists.collect::<Result<_, Status>>()?;
            Ok(Response::new(QueryBatchResponse { result, ..QueryBatchResponse::default() }))
        }
    } refuses {
        delete(DeletePoints) -> PointsOperationResponse;
        get(GetPoints) -> GetResponse;
        update_vectors(UpdatePointVectors) -> PointsOperationResponse;
        delete_vectors(DeletePointVectors) -> PointsOperationResponse;
        set_payload(SetPayloadPoints) -> PointsOperationResponse;
        overwrite_payload(SetPayloadPoints) -> PointsOperationResponse;
        delete_payload(DeletePayloadPoints) -> PointsOperationResponse;
        clear_payload(ClearPayloadPoints) -> PointsOperationResponse;
        delete_field_index(DeleteFieldIndexCollection) -> PointsOperationResponse;
        create_vector_name(CreateVectorNameRequest) -> PointsOperationResponse;
        delete_vector_name(DeleteVectorNameRequest) -> PointsOperationResponse;
        search(SearchPoints) -> SearchResponse;
        search_batch(SearchBatchPoints) -> SearchBatchResponse;
        search_groups(SearchPointGroups) -> SearchGroupsResponse;
        scroll(ScrollPoints) -> ScrollResponse;
        recommend(RecommendPoints) -> RecommendResponse;
        recommend_batch(RecommendBatchPoints) -> RecommendBatchResponse;
        recommend_groups(RecommendPointGroups) -> RecommendGroupsResponse;
        discover(DiscoverPoints) -> DiscoverResponse;
        discover_batch(DiscoverBatchPoints) -> DiscoverBatchResponse;
        update_batch(UpdateBatchPoints) -> UpdateBatchResponse;
        query(QueryPoints) -> QueryResponse;
        query_groups(QueryPointGroups) -> QueryGroupsResponse;
        facet(FacetCounts) -> FacetResponse;
        search_matrix_pairs(SearchMatrixPoints) -> SearchMatrixPairsResponse;
        search_matrix_offsets(SearchMatrixPoints) -> SearchMatrixOffsetsResponse;
    }
}

fn done() -> Response<CollectionOperationResponse> {
    Response::new(CollectionOperationResponse { result: true, time: 0.0 })
}

fn stored() -> Response<PointsOperationResponse> {
    let result = UpdateResult { operation_id: None, status: UpdateStatus::Completed.into() };
    Response::new(PointsOperationResponse { result: Some(result), ..PointsOperationResponse::default() })
}
