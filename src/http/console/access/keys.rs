//! The keys: creates and revokes them.

use std::time::SystemTime;

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use maud::{Markup, html};
use secrecy::ExposeSecret;
use serde_json::{Map, json};

use super::{KEYS, names, navigation};
use crate::domain::access::api_key::{ApiKey, KeyId, KeyRole, KeyState};
use crate::domain::access::management::ManagedBy;
use crate::domain::access::toolset_name::ToolsetName;
use crate::domain::catalog::tool::ServerName;
use crate::http::body::Body;
use crate::http::caller::Caller;
use crate::http::console::layout::{Place, Visit};
use crate::http::console::parts::{Form, Head, Part, done, moment, pager, short, table};
use crate::http::console::text::{Texts, reason};
use crate::http::pages::browser::{Fields, address, see};
use crate::http::problem::Problem;
use crate::http::routes::admin::keys;
use crate::http::state::State;

/// Number of keys in the table.
const PAGE: usize = 50;
const FIELDS: [&str; 7] = ["name", "servers", "toolsets", "groups", "expires_in_days", "trusted", "role"];

pub(in crate::http::console) async fn show(state: web::Data<State>, caller: Caller, request: HttpRequest) -> HttpResponse {
    let visit = match Visit::begin(&state, &caller, &request) {
        Ok(visit) => visit,
        Err(elsewhere) => return elsewhere,
    };
    let query = Fields::of_query(&request);
    let all = state.keys.list();
    let to_revoke = query.given("revoke").filter(|_| visit.may_change()).and_then(|id| all.iter().find(|key| key.id.as_str() == id));
    let body = html! {
        (navigation(&visit, KEYS))
        (done(&visit, &query))
        @match to_revoke {
            Some(key) => (confirmation(&visit, key)),
            None => { (list(&visit, &state, &all, query.number("offset"))) (form(&visit, &Fields::default(), None)) },
        }
    };
    let title = title(&visit);
    visit.page(Place::Access, &title, &body)
}

/// Creates a key and shows its secret, or revokes one.
pub(in crate::http::console) async fn change(state: web::Data<State>, caller: Caller, request: HttpRequest, body: Body) -> HttpResponse {
    let (visit, fields) = match Visit::with_form(&state, &request, &body, KEYS) {
        Ok(begun) => begun,
        Err(elsewhere) => return elsewhere,
    };
    let title = title(&visit);
    if let Some(id) = fields.given("revoke") {
        return match keys::revoke(&state, &caller.0, KeyId::new(id)).await {
            Ok(_) => see(&state, &address(KEYS, &[("done", "revoked")])),
            Err(problem) => {
                let body = html! { (navigation(&visit, KEYS)) p.bad role="alert" { (reason(visit.texts, &problem)) } };
                visit.page_with(problem.code.status(), Place::Access, &title, &body)
            }
        };
    }
    let days = fields.given("expires_in_days").map(str::parse::<u32>);
    let created = match days {
        // The error of the API would name a place in a JSON text that this page doesn't show.
        Some(Err(_)) => Err(Problem::invalid("expires_in_days", visit.texts.whole_number.clone())),
        _ => keys::create(&state, &caller.0, new_key(&fields).as_bytes()).await,
    };
    match created {
        // Nothing stores the secret, so only this response can show it.
        Ok((key, secret)) => {
            let texts = visit.texts;
            let body = html! {
                (navigation(&visit, KEYS))
                section.notice role="status" {
                    h2 { (texts.key_created) " " (short(&key.name, 100)) }
                    p { (texts.key_once) }
                    p { code.secret { (secret.expose_secret()) } }
                    p { a href=(visit.at(KEYS)) { (texts.all_keys) } }
                }
            };
            visit.page_with(StatusCode::CREATED, Place::Access, &title, &body)
        }
        Err(problem) => {
            let all = state.keys.list();
            let body = html! {
                (navigation(&visit, KEYS))
                (form(&visit, &fields, Some(&problem)))
                (list(&visit, &state, &all, 0))
            };
            visit.page_with(problem.code.status(), Place::Access, &title, &body)
        }
    }
}

fn title(visit: &Visit<'_>) -> String {
    format!("{}: {}", visit.texts.access, visit.texts.keys)
}

/// The body of the request that the form stands for.
fn new_key(fields: &Fields) -> String {
    let mut body = Map::from_iter([("name".to_owned(), json!(fields.text("name")))]);
    for name in ["servers", "toolsets", "groups"] {
        let names = fields.lines(name);
        if !names.is_empty() {
            body.insert(name.to_owned(), json!(names));
        }
    }
    if fields.text("trusted") == "true" {
        body.insert("trusted".to_owned(), json!(true));
    }
    if let Some(role) = fields.given("role") {
        body.insert("role".to_owned(), json!(role));
    }
    if let Some(Ok(days)) = fields.given("expires_in_days").map(str::parse::<u32>) {
        body.insert("expires_in_days".to_owned(), json!(days));
    }
    json!(body).to_string()
}

fn list(visit: &Visit<'_>, state: &State, all: &[ApiKey], offset: usize) -> Markup {
    let texts = visit.texts;
    if all.is_empty() {
        return html! { p { (texts.no_keys) } };
    }
    let heads = [
        Head::Text(&texts.name),
        Head::Text(&texts.state),
        Head::Text(&texts.servers),
        Head::Text(&texts.toolsets),
        Head::Text(&texts.groups_named),
        Head::Text(&texts.expires),
        Head::Text(&texts.last_used),
        Head::Text(&texts.actions),
    ];
    let now = SystemTime::now();
    let rows = html! { @for key in all.iter().skip(offset).take(PAGE) { (row(visit, key, state.keys.state(key, now))) } };
    html! {
        (table(&texts.keys, &heads, &rows))
        @if all.len() > PAGE {
            (pager(texts, Part { offset, limit: PAGE, total: all.len() }, |at| visit.link(KEYS, &[("offset", &at.to_string())])))
        }
    }
}

fn row(visit: &Visit<'_>, key: &ApiKey, state: KeyState) -> Markup {
    let texts = visit.texts;
    let (state_name, class) = state_of(texts, state);
    let servers: Option<Vec<&str>> = key.servers.as_ref().map(|servers| servers.iter().map(ServerName::as_str).collect());
    let toolsets: Option<Vec<&str>> = key.toolsets.as_ref().map(|toolsets| toolsets.iter().map(ToolsetName::as_str).collect());
    let groups: Vec<&String> = key.groups.iter().collect();
    html! {
        tr {
            th scope="row" { (short(&key.name, 64)) @if key.trusted { small.notable { (texts.trusted) } } @if key.role == Some(KeyRole::Viewer) { small.notable { (texts.viewer) } } }
            td { span class=(class) { (state_name) } }
            td { @match servers { Some(servers) => (names(&servers)), None => (texts.all) } }
            td { @match toolsets { Some(toolsets) => (names(&toolsets)), None => (texts.all) } }
            td { (names(&groups)) }
            td { (moment(key.expires_at)) }
            td { (moment(key.last_used_at)) }
            td {
                @if key.managed_by() == ManagedBy::File { span.quiet { (texts.in_file) } }
                @else if state != KeyState::Revoked && visit.may_change() {
                    a href=(visit.link(KEYS, &[("revoke", key.id.as_str())])) aria-label={ (texts.revoke) ": " (short(&key.name, 64)) } { (texts.revoke) }
                }
            }
        }
    }
}

fn state_of(texts: &Texts, state: KeyState) -> (&str, &'static str) {
    match state {
        KeyState::Active => (&texts.key_active, "good"),
        KeyState::Expired => (&texts.key_expired, "quiet"),
        KeyState::Revoked => (&texts.key_revoked, "quiet"),
        KeyState::Overridden => (&texts.key_overridden, "bad"),
    }
}

fn form(visit: &Visit<'_>, given: &Fields, problem: Option<&Problem>) -> Markup {
    let (texts, form) = (visit.texts, Form::new(visit.texts, given, problem));
    if !visit.may_change() {
        return html! {};
    }
    html! {
        h2 { (texts.new_key) }
        form.columns method="post" action=(visit.at(KEYS)) {
            (visit.token())
            (form.error_beside(&FIELDS))
            (form.line("name", &texts.name, &texts.key_name_hint))
            (form.lines("servers", &texts.servers, &texts.empty_all))
            (form.lines("toolsets", &texts.toolsets, &texts.empty_all))
            (form.lines("groups", &texts.groups_named, &texts.one_per_line))
            (form.line("expires_in_days", &texts.expires_in_days, &texts.empty_never))
            (form.checkbox("trusted", &texts.trusted_hint))
            (form.choice("role", &texts.role, &[("", texts.role_caller.as_str()), ("viewer", &texts.viewer)]))
            p.all { button { (texts.create) } }
        }
    }
}

fn confirmation(visit: &Visit<'_>, key: &ApiKey) -> Markup {
    let texts = visit.texts;
    html! {
        form.buttons method="post" action=(visit.at(KEYS)) {
            (visit.token())
            h2 { (texts.revoke) ": " (short(&key.name, 64)) }
            p { (texts.revoke_hint) }
            input type="hidden" name="revoke" value=(key.id.as_str());
            button { (texts.revoke) }
            a href=(visit.at(KEYS)) { (texts.cancel) }
        }
    }
}
