//! The HTTP face: routes, who may call them, and how errors look.

mod address;
pub mod body;
pub mod caller;
pub mod connections;
pub mod finish;
pub mod front;
#[doc(hidden)]
pub mod fuzzing;
pub mod llm_keys;
pub mod mcp;
mod meter;
pub mod methods;
pub mod origin;
pub mod pages;
pub mod person;
pub mod place;
pub mod problem;
pub mod routes;
pub mod state;

use actix_cors::Cors;
use actix_web::http::header;
use actix_web::{App, guard, web};
use serde_json::{Value, json};
use utoipa::OpenApi;
use utoipa_actix_web::AppExt;
use utoipa_actix_web::service_config::ServiceConfig;

use crate::domain::publishing::layout::Layout;

/// Our own static routes. The tools' routes are not among them: each caller's document describes those.
#[derive(OpenApi)]
#[openapi(
    info(title = "Toolsieve", description = "The service's own routes. The tools are described by /openapi.json.", license(name = "Apache-2.0", identifier = "Apache-2.0")),
    tags(
        (name = "operations", description = "Whether the service is alive and ready"),
        (name = "filter", description = "Which tools matter for a message"),
        (name = "tools", description = "Find and run tools"),
        (name = "toolsets", description = "Named lists of tools. Below /toolsets/NAME stand the same routes as below /, and know only its tools"),
        (name = "sessions", description = "Documents of one's own. Below /s/ID stand the same routes as below /"),
        (name = "secrets", description = "What callers keep here for MCP servers that are called in their names"),
        (name = "files", description = "Files that tools returned"),
        (name = "administration", description = "For the key of administration alone; for every other caller there are no such routes"),
        (name = "documents", description = "What a caller may see, as OpenAPI documents")
    )
)]
pub struct ServiceApi;

/// Registers every static route, once for the server and for its document.
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
        .service(routes::secrets::list)
        .service(routes::secrets::put)
        .service(routes::secrets::remove)
        .service(routes::smart_select::smart_select)
        .service(routes::toolsets::list)
        .service(routes::toolsets::load)
        .service(routes::toolsets::unload)
        .service(routes::toolsets::enable)
        .service(routes::toolsets::available)
        .configure(routes::sessions::configure)
        .service(routes::metrics::metrics)
        .service(routes::feedback::feedback)
        .configure(routes::admin::configure);
}

/// Registers what depends on the catalog: everything below a server's name. Comes last.
pub fn configure_servers(config: &mut web::ServiceConfig, layout: &Layout) {
    let at = |path: &str| if layout.single.is_some() { path.to_owned() } else { format!("{}/{{server}}{path}", layout.prefix) };
    // Guarded as a whole, so that a tool of such a name is still reached.
    config
        .service(web::resource("/mcp").to(mcp::serve))
        .service(web::resource("/docs").guard(guard::Get()).to(routes::docs::redirect))
        .service(web::resource("/docs/{file:.*}").guard(guard::Get()).to(routes::docs::root));
    if layout.single.is_none() {
        config
            .service(web::resource(at("/openapi.json")).guard(guard::Get()).to(routes::documents::server))
            .service(web::resource(at("/mcp")).guard(mcp::SpeaksMcp).to(mcp::serve_one))
            .service(web::resource(at("/docs")).guard(guard::Get()).to(routes::docs::redirect))
            .service(web::resource(at("/docs/{file:.*}")).guard(guard::Get()).to(routes::docs::server));
    }
    let execute = match &layout.single {
        Some(_) => web::post().to(routes::execute::execute_single),
        None => web::post().to(routes::execute::execute),
    };
    config.service(web::resource(at("/{tool:.+}")).route(execute)).default_service(web::to(problem::no_route));
}

/// The description of our own routes, as `openapi/service.json` holds it.
#[must_use]
pub fn service_document() -> String {
    let (_, document) = App::new().into_utoipa_app().openapi(ServiceApi::openapi()).configure(configure).split_for_parts();
    let mut document = serde_json::to_value(document).unwrap_or_default();
    for operation in document["paths"].as_object_mut().into_iter().flat_map(serde_json::Map::values_mut).flat_map(operations) {
        for (status, description, needs_body) in EVERYWHERE {
            let wanted = !needs_body || operation.get("requestBody").is_some();
            if wanted && operation["responses"].get(status).is_none() {
                operation["responses"][status] = json!({ "description": description });
            }
        }
    }
    format!("{document:#}")
}

/// What every route may answer, or every one that takes a body.
const EVERYWHERE: [(&str, &str, bool); 4] = [
    ("403", "A page of another site asks (`foreign_origin`)", false),
    ("408", "The body did not come in time", true),
    ("415", "The body is encoded (`Content-Encoding`)", true),
    ("429", "Too many requests, or too many wrong keys from this address; `Retry-After` says when to try again", false),
];

fn operations(item: &mut Value) -> impl Iterator<Item = &mut Value> {
    const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];
    let keys = item.as_object_mut().into_iter().flatten();
    keys.filter(|(key, _)| METHODS.contains(&key.as_str())).map(|(_, operation)| operation)
}

/// Pages of these origins may call; without any, no page of another site may. Never with cookies or credentials. As mcpo
/// does it, with any header. What they may read of an answer is said in `front`, always in the same words.
pub fn cors(origins: &[String], any_header: bool) -> Cors {
    const HOUR: usize = 3_600;
    let cors = Cors::default()
        .allowed_methods(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"])
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
