//! The console: pages for administrators below `/ui`, rendered on the server.
//!
//! The pages use the same use cases as the routes below `/v1`, and add no other way to anything. They contain no scripts and need no
//! download. Every text of a server, a user or a model is escaped by `maud`.

pub(crate) mod session;
mod text;
mod layout;
mod login;
mod overview;
mod playground;

use actix_web::http::StatusCode;
use actix_web::http::header;
use actix_web::{HttpResponse, HttpResponseBuilder, web};

/// The path of the overview. All pages are below it.
pub(crate) const CONSOLE: &str = "/ui";
const LOGIN: &str = "/ui/login";
const STYLE_SHEET: &str = "/ui/static/style.css";
const ICON: &str = "/ui/static/icon.svg";

/// Registers the pages.
pub(in crate::http) fn configure(config: &mut web::ServiceConfig) {
    config
        .service(web::resource(CONSOLE).route(web::get().to(overview::show)))
        .service(web::resource(LOGIN).route(web::get().to(login::show)).route(web::post().to(login::sign_in)))
        .service(web::resource("/ui/logout").route(web::post().to(login::sign_out)))
        .service(web::resource("/ui/playground").route(web::get().to(playground::show)).route(web::post().to(playground::run)))
        .service(web::resource(STYLE_SHEET).route(web::get().to(style_sheet)))
        .service(web::resource(ICON).route(web::get().to(icon)));
}

async fn style_sheet() -> HttpResponse {
    file("text/css; charset=utf-8", include_str!("style.css"))
}

async fn icon() -> HttpResponse {
    file("image/svg+xml", include_str!("icon.svg"))
}

fn file(kind: &'static str, text: &'static str) -> HttpResponse {
    // The address stays the same in the next version.
    HttpResponseBuilder::new(StatusCode::OK)
        .insert_header((header::CONTENT_TYPE, kind))
        .insert_header((header::CACHE_CONTROL, "no-cache"))
        .body(text)
}
