//! OpenAPI documents of what a caller may see.
#![expect(unreachable_pub, unused_qualifications, reason = "the route macros repeat visibility and paths on an inner function")]

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, get, web};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::domain::document::Mode;
use crate::domain::tool::ServerName;
use crate::http::caller::Caller;
use crate::http::place::At;
use crate::http::problem::{Code, Problem};
use crate::http::state::State;
use crate::service::publish::{Document, Face};

#[derive(Deserialize, IntoParams)]
pub struct DocumentQuery {
    /// `full` (default): all tools; `meta`: only the three that find, describe and run them; `smart`: these and
    /// `smart_select_tools`.
    mode: Option<String>,
}

impl DocumentQuery {
    fn mode(&self) -> Result<Mode, Problem> {
        match self.mode.as_deref() {
            None | Some("full") => Ok(Mode::Full),
            Some("meta") => Ok(Mode::Meta),
            Some("smart") => Ok(Mode::Smart),
            Some(_) => Err(Problem::new(Code::InvalidRequest, "mode is `full`, `meta` or `smart`.")),
        }
    }
}

/// All tools that this caller may see, as one OpenAPI 3.1 document.
#[utoipa::path(
    tag = "documents",
    params(DocumentQuery),
    responses(
        (status = 200, description = "OpenAPI 3.1", body = Object),
        (status = 304, description = "Not changed since the given ETag"),
        (status = 401, description = "No key, or a wrong one"),
        (status = 422, description = "An unknown mode")
    )
)]
#[get("/openapi.json")]
pub async fn root(
    state: web::Data<State>,
    caller: Caller,
    at: At,
    query: web::Query<DocumentQuery>,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    answer(&state, &caller, &at, &Face::Root, query.mode()?, &request)
}

/// One server's tools, with paths below it, as mcpo serves them.
///
/// # Errors
/// 404 for an unknown server.
pub async fn server(
    state: web::Data<State>,
    caller: Caller,
    at: At,
    path: web::Path<String>,
    query: web::Query<DocumentQuery>,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    answer(&state, &caller, &at, &Face::Server(ServerName::new(path.into_inner())), query.mode()?, &request)
}

fn answer(state: &State, caller: &Caller, at: &At, face: &Face, mode: Mode, request: &HttpRequest) -> Result<HttpResponse, Problem> {
    let server = match face {
        Face::Server(name) => Some(name),
        Face::Root => state.publish.layout().single.as_ref(),
    };
    if server.is_some_and(|name| !state.current.shows_server(&caller.0, name)) {
        return Err(Problem::not_found());
    }
    let visibility = state.current.visibility(&caller.0);
    let document = state.publish.document(&at.0, face, &visibility, mode).ok_or_else(|| absent(state, server))?;
    let Document { body, etag } = document;
    let known = request.headers().get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let unchanged = known.is_some_and(|known| known == "*" || known.split(',').any(|tag| tag.trim().trim_start_matches("W/") == &*etag));
    let mut response = if unchanged { HttpResponse::NotModified() } else { HttpResponse::Ok() };
    response.insert_header((header::ETAG, &*etag)).insert_header((header::CACHE_CONTROL, "private, no-cache"));
    Ok(if unchanged { response.finish() } else { response.content_type("application/json").body(body) })
}

/// A server that is configured but has never answered is not the same as none: who comes again finds its document.
fn absent(state: &State, server: Option<&ServerName>) -> Problem {
    if !server.is_some_and(|name| state.status.is_configured(name)) {
        return Problem::not_found();
    }
    let mut problem = Problem::new(Code::ServerUnavailable, "The MCP server has not listed its tools yet; /readyz says why.");
    problem.retry_after = Some(2);
    problem
}
