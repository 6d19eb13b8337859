//! The playground: what a message would get, and why. It asks as `POST /v1/filter?explain=true` does.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::PLAYGROUND;
use super::layout::{Place, Visit};
use super::parts::grouped;
use super::text::Texts;
use crate::domain::selection::explanation::{CandidateExplanation, Explanation, GateExplanation};
use crate::domain::selection::relevance::{CutReason, GateRule};
use crate::domain::selection::selection::Reason;
use crate::http::body::Body;
use crate::http::caller::Caller;
use crate::http::pages::browser::Fields;
use crate::http::problem::{Code, Problem};
use crate::http::routes::filter::{FilterAnswer, explained};
use crate::http::state::State;

/// Number of candidates in the table.
const CANDIDATES: usize = 50;
/// Number of functions in the list of those that stay anyway.
const KEPT: usize = 100;
/// The settings that a person can change, with the step of their input; `None` for switches.
const NUMBERS: [(&str, &str); 5] =
    [("strictness", "0.5"), ("dense_weight", "0.05"), ("limit", "1"), ("token_budget", "1"), ("per_server", "1")];
const SWITCHES: [&str; 2] = ["gate", "fold_duplicates"];

pub(super) async fn show(state: web::Data<State>, caller: Caller, request: HttpRequest) -> HttpResponse {
    let visit = match Visit::begin(&state, &caller, &request) {
        Ok(visit) => visit,
        Err(elsewhere) => return elsewhere,
    };
    let body = form(&visit, &Fields::of_query(&request), None);
    let texts = visit.texts;
    visit.page(Place::Playground, &texts.playground, &body)
}

/// Selects for the form's message, and again with the changed settings if there are any.
pub(super) async fn run(state: web::Data<State>, caller: Caller, request: HttpRequest, body: Body) -> HttpResponse {
    let (visit, fields) = match Visit::with_form(&state, &request, &body, PLAYGROUND) {
        Ok(begun) => begun,
        Err(elsewhere) => return elsewhere,
    };
    let texts = visit.texts;
    let selected = async {
        let (asked, settings) = question(&fields)?;
        let now = explained(&state, &caller, &request, asked.to_string().as_bytes()).await?;
        let Some(settings) = settings else { return Ok((now, None)) };
        let mut asked = asked;
        asked["settings"] = settings;
        let then = explained(&state, &caller, &request, asked.to_string().as_bytes()).await?;
        Ok::<_, Problem>((now, Some(then)))
    };
    let (status, error, results) = match selected.await {
        Ok((now, then)) => (StatusCode::OK, None, Some(results(texts, &now, then.as_ref()))),
        Err(problem) => (problem.code.status(), Some(problem.detail), None),
    };
    let body = html! {
        (form(&visit, &fields, error.as_deref()))
        @if let Some(results) = results { (results) }
    };
    visit.page_with(status, Place::Playground, &texts.playground, &body)
}

/// The request of a form, and the settings that it changes.
fn question(fields: &Fields) -> Result<(Value, Option<Value>), Problem> {
    let field = |name: &str| fields.given(name);
    let mut asked = json!({"messages": [{"role": "user", "content": field("message").unwrap_or_default()}]});
    if let Some(principal) = field("principal") {
        asked["as"] = json!({"principal": principal, "groups": fields.list("groups")});
    }
    if let Some(model) = field("model") {
        asked["model"] = json!(model);
    }
    let mut settings = Map::new();
    for (name, _) in NUMBERS {
        if let Some(text) = field(name) {
            let number: Value = serde_json::from_str(text)
                .ok()
                .filter(Value::is_number)
                .ok_or_else(|| Problem::new(Code::InvalidRequest, format!("{name} is a number.")))?;
            settings.insert(name.to_owned(), number);
        }
    }
    for name in SWITCHES {
        if let Some(text) = field(name) {
            settings.insert(name.to_owned(), json!(text == "true"));
        }
    }
    Ok((asked, (!settings.is_empty()).then(|| Value::Object(settings))))
}

fn form(visit: &Visit<'_>, given: &Fields, error: Option<&str>) -> Markup {
    let texts = visit.texts;
    let value = |name: &str| given.text(name);
    if !visit.may_change() {
        return html! { p.notice { (texts.viewer_hint) } };
    }
    html! {
        form.columns method="post" action=(visit.at(PLAYGROUND)) {
            (visit.token())
            @if let Some(error) = error { p.all.bad role="alert" { (error) } }
            div.all {
                label for="message" { (texts.message) small { (texts.message_hint) } }
                textarea #message name="message" rows="4" required autofocus { (value("message")) }
            }
            @for (name, label, hint) in [("principal", &texts.as_principal, texts.as_hint.as_str()), ("groups", &texts.groups, ""), ("model", &texts.model, "")] {
                div {
                    label for=(name) { (label) @if !hint.is_empty() { small { (hint) } } }
                    input id=(name) name=(name) value=(value(name));
                }
            }
            fieldset.all {
                legend { (texts.settings) " " small.quiet { (texts.settings_hint) } }
                @for (name, step) in NUMBERS {
                    div {
                        label for=(name) { code { (name) } }
                        input id=(name) name=(name) type="number" step=(step) value=(value(name)) placeholder=(texts.unchanged);
                    }
                }
                @for name in SWITCHES {
                    div {
                        label for=(name) { code { (name) } }
                        select id=(name) name=(name) {
                            @for (choice, label) in [("", texts.unchanged.as_str()), ("true", "true"), ("false", "false")] {
                                option value=(choice) selected[value(name) == choice] { (label) }
                            }
                        }
                    }
                }
            }
            p.all { button { (texts.run) } }
        }
    }
}

fn results(texts: &Texts, now: &FilterAnswer, then: Option<&FilterAnswer>) -> Markup {
    html! {
        div.pair {
            section { (selection(texts, now, None)) }
            @if let Some(then) = then {
                section { h2 { (texts.with_settings) } (selection(texts, then, now.explain.as_ref())) }
            }
        }
    }
}

/// One selection. `former` is the explanation to compare with.
fn selection(texts: &Texts, answer: &FilterAnswer, former: Option<&Explanation>) -> Markup {
    let Some(explanation) = &answer.explain else { return html! {} };
    let tokens = &answer.tokens;
    let share = if tokens.before == 0 { 0.0 } else { 100.0 * tokens.after as f64 / tokens.before as f64 };
    let switched_off = Reason::SwitchedOff.to_string();
    html! {
        @if explanation.kept.iter().any(|kept| kept.reason == switched_off) { p.notice { (texts.not_narrowed) } }
        h2 { (texts.tokens) }
        p { (grouped(tokens.after)) " / " (grouped(tokens.before)) }
        svg.bar viewBox="0 0 100 4" preserveAspectRatio="none" role="img" aria-label=(format!("{share:.0} %")) {
            rect.part x="0" y="0" width=(format!("{share:.2}")) height="4" {}
        }
        @if let Some(gate) = &explanation.gate { (of_gate(texts, gate)) }
        (parts(texts, explanation))
        (candidates(texts, explanation, former))
        @if !explanation.kept.is_empty() {
            h2 { (texts.kept) }
            ul { @for kept in explanation.kept.iter().take(KEPT) { li { code { (kept.name) } ": " (kept.reason) } } }
            @if explanation.kept.len() > KEPT { p.quiet { (grouped((explanation.kept.len() - KEPT) as u64)) " " (texts.more_functions) } }
        }
    }
}

fn of_gate(texts: &Texts, gate: &GateExplanation) -> Markup {
    html! {
        h2 { @if gate.needs_tool { (texts.needs_tool) } @else { (texts.needs_no_tool) } }
        p {
            (texts.decided_by) " " (decider(texts, gate.by)) "."
            @if let Some(margin) = gate.margin { " " (texts.margin) ": " (format!("{margin:.2}")) }
        }
        @if !gate.signals.is_empty() {
            details {
                summary { (texts.signal) " × " (texts.weight) }
                div.wide tabindex="0" role="group" aria-label=(texts.signal) {
                    table {
                        thead { tr {
                            th scope="col" { (texts.signal) }
                            @for head in [&texts.value, &texts.weight, &texts.product] { th.number scope="col" { (head) } }
                        } }
                        tbody {
                            @for signal in &gate.signals {
                                tr {
                                    th scope="row" { code { (signal.name) } }
                                    @for figure in [signal.value, signal.weight, signal.value * signal.weight] { td.number { (format!("{figure:.3}")) } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn parts(texts: &Texts, explanation: &Explanation) -> Markup {
    html! {
        h2 { (texts.parts) }
        ol { @for part in &explanation.parts { li { (part) } } }
        p.quiet { (texts.language_of) ": " (explanation.language.as_deref().unwrap_or(&texts.unsure)) }
    }
}

fn candidates(texts: &Texts, explanation: &Explanation, former: Option<&Explanation>) -> Markup {
    if explanation.candidates.is_empty() {
        return html! { h2 { (texts.candidates) } p { (texts.nothing_ranked) } };
    }
    let rank_before = |name: &str| former?.candidates.iter().find(|candidate| candidate.name == name).map(|candidate| candidate.rank);
    html! {
        h2 { (texts.candidates) }
        div.wide tabindex="0" role="group" aria-label=(texts.candidates) {
            table {
                thead { tr {
                    th.number scope="col" { (texts.rank) }
                    th scope="col" { (texts.tool) }
                    th scope="col" { (texts.sent) }
                    @for head in [&texts.score, &texts.fused, &texts.cosine, &texts.bm25] { th.number scope="col" { (head) } }
                    th scope="col" { (texts.words) }
                    @for head in [&texts.server_score, &texts.covers, &texts.learned, &texts.judged] { th.number scope="col" { (head) } }
                } }
                tbody {
                    @for candidate in explanation.candidates.iter().take(CANDIDATES) {
                        (row(texts, candidate, rank_before(&candidate.name)))
                    }
                }
            }
        }
    }
}

fn row(texts: &Texts, candidate: &CandidateExplanation, rank_before: Option<usize>) -> Markup {
    let cosines: Vec<String> =
        candidate.cosines.iter().map(|cosine| cosine.map_or_else(|| "–".to_owned(), |cosine| format!("{cosine:.3}"))).collect();
    let covers: Vec<String> = candidate.covers.iter().map(|part| (part + 1).to_string()).collect();
    html! {
        tr {
            td.number {
                (candidate.rank)
                @if let Some(before) = rank_before.filter(|before| *before != candidate.rank) { small.quiet { " (" (before) ")" } }
            }
            th scope="row" { code { (candidate.name) } }
            td {
                @if candidate.sent { span.good { (texts.yes) } }
                @else if let Some(cut) = candidate.cut { (texts.no) ": " (why_cut(texts, cut)) }
                @else { (texts.no) }
            }
            td.number { (format!("{:.2}", candidate.score)) }
            td.number { (format!("{:.3}", candidate.fused)) }
            td.number { (cosines.join(" ")) }
            td.number { (format!("{:.1}", candidate.lexical)) }
            td { (candidate.words.join(", ")) }
            td.number { (format!("{:.2}", candidate.server_score)) }
            td.number { (covers.join(", ")) }
            td.number { (format!("{:.2}", candidate.learned)) }
            td.number { (candidate.judged_rank.map_or_else(String::new, |rank| rank.to_string())) }
        }
    }
}

fn decider(texts: &Texts, rule: GateRule) -> &str {
    match rule {
        GateRule::Head => &texts.by_head,
        GateRule::TurnHead => &texts.by_turn_head,
        GateRule::Courtesy => &texts.by_courtesy,
        GateRule::Examples => &texts.by_examples,
        GateRule::Words => &texts.by_words,
        GateRule::Partial => &texts.by_partial,
        GateRule::NoTools => &texts.by_no_tools,
        GateRule::Learned => &texts.by_learned,
        GateRule::Off => &texts.by_off,
    }
}

fn why_cut(texts: &Texts, reason: CutReason) -> &str {
    match reason {
        CutReason::Limit => &texts.cut_limit,
        CutReason::FallOff => &texts.cut_fall_off,
        CutReason::Budget => &texts.cut_budget,
        CutReason::Duplicate => &texts.cut_duplicate,
        CutReason::PerServer => &texts.cut_per_server,
        CutReason::Gate => &texts.cut_gate,
        CutReason::Judge => &texts.cut_judge,
    }
}
