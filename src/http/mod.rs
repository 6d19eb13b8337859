//! The HTTP interface: routes, authentication, MCP and error documents.

pub(crate) mod access_log;
mod address;
pub(crate) mod admission;
mod area;
mod blocking;
pub(crate) mod body;
pub(crate) mod caller;
pub(crate) mod connections;
pub(crate) mod console;
mod described;
mod document;
mod event_stream;
pub(crate) mod finish;
pub(crate) mod front;
#[doc(hidden)]
pub mod fuzzing;
pub(crate) mod llm_keys;
pub(crate) mod mcp;
mod member;
mod meta_tools;
mod meter;
pub(crate) mod methods;
pub(crate) mod origin;
pub(crate) mod pages;
pub(crate) mod person;
pub(crate) mod place;
pub(crate) mod problem;
pub(crate) mod query;
pub(crate) mod routes;
pub(crate) mod state;
mod traced;

use actix_cors::Cors;
use actix_web::guard::GuardContext;
use actix_web::http::header;
use actix_web::{Resource, guard, web};
use utoipa_actix_web::service_config::ServiceConfig;

pub use self::document::service_document;
use crate::domain::catalog::naming::RESERVED_SERVER_NAMES;
use crate::domain::publishing::layout::Layout;

/// Registers all static routes, for the server and for its OpenAPI document.
pub fn configure(config: &mut ServiceConfig<'_>) {
    config
        .service(routes::health::healthz)
        .service(routes::health::readyz)
        .service(routes::documents::root)
        .service(routes::filter::filter)
        .service(routes::tools::search)
        .service(routes::tools::describe)
        .service(routes::tools::call)
        .service(routes::files::file)
        .service(routes::connections::list_connections)
        .service(routes::secrets::list_secrets)
        .service(routes::secrets::give_secret)
        .service(routes::secrets::remove_secret)
        .service(routes::smart_select::smart_select)
        .service(routes::toolsets::list_toolsets)
        .service(routes::toolsets::load_toolset)
        .service(routes::toolsets::unload_toolset)
        .service(routes::toolsets::enable_tool_group)
        .service(routes::toolsets::list_available_toolsets)
        .configure(routes::sessions::configure)
        .service(routes::metrics::metrics)
        .service(routes::feedback::feedback)
        .configure(routes::admin::configure);
}

/// Registers the route for tool calls, for all paths that no other route can match. It must come first: the router
/// tries its routes in order, and nearly every request is a call.
pub fn configure_calls(config: &mut web::ServiceConfig, layout: &Layout) {
    let prefix = layout.prefix.clone();
    let is_plain = move |context: &GuardContext<'_>| is_plain_call(context.head().uri.path(), &prefix);
    config.service(calls(layout).guard(guard::Post()).guard(guard::fn_guard(is_plain)));
}

/// Whether the path is below a server's name and contains no percent sign. Excludes paths that end in `/mcp`, which may
/// be the server's MCP endpoint.
fn is_plain_call(path: &str, prefix: &str) -> bool {
    let Some((first, rest)) = path.strip_prefix(prefix).and_then(|path| path.strip_prefix('/')?.split_once('/')) else { return false };
    !RESERVED_SERVER_NAMES.contains(&first) && rest != "mcp" && !path.contains('%')
}

/// Registers the routes below each server's name. They must come last, because the catalog determines which of their
/// paths exist.
pub fn configure_servers(config: &mut web::ServiceConfig, layout: &Layout) {
    let at = |path: &str| server_path(layout, path);
    routes::connections::configure_pages(config);
    routes::account::configure_pages(config);
    console::configure(config);
    // Each path has a single guard, so that a tool with the same name remains reachable.
    let mcp = web::resource("/mcp");
    let mcp = if layout.single.is_some() { mcp.guard(mcp::SpeaksMcp) } else { mcp };
    config
        .service(mcp.to(mcp::serve))
        .service(web::resource("/docs").guard(guard::Get()).to(routes::docs::redirect))
        .service(web::resource("/docs/{file:.*}").guard(guard::Get()).to(routes::docs::root));
    if layout.single.is_none() {
        config
            .service(web::resource(at("/openapi.json")).guard(guard::Get()).to(routes::documents::server))
            .service(web::resource(at("/mcp")).guard(mcp::SpeaksMcp).to(mcp::serve_one))
            .service(web::resource(at("/docs")).guard(guard::Get()).to(routes::docs::redirect))
            .service(web::resource(at("/docs/{file:.*}")).guard(guard::Get()).to(routes::docs::server));
    }
    config.service(calls(layout)).default_service(web::to(problem::no_route));
}

fn server_path(layout: &Layout, path: &str) -> String {
    if layout.single.is_some() { path.to_owned() } else { format!("{}/{{server}}{path}", layout.prefix) }
}

fn calls(layout: &Layout) -> Resource {
    let execute = match &layout.single {
        Some(_) => web::post().to(routes::execute::execute_single),
        None => web::post().to(routes::execute::execute),
    };
    web::resource(server_path(layout, "/{tool:.+}")).route(execute)
}

/// All methods of the routes. HEAD is supported wherever GET is.
const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];

/// Allows web pages with these origins to call the service. Without any origin, no other site's page may call it.
/// Cookies are never accepted. `any_header` allows all request headers, as mcpo does. `front` sets the response headers
/// that pages may read.
pub fn cors(origins: &[String], any_header: bool) -> Cors {
    const HOUR: usize = 3_600;
    let cors = Cors::default()
        .allowed_methods(METHODS)
        .allowed_headers([header::AUTHORIZATION, header::CONTENT_TYPE, header::ACCEPT, header::IF_MATCH, header::IF_NONE_MATCH])
        .allowed_header("X-Session-Id")
        .allowed_headers(["mcp-session-id", "mcp-protocol-version", "mcp-method", "mcp-name", "last-event-id"])
        .max_age(HOUR);
    let cors = if any_header { cors.allow_any_header() } else { cors };
    if origins.iter().any(|origin| origin == "*") {
        return cors.allow_any_origin().send_wildcard();
    }
    origins.iter().fold(cors, |cors, origin| cors.allowed_origin(origin)).block_on_origin_mismatch(false)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::{METHODS, is_plain_call, service_document};

    #[test]
    fn only_a_path_below_a_server_is_routed_first() {
        for path in ["/github/create_issue", "/github/v1/tools/search", "/github/a/b", "/github/mcp/x"] {
            assert!(is_plain_call(path, ""), "{path}");
            assert!(is_plain_call(&format!("/pre{path}"), "/pre"), "{path}");
        }
        for path in ["/v1/filter", "/v1/admin/policy", "/mcp", "/github", "/github/mcp", "/github/%6dcp", "/%761/filter", "/docs/x"] {
            assert!(!is_plain_call(path, ""), "{path}");
            assert!(!is_plain_call(path, "/pre"), "{path}");
        }
    }

    #[test]
    fn pages_may_use_the_methods_that_routes_answer() {
        let document: Value = serde_json::from_str(&service_document()).unwrap();
        let items = document["paths"].as_object().unwrap().values();
        let answered = items.flat_map(|item| item.as_object().unwrap().keys().map(|method| method.to_uppercase()));
        let answered: BTreeSet<String> = answered.chain(["HEAD".to_owned()]).collect();
        assert_eq!(METHODS.map(str::to_owned).into_iter().collect::<BTreeSet<_>>(), answered);
    }
}
