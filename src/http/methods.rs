//! Handles HEAD and OPTIONS. HEAD requests are routed as GET requests, but the response has no body. OPTIONS lists a
//! path's methods.

use actix_web::dev::{ResourceDef, ServiceRequest};
use actix_web::http::header::{self, HeaderValue};
use actix_web::http::{Method, StatusCode};
use actix_web::{HttpMessage as _, HttpRequest, HttpResponse};
use serde_json::Value;

use crate::domain::publishing::layout::Layout;
use crate::service::access::connections::{CALLBACK, CLIENT_METADATA, PAGE};

/// Marks a request that was originally a HEAD request.
pub(super) struct WasHead;

/// The methods that each path supports.
pub(crate) struct Methods {
    routes: Vec<(ResourceDef, Vec<&'static str>)>,
}

/// All methods, in the order in which they are listed.
const KNOWN: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];

/// Methods of the MCP routes. Their GET opens a stream, so they don't support HEAD.
const MCP: [&str; 3] = ["POST", "GET", "DELETE"];

impl Methods {
    /// Collects the documented routes and the routes below each server.
    pub(crate) fn new(document: &str, layout: &Layout) -> Self {
        let document: Value = serde_json::from_str(document).unwrap_or_default();
        let paths = document["paths"].as_object().into_iter().flatten();
        let ours = paths.map(|(path, item)| {
            let methods = KNOWN.into_iter().filter(|method| item.get(method.to_ascii_lowercase()).is_some());
            (ResourceDef::new(path.as_str()), methods.collect())
        });
        let server = |path: &str| if layout.single.is_some() { path.to_owned() } else { format!("{}/{{server}}{path}", layout.prefix) };
        let below = [
            (PAGE.to_owned(), vec!["GET"]),
            (format!("{PAGE}/{{form}}"), vec!["POST"]),
            (CALLBACK.to_owned(), vec!["GET"]),
            (CLIENT_METADATA.to_owned(), vec!["GET"]),
            ("/mcp".to_owned(), MCP.to_vec()),
            ("/docs".to_owned(), vec!["GET"]),
            ("/docs/{file:.*}".to_owned(), vec!["GET"]),
            (server("/openapi.json"), vec!["GET"]),
            (server("/docs"), vec!["GET"]),
            (server("/docs/{file:.*}"), vec!["GET"]),
            (server("/mcp"), MCP.to_vec()),
        ];
        let mut routes: Vec<(ResourceDef, Vec<&'static str>)> = ours.collect();
        routes.extend(below.into_iter().map(|(path, methods)| (ResourceDef::new(path), methods)));
        // This route must be last, because it matches every path.
        routes.push((ResourceDef::new(server("/{tool:.+}")), vec!["POST"]));
        Self { routes }
    }

    /// The response to OPTIONS, or `None` if the path is unknown.
    pub(super) fn options(&self, path: &str) -> Option<HttpResponse> {
        let (_, methods) = self.routes.iter().find(|(route, _)| route.is_match(path))?;
        let mut allow = String::new();
        for method in methods {
            allow.push_str(method);
            allow.push_str(if *method == "GET" && methods[..] != MCP { ", HEAD, " } else { ", " });
        }
        allow.push_str("OPTIONS");
        let mut response = HttpResponse::new(StatusCode::NO_CONTENT);
        response.headers_mut().insert(header::ALLOW, HeaderValue::try_from(allow).ok()?);
        Some(response)
    }
}

/// Changes a HEAD request to a GET request before routing.
pub(super) fn head_as_get(request: &mut ServiceRequest) -> Option<WasHead> {
    (request.method() == Method::HEAD).then(|| {
        request.head_mut().method = Method::GET;
        WasHead
    })
}

pub(super) fn was_head(request: &HttpRequest) -> bool {
    request.extensions().contains::<WasHead>()
}

#[cfg(test)]
mod tests {
    use actix_web::http::header;

    use super::Methods;
    use crate::domain::publishing::layout::Layout;
    use crate::http::service_document;

    #[test]
    fn every_path_says_what_it_answers() {
        let methods = Methods::new(&service_document(), &Layout::default());
        let allow = |path| {
            let response = methods.options(path)?;
            Some(response.headers().get(header::ALLOW)?.to_str().ok()?.to_owned())
        };
        for (path, expected) in [
            ("/healthz", Some("GET, HEAD, OPTIONS")),
            ("/v1/filter", Some("POST, OPTIONS")),
            ("/v1/files/abc", Some("GET, HEAD, OPTIONS")),
            ("/v1/secrets/one/token", Some("PUT, DELETE, OPTIONS")),
            ("/v1/admin/policy", Some("GET, HEAD, PUT, OPTIONS")),
            ("/one/openapi.json", Some("GET, HEAD, OPTIONS")),
            ("/docs/", Some("GET, HEAD, OPTIONS")),
            ("/one/echo", Some("POST, OPTIONS")),
            ("/mcp", Some("POST, GET, DELETE, OPTIONS")),
            ("/nothing", None),
        ] {
            assert_eq!(allow(path).as_deref(), expected, "{path}");
        }
    }
}
