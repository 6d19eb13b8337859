//! Health checks: whether the service is alive, and whether it is ready.

use actix_web::{HttpResponse, get, web};
use serde::Serialize;
use utoipa::ToSchema;

use crate::domain::access::principal::PrincipalKind;
use crate::http::caller::Caller;
use crate::http::described::described;
use crate::http::state::State;
use crate::service::catalog::current::View;
use crate::service::catalog::definitions::DefinitionCounts;
use crate::service::catalog::status::{EmbedderState, IndexView, Indexed, Readiness, SpoolView};
use crate::service::learning::learn::LearningState;
use crate::service::ports::{IndexState, QdrantState, ServerPhase, ServerState};

described! {
    /// The state of each part of the service. It contains only servers that the caller may see. Without a key, it
    /// contains no errors or other details.
    struct ReadinessBody of Readiness {
        ready: bool,
        /// Number of tools.
        tools: usize,
        servers: Vec<ServerStateBody>,
        index: IndexBody,
        store: StoreBody,
        spool: SpoolBody,
        /// Whether this replica does what must happen once for all replicas: retention and enrichment.
        leader: bool,
        embedder: EmbedderBody,
        reload: ReloadBody,
        /// Present only for administrators.
        definitions unless "Option::is_none": Option<DefinitionCountsBody>,
        /// Present only for administrators, and only if learning is on.
        learning unless "Option::is_none": Option<LearningStateBody>,
    }

    /// What learning from use does.
    struct LearningStateBody of LearningState {
        /// `auto` or `always`.
        mode: &'static str,
        /// Number of scopes with remembered messages.
        scopes: usize,
        /// Number of scopes whose uses count.
        on: usize,
        /// Number of scopes that were replayed since the start.
        replayed: usize,
        /// The mean nDCG@5 of the last replays without learning; absent before the first replay.
        before unless "Option::is_none": Option<f64>,
        /// The same with learning.
        after unless "Option::is_none": Option<f64>,
    }

    /// The state of an MCP server.
    struct ServerStateBody of ServerState {
        server: String,
        phase: ServerPhaseBody,
        /// Number of tools that the server listed last, without those that the caller may not see.
        tools: usize,
        /// Number of listed tools that could not be read; absent if there are none. The log contains the reasons.
        left_out unless "no": usize,
        /// The error of the last attempt to connect, or the reason why a stored entry can't be read.
        error: Option<String>,
        /// The MCP version that the service and the server have agreed on.
        protocol: Option<String>,
        /// Number of users' separate connections; absent if the server has no such connections.
        user_connections unless "Option::is_none": Option<usize>,
    }

    /// `starting`: the first attempt to connect is running. `retrying`: the last attempt failed, and the service will
    /// try again.
    #[serde(rename_all = "snake_case")]
    enum ServerPhaseBody of ServerPhase {
        Starting,
        Connected,
        Retrying,
    }

    /// The search index. Tools that are not in the index yet can be found by their words only.
    struct IndexBody of IndexView {
        state: IndexedBody,
        #[serde(flatten)]
        holds: IndexStateBody,
    }

    /// `building`: the index doesn't contain the current catalog yet. `embedding`: some vectors are still to be computed.
    #[serde(rename_all = "snake_case")]
    enum IndexedBody of Indexed {
        Building,
        Embedding,
        Complete,
    }

    struct IndexStateBody of IndexState {
        /// Number of tools in the index.
        documents: usize,
        /// Number of tools that don't wait for a vector.
        embedded: usize,
        /// Why searches use words only.
        error unless "Option::is_none": Option<String>,
        /// Present only if the index is on a Qdrant cluster.
        qdrant unless "Option::is_none": Option<QdrantBody>,
    }

    /// The nodes of a Qdrant cluster.
    struct QdrantBody of QdrantState {
        nodes: usize,
        answering: usize,
        /// Whether searches use the cluster. If not, they use words only, in memory.
        searched: bool,
        /// The last error of a node.
        error unless "Option::is_none": Option<String>,
    }
}

/// The database.
#[derive(Serialize, ToSchema)]
struct StoreBody {
    /// `ready`, `degraded` or `failed`. A degraded database can be read but not written, for example because its disk is full: changes are
    /// refused, and calls and messages continue.
    state: String,
    /// The error, and what to do; absent if the database is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

described! {
    /// Records on the disk that wait for the store.
    struct SpoolBody of SpoolView {
        bytes: u64,
        /// Why the disk does not take further records.
        error unless "Option::is_none": Option<String>,
    }
}

described! {
    /// The embedding model.
    struct EmbedderBody of EmbedderState {
        model: String,
        /// Number of dimensions; 0 until an endpoint has responded for the first time.
        dimension: usize,
        /// Why embedding is failing at the moment.
        error unless "Option::is_none": Option<String>,
    }
}

/// The result of the last configuration reload.
#[derive(Serialize, ToSchema)]
struct ReloadBody {
    /// `none`, `applied` or `failed`. After a failed reload, the old configuration remains in effect.
    state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<String>,
    /// Changed settings that need a restart; present only after an applied reload.
    #[serde(skip_serializing_if = "Option::is_none")]
    needs_restart: Option<Vec<String>>,
    /// The errors; present only after a failed reload.
    #[serde(skip_serializing_if = "Option::is_none")]
    problems: Option<Vec<String>>,
}

described! {
    /// Number of tools whose definitions are not approved.
    struct DefinitionCountsBody of DefinitionCounts {
        /// Number of changed tools, including withheld ones.
        changed: usize,
        withheld: usize,
        new: usize,
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn no(count: &usize) -> bool {
    *count == 0
}

/// Responds whenever the process is alive.
#[utoipa::path(tag = "operations", responses((status = 200, description = "The process is alive", content_type = "text/plain", body = String)), security(()))]
#[get("/healthz")]
pub async fn healthz() -> HttpResponse {
    HttpResponse::Ok().content_type("text/plain").body("ok")
}

/// Reports whether the service is ready. It is ready once every server has responded or failed its first attempt. It is
/// also ready once the last good catalog is loaded, and after 10 seconds at the latest. While it stops, it is not ready.
#[utoipa::path(
    tag = "operations",
    responses(
        (status = 200, description = "The service is ready; the body shows the state of each part", body = ReadinessBody),
        (status = 503, description = "The service is not ready yet, or it is stopping", body = ReadinessBody)
    ),
    security(())
)]
#[get("/readyz")]
pub async fn readyz(state: web::Data<State>, caller: Caller) -> HttpResponse {
    let mut readiness = state.status.readiness(caller.0.kind == PrincipalKind::Nobody).await;
    let is_public = caller.0.kind == PrincipalKind::Nobody && state.current.policy().is_open();
    if !is_public && !caller.0.sees_all() {
        // Removes servers and tools that the caller may not see.
        let View { catalog, visibility, .. } = state.current.view(&caller.0);
        readiness.servers.retain(|server| state.current.shows_server(&caller.0, &server.server));
        for shown in &mut readiness.servers {
            let tools = catalog.server(shown.server.as_str()).into_iter().flat_map(|server| &server.tools);
            shown.tools = shown.tools.saturating_sub(tools.filter(|tool| !visibility.allows(tool)).count());
        }
    }
    if !is_public && !caller.0.sees_all() {
        readiness.definitions = None;
        readiness.learning = None;
    }
    if caller.0.kind == PrincipalKind::Nobody {
        readiness.hide_reasons();
    }
    let mut response = if readiness.ready { HttpResponse::Ok() } else { HttpResponse::ServiceUnavailable() };
    response.json(readiness)
}
