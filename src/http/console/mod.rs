//! The console: pages for administrators below `/ui`, rendered on the server.
//!
//! The pages use the same use cases as the routes below `/v1`, and add no other way to anything. They need no download, and work without
//! scripts. The only script, `console.js`, shows what happens meanwhile and lets rules be dragged. Every text of a server, a user or a
//! model is escaped by `maud`.

pub(crate) mod session;
mod text;
mod layout;
mod parts;
mod login;
mod sent;
mod savings;
mod shadow;
mod overview;
mod definitions;
mod server;
mod servers;
mod tools;
mod shape;
mod tool;
mod run;
mod access;
mod playground;
mod activity;
mod learning;

use actix_web::http::StatusCode;
use actix_web::http::header;
use actix_web::{HttpResponse, HttpResponseBuilder, Route, web};

use crate::http::pages::browser::see;
use crate::http::pages::dress::{ICON, STYLE_SHEET};
use crate::http::state::State;

/// The path of the overview. All pages are below it.
pub(crate) const CONSOLE: &str = "/ui";
pub(in crate::http) const LOGIN: &str = "/ui/login";
const SERVERS: &str = "/ui/servers";
const SERVER: &str = "/ui/server";
const TOOLS: &str = "/ui/tools";
const TOOL: &str = "/ui/tool";
/// Outside the pages that change something, so that a call ends when its browser leaves.
const RUN: &str = "/ui/run";
const ACCESS: &str = "/ui/access";
const CHECK: &str = "/ui/access/check";
const KEYS: &str = "/ui/access/keys";
const SECRETS: &str = "/ui/access/secrets";
const TOOLSETS: &str = "/ui/access/toolsets";
const TOOLSET: &str = "/ui/access/toolset";
const ACTIVITY: &str = "/ui/activity";
const CHAT: &str = "/ui/activity/chat";
const LEARNING: &str = "/ui/learning";
const STREAM: &str = "/ui/activity/stream";
const PLAYGROUND: &str = "/ui/playground";
const SCRIPT: &str = "/ui/static/console.js";

/// Registers the pages.
pub(in crate::http) fn configure(config: &mut web::ServiceConfig) {
    let reads = |path: &str, show: Route| web::resource(path).route(show);
    let writes = |path: &str, show: Route, change: Route| web::resource(path).route(show).route(change);
    config
        .service(reads(CONSOLE, web::get().to(overview::show)))
        // People type the slash.
        .service(reads("/ui/", web::get().to(async |state: web::Data<State>| see(&state, CONSOLE))))
        .service(writes(LOGIN, web::get().to(login::show), web::post().to(login::sign_in)))
        .service(reads("/ui/logout", web::post().to(login::sign_out)))
        .service(writes(SERVERS, web::get().to(servers::show), web::post().to(servers::approve)))
        .service(writes(SERVER, web::get().to(server::show), web::post().to(server::change)))
        .service(writes(TOOLS, web::get().to(tools::show), web::post().to(tools::pin)))
        .service(writes(TOOL, web::get().to(tool::show), web::post().to(tool::change)))
        .service(writes(RUN, web::get().to(run::show), web::post().to(run::run)))
        .service(writes(ACCESS, web::get().to(access::rules::show), web::post().to(access::rules::change)))
        .service(reads(CHECK, web::get().to(access::check::show)))
        .service(writes(KEYS, web::get().to(access::keys::show), web::post().to(access::keys::change)))
        .service(writes(SECRETS, web::get().to(access::secrets::show), web::post().to(access::secrets::change)))
        .service(reads(TOOLSETS, web::get().to(access::toolsets::list)))
        .service(writes(TOOLSET, web::get().to(access::toolsets::show), web::post().to(access::toolsets::change)))
        .service(writes(ACTIVITY, web::get().to(activity::show), web::post().to(activity::change)))
        .service(reads(CHAT, web::get().to(activity::story)))
        .service(writes(LEARNING, web::get().to(learning::page::show), web::post().to(learning::page::change)))
        .service(reads(STREAM, web::get().to(activity::stream)))
        .service(writes(PLAYGROUND, web::get().to(playground::show), web::post().to(playground::run)))
        .service(reads(STYLE_SHEET, web::get().to(style_sheet)))
        .service(reads(SCRIPT, web::get().to(script)))
        .service(reads(ICON, web::get().to(icon)));
}

async fn style_sheet() -> HttpResponse {
    file("text/css; charset=utf-8", include_str!("style.css"))
}

async fn script() -> HttpResponse {
    file("text/javascript; charset=utf-8", include_str!("console.js"))
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
