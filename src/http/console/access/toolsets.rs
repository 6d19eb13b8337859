//! The toolsets: their members, and changes of their definitions.

use std::collections::BTreeSet;

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use maud::{Markup, html};
use serde_json::{Map, json};

use super::rules::described;
use super::{TOOLSET, TOOLSETS, compiled, names, navigation};
use crate::domain::access::management::{ManagedBy, NO_ENTRY};
use crate::domain::access::rule::Rule;
use crate::domain::access::toolset_name::ToolsetName;
use crate::http::body::Body;
use crate::http::caller::Caller;
use crate::http::console::layout::{Place, Visit};
use crate::http::console::parts::{Form, Head, Part, based_on, done, grouped, pager, short, table, taken, version_in};
use crate::http::console::text::Texts;
use crate::http::pages::browser::{Fields, address, see};
use crate::http::problem::{Code, Problem};
use crate::http::routes::admin::toolsets;
use crate::http::state::State;
use crate::service::toolsets::toolsets::{Presets, ToolsetView};

/// Number of toolsets in the table.
const PAGE: usize = 50;
/// Number of members in the list of one toolset.
const MEMBERS: usize = 200;
const PATTERNS: [&str; 6] = ["servers", "tools", "tags", "annotations", "exclude", "always"];

pub(in crate::http::console) async fn list(state: web::Data<State>, caller: Caller, request: HttpRequest) -> HttpResponse {
    let visit = match Visit::begin(&state, &caller, &request) {
        Ok(visit) => visit,
        Err(elsewhere) => return elsewhere,
    };
    let (texts, query, all) = (visit.texts, Fields::of_query(&request), state.toolsets.list());
    let heads = [Head::Text(&texts.name), Head::Text(&texts.description), Head::Number(&texts.tools), Head::Text(&texts.warnings)];
    let offset = query.number("offset");
    let rows = html! { @for toolset in all.iter().skip(offset).take(PAGE) { (row(&visit, toolset)) } };
    let body = html! {
        (navigation(&visit, TOOLSETS))
        (done(&visit, &query))
        @if all.is_empty() { p { (texts.no_toolsets) } } @else { (table(&texts.toolsets, &heads, &rows)) }
        @if all.len() > PAGE {
            (pager(texts, Part { offset, limit: PAGE, total: all.len() }, |at| visit.link(TOOLSETS, &[("offset", &at.to_string())])))
        }
        @if visit.may_change() { p { a href=(visit.at(TOOLSET)) { (texts.new_toolset) } } }
        (presets(&visit))
    };
    visit.page(Place::Access, &format!("{}: {}", texts.access, texts.toolsets), &body)
}

/// One toolset, or the form for a new one.
pub(in crate::http::console) async fn show(state: web::Data<State>, caller: Caller, request: HttpRequest) -> HttpResponse {
    let visit = match Visit::begin(&state, &caller, &request) {
        Ok(visit) => visit,
        Err(elsewhere) => return elsewhere,
    };
    let query = Fields::of_query(&request);
    let view = match query.given("name").map(|name| state.toolsets.get(name)).transpose() {
        Ok(view) => view,
        Err(error) => return visit.failed(&Problem::from(error)),
    };
    let given = view.as_ref().map(definition).unwrap_or_default();
    if query.text("do") == "remove"
        && visit.may_change()
        && let Some(view) = &view
    {
        let body = html! { (navigation(&visit, TOOLSETS)) (confirmation(&visit, view)) };
        return visit.page(Place::Access, view.name.as_str(), &body);
    }
    page(visit, view.as_ref(), None, (&given, None))
}

/// Saves or removes a toolset.
pub(in crate::http::console) async fn change(state: web::Data<State>, caller: Caller, request: HttpRequest, body: Body) -> HttpResponse {
    let (visit, fields) = match Visit::with_form(&state, &request, &body, TOOLSETS) {
        Ok(begun) => begun,
        Err(elsewhere) => return elsewhere,
    };
    let (texts, name) = (visit.texts, fields.text("name"));
    let (expected, removes) = (based_on(&fields, name), fields.text("do") == "remove");
    let (changed, done) = if removes {
        (toolsets::remove(&state, &caller.0, name, expected).await, "removed")
    } else {
        (toolsets::replace(&state, &caller.0, name, entered(&fields).as_bytes(), expected).await.map(|_| ()), "saved")
    };
    match changed {
        Ok(()) => see(&state, &address(TOOLSETS, &[("done", done)])),
        Err(problem) => {
            let view = state.toolsets.get(name).ok();
            if problem.code == Code::PreconditionFailed && expected == Some(NO_ENTRY) && view.is_some() {
                return page(visit, None, view.as_ref(), (&fields, Some(&taken(texts, "name", problem))));
            }
            // The form for a new toolset stays one, whoever else has its name.
            let view = view.filter(|_| expected != Some(NO_ENTRY));
            // The confirmation of a removal contains no definition.
            let given = view.as_ref().filter(|_| removes).map_or(fields, definition);
            page(visit, view.as_ref(), None, (&given, Some(&problem)))
        }
    }
}

/// The body of the request that the form stands for.
fn entered(fields: &Fields) -> String {
    let mut body = Map::new();
    if let Some(description) = fields.given("description") {
        body.insert("description".to_owned(), json!(description));
    }
    for name in PATTERNS {
        let patterns = fields.lines(name);
        if !patterns.is_empty() {
            body.insert(name.to_owned(), json!(patterns));
        }
    }
    json!(body).to_string()
}

/// A definition, as the fields of its form.
fn definition(view: &ToolsetView) -> Fields {
    let (mut fields, of) = (Fields::default(), &view.definition);
    fields.set("name", view.name.to_string());
    fields.set("description", of.description.as_str());
    let patterns = [&of.servers, &of.tools, &of.tags, &of.annotations, &of.exclude, &of.always];
    for (name, patterns) in PATTERNS.into_iter().zip(patterns) {
        fields.set(name, patterns.join("\n"));
    }
    fields
}

fn row(visit: &Visit<'_>, toolset: &ToolsetView) -> Markup {
    let texts = visit.texts;
    html! {
        tr {
            th scope="row" {
                a href=(visit.link(TOOLSET, &[("name", toolset.name.as_str())])) { (toolset.name.to_string()) }
                @if toolset.managed_by == ManagedBy::File { small.quiet { (texts.in_file) } }
            }
            td { (short(&toolset.definition.description, 300)) }
            td.number { (grouped(toolset.members.len() as u64)) }
            td.bad { (names(&toolset.warnings)) }
        }
    }
}

/// The presets of the settings, and what the service was started with. Only the settings file and the command line change them.
fn presets(visit: &Visit<'_>) -> Markup {
    let (texts, Presets { presets, published }) = (visit.texts, visit.state.toolsets.presets());
    let names_of = |toolsets: &BTreeSet<ToolsetName>| toolsets.iter().map(ToolsetName::as_str).collect::<Vec<_>>().join(", ");
    html! {
        h2 { (texts.presets) }
        p.quiet { (texts.presets_hint) }
        @if !published.toolsets.is_empty() { p.notice { (texts.published_toolsets) ": " (names_of(&published.toolsets)) } }
        @if !published.exclude.is_empty() { p.notice { (texts.excluded_toolsets) ": " (names_of(&published.exclude)) } }
        @if presets.is_empty() { p { (texts.no_presets) } }
        @else {
            dl.facts { @for (name, toolsets) in presets.iter().take(PAGE) { dt { (short(name, 100)) } dd { (names(toolsets)) } } }
        }
    }
}

/// The page of a toolset, or of a new one whose name another one may have (`of`).
fn page(
    visit: Visit<'_>,
    view: Option<&ToolsetView>,
    of: Option<&ToolsetView>,
    (given, problem): (&Fields, Option<&Problem>),
) -> HttpResponse {
    let texts = visit.texts;
    let is_fixed = view.is_some_and(|view| view.managed_by == ManagedBy::File);
    let form = Form { is_fixed: is_fixed || !visit.may_change(), ..Form::new(texts, given, problem) };
    let labels = [&texts.servers, &texts.tools, &texts.tags, &texts.annotations, &texts.exclude, &texts.always];
    let own = ["name", "description"];
    // Whoever saves again after a conflict has seen the other version.
    let in_conflict = of.is_none() && problem.is_some_and(|problem| problem.code == Code::PreconditionFailed);
    let version = version_in(&form, given.text("name"), of.or(view).map_or_else(|| NO_ENTRY.to_owned(), ToolsetView::version));
    let fields = html! {
        (form.error_beside(&[&own[..], &PATTERNS].concat()))
        input type="hidden" name="version" value=(version);
        @if let Some(of) = of { input type="hidden" name="of" value=(of.name.as_str()); }
        @if view.is_some() { input type="hidden" name="name" value=(given.text("name")); }
        @else { (form.line("name", &texts.name, &texts.toolset_name_hint)) }
        (form.lines("description", &texts.description, ""))
        @for (name, label) in PATTERNS.iter().zip(labels) { (form.lines(name, label, "")) }
        p.all.quiet { (texts.patterns_hint) }
    };
    let body = html! {
        (navigation(&visit, TOOLSETS))
        @if is_fixed { p.notice { (texts.toolset_in_file) } }
        @if in_conflict {
            @if let Some(view) = view { (stored(texts, &texts.other_version, view)) } @else { p.notice { (texts.removed_meanwhile) } }
        }
        @if is_fixed || !visit.may_change() { div.columns { (fields) } }
        @else {
            form.columns method="post" action=(visit.at(TOOLSET)) {
                (visit.token())
                (fields)
                p.all.buttons {
                    button name="do" value="save" { (texts.save) }
                    @if let Some(view) = view { a href=(visit.link(TOOLSET, &[("name", view.name.as_str()), ("do", "remove")])) { (texts.remove) } }
                }
            }
        }
        @if let Some(of) = of { (stored(texts, &texts.taken_by, of)) }
        @if let Some(view) = view {
            h2 { (texts.members) " (" (grouped(view.members.len() as u64)) ")" }
            ul.names { @for name in view.members.iter().take(MEMBERS) { li { code { (short(name, 200)) } } } }
            @if view.members.len() > MEMBERS { p.quiet { (grouped((view.members.len() - MEMBERS) as u64)) " " (texts.more_tools) } }
        }
    };
    let title = view.map_or_else(|| texts.new_toolset.clone(), |view| view.name.to_string());
    visit.page_with(problem.map_or(StatusCode::OK, |problem| problem.code.status()), Place::Access, &title, &body)
}

/// What is stored, beside a form with something else.
fn stored(texts: &Texts, heading: &str, view: &ToolsetView) -> Markup {
    let theirs = definition(view);
    let labels = [&texts.servers, &texts.tools, &texts.tags, &texts.annotations, &texts.exclude, &texts.always];
    html! {
        section.notice {
            h2 { (heading) }
            dl.facts {
                dt { (texts.description) } dd.said { (theirs.text("description")) }
                @for (name, label) in PATTERNS.iter().zip(labels) {
                    @if let Some(patterns) = theirs.given(name) { dt { (label) } dd.said { (patterns) } }
                }
            }
        }
    }
}

fn confirmation(visit: &Visit<'_>, view: &ToolsetView) -> Markup {
    let texts = visit.texts;
    html! {
        p { (texts.remove_toolset_hint) }
        (references(visit, &view.name))
        form.buttons method="post" action=(visit.at(TOOLSET)) {
            (visit.token())
            input type="hidden" name="name" value=(view.name.to_string());
            input type="hidden" name="version" value=(view.version());
            button name="do" value="remove" { (texts.remove) }
            a href=(visit.link(TOOLSET, &[("name", view.name.as_str())])) { (texts.cancel) }
        }
    }
}

/// The rules and keys that a removal affects.
fn references(visit: &Visit<'_>, name: &ToolsetName) -> Markup {
    let (texts, policy) = (visit.texts, visit.state.policies.view());
    let is_named = |rule: &Rule| compiled(&rule.toolsets).is_match(name.as_str());
    let of_settings = policy.settings_rules.iter().map(|rule| (Some(&texts.of_settings), &rule.rule)).zip(1..);
    let rules = of_settings.chain(policy.rules.iter().map(|rule| (None, rule)).zip(1..));
    let rules: Vec<_> = rules.filter(|((_, rule), _)| is_named(rule)).collect();
    let keys = visit.state.keys.active();
    let keys = keys.iter().filter(|key| key.toolsets.as_ref().is_some_and(|toolsets| toolsets.contains(name)));
    let keys: Vec<&str> = keys.map(|key| key.name.as_str()).collect();
    html! {
        @if !rules.is_empty() {
            p { (texts.toolset_in_rules) ":" }
            ul {
                @for ((source, rule), number) in rules.iter().take(PAGE) {
                    li { (texts.rule) " " (number) @if let Some(source) = source { " (" (source) ")" } ": " (described(texts, rule)) }
                }
            }
        }
        @if !keys.is_empty() { p { (texts.toolset_in_keys) ": " (names(&keys)) } }
    }
}
