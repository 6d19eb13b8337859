//! Which secrets users have stored. A value is never shown.

use actix_web::{HttpRequest, HttpResponse, web};
use maud::{Markup, html};

use super::{SECRETS, navigation};
use crate::http::body::Body;
use crate::http::caller::Caller;
use crate::http::console::layout::{Place, Visit};
use crate::http::console::parts::{Head, Part, done, moment, pager, short, table};
use crate::http::pages::browser::{Fields, address, see};
use crate::http::problem::Problem;
use crate::http::routes::admin::secrets;
use crate::http::state::State;
use crate::service::ports::StoredSecret;

/// Number of secrets in the table.
const PAGE: usize = 100;

pub(in crate::http::console) async fn show(state: web::Data<State>, caller: Caller, request: HttpRequest) -> HttpResponse {
    let visit = match Visit::begin(&state, &caller, &request) {
        Ok(visit) => visit,
        Err(elsewhere) => return elsewhere,
    };
    let query = Fields::of_query(&request);
    let title = title(&visit);
    if let Some(principal) = query.given("forget").filter(|_| visit.may_change()) {
        let body = html! { (navigation(&visit, SECRETS)) (confirmation(&visit, principal)) };
        return visit.page(Place::Access, &title, &body);
    }
    let offset = query.number("offset");
    let (stored, total) = match state.secrets.stored(offset, PAGE).await {
        Ok(stored) => stored,
        Err(error) => return visit.failed(&Problem::from(error)),
    };
    let total = usize::try_from(total).unwrap_or(usize::MAX);
    let body = html! {
        (navigation(&visit, SECRETS))
        (done(&visit, &query))
        p.quiet { (visit.texts.secrets_hint) }
        (list(&visit, &stored, Part { offset, limit: PAGE, total }))
    };
    visit.page(Place::Access, &title, &body)
}

/// Deletes what belongs to one caller.
pub(in crate::http::console) async fn change(state: web::Data<State>, caller: Caller, request: HttpRequest, body: Body) -> HttpResponse {
    let (visit, fields) = match Visit::with_form(&state, &request, &body, SECRETS) {
        Ok(begun) => begun,
        Err(elsewhere) => return elsewhere,
    };
    match secrets::forget(&state, &caller.0, fields.text("forget")).await {
        Ok(_) => see(&state, &address(SECRETS, &[("done", "forgotten")])),
        Err(problem) => visit.failed(&problem),
    }
}

fn title(visit: &Visit<'_>) -> String {
    format!("{}: {}", visit.texts.access, visit.texts.secrets)
}

fn list(visit: &Visit<'_>, stored: &[StoredSecret], part: Part) -> Markup {
    let texts = visit.texts;
    if part.total == 0 {
        return html! { p { (texts.no_secrets) } };
    }
    let heads = [
        Head::Text(&texts.caller),
        Head::Text(&texts.server),
        Head::Text(&texts.name),
        Head::Text(&texts.changed_at),
        Head::Text(&texts.actions),
    ];
    let rows = html! { @for secret in stored { (row(visit, secret)) } };
    html! {
        (table(&texts.secrets, &heads, &rows))
        @if part.total > PAGE { (pager(texts, part, |at| visit.link(SECRETS, &[("offset", &at.to_string())]))) }
    }
}

fn row(visit: &Visit<'_>, StoredSecret { place, updated_at }: &StoredSecret) -> Markup {
    let (texts, owner) = (visit.texts, place.owner.as_str());
    let forget = format!("{}: {}", texts.delete_all_of, short(owner, 100));
    html! {
        tr {
            th scope="row" { code { (short(owner, 100)) } }
            td { (short(place.server.as_str(), 100)) }
            td { code { (place.name.as_str()) } }
            td { (moment(Some(*updated_at))) }
            td { @if visit.may_change() { a href=(visit.link(SECRETS, &[("forget", owner)])) aria-label=(forget) { (texts.delete_all_of) } } }
        }
    }
}

fn confirmation(visit: &Visit<'_>, principal: &str) -> Markup {
    let texts = visit.texts;
    html! {
        form.buttons method="post" action=(visit.at(SECRETS)) {
            (visit.token())
            h2 { (texts.delete_all_of) ": " (short(principal, 100)) }
            p { (texts.delete_all_hint) }
            input type="hidden" name="forget" value=(principal);
            button { (texts.delete_all_of) }
            a href=(visit.at(SECRETS)) { (texts.cancel) }
        }
    }
}
