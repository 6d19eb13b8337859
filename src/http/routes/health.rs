//! Liveness and readiness.

use actix_web::{HttpResponse, get, web};
use serde::Serialize;
use utoipa::ToSchema;

use crate::domain::access::principal::PrincipalKind;
use crate::http::caller::Caller;
use crate::http::described::described;
use crate::http::state::State;
use crate::service::catalog::definitions::DefinitionCounts;
use crate::service::catalog::status::{EmbedderState, IndexView, Indexed, Readiness};
use crate::service::ports::{IndexState, QdrantState, ServerPhase, ServerState};

described! {
    /// The state of each component. Callers see the servers that they may see. Without a key, errors and details are left out.
    struct ReadinessBody of Readiness {
        ready: bool,
        /// Number of tools.
        tools: usize,
        servers: Vec<ServerStateBody>,
        index: IndexBody,
        store: StoreBody,
        embedder: EmbedderBody,
        reload: ReloadBody,
        /// For administrators.
        definitions unless "Option::is_none": Option<DefinitionCountsBody>,
    }

    /// The state of an MCP server.
    struct ServerStateBody of ServerState {
        server: String,
        phase: ServerPhaseBody,
        /// Number of tools in the last listing.
        tools: usize,
        /// Number of unreadable tools among them; the log has the reasons. Absent: none.
        left_out unless "no": usize,
        /// Error of the last connection attempt.
        error: Option<String>,
        /// The negotiated version of MCP.
        protocol: Option<String>,
        /// Connections on behalf of single users. Absent if the server has none.
        user_connections unless "Option::is_none": Option<usize>,
    }

    /// `starting`: the first attempt is running. `retrying`: the last attempt failed, and the next one is scheduled.
    #[serde(rename_all = "snake_case")]
    enum ServerPhaseBody of ServerPhase {
        Starting,
        Connected,
        Retrying,
    }

    /// The search index. Tools missing from it are found by their words.
    struct IndexBody of IndexView {
        state: IndexedBody,
        #[serde(flatten)]
        holds: IndexStateBody,
    }

    /// `building`: the index differs from the catalog. `embedding`: some tools have no vector yet.
    #[serde(rename_all = "snake_case")]
    enum IndexedBody of Indexed {
        Building,
        Embedding,
        Complete,
    }

    struct IndexStateBody of IndexState {
        /// Tools in the index.
        documents: usize,
        /// Tools with a vector.
        embedded: usize,
        /// Why search is lexical only.
        error unless "Option::is_none": Option<String>,
        /// Only for an index on a Qdrant cluster.
        qdrant unless "Option::is_none": Option<QdrantBody>,
    }

    /// The nodes of a Qdrant cluster.
    struct QdrantBody of QdrantState {
        nodes: usize,
        answering: usize,
        /// Whether searches use the cluster. Otherwise search is lexical, in memory.
        searched: bool,
        /// The last error of a node.
        error unless "Option::is_none": Option<String>,
    }
}

/// The store.
#[derive(Serialize, ToSchema)]
struct StoreBody {
    /// `ready` or `failed`.
    state: String,
    /// Only for a failed store.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

described! {
    /// The embedding model.
    struct EmbedderBody of EmbedderState {
        model: String,
        /// 0 until the first response of an endpoint.
        dimension: usize,
        /// Why embedding fails now.
        error unless "Option::is_none": Option<String>,
    }
}

/// The last reload of the configuration.
#[derive(Serialize, ToSchema)]
struct ReloadBody {
    /// `none`, `applied` or `failed`. After a failed reload the old configuration stays in force.
    state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<String>,
    /// Changed keys that need a restart, after an applied reload.
    #[serde(skip_serializing_if = "Option::is_none")]
    needs_restart: Option<Vec<String>>,
    /// Only after a failed reload.
    #[serde(skip_serializing_if = "Option::is_none")]
    problems: Option<Vec<String>>,
}

described! {
    /// Number of tools with unapproved definitions.
    struct DefinitionCountsBody of DefinitionCounts {
        /// Number of withheld tools among them.
        changed: usize,
        withheld: usize,
        new: usize,
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn no(count: &usize) -> bool {
    *count == 0
}

/// Alive: the process answers.
#[utoipa::path(tag = "operations", responses((status = 200, description = "Alive", content_type = "text/plain", body = String)), security(()))]
#[get("/healthz")]
pub async fn healthz() -> HttpResponse {
    HttpResponse::Ok().content_type("text/plain").body("ok")
}

/// Ready: every server has answered or failed its first attempt, or a last good catalog is loaded, or 10 s have passed.
#[utoipa::path(
    tag = "operations",
    responses(
        (status = 200, description = "Ready; the body shows the state of each part", body = ReadinessBody),
        (status = 503, description = "Not yet", body = ReadinessBody)
    ),
    security(())
)]
#[get("/readyz")]
pub async fn readyz(state: web::Data<State>, caller: Caller) -> HttpResponse {
    let mut readiness = state.status.readiness(caller.0.kind == PrincipalKind::Nobody).await;
    let is_public = caller.0.kind == PrincipalKind::Nobody && state.current.policy().is_open();
    if !is_public && !caller.0.administers {
        // Hidden servers have no visible state either.
        readiness.servers.retain(|server| state.current.shows_server(&caller.0, &server.server));
    }
    if !is_public && !caller.0.administers {
        readiness.definitions = None;
    }
    if caller.0.kind == PrincipalKind::Nobody {
        // A server's last output is not public.
        readiness.servers.iter_mut().for_each(|server| server.error = None);
        // Nor are paths and keys of the configuration.
        readiness.reload.hide_details();
    }
    let mut response = if readiness.ready { HttpResponse::Ok() } else { HttpResponse::ServiceUnavailable() };
    response.json(readiness)
}
