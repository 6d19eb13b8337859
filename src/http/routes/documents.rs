//! OpenAPI documents of a caller's visible tools.

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
use crate::http::routes::execute::context;
use crate::http::state::State;
use crate::service::catalog::current::View;
use crate::service::execution::execute::LIST_RETRY;
use crate::service::publishing::publish::{Document, DocumentOf, Publish};
use crate::service::toolsets::loading::CallerAt;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct DocumentQuery {
    /// `full` (default): all tools; `meta`: only the three meta-tools that find, describe and run tools; `smart`: these and
    /// `smart_select_tools`; `dynamic`: the meta-tools that find, load, unload and run tools, the pinned tools, and the loaded ones. A
    /// session has its own default.
    mode: Option<String>,
}

/// An OpenAPI 3.1 document.
#[derive(ToSchema)]
#[expect(dead_code, reason = "for the description alone: documents are composed as text")]
struct OpenApiBody {
    openapi: String,
    #[schema(value_type = Object)]
    info: (),
    /// Absent if the paths belong to this address.
    #[schema(value_type = Vec<Object>, required = false)]
    servers: (),
    #[schema(value_type = Object)]
    paths: (),
    /// Absent if no key is needed.
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

/// The requested mode, or that of the address; `more` lists further accepted modes, for the error.
pub(in crate::http) fn mode(requested: Option<&str>, at: &RequestAddress, more: &str) -> Result<Mode, Problem> {
    let Some(name) = requested else { return Ok(at.0.mode()) };
    Mode::of_name(name).ok_or_else(|| Problem::invalid("mode", format!("mode is `full`, `meta`, `smart`{more} or `dynamic`.")))
}

/// All tools that this caller may see, as one OpenAPI 3.1 document.
#[utoipa::path(
    tag = "documents",
    params(DocumentQuery),
    responses(
        (status = 200, description = "OpenAPI 3.1", body = OpenApiBody),
        (status = 304, description = "Not changed since the given ETag"),
        (status = 422, description = "An unknown mode")
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

/// One server's tools, with paths below it, in mcpo's layout.
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

/// A configured server without any listing yet differs from an unknown one: a later request finds its document.
fn absent(state: &State, server: Option<&ServerName>) -> Problem {
    if !server.is_some_and(|name| state.status.is_configured(name)) {
        return Problem::not_found();
    }
    let problem = Problem::new(Code::ServerUnavailable, "The MCP server has not listed its tools yet; /readyz says why.");
    Problem { retry_after: Some(LIST_RETRY.as_secs()), ..problem }
}

/// Whether the caller may see the server, and the server has listed its tools.
///
/// # Errors
/// 404 for a server unknown to the caller, 503 for one without any listing yet.
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
