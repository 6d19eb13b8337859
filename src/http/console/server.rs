//! One server: adds or changes its entry, switches it on and off, restarts and removes it.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use maud::{Markup, html};

use super::layout::{Place, Visit};
use super::parts::{Form, based_on, done, phase, second, short, taken, version_in};
use super::text::{Texts, reason};
use super::{SERVER, SERVERS};
use crate::domain::access::management::{ManagedBy, NO_ENTRY};
use crate::domain::catalog::tool::ServerName;
use crate::http::body::Body;
use crate::http::caller::Caller;
use crate::http::pages::browser::{Fields, address, see};
use crate::http::problem::{Code, Problem};
use crate::http::routes::admin::servers;
use crate::http::state::State;
use crate::service::catalog::tool_admin::ServerView;
use crate::service::ports::ServerPhase;
use crate::service::servers::BRIEF;
use crate::settings::EntryProblem;

/// What a new entry may look like.
const EXAMPLE: &str = "{\n  \"type\": \"streamable-http\",\n  \"url\": \"https://example.org/mcp\"\n}";

/// One server, or the form for a new one.
pub(super) async fn show(state: web::Data<State>, caller: Caller, request: HttpRequest) -> HttpResponse {
    let visit = match Visit::begin(&state, &caller, &request) {
        Ok(visit) => visit,
        Err(elsewhere) => return elsewhere,
    };
    let query = Fields::of_query(&request);
    let Some(name) = query.given("server") else {
        let mut given = Fields::default();
        given.set("entry", EXAMPLE);
        return page(visit, None, &query, (&given, None));
    };
    let view = match servers::view(&state, &ServerName::from(name)).await {
        Ok(view) => view,
        Err(problem) => return visit.failed(&problem),
    };
    if query.text("do") == "remove" && view.managed_by == ManagedBy::Api && visit.may_change() {
        let body = confirmation(&visit, &view);
        return visit.page(Place::Servers, view.server.as_str(), &body);
    }
    let given = entered(&view);
    page(visit, Some(&view), &query, (&given, None))
}

/// Saves, switches, restarts or removes a server.
pub(super) async fn change(state: web::Data<State>, caller: Caller, request: HttpRequest, body: Body) -> HttpResponse {
    let (visit, mut fields) = match Visit::with_form(&state, &request, &body, SERVERS) {
        Ok(begun) => begun,
        Err(elsewhere) => return elsewhere,
    };
    let (texts, name) = (visit.texts, ServerName::from(fields.text("server")));
    let expected = based_on(&fields, name.as_str()).map(str::to_owned);
    let mut warnings = Vec::new();
    let (changed, done) = match fields.text("do") {
        "on" => (servers::switch(&state, &caller.0, &name, true, BRIEF).await, "switched_on"),
        "off" => (servers::switch(&state, &caller.0, &name, false, BRIEF).await, "switched_off"),
        "restart" => (servers::restart(&state, &caller.0, &name, BRIEF).await, "restarted"),
        "remove" => (servers::remove(&state, &caller.0, &name, expected.as_deref()).await, "removed"),
        _ => {
            let saved = servers::save(&state, &caller.0, &name, (fields.text("entry").as_bytes(), expected.as_deref()), BRIEF).await;
            (saved.map(|(_, found)| warnings = found), "saved")
        }
    };
    match changed {
        Ok(()) if done == "removed" => see(&state, &address(SERVERS, &[("done", done)])),
        Ok(()) if warnings.is_empty() => see(&state, &address(SERVER, &[("server", name.as_str()), ("done", done)])),
        // Nothing stores the warnings, so only this response can show them.
        Ok(()) => match servers::view(&state, &name).await {
            Ok(view) => {
                let mut query = Fields::default();
                query.set("done", done);
                page_with(visit, Some(&view), &query, (&entered(&view), None), &warnings)
            }
            Err(problem) => visit.failed(&problem),
        },
        // A new server has the name of one in the file. The form keeps the entry, for another name.
        Err(problem) if problem.code == Code::ManagedByFile && fields.given("entry").is_some() => {
            fields.take("version");
            page(visit, None, &Fields::default(), (&fields, Some(&Problem { parameter: Some("server".into()), ..problem })))
        }
        Err(problem) => {
            let view = servers::view(&state, &name).await.ok();
            let is_new = expected.as_deref() == Some(NO_ENTRY);
            if problem.code == Code::PreconditionFailed
                && is_new
                && let Some(view) = &view
            {
                return page_of_taken(visit, view, (&fields, &taken(texts, "server", problem)));
            }
            // The form for a new server stays one, whoever else has its name.
            let view = view.filter(|_| !is_new);
            // The buttons and the confirmation of a removal send no entry.
            let given = view.as_ref().filter(|_| fields.given("entry").is_none()).map_or(fields, entered);
            page(visit, view.as_ref(), &Fields::default(), (&given, Some(&problem)))
        }
    }
}

/// A server's entry, as the fields of its form.
fn entered(view: &ServerView) -> Fields {
    let mut fields = Fields::default();
    fields.set("server", view.server.to_string());
    fields.set("entry", view.entry.as_ref().map(|entry| format!("{entry:#}")).unwrap_or_default());
    fields
}

fn page(visit: Visit<'_>, view: Option<&ServerView>, query: &Fields, form: (&Fields, Option<&Problem>)) -> HttpResponse {
    page_with(visit, view, query, form, &[])
}

/// The form for a new server whose name is taken by this one.
fn page_of_taken(visit: Visit<'_>, view: &ServerView, (given, problem): (&Fields, &Problem)) -> HttpResponse {
    let texts = visit.texts;
    let body = html! {
        (form_with(&visit, None, Some(view), (given, Some(problem))))
        section.notice {
            h2 { (texts.taken_by) }
            pre tabindex="0" { (entered(view).text("entry")) }
        }
    };
    visit.page_with(problem.code.status(), Place::Servers, &texts.new_server, &body)
}

/// `warnings` are about the entry that was just saved.
fn page_with(
    visit: Visit<'_>,
    view: Option<&ServerView>,
    query: &Fields,
    (given, problem): (&Fields, Option<&Problem>),
    warnings: &[EntryProblem],
) -> HttpResponse {
    let texts = visit.texts;
    let is_of_file = view.is_some_and(|view| view.managed_by == ManagedBy::File);
    let body = html! {
        (done(&visit, query))
        @if !warnings.is_empty() {
            div.notice role="status" {
                p { (texts.entry_warnings) }
                ul { @for warning in warnings { li { (short(&warning.to_string(), 300)) } } }
            }
        }
        @if let Some(view) = view { (state_of(&visit, view)) }
        @if is_of_file { p.notice { (texts.server_in_file) } }
        @if let Some(problem) = problem.filter(|_| is_of_file) { p.bad role="alert" { (reason(texts, problem)) } }
        @if !is_of_file { (form(&visit, view, given, problem)) }
        @if let Some(view) = view.filter(|_| visit.may_change()) { (actions(&visit, view)) }
        @if let Some(view) = view { (log(&visit, view)) }
    };
    let title = view.map_or_else(|| texts.new_server.clone(), |view| short(view.server.as_str(), 100).into_owned());
    visit.page_with(problem.map_or(StatusCode::OK, |problem| problem.code.status()), Place::Servers, &title, &body)
}

fn state_of(visit: &Visit<'_>, view: &ServerView) -> Markup {
    let texts = visit.texts;
    html! {
        p { (texts.state) ": " (server_phase(texts, view)) }
        @if view.phase == Some(ServerPhase::Starting) {
            p.notice role="status" { (texts.being_connected) " " a href=(visit.link(SERVER, &[("server", view.server.as_str())])) { (texts.refresh) } }
        }
        @if let Some(error) = &view.error { p.bad lang="en" { (short(error, 1_000)) } }
    }
}

/// The phase of a server, which may be switched off.
pub(super) fn server_phase(texts: &Texts, view: &ServerView) -> Markup {
    match view.phase {
        Some(known) => phase(texts, known),
        None if view.enabled => html! { span.bad { (texts.not_used) } },
        None => html! { span.quiet { (texts.switched_off) } },
    }
}

fn form(visit: &Visit<'_>, view: Option<&ServerView>, given: &Fields, problem: Option<&Problem>) -> Markup {
    // Whoever saves again after a conflict has seen the other version.
    let in_conflict = problem.is_some_and(|problem| problem.code == Code::PreconditionFailed);
    html! {
        @if in_conflict { (other_version(visit.texts, view)) }
        (form_with(visit, view, None, (given, problem)))
    }
}

/// The form for a server, or for a new one whose name another one may have (`of`).
fn form_with(
    visit: &Visit<'_>,
    view: Option<&ServerView>,
    of: Option<&ServerView>,
    (given, problem): (&Fields, Option<&Problem>),
) -> Markup {
    let texts = visit.texts;
    let form = Form { is_fixed: !visit.may_change(), ..Form::new(texts, given, problem) };
    let now = of.or(view).map_or_else(|| NO_ENTRY.to_owned(), |view| visit.state.servers.version(&view.server));
    let version = version_in(&form, given.text("server"), now);
    let fields = html! {
        (form.error_beside(&["server", "entry"]))
        input type="hidden" name="version" value=(version);
        @if let Some(of) = of { input type="hidden" name="of" value=(of.server.as_str()); }
        @if view.is_some() { input type="hidden" name="server" value=(given.text("server")); }
        @else { (form.line("server", &texts.name, &texts.server_name_hint)) }
        (form.area("entry", &texts.entry, &texts.entry_hint))
        p.all.quiet { (texts.stored_hint) }
    };
    html! {
        @if visit.may_change() {
            form.columns method="post" action=(visit.at(SERVER)) {
                (visit.token())
                (fields)
                p.all { button name="do" value="save" { (texts.save) } }
            }
        } @else if view.is_some() { div.columns { (fields) } }
        @else { p.notice { (texts.viewer_hint) } }
    }
}

fn actions(visit: &Visit<'_>, view: &ServerView) -> Markup {
    let texts = visit.texts;
    html! {
        form.buttons method="post" action=(visit.at(SERVER)) {
            (visit.token())
            input type="hidden" name="server" value=(view.server.as_str());
            @if view.enabled {
                button name="do" value="restart" { (texts.restart) }
                button name="do" value="off" { (texts.switch_off) }
            } @else {
                button name="do" value="on" { (texts.switch_on) }
            }
            @if view.managed_by == ManagedBy::Api {
                a href=(visit.link(SERVER, &[("server", view.server.as_str()), ("do", "remove")])) { (texts.remove) }
            }
        }
    }
}

/// What another administrator has saved in the meantime.
fn other_version(texts: &Texts, view: Option<&ServerView>) -> Markup {
    let Some(view) = view else { return html! { p.notice { (texts.removed_meanwhile) } } };
    html! {
        section.notice {
            h2 { (texts.other_version) }
            pre tabindex="0" { (entered(view).text("entry")) }
        }
    }
}

/// What the server's processes wrote to standard error.
fn log(visit: &Visit<'_>, view: &ServerView) -> Markup {
    let (texts, lines) = (visit.texts, servers::log(visit.state, &view.server).unwrap_or_default());
    html! {
        @if !lines.is_empty() {
            h2 { (texts.log_lines) }
            p.quiet { (texts.log_lines_hint) }
            pre.log tabindex="0" aria-label=(texts.log_lines) role="group" {
                @for line in &lines { (second(line.at)) "  " (line.text) "\n" }
            }
        }
    }
}

fn confirmation(visit: &Visit<'_>, view: &ServerView) -> Markup {
    let texts = visit.texts;
    html! {
        form.buttons method="post" action=(visit.at(SERVER)) {
            (visit.token())
            p { (texts.remove_server_hint) }
            input type="hidden" name="server" value=(view.server.as_str());
            input type="hidden" name="version" value=(visit.state.servers.version(&view.server));
            button name="do" value="remove" { (texts.remove) }
            a href=(visit.link(SERVER, &[("server", view.server.as_str())])) { (texts.cancel) }
        }
    }
}
