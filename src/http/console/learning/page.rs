//! The page: its handlers.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use maud::{Markup, html};

use super::tools::Tried;
use super::words::{figure, mode};
use super::{forget, scopes, tools};
use crate::http::body::Body;
use crate::http::caller::Caller;
use crate::http::console::LEARNING;
use crate::http::console::layout::{Place, Visit};
use crate::http::console::parts::grouped;
use crate::http::pages::browser::{Fields, address, see};
use crate::http::problem::Problem;
use crate::http::routes::admin::learning;
use crate::http::state::State;
use crate::settings::LearningMode;

pub(in crate::http::console) async fn show(state: web::Data<State>, caller: Caller, request: HttpRequest) -> HttpResponse {
    let visit = match Visit::begin(&state, &caller, &request) {
        Ok(visit) => visit,
        Err(elsewhere) => return elsewhere,
    };
    let (texts, query) = (visit.texts, Fields::of_query(&request));
    if let Some(name) = query.given("tool") {
        return match learning::tool(&state, name) {
            Ok(tool) => {
                let body = tools::of_tool(&visit, &tool);
                visit.page(Place::Learning, &texts.learning, &body)
            }
            Err(problem) => visit.failed(&problem),
        };
    }
    if visit.may_change() && forget::asked(&query).is_some() {
        let problem = forget::problem(&visit, &query);
        if problem.is_none() {
            let body = forget::question(&visit, &query);
            return visit.page(Place::Learning, &texts.learning, &body);
        }
        return whole(visit, &query, html! {}, problem.as_ref()).await;
    }
    let done = html! {
        @if query.text("done") == "forgotten" { p.good role="status" { (texts.forgotten) " " (grouped(query.number("removed") as u64)) } }
    };
    whole(visit, &query, done, None).await
}

/// Replays, or forgets.
pub(in crate::http::console) async fn change(state: web::Data<State>, caller: Caller, request: HttpRequest, body: Body) -> HttpResponse {
    let (visit, fields) = match Visit::with_form(&state, &request, &body, LEARNING) {
        Ok(begun) => begun,
        Err(elsewhere) => return elsewhere,
    };
    if fields.text("do") == "forget"
        && let Some(problem) = forget::problem(&visit, &fields)
    {
        return whole(visit, &fields, html! {}, Some(&problem)).await;
    }
    match (fields.text("do"), forget::asked(&fields)) {
        ("replay", _) => {
            let results = scopes::results(visit.texts, &learning::replay(&state, &caller.0).await);
            whole(visit, &Fields::default(), results, None).await
        }
        ("forget", Some(asked)) => match learning::forget(&state, &caller.0, asked).await {
            Ok(removed) => see(&state, &address(LEARNING, &[("done", "forgotten"), ("removed", &removed.to_string())])),
            Err(problem) => whole(visit, &fields, html! {}, Some(&forget::at_value(problem))).await,
        },
        _ => see(&state, LEARNING),
    }
}

/// The whole page. `done` says what was done, and `refused` why nothing is forgotten.
async fn whole(visit: Visit<'_>, fields: &Fields, done: Markup, refused: Option<&Problem>) -> HttpResponse {
    let texts = visit.texts;
    let known = match visit.state.learning.scopes().await {
        Ok(known) => known,
        Err(error) => return visit.failed(&Problem::from(error)),
    };
    let tried = Tried::read(&visit, fields).await;
    let is_off = visit.state.learning.mode() == LearningMode::Off;
    let body = html! {
        (done)
        (facts(&visit))
        @if is_off {
            p.notice { (texts.learning_is_off) }
            // What was learned before can be forgotten.
            @if !known.is_empty() {
                h2 { (texts.scopes) }
                (scopes::list(&visit, &known, fields.number("offset")))
            }
        } @else {
            h2 { (texts.scopes) }
            (scopes::list(&visit, &known, fields.number("offset")))
            (scopes::last_replays(texts, &known))
            (replay_form(&visit))
            h2 { (texts.learned_by_tool) }
            (tools::list(&visit, &visit.state.learning.tools(), fields.number("tools")))
            (tried.shown(&visit))
        }
        (forget::form(&visit, fields, refused))
    };
    let problem = refused.or(tried.problem());
    let status = problem.map_or(StatusCode::OK, |problem| problem.code.status());
    visit.page_with(status, Place::Learning, &texts.learning, &body)
}

fn facts(visit: &Visit<'_>) -> Markup {
    let (texts, learning) = (visit.texts, &visit.state.learning);
    let state = learning.state();
    let means = state.as_ref().and_then(|state| state.before.zip(state.after));
    html! {
        p.quiet { (texts.learning_hint) }
        dl.facts {
            dt { (texts.mode) } dd { (mode(texts, learning.mode())) " " small.quiet { (texts.mode_hint) } }
            @if let Some(state) = &state {
                dt { (texts.scopes_that_count) } dd { (state.on) " / " (state.scopes) }
                dt { (texts.remembered_messages) } dd { (grouped(learning.distinct_messages() as u64)) }
                @if let Some((before, after)) = means {
                    dt { (texts.last_replay) } dd { (figure(before)) " → " (figure(after)) " " small.quiet { (texts.ndcg) } }
                }
            }
            dt { (texts.model_of_messages) } dd { (learning.model()) }
        }
    }
}

fn replay_form(visit: &Visit<'_>) -> Markup {
    let texts = visit.texts;
    if !visit.may_change() {
        return html! {};
    }
    html! {
        form.buttons method="post" action=(visit.at(LEARNING)) {
            (visit.token())
            input type="hidden" name="do" value="replay";
            p { (texts.replay_hint) }
            button { (texts.replay_now) }
        }
    }
}
