//! A page on which people can browse and try the tools. The document viewer is part of the binary.
//!
//! All addresses here are relative, because a proxy may publish the service below a path, and people on this machine may open the page
//! without the proxy.

use std::borrow::Cow;
use std::io::{self, Read as _};
use std::sync::Arc;

use actix_web::http::header::{self, AcceptEncoding, ContentEncoding, Encoding, Header as _};
use actix_web::{HttpRequest, HttpResponse, web};
use flate2::read::GzDecoder;
use utoipa_swagger_ui::Config;

use crate::http::caller::Caller;
use crate::http::pages;
use crate::http::problem::{Answer, Code, Problem};
use crate::http::state::State;

/// The viewer's address, relative to the address without a slash at its end.
const VIEWER: &str = "docs/";
/// The document's address, relative to the viewer's.
const DOCUMENT: &str = "../openapi.json";

/// Redirects to the viewer's address with a slash at its end, because the page uses relative addresses.
///
/// # Errors
/// 404 for an unknown server.
pub async fn redirect(state: web::Data<State>, caller: Caller, server: Option<web::Path<String>>) -> Answer {
    if let Some(server) = server {
        check_shown(&state, &caller, &server)?;
    }
    Ok(HttpResponse::TemporaryRedirect().insert_header((header::LOCATION, VIEWER)).finish())
}

/// Serves the viewer for the document of all tools.
///
/// # Errors
/// 404 for an unknown file.
pub async fn root(request: HttpRequest, file: web::Path<String>) -> Answer {
    serve(&file, takes_gzip(&request))
}

/// Serves the viewer for one server's document.
///
/// # Errors
/// 404 for an unknown server.
pub async fn server(state: web::Data<State>, request: HttpRequest, caller: Caller, path: web::Path<(String, String)>) -> Answer {
    let (server, file) = path.into_inner();
    check_shown(&state, &caller, &server)?;
    serve(&file, takes_gzip(&request))
}

/// Checks that the caller may see the server.
fn check_shown(state: &State, caller: &Caller, server: &str) -> Result<(), Problem> {
    let catalog = state.current.snapshot();
    let is_shown = |name| state.current.shows_server(&caller.0, name);
    catalog.server(server).filter(|server| is_shown(&server.name)).map(|_| ()).ok_or_else(Problem::not_found)
}

/// Whether the client accepts compressed responses, as all browsers do.
fn takes_gzip(request: &HttpRequest) -> bool {
    let gzip = Encoding::Known(ContentEncoding::Gzip);
    AcceptEncoding::parse(request).is_ok_and(|accepted| accepted.negotiate([&gzip].into_iter()).is_some_and(|encoding| encoding == gzip))
}

/// The files are compressed in the program.
fn serve(file: &str, takes_gzip: bool) -> Answer {
    let config = Config::from(DOCUMENT).try_it_out_enabled(true).display_request_duration(true);
    let file = utoipa_swagger_ui::serve(file, Arc::new(config))
        .map_err(|error| Problem::new(Code::Internal, error.to_string()))?
        .ok_or_else(Problem::not_found)?;
    let mut response = HttpResponse::Ok();
    response.insert_header((header::CONTENT_SECURITY_POLICY, pages::VIEWER)).insert_header((header::VARY, "accept-encoding"));
    let bytes = match (file.gzpipped, takes_gzip) {
        (false, _) => file.bytes,
        (true, true) => {
            response.insert_header((header::CONTENT_ENCODING, "gzip"));
            file.bytes
        }
        (true, false) => Cow::Owned(unpacked(&file.bytes).map_err(|error| Problem::new(Code::Internal, error.to_string()))?),
    };
    Ok(response.content_type(file.content_type).body(bytes))
}

fn unpacked(packed: &[u8]) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    GzDecoder::new(packed).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use actix_web::body::MessageBody as _;
    use actix_web::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING};
    use actix_web::test::TestRequest;

    use super::{serve, takes_gzip, unpacked};

    const BUNDLE: &str = "swagger-ui-bundle.js";

    /// Regression: every request copied a file of more than a megabyte.
    #[test]
    fn files_are_not_copied() {
        let bytes = |file: &str| serve(file, true).unwrap().into_body().try_into_bytes().unwrap();
        let (first, second) = (bytes(BUNDLE), bytes(BUNDLE));
        assert!(first.len() > 1 << 17 && std::ptr::eq(first.as_ptr(), second.as_ptr()), "{} bytes", first.len());
        let initializer = bytes("swagger-initializer.js");
        assert!(String::from_utf8_lossy(&initializer).contains("/openapi.json"), "what is made for a request is sent too");
    }

    #[test]
    fn clients_without_gzip_get_plain_files() {
        let of = |takes_gzip| serve(BUNDLE, takes_gzip).unwrap();
        let is_packed = |takes_gzip| of(takes_gzip).headers().get(CONTENT_ENCODING).is_some();
        assert!(is_packed(true) && !is_packed(false));
        let bytes = |takes_gzip| of(takes_gzip).into_body().try_into_bytes().unwrap();
        assert_eq!(unpacked(&bytes(true)).unwrap(), bytes(false));
        let accepting = |value: &str| takes_gzip(&TestRequest::default().insert_header((ACCEPT_ENCODING, value)).to_http_request());
        assert!(accepting("gzip, deflate, br") && accepting("br;q=1.0, gzip;q=0.5"));
        assert!(!accepting("identity") && !accepting("gzip;q=0") && !accepting("br"));
        assert!(!takes_gzip(&TestRequest::default().to_http_request()));
    }
}
