//! Runs a tool by a form that is made from its schema, and shows the raw request and the raw result. The call is the same as the one of
//! `POST /{server}/{tool}` with the admin key. Headers of the browser go to no MCP server.

use std::time::{Duration, Instant};

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use maud::{Markup, html};
use serde_json::Value;
use serde_json::value::RawValue;

use super::layout::{Place, Visit};
use super::parts::{short, took};
use super::text::reason;
use super::{RUN, TOOL, TOOLS};
use crate::domain::catalog::hidden_text::visible;
use crate::domain::catalog::tool::Tool;
use crate::domain::execution::arguments::ArgumentProblem;
use crate::domain::text::json::pointer::escaped;
use crate::http::body::Body;
use crate::http::caller::Caller;
use crate::http::pages::browser::Fields;
use crate::http::problem::{Code, Problem};
use crate::http::routes::context::context;
use crate::http::routes::execute::headers;
use crate::http::state::State;

/// Number of parameters with a field of their own.
const FIELDS: usize = 60;
/// Number of values of a parameter that a list offers. A parameter with more has a field for JSON.
const CHOICES: usize = 100;
/// Maximum length of a description, and of the shown request and result, in characters.
const HELP: usize = 400;
const SHOWN: usize = 40_000;
/// Texts up to this length have one line.
const LINE: u64 = 200;

pub(super) async fn show(state: web::Data<State>, caller: Caller, request: HttpRequest) -> HttpResponse {
    let visit = match Visit::begin(&state, &caller, &request) {
        Ok(visit) => visit,
        Err(elsewhere) => return elsewhere,
    };
    let query = Fields::of_query(&request);
    // A viewer's own list of tools is empty.
    if !visit.may_change() {
        let body = html! { p.notice { (visit.texts.viewer_hint) } };
        let title = visit.texts.run_tool.clone();
        return visit.page(Place::Tools, &title, &body);
    }
    let id = state.tool_admin.named(query.text("server"), query.text("tool"));
    match state.execute.find_by_id(&id, &caller.0, || headers(&caller, &request)).await {
        Ok(tool) => page(visit, &tool, &query, &Outcome::default()),
        Err(error) => visit.failed(&Problem::from(error)),
    }
}

/// Calls the tool with the arguments of the form.
pub(super) async fn run(state: web::Data<State>, caller: Caller, request: HttpRequest, body: Body) -> HttpResponse {
    let (visit, fields) = match Visit::with_form(&state, &request, &body, TOOLS) {
        Ok(begun) => begun,
        Err(elsewhere) => return elsewhere,
    };
    let id = state.tool_admin.named(fields.text("server"), fields.text("tool"));
    let tool = match state.execute.find_by_id(&id, &caller.0, || headers(&caller, &request)).await {
        Ok(tool) => tool,
        Err(error) => return visit.failed(&Problem::from(error)),
    };
    let arguments = match arguments(&tool, &fields, &visit.texts.not_json) {
        Ok(arguments) => arguments,
        Err(problem) => return page(visit, &tool, &fields, &Outcome { problem: Some(problem), called: None }),
    };
    let started = Instant::now();
    let executed = state.execute.call(&tool, &arguments, context(&caller, &request)).await;
    let took = started.elapsed();
    let (result, problem) = match executed.result {
        Ok(result) => (Some(result), None),
        Err(error) => (None, Some(Problem::from(error))),
    };
    let repairs = executed.repairs.iter().map(ToString::to_string).collect();
    page(visit, &tool, &fields, &Outcome { problem, called: Some(Called { arguments, result, took, repairs }) })
}

/// What became of a form.
#[derive(Default)]
struct Outcome {
    problem: Option<Problem>,
    /// `None` if the form could not be read.
    called: Option<Called>,
}

struct Called {
    arguments: String,
    result: Option<String>,
    took: Duration,
    repairs: Vec<String>,
}

/// A parameter at the top level of a tool's published schema.
struct Parameter<'a> {
    name: &'a str,
    schema: &'a Value,
    is_required: bool,
    kind: Kind<'a>,
}

/// How a parameter is entered.
enum Kind<'a> {
    /// One of these values.
    Choice(&'a [Value]),
    /// A switch that is always sent.
    Switch,
    /// A switch that need not be sent.
    Maybe,
    Integer,
    Number,
    Line,
    Text,
    Json,
}

impl<'a> Parameter<'a> {
    /// The parameters in a tool's published schema.
    fn all(schema: &'a Value) -> Vec<Self> {
        let required = |name: &str| schema["required"].as_array().is_some_and(|names| names.iter().any(|known| known == name));
        let properties = schema["properties"].as_object().into_iter().flatten();
        let parameter = |(name, schema): (&'a String, &'a Value)| {
            let is_required = required(name);
            Self { name, schema, is_required, kind: Kind::of(schema, is_required) }
        };
        let mut all: Vec<Self> = properties.map(parameter).collect();
        all.sort_by_key(|parameter| !parameter.is_required);
        all
    }

    /// The name of its field. The prefix keeps it apart from the fields of every form.
    fn field(&self) -> String {
        format!("argument.{}", self.name)
    }

    /// The JSON text of what was entered. `None` if nothing was.
    ///
    /// # Errors
    /// The text of an object or a list is not JSON.
    fn entered(&self, fields: &Fields) -> Result<Option<String>, ()> {
        let Some(text) = fields.raw(&self.field()).filter(|text| !text.trim().is_empty()) else {
            return Ok(matches!(self.kind, Kind::Switch).then(|| "false".to_owned()));
        };
        let is_json = |text: &str| serde_json::from_str::<&RawValue>(text).is_ok();
        let trimmed = text.trim();
        Ok(Some(match self.kind {
            // A number keeps all its digits.
            Kind::Choice(_) | Kind::Switch | Kind::Maybe | Kind::Integer | Kind::Number | Kind::Json if is_json(trimmed) => {
                trimmed.to_owned()
            }
            // A parameter of several types may be a text.
            Kind::Json if self.schema.get("type").is_some() && !types(self.schema).contains(&"string") => return Err(()),
            Kind::Line => Value::from(trimmed).to_string(),
            _ => Value::from(text).to_string(),
        }))
    }
}

impl<'a> Kind<'a> {
    fn of(schema: &'a Value, is_required: bool) -> Self {
        if let Some(values) = schema["enum"].as_array().filter(|values| values.len() <= CHOICES) {
            return Self::Choice(values);
        }
        match types(schema)[..] {
            ["boolean"] if is_required => Self::Switch,
            ["boolean"] => Self::Maybe,
            ["integer"] => Self::Integer,
            ["number"] => Self::Number,
            ["string"] if schema.get("format").is_some() => Self::Line,
            ["string"] if schema["maxLength"].as_u64().is_some_and(|most| most <= LINE) => Self::Line,
            ["string"] => Self::Text,
            _ => Self::Json,
        }
    }
}

/// The types that a schema names, without `null`: an empty field is not sent.
fn types(schema: &Value) -> Vec<&str> {
    let named = match &schema["type"] {
        Value::Array(named) => named.as_slice(),
        one => std::slice::from_ref(one),
    };
    named.iter().filter_map(Value::as_str).filter(|name| *name != "null").collect()
}

/// The arguments of a form as JSON text. JSON for all of them takes the place of the single fields.
fn arguments(tool: &Tool, fields: &Fields, not_json: &str) -> Result<String, Problem> {
    if let Some(all) = fields.given("all") {
        let is_json = serde_json::from_str::<&RawValue>(all).is_ok();
        return if is_json { Ok(all.to_owned()) } else { Err(Problem::invalid("all", not_json)) };
    }
    let (mut members, mut errors) = (Vec::new(), Vec::new());
    let schema = tool.input.published.value();
    for parameter in Parameter::all(&schema).iter().take(FIELDS) {
        match parameter.entered(fields) {
            Ok(Some(value)) => members.push(format!("{}:{value}", Value::from(parameter.name))),
            Ok(None) => {}
            Err(()) => errors.push(ArgumentProblem {
                pointer: format!("/{}", escaped(parameter.name)),
                message: not_json.to_owned(),
                expected: None,
                did_you_mean: None,
            }),
        }
    }
    if errors.is_empty() {
        return Ok(format!("{{{}}}", members.join(",")));
    }
    Err(Problem { errors, ..Problem::new(Code::InvalidArguments, not_json) })
}

fn page(visit: Visit<'_>, tool: &Tool, given: &Fields, outcome: &Outcome) -> HttpResponse {
    let texts = visit.texts;
    let name = visible(&tool.id.name);
    let named = [("server", tool.id.server.as_str()), ("tool", name.as_str())];
    let body = html! {
        p { a href=(visit.link(TOOL, &named)) { (texts.about_tool) } }
        p.said { (short(&tool.description, 3_000)) }
        @if outcome.called.is_some() || outcome.problem.is_some() { (result(&visit, tool, outcome)) }
        p.notice { (texts.run_hint) }
        (form(&visit, tool, &named, given, outcome.problem.as_ref()))
    };
    let title = format!("{}: {} / {}", texts.run_tool, short(tool.id.server.as_str(), 100), short(&name, 100));
    let status = outcome.problem.as_ref().map_or(StatusCode::OK, |problem| problem.code.status());
    visit.page_with(status, Place::Tools, &title, &body)
}

/// The raw request and the raw result.
fn result(visit: &Visit<'_>, tool: &Tool, outcome: &Outcome) -> Markup {
    let (texts, problem) = (visit.texts, outcome.problem.as_ref());
    let status = problem.map_or(StatusCode::OK, |problem| problem.code.status());
    let raw = |text: &str| {
        let shown = text.lines().map(visible).collect::<Vec<_>>().join("\n");
        html! {
            pre tabindex="0" { (short(&shown, SHOWN)) }
            @if text.chars().nth(SHOWN).is_some() { p.quiet { (texts.cut_off) } }
        }
    };
    html! {
        section.result {
            h2 { (texts.result) }
            @if let Some(problem) = problem { p.bad role="alert" { (reason(texts, problem)) } }
            @if let Some(called) = &outcome.called {
                dl.facts {
                    dt { (texts.status) }
                    dd { span class=(if problem.is_none() { "good" } else { "bad" }) { (status.as_u16()) } @if let Some(problem) = problem { " " code { (problem.code.name()) } } }
                    dt { (texts.duration) } dd { (took(called.took)) }
                    @if !called.repairs.is_empty() { dt { (texts.repairs) } dd { (called.repairs.join(", ")) } }
                }
                @if let Some(result) = &called.result { (raw(&pretty(result))) }
                h3 { (texts.request) }
                p { code { "POST " (visit.state.publish.layout().prefix) "/" (tool.id.server.as_str()) "/" (tool.label) } }
                (raw(&pretty(&called.arguments)))
            }
        }
    }
}

/// JSON with line breaks, if it is small; any other text as it is. Numbers keep their digits only as they are.
fn pretty(text: &str) -> String {
    let read = serde_json::from_str::<Value>(text).ok().filter(|value| serde_json::to_string(value).is_ok_and(|again| again == text));
    read.and_then(|value| serde_json::to_string_pretty(&value).ok()).unwrap_or_else(|| text.to_owned())
}

fn form(visit: &Visit<'_>, tool: &Tool, named: &[(&str, &str)], given: &Fields, problem: Option<&Problem>) -> Markup {
    let texts = visit.texts;
    let schema = tool.input.published.value();
    let parameters = Parameter::all(&schema);
    let more = parameters.len().saturating_sub(FIELDS);
    let errors = problem.map(|problem| problem.errors.as_slice()).unwrap_or_default();
    html! {
        form.columns method="post" action=(visit.at(RUN)) {
            (visit.token())
            @for (name, value) in named { input type="hidden" name=(name) value=(value); }
            @if parameters.is_empty() { p.all.quiet { (texts.no_parameters) } }
            @for (place, parameter) in parameters.iter().take(FIELDS).enumerate() { (field(visit, place, parameter, given, errors)) }
            @if more > 0 { p.all.notice { (more) " " (texts.parameters_without_field) } }
            details.all open[given.given("all").is_some()] {
                summary { (texts.all_as_json) }
                label for="all" { (texts.arguments) small { (texts.all_as_json_hint) } }
                textarea #all name="all" rows="6" spellcheck="false" { "\n" (given.text("all")) }
            }
            p.all { button { (texts.run_now) } }
        }
    }
}

/// What a list sends for a value, and what it shows.
fn choice(value: &Value) -> (String, String) {
    (value.to_string(), value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

fn field(visit: &Visit<'_>, place: usize, parameter: &Parameter<'_>, given: &Fields, errors: &[ArgumentProblem]) -> Markup {
    let (texts, id, name) = (visit.texts, format!("a{place}"), parameter.field());
    let value = given.raw(&name).unwrap_or_default();
    let pointer = format!("/{}", escaped(parameter.name));
    let own: Vec<&ArgumentProblem> = errors
        .iter()
        .filter(|error| error.pointer.strip_prefix(&pointer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
        .collect();
    let help = parameter.schema["description"].as_str().unwrap_or_default();
    let is_bad = (!own.is_empty()).then_some("true");
    let error = is_bad.map(|_| format!("{id}-error"));
    let label = html! {
        code { (short(parameter.name, 100)) }
        @if parameter.is_required { " " span.notable { (texts.required) } }
        @if !help.is_empty() { small { (short(help, HELP)) } }
    };
    let number = |step: &str| html! { input id=(id) name=(name) type="number" step=(step) value=(value) aria-invalid=[is_bad] aria-describedby=[&error]; };
    let options = |values: Vec<(String, String)>| {
        html! {
            select id=(id) name=(name) aria-invalid=[is_bad] aria-describedby=[&error] {
                @if !parameter.is_required { option value="" { (texts.not_sent) } }
                @for (sent, shown) in &values { option value=(sent) selected[sent == value.trim()] { (short(shown, 100)) } }
            }
        }
    };
    let area = |rows: &str| {
        html! {
            textarea id=(id) name=(name) rows=(rows) aria-invalid=[is_bad] aria-describedby=[&error] { "\n" (value) }
        }
    };
    html! {
        div class=[matches!(parameter.kind, Kind::Json).then_some("all")] {
            @if let Kind::Switch = parameter.kind {
                label.check { input id=(id) name=(name) type="checkbox" value="true" checked[value == "true"] aria-describedby=[&error]; " " (label) }
            } @else { label for=(id) { (label) @if let Kind::Json = parameter.kind { small { (texts.as_json) } } } }
            @match &parameter.kind {
                Kind::Switch => {},
                Kind::Maybe => { (options(["true", "false"].map(|value| (value.to_owned(), value.to_owned())).to_vec())) },
                Kind::Choice(values) => { (options(values.iter().map(choice).collect())) },
                Kind::Integer => { (number("1")) },
                Kind::Number => { (number("any")) },
                Kind::Line => { input id=(id) name=(name) type="text" value=(value) aria-invalid=[is_bad] aria-describedby=[&error]; },
                Kind::Text => { (area("2")) },
                Kind::Json => { (area("4")) },
            }
            @if let Some(error) = &error {
                p.bad id=(error) role="alert" {
                    @for (place, problem) in own.iter().enumerate() {
                        @if place > 0 { "; " }
                        @if problem.pointer != pointer { code { (problem.pointer) } " " }
                        (problem.message)
                    }
                }
            }
        }
    }
}
