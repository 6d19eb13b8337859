//! The playground: what a message would get, and why. It asks as `POST /v1/filter?explain=true` does.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::layout::{Place, Visit};
use super::parts::{Head, UNKNOWN, grouped, second, short, table};
use super::text::{Texts, reason};
use super::{ACTIVITY, CHECK, PLAYGROUND, RUN, TOOL};
use crate::domain::catalog::hidden_text::visible;
use crate::domain::catalog::tool::ToolId;
use crate::domain::selection::explanation::{CandidateExplanation, Explanation, GateExplanation};
use crate::domain::selection::relevance::{CutReason, GateRule};
use crate::domain::selection::selection::Reason;
use crate::http::body::Body;
use crate::http::caller::Caller;
use crate::http::pages::browser::Fields;
use crate::http::problem::{Code, Problem};
use crate::http::routes::admin::events::EventToolBody;
use crate::http::routes::admin::replay::{Replay, event, replay};
use crate::http::routes::filter::{FilterAnswer, explained};
use crate::http::state::State;
use crate::service::ports::{StoredEvent, StoredEventKind};

/// Number of candidates in the table.
const CANDIDATES: usize = 50;
/// Number of functions in the list of those that stay anyway.
const KEPT: usize = 100;
/// Number of tools of a recorded selection in the table, and of those that would be new.
const TOOLS: usize = 60;
/// The numbers that a person can change, with the step, the least and the greatest value of their input.
const NUMBERS: [(&str, [&str; 3]); 5] = [
    ("dense_weight", ["0.05", "0", "1"]),
    ("limit", ["1", "1", "128"]),
    ("token_budget", ["1", "0", "10000000"]),
    ("per_server", ["1", "0", "128"]),
    ("candidates", ["1", "1", "1000"]),
];
const SWITCHES: [&str; 2] = ["gate", "fold_duplicates"];
const RERANK: [&str; 3] = ["off", "auto", "always"];
/// The step of the slider, and the difference from which its value is another one.
const STRICTNESS_STEP: &str = "0.1";
const STRICTNESS_CHANGE: f32 = 0.06;

pub(super) async fn show(state: web::Data<State>, caller: Caller, request: HttpRequest) -> HttpResponse {
    let visit = match Visit::begin(&state, &caller, &request) {
        Ok(visit) => visit,
        Err(elsewhere) => return elsewhere,
    };
    answer(&state, &caller, &request, visit, Fields::of_query(&request), None).await
}

/// The page. `refused` is the name of a missing tool that was not reported, and why.
pub(super) async fn answer(
    state: &State,
    caller: &Caller,
    request: &HttpRequest,
    visit: Visit<'_>,
    mut query: Fields,
    refused: Option<(&str, &Problem)>,
) -> HttpResponse {
    let texts = visit.texts;
    let replayed = match query.given("event") {
        Some(id) if visit.may_change() => match recorded(state, caller, request, id).await {
            Ok(replayed) => Some(replayed),
            Err(problem) => return visit.failed(&problem),
        },
        _ => None,
    };
    if let Some((event, _)) = &replayed {
        query.set("message", event.message.clone().unwrap_or_default());
        query.set("principal", event.principal.clone());
    }
    let status = match (refused, &replayed) {
        (Some((_, problem)), _) => problem.code.status(),
        (None, Some((_, Err(problem)))) if problem.code != Code::Conflict => problem.code.status(),
        _ => StatusCode::OK,
    };
    let body = html! {
        @if let Some((event, replayed)) = &replayed { (then_and_now(&visit, event, replayed, refused)) }
        (form(&visit, &query, strictness(state, caller), None))
        @if let Some((_, Ok(Replay { now, .. }))) = &replayed { (results(&visit, now, None)) }
    };
    visit.with_script().page_with(status, Place::Playground, &texts.playground, &body)
}

/// The event with this number, and its replay.
async fn recorded(
    state: &State,
    caller: &Caller,
    request: &HttpRequest,
    id: &str,
) -> Result<(StoredEvent, Result<Replay, Problem>), Problem> {
    let event = event(state, id.parse().unwrap_or_default()).await?;
    let replayed = replay(state, caller, request, event.clone()).await;
    Ok((event, replayed))
}

/// What was offered for a recorded message, and what would be now.
fn then_and_now(visit: &Visit<'_>, event: &StoredEvent, replayed: &Result<Replay, Problem>, refused: Option<(&str, &Problem)>) -> Markup {
    let texts = visit.texts;
    let StoredEventKind::Offered { tools, all } = &event.kind else {
        return html! { @if let Err(problem) = replayed { p.notice { (reason(texts, problem)) } } };
    };
    let name = |server: &str, tool: &str| {
        html! { a href=(visit.link(TOOL, &[("server", server), ("tool", tool)])) { (short(server, 40)) "/" (short(tool, 60)) } }
    };
    let is_among =
        |list: &[EventToolBody], id: &ToolId| list.iter().any(|tool| tool.server == id.server.as_str() && tool.tool == visible(&id.name));
    let rows = html! {
        @for id in tools.iter().take(TOOLS) {
            @let is_gone = replayed.as_ref().is_ok_and(|replayed| is_among(&replayed.gone, id));
            tr {
                th scope="row" { (name(id.server.as_str(), &visible(&id.name))) }
                td { (texts.yes) }
                td {
                    @if replayed.is_err() { (UNKNOWN) }
                    @else if is_gone { strong.bad { (texts.no) } }
                    @else { (texts.yes) }
                }
            }
        }
        @if let Ok(replayed) = replayed {
            @for tool in replayed.added.iter().take(TOOLS) {
                tr { th scope="row" { (name(&tool.server, &tool.tool)) } td { (texts.no) } td { strong.good { (texts.yes) } } }
            }
        }
    };
    let heads = [Head::Text(&texts.tool), Head::Text(&texts.then), Head::Text(&texts.now)];
    let is_same = replayed.as_ref().is_ok_and(|replayed| replayed.added.is_empty() && replayed.gone.is_empty());
    html! {
        section.replay {
            h2 { (texts.then_and_now) }
            dl.facts { dt { (texts.time) } dd { (second(event.at)) } dt { (texts.caller) } dd { code { (short(&event.principal, 200)) } } }
            @match replayed {
                Ok(_) => p.quiet { (texts.select_again_hint) },
                Err(problem) if event.message.is_none() && problem.code == Code::Conflict => p.notice { (texts.no_message_texts) },
                Err(problem) => p.bad role="alert" { (reason(texts, problem)) },
            }
            @if let Some(all) = all { p { (texts.kept_all) " (" (grouped(*all)) ")" } }
            @else {
                @if is_same { p.good { (texts.same_selection) } }
                (table(&texts.then_and_now, &heads, &rows))
            }
            @if event.selection.is_some() {
                form.buttons method="post" action=(visit.at(ACTIVITY)) {
                    (visit.token())
                    input type="hidden" name="event" value=(event.id);
                    input type="hidden" name="back" value="playground";
                    label for="missing" { (texts.was_missing) small { (texts.missing_hint) } }
                    input #missing.short name="tool" required value=[refused.map(|(tool, _)| tool)]
                        aria-invalid=[refused.map(|_| "true")] aria-describedby=[refused.map(|_| "missing-error")];
                    button name="do" value="missing" { (texts.report_missing) }
                    @if let Some((_, problem)) = refused { p.bad #missing-error role="alert" { (reason(texts, problem)) } }
                }
            }
        }
    }
}

/// Selects for the form's message, and again with the changed settings if there are any.
pub(super) async fn run(state: web::Data<State>, caller: Caller, request: HttpRequest, body: Body) -> HttpResponse {
    let (visit, fields) = match Visit::with_form(&state, &request, &body, PLAYGROUND) {
        Ok(begun) => begun,
        Err(elsewhere) => return elsewhere,
    };
    let texts = visit.texts;
    let selected = async {
        let (asked, settings) = question(&fields, strictness(&state, &caller))?;
        let now = explained(&state, &caller, &request, asked.to_string().as_bytes()).await?;
        let Some(settings) = settings else { return Ok((now, None)) };
        let mut asked = asked;
        asked["settings"] = settings;
        let then = explained(&state, &caller, &request, asked.to_string().as_bytes()).await?;
        Ok::<_, Problem>((now, Some(then)))
    };
    let (status, error, results) = match selected.await {
        Ok((now, then)) => (StatusCode::OK, None, Some(html! { (results(&visit, &now, then.as_ref())) (rules(&visit, &fields)) })),
        Err(problem) => (problem.code.status(), Some(problem), None),
    };
    let body = html! {
        (form(&visit, &fields, strictness(&state, &caller), error.as_ref()))
        @if let Some(results) = results { (results) }
    };
    visit.with_script().page_with(status, Place::Playground, &texts.playground, &body)
}

/// The setting in force.
fn strictness(state: &State, caller: &Caller) -> f32 {
    state.current.view(&caller.0).settings.strictness
}

/// The request of a form, and the settings that it changes.
fn question(fields: &Fields, strictness: f32) -> Result<(Value, Option<Value>), Problem> {
    let field = |name: &str| fields.given(name);
    let earlier = fields.lines("earlier").into_iter().map(|line| match line.split_once(':') {
        Some(("assistant", text)) => json!({"role": "assistant", "content": text.trim()}),
        Some(("user", text)) => json!({"role": "user", "content": text.trim()}),
        _ => json!({"role": "user", "content": line}),
    });
    let last = json!({"role": "user", "content": field("message").unwrap_or_default()});
    let mut asked = json!({"messages": earlier.chain([last]).collect::<Vec<_>>()});
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
    if let Some(rerank) = field("rerank") {
        settings.insert("rerank".to_owned(), json!(rerank));
    }
    // A slider always has a value.
    if let Some(text) = field("strictness") {
        let tried: f32 = text.parse().map_err(|_| Problem::new(Code::InvalidRequest, "strictness is a number."))?;
        if (tried - strictness).abs() > STRICTNESS_CHANGE || tried.is_nan() {
            settings.insert("strictness".to_owned(), json!(tried));
        }
    }
    Ok((asked, (!settings.is_empty()).then(|| Value::Object(settings))))
}

fn form(visit: &Visit<'_>, given: &Fields, strictness: f32, error: Option<&Problem>) -> Markup {
    let texts = visit.texts;
    let value = |name: &str| given.text(name);
    if !visit.may_change() {
        return html! { p.notice { (texts.viewer_hint) } };
    }
    html! {
        form.columns method="post" action=(visit.at(PLAYGROUND)) {
            (visit.token())
            @if let Some(error) = error { p.all.bad role="alert" { (reason(texts, error)) } }
            div.all {
                label for="message" { (texts.message) small { (texts.message_hint) } }
                textarea #message name="message" rows="4" required autofocus { (value("message")) }
            }
            details.all open[given.given("earlier").is_some()] {
                summary { (texts.earlier_turns) }
                label for="earlier" { (texts.earlier_turns) small { (texts.earlier_turns_hint) } }
                textarea #earlier name="earlier" rows="4" { "\n" (value("earlier")) }
            }
            @for (name, label, hint) in [("principal", &texts.as_principal, texts.as_hint.as_str()), ("groups", &texts.groups, ""), ("model", &texts.model, "")] {
                div {
                    label for=(name) { (label) @if !hint.is_empty() { small { (hint) } } }
                    input id=(name) name=(name) value=(value(name));
                }
            }
            fieldset.all {
                legend { (texts.settings) " " small.quiet { (texts.settings_hint) } }
                (slider(texts, given.given("strictness").and_then(|text| text.parse().ok()).unwrap_or(strictness)))
                @for (name, [step, least, most]) in NUMBERS {
                    div {
                        label for=(name) { code { (name) } }
                        input id=(name) name=(name) type="number" step=(step) min=(least) max=(most) value=(value(name))
                            placeholder=(texts.unchanged);
                    }
                }
                div {
                    label for="rerank" { code { "rerank" } }
                    select #rerank name="rerank" {
                        option value="" { (texts.unchanged) }
                        @for choice in RERANK { option value=(choice) selected[value("rerank") == choice] { (choice) } }
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

/// How strictly to select: precision against recall. At the setting in force, nothing changes.
fn slider(texts: &Texts, value: f32) -> Markup {
    let value = format!("{value}");
    html! {
        div.all {
            label for="strictness" { code { "strictness" } " " output for="strictness" data-value="strictness" { (value) } small { (texts.strictness_hint) } }
            input #strictness name="strictness" type="range" min="-2" max="2" step=(STRICTNESS_STEP) value=(value);
            div.ends aria-hidden="true" { span { "−2: " (texts.more_tools_selected) } span { "0" } span { "2: " (texts.fewer_tools_selected) } }
        }
    }
}

fn results(visit: &Visit<'_>, now: &FilterAnswer, then: Option<&FilterAnswer>) -> Markup {
    html! {
        div.pair {
            section { (selection(visit, now, None)) }
            @if let Some(then) = then {
                section { h2 { (visit.texts.with_settings) } (selection(visit, then, now.explain.as_ref())) }
            }
        }
    }
}

/// Where the rules say which tools the caller may use. Other tools are not even candidates.
fn rules(visit: &Visit<'_>, given: &Fields) -> Markup {
    let caller = given.given("principal").unwrap_or(if visit.state.admission.needs_no_key() { "anyone" } else { "admin" });
    let link = visit.link(CHECK, &[("principal", caller), ("groups", given.text("groups")), ("model", given.text("model"))]);
    html! { p { (visit.texts.candidates_allowed) " " a href=(link) { (visit.texts.check_rules) } } }
}

/// One selection. `former` is the explanation to compare with.
fn selection(visit: &Visit<'_>, answer: &FilterAnswer, former: Option<&Explanation>) -> Markup {
    let texts = visit.texts;
    let Some(explanation) = &answer.explain else { return html! {} };
    let tokens = &answer.tokens;
    let share = if tokens.before == 0 { 0.0 } else { 100.0 * tokens.after as f64 / tokens.before as f64 };
    let switched_off = Reason::SwitchedOff.to_string();
    html! {
        @if explanation.kept.iter().any(|kept| kept.reason == switched_off) { p.notice { (texts.not_narrowed) } }
        h2 { (texts.tokens) }
        p { (grouped(tokens.after)) " " (texts.of) " " (grouped(tokens.before)) }
        svg.bar viewBox="0 0 100 4" preserveAspectRatio="none" role="img" aria-label=(format!("{share:.0} %")) {
            rect.part x="0" y="0" width=(format!("{share:.2}")) height="4" {}
        }
        @if let Some(gate) = &explanation.gate { (of_gate(texts, gate)) }
        (parts(texts, explanation))
        (candidates(visit, explanation, former))
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
        p.quiet {
            (texts.language_of) ": "
            @if let Some(language) = &explanation.language { span lang="en" { (language) } } @else { (texts.unsure) }
        }
    }
}

fn candidates(visit: &Visit<'_>, explanation: &Explanation, former: Option<&Explanation>) -> Markup {
    let texts = visit.texts;
    if explanation.candidates.is_empty() {
        return html! { h2 { (texts.candidates) } p { (texts.nothing_ranked) } };
    }
    let rank_before = |name: &str| former?.candidates.iter().find(|candidate| candidate.name == name).map(|candidate| candidate.rank);
    html! {
        h2 { (texts.candidates) }
        p.quiet { (texts.candidates_hint) }
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
                        (row(visit, candidate, rank_before(&candidate.name)))
                    }
                }
            }
        }
    }
}

fn row(visit: &Visit<'_>, candidate: &CandidateExplanation, rank_before: Option<usize>) -> Markup {
    let texts = visit.texts;
    let cosines: Vec<String> =
        candidate.cosines.iter().map(|cosine| cosine.map_or_else(|| "–".to_owned(), |cosine| format!("{cosine:.3}"))).collect();
    let covers: Vec<String> = candidate.covers.iter().map(|part| (part + 1).to_string()).collect();
    html! {
        tr {
            td.number {
                (candidate.rank)
                @if let Some(before) = rank_before.filter(|before| *before != candidate.rank) { small.quiet { " (" (before) ")" } }
            }
            th scope="row" {
                code { (candidate.name) }
                @if let (Some(server), Some(tool)) = (&candidate.server, &candidate.tool) {
                    small { a href=(visit.link(RUN, &[("server", server), ("tool", tool)])) { (texts.run_tool) } }
                }
            }
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
        GateRule::Asked => &texts.by_asked,
        GateRule::Examples => &texts.by_examples,
        GateRule::Words => &texts.by_words,
        GateRule::Partial => &texts.by_partial,
        GateRule::NoTools => &texts.by_no_tools,
        GateRule::Learned => &texts.by_learned,
        GateRule::Named => &texts.by_named,
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
