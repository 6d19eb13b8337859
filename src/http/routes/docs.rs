//! A page to read and try the tools. The viewer is part of the binary.

use actix_web::http::header;
use actix_web::{HttpResponse, web};
use utoipa_swagger_ui::{Config, SwaggerUi};

use crate::domain::principal::Visibility;
use crate::http::caller::Caller;
use crate::http::problem::Problem;
use crate::http::state::State;

/// Swagger UI on our own document.
pub fn swagger_ui() -> SwaggerUi {
    SwaggerUi::new("/docs/{_:.*}").config(Config::from("/openapi.json").try_it_out_enabled(true).display_request_duration(true))
}

pub async fn redirect() -> HttpResponse {
    HttpResponse::PermanentRedirect().insert_header((header::LOCATION, "/docs/")).finish()
}

/// The viewer on one server's document.
///
/// # Errors
/// 404 for an unknown server.
pub async fn server(state: web::Data<State>, caller: Caller, path: web::Path<String>) -> Result<HttpResponse, Problem> {
    let name = path.into_inner();
    let visibility = Visibility::of(&caller.0);
    let catalog = state.select.catalog();
    catalog.server(&name).filter(|server| visibility.servers.contains(&server.name)).ok_or_else(Problem::not_found)?;
    let segment: String = url::form_urlencoded::byte_serialize(name.as_bytes()).collect::<String>().replace('+', "%20");
    let location = format!("/docs/?url=/{segment}/openapi.json");
    Ok(HttpResponse::TemporaryRedirect().insert_header((header::LOCATION, location)).finish())
}
