//! A page on which people can browse and try the tools. The document viewer is part of the binary.

use std::sync::Arc;

use actix_web::http::header;
use actix_web::{HttpResponse, web};
use utoipa_swagger_ui::Config;

use crate::http::caller::Caller;
use crate::http::pages;
use crate::http::place::RequestAddress;
use crate::http::problem::{Answer, Code, Problem};
use crate::http::state::State;

/// Redirects to the viewer's address with a slash at its end, because the page uses relative addresses.
///
/// # Errors
/// 404 for an unknown server.
pub async fn redirect(state: web::Data<State>, caller: Caller, at: RequestAddress, server: Option<web::Path<String>>) -> Answer {
    let base = match server {
        Some(server) => known(&state, &caller, &at, &server)?,
        None => state.publish.layout().below(&at.0.prefix()).root_path,
    };
    let location = format!("{base}/docs/");
    Ok(HttpResponse::TemporaryRedirect().insert_header((header::LOCATION, location)).finish())
}

/// Serves the viewer for the document of all tools.
///
/// # Errors
/// 404 for an unknown file.
pub async fn root(state: web::Data<State>, at: RequestAddress, file: web::Path<String>) -> Answer {
    serve(&file, format!("{}/openapi.json", state.publish.layout().below(&at.0.prefix()).root_path))
}

/// Serves the viewer for one server's document.
///
/// # Errors
/// 404 for an unknown server.
pub async fn server(state: web::Data<State>, caller: Caller, at: RequestAddress, path: web::Path<(String, String)>) -> Answer {
    let (server, file) = path.into_inner();
    serve(&file, format!("{}/openapi.json", known(&state, &caller, &at, &server)?))
}

/// The path of the server, if the caller may see the server.
fn known(state: &State, caller: &Caller, at: &RequestAddress, server: &str) -> Result<String, Problem> {
    let catalog = state.current.snapshot();
    let is_shown = |name| state.current.shows_server(&caller.0, name);
    let server = catalog.server(server).filter(|server| is_shown(&server.name)).ok_or_else(Problem::not_found)?;
    Ok(state.publish.layout().below(&at.0.prefix()).server(&server.name))
}

fn serve(file: &str, document: String) -> Answer {
    let config = Config::from(document).try_it_out_enabled(true).display_request_duration(true);
    let file = utoipa_swagger_ui::serve(file, Arc::new(config))
        .map_err(|error| Problem::new(Code::Internal, error.to_string()))?
        .ok_or_else(Problem::not_found)?;
    let mut response = HttpResponse::Ok();
    if file.gzpipped {
        response.insert_header((header::CONTENT_ENCODING, "gzip"));
    }
    response.insert_header((header::CONTENT_SECURITY_POLICY, pages::VIEWER));
    Ok(response.content_type(file.content_type).body(file.bytes))
}

#[cfg(test)]
mod tests {
    use actix_web::body::MessageBody as _;

    use super::serve;

    /// Regression: every request copied a file of more than a megabyte.
    #[test]
    fn files_are_not_copied() {
        let bytes = |file: &str| serve(file, "/openapi.json".to_owned()).unwrap().into_body().try_into_bytes().unwrap();
        let (first, second) = (bytes("swagger-ui-bundle.js"), bytes("swagger-ui-bundle.js"));
        assert!(first.len() > 1 << 20 && std::ptr::eq(first.as_ptr(), second.as_ptr()), "{} bytes", first.len());
        let initializer = bytes("swagger-initializer.js");
        assert!(String::from_utf8_lossy(&initializer).contains("/openapi.json"), "what is made for a request is sent too");
    }
}
