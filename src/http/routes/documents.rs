//! The OpenAPI documents, which contain only the tools that the caller may see.

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, get, web};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use crate::domain::access::principal::Principal;
use crate::domain::catalog::tool::ServerName;
use crate::domain::publishing::address::Address;
use crate::domain::toolsets::mode::Mode;
use crate::http::caller::Caller;
use crate::http::place::RequestAddress;
use crate::http::problem::{Answer, Code, Problem};
use crate::http::query::Query;
use crate::http::routes::context::context;
use crate::http::state::State;
use crate::service::catalog::current::View;
use crate::service::execution::execute::LIST_RETRY;
use crate::service::publishing::publish::{Document, DocumentOf, Publish, TooManyTools};
use crate::service::toolsets::loading::CallerAt;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct DocumentQuery {
    /// Which tools the document contains. `full` (default): all tools. `meta`: only the three meta-tools that find,
    /// describe and run tools. `smart`: these three and `smart_select_tools`. `dynamic`: the meta-tools that find,
    /// load, unload and run tools, the pinned tools and the loaded tools. A session has its own default.
    mode: Option<String>,
}

/// An OpenAPI 3.1 document.
#[derive(ToSchema)]
#[expect(dead_code, reason = "for the description alone: documents are composed as text")]
struct OpenApiBody {
    openapi: String,
    #[schema(value_type = Object)]
    info: (),
    /// Absent if the paths are relative to the document's own address.
    #[schema(value_type = Vec<Object>, required = false)]
    servers: (),
    #[schema(value_type = Object)]
    paths: (),
    /// Absent if the service requires no key.
    #[schema(value_type = Vec<Object>, required = false)]
    security: (),
    #[schema(value_type = Object)]
    components: (),
}

impl DocumentQuery {
    fn mode(&self, at: &RequestAddress) -> Result<Mode, Problem> {
        mode(self.mode.as_deref(), at, "")
    }
}

/// The mode in the request, or else the mode of the address. `more` names further valid modes for the error message.
pub(in crate::http) fn mode(requested: Option<&str>, at: &RequestAddress, more: &str) -> Result<Mode, Problem> {
    let Some(name) = requested else { return Ok(at.0.mode().of_documents()) };
    Mode::of_name(name).ok_or_else(|| Problem::invalid("mode", format!("mode is `full`, `meta`, `smart`{more} or `dynamic`.")))
}

/// Returns all tools that the caller may see, as one OpenAPI 3.1 document.
#[utoipa::path(
    tag = "documents",
    params(DocumentQuery),
    responses(
        (status = 200, description = "The OpenAPI 3.1 document", body = OpenApiBody),
        (status = 304, description = "The document has not changed since this ETag"),
        (status = 422, description = "The mode is unknown, or the document would have too many tools")
    )
)]
#[get("/openapi.json")]
pub async fn root(
    state: web::Data<State>,
    caller: Caller,
    at: RequestAddress,
    query: Query<DocumentQuery>,
    request: HttpRequest,
) -> Answer {
    answer(&state, &caller, &at, &DocumentOf::Root, query.0.mode(&at)?, &request).await
}

/// Returns one server's tools, with paths below the server's name, as in mcpo.
///
/// # Errors
/// 404 for an unknown server.
pub async fn server(
    state: web::Data<State>,
    caller: Caller,
    at: RequestAddress,
    path: web::Path<String>,
    query: Query<DocumentQuery>,
    request: HttpRequest,
) -> Answer {
    answer(&state, &caller, &at, &DocumentOf::Server(ServerName::new(path.into_inner())), query.0.mode(&at)?, &request).await
}

async fn answer(state: &State, caller: &Caller, at: &RequestAddress, part: &DocumentOf, mode: Mode, request: &HttpRequest) -> Answer {
    let server = match part {
        DocumentOf::Server(name) => Some(name),
        DocumentOf::Root => state.publish.layout().single.as_ref(),
    };
    if server.is_some_and(|name| !state.current.shows_server(&caller.0, name)) {
        return Err(Problem::not_found());
    }
    let view = state.current.view(&caller.0);
    let context = context(caller, request);
    let bound = state.loading.bound(CallerAt::new(&context, &at.0), mode).await;
    state.publish.check_size(&view, &at.0, part, mode, &bound).map_err(too_many)?;
    let document = state.publish.document_with(&view, &at.0, part, mode, &bound).ok_or_else(|| absent(state, server))?;
    if matches!(*at.0, Address::Session(_)) || mode == Mode::Dynamic {
        let listed = Publish::listed(&view.catalog, &at.0, &view.visibility, mode, &bound).len();
        state.loading.note_listed(&context, listed);
    }
    let Document { body, etag } = document;
    let known = request.headers().get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let unchanged = known.is_some_and(|known| known == "*" || known.split(',').any(|tag| tag.trim().trim_start_matches("W/") == &*etag));
    let mut response = if unchanged { HttpResponse::NotModified() } else { HttpResponse::Ok() };
    response.insert_header((header::ETAG, &*etag)).insert_header((header::CACHE_CONTROL, "private, no-cache"));
    Ok(if unchanged { response.finish() } else { response.content_type("application/json").body(body) })
}

fn too_many(TooManyTools { tools, max_tools }: TooManyTools) -> Problem {
    let remedy = "Use ?mode=meta or ?mode=dynamic, in which the model finds its tools, or the document of a toolset with fewer tools.";
    let limit = "`documents.max_tools`";
    Problem::invalid("mode", format!("This document would have {tools} tools, and the limit is {max_tools} ({limit}). {remedy}"))
}

/// The error for a missing document. If the server is configured but has not listed its tools yet, the error invites a
/// retry.
fn absent(state: &State, server: Option<&ServerName>) -> Problem {
    if !server.is_some_and(|name| state.status.is_configured(name)) {
        return Problem::not_found();
    }
    let problem = Problem::new(Code::ServerUnavailable, "The MCP server has not listed its tools yet; /readyz says why.");
    Problem { retry_after: Some(LIST_RETRY.as_secs()), ..problem }
}

/// Checks that the caller may see the server, and that the server has listed its tools.
///
/// # Errors
/// 404 for a server that the caller may not see, and 503 for a server that has not listed its tools yet.
pub(in crate::http) fn check_server(state: &State, caller: &Principal, server: &ServerName) -> Result<(), Problem> {
    if !state.current.shows_server(caller, server) {
        return Err(Problem::not_found());
    }
    let View { catalog, visibility, .. } = state.current.view(caller);
    if catalog.server(server.as_str()).is_some_and(|server| visibility.shows(server)) {
        return Ok(());
    }
    Err(absent(state, Some(server)))
}
