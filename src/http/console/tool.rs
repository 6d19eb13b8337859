//! One tool: its definition and usage, and what an administrator writes about it.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use maud::{Markup, html};
use serde_json::Value;

use super::definitions::{Approval, approve, difference, is_open, state as state_of};
use super::layout::{Place, Visit};
use super::parts::{Form, Head, UNKNOWN, done, grouped, last_days, milliseconds, moment, share, short, table, version_in};
use super::shape::{self, ShapeRows};
use super::text::{Texts, reason};
use super::{RUN, TOOL, TOOLS};
use crate::domain::access::management::ManagedBy;
use crate::domain::access::tool_facts::{SYNONYM_CHARACTERS, TagSource, ToolOverride};
use crate::domain::catalog::hidden_text::visible;
use crate::domain::catalog::shape::Shape;
use crate::domain::catalog::texts::findability::{HardToFind, Weakness};
use crate::domain::catalog::tool::ToolId;
use crate::domain::learning::arguments::FilledParameters;
use crate::domain::records::usage::Latencies;
use crate::http::body::Body;
use crate::http::caller::Caller;
use crate::http::pages::browser::{Fields, address, see};
use crate::http::problem::{Code, Problem};
use crate::http::routes::admin::{quantile_milliseconds, tools};
use crate::http::state::State;
use crate::service::catalog::tool_admin::ToolView;
use crate::service::ports::{ToolCounts, ToolUsage, UsageQuery};
use crate::service::records::usage::UsageOrder;
use crate::service::selection::trial::TextTrial;

/// Maximum length of the raw definition, in characters.
const RAW: usize = 20_000;
/// Number of changes of a definition.
const CHANGES: usize = 50;
/// Number of messages whose selection would change.
const CHANGED: usize = 50;
const FIELDS: [&str; 4] = ["description", "synonyms", "tags", "pinned"];

/// What the page shows about a tool.
struct Subject {
    view: ToolView,
    usage: ToolUsage,
    /// The server's own input schema; `null` if no server lists the tool.
    input: Value,
    shape: Shape,
    /// Which parameters calls filled; `None` without calls.
    filled: Option<FilledParameters>,
}

impl Subject {
    fn rows(&self) -> ShapeRows<'_> {
        ShapeRows::of(&self.input, &self.shape)
    }
}

pub(super) async fn show(state: web::Data<State>, caller: Caller, request: HttpRequest) -> HttpResponse {
    let visit = match Visit::begin(&state, &caller, &request) {
        Ok(visit) => visit,
        Err(elsewhere) => return elsewhere,
    };
    let query = Fields::of_query(&request);
    let id = state.tool_admin.named(query.text("server"), query.text("tool"));
    match find(&state, &id).await {
        Ok(subject) => {
            let mut written = written(&subject);
            let said = match add(&state, &subject.view, &query, &mut written).await {
                Ok(false) => done(&visit, &query),
                Ok(true) => html! { p.notice role="status" { (visit.texts.not_saved) } },
                Err(problem) => return visit.failed(&problem),
            };
            page(visit, &subject, (&written, None), &said)
        }
        Err(problem) => visit.failed(&problem),
    }
}

/// Adds to the form what a link asks for: `pin`, `synonym` with the message of an event, or the `proposal` for a description. Returns
/// whether it did.
async fn add(state: &State, view: &ToolView, query: &Fields, fields: &mut Fields) -> Result<bool, Problem> {
    match query.text("add") {
        "pin" => fields.set("pinned", "true"),
        "proposal" => match view.hard_to_find.as_ref().and_then(|found| found.proposal.clone()) {
            Some(proposal) => fields.set("description", proposal),
            None => return Ok(false),
        },
        "synonym" => {
            let event = state.activity.event(query.text("event").parse().unwrap_or_default()).await?;
            let message = match &event {
                Some(event) => state.activity.message(event).await?,
                None => None,
            };
            let words = message.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
            let words: String = words.chars().take(SYNONYM_CHARACTERS).collect();
            let known = fields.text("synonyms").to_owned();
            fields.set("synonyms", format!("{known}\n{words}").trim().to_owned());
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Saves what the form contains, or deletes what was written.
pub(super) async fn change(state: web::Data<State>, caller: Caller, request: HttpRequest, body: Body) -> HttpResponse {
    let (visit, fields) = match Visit::with_form(&state, &request, &body, TOOLS) {
        Ok(begun) => begun,
        Err(elsewhere) => return elsewhere,
    };
    let id = state.tool_admin.named(fields.text("server"), fields.text("tool"));
    let subject = match find(&state, &id).await {
        Ok(subject) => subject,
        Err(problem) => return visit.failed(&problem),
    };
    if fields.text("do") == "try" {
        let texts = visit.texts;
        return match tools::try_on_messages(&state, &id, entered(&fields, &subject)).await {
            Ok(found) => page(visit, &subject, (&fields, None), &trial(texts, &found)),
            Err(problem) => page(visit, &subject, (&fields, Some(&problem)), &html! {}),
        };
    }
    let removes = fields.text("do") == "remove";
    let new = (!removes).then(|| entered(&fields, &subject));
    let expected = fields.text("version").parse().ok();
    let Err(problem) = tools::write(&state, &caller.0, &id, new, expected).await else {
        let named = [("server", fields.text("server")), ("tool", fields.text("tool"))];
        let done = ("done", if removes { "removed" } else { "saved" });
        return see(&state, &address(TOOL, &[named.as_slice(), &[done]].concat()));
    };
    match find(&state, &id).await {
        Ok(subject) => page(visit, &subject, (&fields, Some(&problem)), &html! {}),
        Err(problem) => visit.failed(&problem),
    }
}

async fn find(state: &State, id: &ToolId) -> Result<Subject, Problem> {
    let view = state.tool_admin.show(id).await?.ok_or_else(tools::unknown)?;
    let query = UsageQuery { server: Some(id.server.to_string()), tool: Some(id.name.to_string()), ..last_days() };
    let usage = state.usage.report(&query, UsageOrder::Called, 1).await?.tools.into_iter().next();
    let none = ToolUsage {
        tool: id.clone(),
        counts: ToolCounts::default(),
        latencies: Latencies::default(),
        called_at: None,
        helpful: 0,
        wrong: 0,
        missing: 0,
    };
    let shape = view.written.as_ref().map(|written| written.shape.clone()).unwrap_or_default();
    let filled = state.learning.filled(Some(id)).await?.into_iter().next();
    Ok(Subject { view, usage: usage.unwrap_or(none), input: state.tool_admin.own_input(id).unwrap_or_default(), shape, filled })
}

/// What is written about a tool, as the fields of its form.
fn written(subject: &Subject) -> Fields {
    let (mut fields, written) = (Fields::default(), subject.view.written.clone().unwrap_or_default());
    fields.set("description", written.description.unwrap_or_default());
    fields.set("synonyms", written.synonyms.join("\n"));
    fields.set("tags", written.tags.join("\n"));
    fields.set("pinned", written.pinned.to_string());
    subject.rows().write(&subject.shape, &mut fields);
    fields
}

/// What a form contains. An empty description keeps the server's own.
fn entered(fields: &Fields, subject: &Subject) -> ToolOverride {
    let lines = |name: &str| fields.lines(name).into_iter().map(str::to_owned).collect();
    ToolOverride {
        tags: lines("tags"),
        synonyms: lines("synonyms"),
        description: fields.given("description").map(str::to_owned),
        pinned: fields.text("pinned") == "true",
        shape: subject.rows().read(&subject.shape, fields),
    }
}

fn page(visit: Visit<'_>, subject: &Subject, (given, problem): (&Fields, Option<&Problem>), said: &Markup) -> HttpResponse {
    let (texts, view) = (visit.texts, &subject.view);
    let body = html! {
        (said)
        (facts(texts, view, &subject.usage))
        @if view.published && visit.may_change() { p { a href=(visit.link(RUN, &[("server", &view.server), ("tool", &view.tool)])) { (texts.run_tool) } } }
        (shape::misfits(texts, &view.shape_problems))
        @if let Some(found) = &view.hard_to_find { (hard_to_find(&visit, view, found)) }
        @if is_open(view.definition.state) { (change_of(&visit, view)) }
        h2 #written { (texts.written) }
        (form(&visit, subject, given, problem))
        @if let Some(raw) = &view.raw {
            details {
                summary { (texts.raw_definition) }
                pre tabindex="0" { (short(&shown(&raw.value()), RAW)) }
            }
        }
    };
    let title = format!("{} / {}", short(&view.server, 100), short(&view.tool, 100));
    visit.page_with(problem.map_or(StatusCode::OK, |problem| problem.code.status()), Place::Tools, &title, &body)
}

/// A definition as JSON, with hidden characters as escapes.
fn shown(raw: &Value) -> String {
    let text = serde_json::to_string_pretty(raw).unwrap_or_default();
    text.lines().map(visible).collect::<Vec<_>>().join("\n")
}

fn facts(texts: &Texts, view: &ToolView, usage: &ToolUsage) -> Markup {
    let (half, most) = quantile_milliseconds(&usage.latencies);
    let counts = &usage.counts;
    let name = view.name.as_deref().unwrap_or(UNKNOWN);
    let tags: Vec<String> = view.tags.iter().map(|tag| format!("{} ({})", short(&tag.tag, 64), source(texts, tag.source))).collect();
    html! {
        @if let Some(description) = &view.description { p.said { (short(description, 3_000)) } }
        dl.facts {
            dt { (texts.state) } dd { (state_of(texts, view.definition.state)) @if view.disabled { " " span.notable { (texts.switched_off) } } @else if !view.published { " " span.quiet { (texts.not_published) } } }
            dt { (texts.public_name) } dd { code { (short(name, 200)) } }
            dt { (texts.tokens) } dd { (view.tokens.map_or_else(|| UNKNOWN.to_owned(), |tokens| grouped(tokens.into()))) }
            dt { (texts.tags) } dd { (tags.join(", ")) }
            dt { (texts.offered) } dd { (grouped(counts.offered)) }
            dt { (texts.calls) } dd { (grouped(counts.called)) ", " (share(counts.succeeded, counts.called)) " " (texts.success) ", " (milliseconds(half)) " / " (milliseconds(most)) " ms" }
            dt { (texts.recovered) } dd { (grouped(counts.recovered)) }
            dt { (texts.last_used) } dd { (moment(usage.called_at)) }
            dt { (texts.first_seen) } dd { (moment(view.definition.first_seen)) }
            dt { (texts.approved_at) } dd { (moment(view.definition.approved_at)) }
        }
        @for hidden in view.hidden_text.iter().take(10) {
            p.notice { (texts.hidden_text) " " code { (short(&hidden.pointer, 200)) } ": " (hidden.code_points.join(", ")) }
        }
    }
}

/// Why searches rarely find the tool, and a text to begin with.
fn hard_to_find(visit: &Visit<'_>, view: &ToolView, found: &HardToFind) -> Markup {
    let texts = visit.texts;
    html! {
        section.notice #found {
            h2 { (texts.hard_to_find) }
            ul {
                @for reason in &found.reasons {
                    li {
                        @match reason {
                            Weakness::Short => (texts.weak_short),
                            Weakness::Long => (texts.weak_long),
                            Weakness::NoVerb => (texts.weak_no_verb),
                            Weakness::LikeSibling { tool } => {
                                (texts.weak_like_sibling) ": "
                                a href=(visit.link(TOOL, &[("server", &view.server), ("tool", &visible(tool))])) { (short(&visible(tool), 100)) }
                            },
                        }
                    }
                }
            }
            @if let Some(proposal) = &found.proposal {
                p { (texts.proposal) ":" }
                blockquote.said { (short(proposal, 1_000)) }
                @if visit.may_change() {
                    p { a href={ (visit.link(TOOL, &[("server", &view.server), ("tool", &view.tool), ("add", "proposal")])) "#written" } { (texts.use_proposal) } }
                }
            }
        }
    }
}

fn source(texts: &Texts, source: TagSource) -> &str {
    match source {
        TagSource::Tool => &texts.of_tool,
        TagSource::ServerFile => &texts.of_server_file,
        TagSource::Rule | TagSource::Settings => &texts.of_settings,
        TagSource::Admin => &texts.of_admin,
    }
}

fn change_of(visit: &Visit<'_>, view: &ToolView) -> Markup {
    let texts = visit.texts;
    html! {
        section.change {
            h2 { (texts.definition_changes) }
            @if let Some(changes) = &view.difference { (difference(texts, changes, CHANGES)) }
            @if let Some(fingerprint) = &view.definition.fingerprint {
                (approve(visit, &Approval { server: &view.server, tool: &view.tool, prompt: "", fingerprint, back: "tool" }))
            }
        }
    }
}

fn form(visit: &Visit<'_>, subject: &Subject, given: &Fields, problem: Option<&Problem>) -> Markup {
    let (texts, view, rows) = (visit.texts, &subject.view, subject.rows());
    let id = visit.state.tool_admin.named(&view.server, &view.tool);
    let of_file = visit.state.tool_admin.overrides.check_given(&id).err().map(Problem::from);
    // Whoever saves again after a conflict has seen the other version.
    let in_conflict = problem.is_some_and(|problem| problem.code == Code::PreconditionFailed);
    let is_fixed = of_file.is_some() || !visit.may_change();
    let form = Form { is_fixed, ..Form::new(texts, given, problem) };
    let version = version_in(&form, &view.tool, view.version.to_string());
    let fields = html! {
        @if !problem.is_some_and(|problem| rows.show(problem)) { (form.error_beside(&FIELDS)) }
        (form.area("description", &texts.description, &texts.description_hint))
        (form.area("synonyms", &texts.synonyms, &texts.synonyms_hint))
        (form.area("tags", &texts.tags, &texts.tags_hint))
        div {
            (form.checkbox("pinned", &texts.pinned_hint))
            (form.checkbox("disabled", &texts.disabled_hint))
        }
        (rows.form(texts, subject.filled.as_ref(), (given, problem), is_fixed))
    };
    html! {
        @if let Some(of_file) = of_file.as_ref().filter(|_| problem.is_none()) { p.notice { (reason(texts, of_file)) } }
        @if in_conflict { (other_version(texts, subject)) }
        @if is_fixed { div.columns { (fields) } }
        @else {
            form.columns method="post" action=(visit.at(TOOL)) {
                (visit.token())
                @for (name, value) in [("server", &view.server), ("tool", &view.tool), ("version", &version)] {
                    input type="hidden" name=(name) value=(value);
                }
                (fields)
                p.all.buttons {
                    button name="do" value="save" { (texts.save) }
                    @if view.published { " " button name="do" value="try" { (texts.try_text) } }
                    @if view.managed_by == Some(ManagedBy::Api) { " " button name="do" value="remove" { (texts.reset) } }
                }
            }
        }
    }
}

/// The messages whose selection would change.
fn trial(texts: &Texts, found: &TextTrial) -> Markup {
    let heads = [Head::Text(&texts.message), Head::Text(&texts.caller), Head::Text(&texts.gains), Head::Text(&texts.loses)];
    let names = |names: &[String]| html! { @for (place, name) in names.iter().take(8).enumerate() { @if place > 0 { ", " } code { (short(name, 80)) } } @if names.len() > 8 { " +" (names.len() - 8) } };
    let rows = html! {
        @for change in found.changes.iter().take(CHANGED) {
            tr {
                td.said { (short(&change.message, 200)) }
                td { (short(&change.principal, 60)) }
                td { (names(&change.added)) }
                td { (names(&change.gone)) }
            }
        }
    };
    html! {
        section.notice role="status" {
            h2 { (texts.draft) }
            p { (texts.changed_messages) ": " strong { (grouped(found.changes.len() as u64)) } " / " (grouped(found.tried as u64)) }
            @if found.tried == 0 && found.without_text > 0 { p { (texts.no_message_texts) } }
            @if found.is_cut { p.quiet { (texts.trial_cut) } }
            @if !found.changes.is_empty() { (table(&texts.changed_messages, &heads, &rows)) }
        }
    }
}

/// What another administrator has written in the meantime.
fn other_version(texts: &Texts, subject: &Subject) -> Markup {
    let (view, theirs) = (&subject.view, written(subject));
    let labels = [&texts.description, &texts.synonyms, &texts.tags];
    html! {
        section.notice {
            h3 { (texts.other_version) }
            dl.facts {
                @for (name, label) in FIELDS.iter().zip(labels) { dt { (label) } dd.said { (theirs.text(name)) } }
                dt { (texts.pinned) } dd { @if view.pinned { (texts.yes) } @else { (texts.no) } }
                (shape::facts(texts, view))
            }
        }
    }
}
