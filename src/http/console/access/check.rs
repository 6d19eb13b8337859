//! Who may use which tools, and which rule decides. The same check as `POST /v1/admin/policy/check`.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use maud::{Markup, html};

use super::{CHECK, effect_of, navigation};
use crate::domain::access::rule::Effect as Verdict;
use crate::http::blocking::blocking;
use crate::http::caller::Caller;
use crate::http::console::layout::{Place, Visit};
use crate::http::console::parts::{Form, Head, Part, grouped, pager, short, table};
use crate::http::pages::browser::Fields;
use crate::http::problem::Problem;
use crate::http::routes::admin::policy;
use crate::http::state::State;
use crate::service::access::policies::{Check, CheckAnswer, CheckPrincipal, CheckedDecision};

/// Number of decisions in the table.
const PAGE: usize = 100;
/// Number of groups in the list.
const GROUPS: usize = 100;
const FIELDS: [&str; 5] = ["principal", "groups", "model", "tool", "effect"];
/// A user who is in no group of the settings.
const SOMEBODY: &str = "user:?";

pub(in crate::http::console) async fn show(state: web::Data<State>, caller: Caller, request: HttpRequest) -> HttpResponse {
    let visit = match Visit::begin(&state, &caller, &request) {
        Ok(visit) => visit,
        Err(elsewhere) => return elsewhere,
    };
    let query = Fields::of_query(&request);
    let checked = match asked(&query) {
        Some(check) => run(&state, check).await.map(Some),
        None => Ok(None),
    };
    let (answer, problem) = match checked {
        Ok(answer) => (answer, None),
        Err(problem) => (None, Some(problem)),
    };
    let texts = visit.texts;
    let body = html! {
        (navigation(&visit, CHECK))
        p.quiet { (texts.check_hint) }
        (form(&visit, &query, problem.as_ref()))
        @if let Some(answer) = &answer { (decisions(&visit, &query, answer)) }
        (groups(&visit))
    };
    let title = format!("{}: {}", texts.access, texts.check);
    visit.page_with(problem.map_or(StatusCode::OK, |problem| problem.code.status()), Place::Access, &title, &body)
}

/// The check of a form; `None` if it is empty.
fn asked(query: &Fields) -> Option<Check> {
    let given = |name: &str| query.given(name).map(str::to_owned);
    let (groups, model, tool) = (query.list("groups"), given("model"), given("tool"));
    let is_of_somebody = !groups.is_empty() || model.is_some();
    let principal = given("principal").or_else(|| is_of_somebody.then(|| SOMEBODY.to_owned()));
    let groups = groups.into_iter().map(str::to_owned).collect();
    let principal = principal.map(|principal| CheckPrincipal { principal, email: None, groups, model });
    (principal.is_some() || tool.is_some()).then_some(Check { tool, principal, draft: None })
}

async fn run(state: &web::Data<State>, check: Check) -> Result<CheckAnswer, Problem> {
    let state = state.clone();
    blocking(move || policy::check(&state, &check)).await?
}

fn form(visit: &Visit<'_>, query: &Fields, problem: Option<&Problem>) -> Markup {
    let (texts, form) = (visit.texts, Form::new(visit.texts, query, problem));
    let effects = [("", texts.any.as_str()), ("allow", &texts.allow), ("block", &texts.block)];
    html! {
        form.columns method="get" action=(visit.at(CHECK)) {
            (form.error_beside(&FIELDS))
            (form.line("principal", &texts.caller, &texts.check_caller_hint))
            (form.line("groups", &texts.groups, ""))
            (form.line("model", &texts.model, ""))
            (form.line("tool", &texts.tool, &texts.check_tool_hint))
            (form.choice("effect", &texts.effect, &effects))
            p.all { button { (texts.check) } }
        }
    }
}

fn decisions(visit: &Visit<'_>, query: &Fields, answer: &CheckAnswer) -> Markup {
    let texts = visit.texts;
    let is_shown = |decision: &&CheckedDecision| query.given("effect").is_none_or(|effect| effect == decision.effect.name());
    let (offset, total) = (query.number("offset"), answer.decisions.iter().filter(is_shown).count());
    let allowed = answer.decisions.iter().filter(|decision| decision.effect == Verdict::Allow).count();
    let heads = [Head::Text(&texts.caller), Head::Text(&texts.tool), Head::Text(&texts.effect), Head::Text(&texts.reason)];
    let rows = html! { @for decision in answer.decisions.iter().filter(is_shown).skip(offset).take(PAGE) { (row(visit, decision)) } };
    let part = |at: usize| {
        let at = at.to_string();
        let mut fields: Vec<(&str, &str)> = FIELDS.iter().map(|name| (*name, query.text(name))).collect();
        fields.push(("offset", &at));
        visit.link(CHECK, &fields)
    };
    html! {
        p role="status" {
            (texts.allow) ": " (grouped(allowed as u64)) " · " (texts.block) ": " (grouped((answer.decisions.len() - allowed) as u64))
        }
        @if total > 0 { (table(&texts.check, &heads, &rows)) } @else { p { (texts.no_tools) } }
        @if total > PAGE { (pager(texts, Part { offset, limit: PAGE, total }, part)) }
        @for warning in answer.warnings.iter().take(10) { p.bad { (warning.to_string()) } }
    }
}

fn row(visit: &Visit<'_>, decision: &CheckedDecision) -> Markup {
    let texts = visit.texts;
    let (effect, class) = effect_of(texts, decision.effect);
    html! {
        tr {
            td { code { (short(&decision.principal, 100)) } }
            th scope="row" { code { (short(&decision.name, 150)) } }
            td { span class=(class) { (effect) } }
            td lang="en" { (decision.reason) }
        }
    }
}

/// The groups of the settings. What a user of each may use is one link away.
fn groups(visit: &Visit<'_>) -> Markup {
    let (texts, table) = (visit.texts, visit.state.admission.groups.load());
    if table.sizes().next().is_none() {
        return html! {};
    }
    html! {
        h2 { (texts.groups_named) }
        p.quiet { (texts.groups_hint) }
        ul.names {
            @for (name, members) in table.sizes().take(GROUPS) {
                li { a href=(visit.link(CHECK, &[("groups", name)])) { (short(name, 100)) } " (" (grouped(members as u64)) ")" }
            }
        }
    }
}
