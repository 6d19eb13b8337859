//! What was learned about tools: the evidence on each, and what it does for a message.

use maud::{Markup, html};

use super::words::{kind, kinds};
use crate::domain::catalog::hidden_text::visible;
use crate::domain::catalog::tool::ToolId;
use crate::http::console::layout::Visit;
use crate::http::console::parts::{Form, Head, Part, grouped, moment, pager, short, table};
use crate::http::console::{LEARNING, TOOL};
use crate::http::pages::browser::Fields;
use crate::http::problem::Problem;
use crate::http::routes::admin::learning::{MovedTool, age_days, moved_by};
use crate::service::learning::learn::LearnedEvidence;
use crate::service::learning::shown::LearnedTool;

/// Number of tools on a page.
const PAGE: usize = 50;
/// Number of tools of a message, and of pieces of evidence of each.
const MOVED: usize = 20;
const PIECES: usize = 20;
/// Maximum length of a message, in bytes. It is part of the page's address.
const LONGEST: usize = 4_000;

/// All tools with evidence.
pub(super) fn list(visit: &Visit<'_>, all: &[LearnedTool], offset: usize) -> Markup {
    let texts = visit.texts;
    if all.is_empty() {
        return html! { p { (texts.nothing_learned) } };
    }
    let heads = [
        Head::Text(&texts.tool),
        Head::Text(&texts.evidence),
        Head::Number(&texts.callers),
        Head::Text(&texts.since),
        Head::Text(&texts.last_used),
        Head::Text(&texts.actions),
    ];
    let rows = html! {
        @for known in all.iter().skip(offset).take(PAGE) {
            tr {
                th scope="row" { (name_of(&known.tool)) }
                td { (kinds(texts, &known.kinds)) }
                td.number { (grouped(known.callers as u64)) }
                td { (moment(Some(known.since))) }
                td { (moment(Some(known.newest))) }
                td { (actions(visit, &known.tool)) }
            }
        }
    };
    html! {
        p.quiet { (texts.by_tool_hint) }
        (table(&texts.learned_by_tool, &heads, &rows))
        @if all.len() > PAGE {
            (pager(texts, Part { offset, limit: PAGE, total: all.len() }, |at| visit.link(LEARNING, &[("tools", &at.to_string())])))
        }
    }
}

fn actions(visit: &Visit<'_>, tool: &ToolId) -> Markup {
    let (texts, id, name) = (visit.texts, id_of(tool), name_of(tool));
    html! {
        a href=(visit.link(LEARNING, &[("tool", &id)])) aria-label={ (texts.evidence) ": " (name) } { (texts.evidence) }
        @if visit.may_change() {
            " · "
            a href=(visit.link(LEARNING, &[("forget", "tool"), ("value", &id)])) aria-label={ (texts.forget) ": " (name) } { (texts.forget) }
        }
    }
}

/// All evidence on one tool, by scope.
pub(super) fn of_tool(visit: &Visit<'_>, tool: &ToolId) -> Markup {
    let texts = visit.texts;
    let evidence = visit.state.learning.evidence(tool, None);
    html! {
        h2 { (texts.evidence) ": " (name_of(tool)) }
        @if evidence.is_empty() { p { (texts.nothing_learned) } }
        @else {
            (table(&texts.evidence, &[Head::Text(&texts.scope), Head::Text(&texts.kind), Head::Number(&texts.count), Head::Number(&texts.age_days)], &html! {
                @for piece in evidence.iter().take(4 * PAGE) {
                    tr {
                        th scope="row" { code { (short(&piece.scope.to_string(), 120)) } }
                        td { (kind(texts, piece.kind)) }
                        td.number { (grouped(piece.count as u64)) }
                        td.number { (age(piece)) }
                    }
                }
            }))
            @if evidence.len() > 4 * PAGE { p.quiet { (grouped((evidence.len() - 4 * PAGE) as u64)) " " (texts.more_evidence) } }
        }
        p {
            a href=(visit.link(TOOL, &[("server", tool.server.as_str()), ("tool", &tool.name)])) { (texts.tool) } " · "
            a href=(visit.at(LEARNING)) { (texts.learning) }
        }
    }
}

/// What learning does for a message that somebody typed in.
pub(super) struct Tried<'a> {
    given: &'a Fields,
    moved: Result<Option<Vec<MovedTool>>, Problem>,
}

impl<'a> Tried<'a> {
    /// Compares the message with what the caller may learn from. Nothing is recorded.
    pub(super) async fn read(visit: &Visit<'_>, given: &'a Fields) -> Self {
        let texts = visit.texts;
        let moved = match (given.given("message"), given.given("principal")) {
            (None, None) => Ok(None),
            (None, Some(_)) => Err(Problem::invalid("message", texts.message_needed.clone())),
            (Some(message), _) if message.len() > LONGEST => Err(Problem::invalid("message", texts.message_too_long.clone())),
            (Some(message), principal) => moved_by(visit.state, message, principal.unwrap_or_default()).await.map(Some),
        };
        Self { given, moved }
    }

    pub(super) fn problem(&self) -> Option<&Problem> {
        self.moved.as_ref().err()
    }

    pub(super) fn shown(&self, visit: &Visit<'_>) -> Markup {
        let (texts, form) = (visit.texts, Form::new(visit.texts, self.given, self.problem()));
        html! {
            h2 { (texts.learned_for_message) }
            p.quiet { (texts.learned_for_message_hint) }
            form.columns role="search" method="get" action=(visit.at(LEARNING)) {
                (form.error_beside(&["message", "principal"]))
                (form.line("message", &texts.message, ""))
                (form.line("principal", &texts.caller, &texts.learned_caller_hint))
                p.all { button { (texts.learned_try) } }
            }
            @if let Ok(Some(moved)) = &self.moved {
                div role="status" {
                    @if moved.is_empty() { p { (texts.moves_nothing) } }
                    @else { (table_of_moved(visit, moved)) }
                }
            }
        }
    }
}

fn table_of_moved(visit: &Visit<'_>, moved: &[MovedTool]) -> Markup {
    let texts = visit.texts;
    let heads = [
        Head::Text(&texts.tool),
        Head::Number(&texts.delta),
        Head::Text(&texts.evidence),
        Head::Number(&texts.age_days),
        Head::Text(&texts.scope),
    ];
    let rows = html! {
        @for one in moved.iter().take(MOVED) {
            @let pieces = one.evidence.len().clamp(1, PIECES);
            tr {
                th scope="rowgroup" rowspan=(pieces) { a href=(visit.link(LEARNING, &[("tool", &id_of(&one.tool))])) { (short(&visible(&one.name), 100)) } }
                td.number rowspan=(pieces) { (format!("{:+.2}", one.delta)) }
                @match one.evidence.first() { Some(piece) => (piece_of(visit, piece)), None => { td {} td {} td {} } }
            }
            @for piece in one.evidence.iter().take(PIECES).skip(1) { tr { (piece_of(visit, piece)) } }
        }
    };
    html! { p.quiet { (texts.delta_hint) } (table(&texts.learned_for_message, &heads, &rows)) }
}

fn piece_of(visit: &Visit<'_>, piece: &LearnedEvidence) -> Markup {
    html! {
        td { (kind(visit.texts, piece.kind)) " " (grouped(piece.count as u64)) }
        td.number { (age(piece)) }
        td { code { (short(&piece.scope.to_string(), 120)) } }
    }
}

fn age(piece: &LearnedEvidence) -> String {
    format!("{:.1}", age_days(piece.newest))
}

/// A tool as a person reads it.
fn name_of(tool: &ToolId) -> String {
    short(&visible(&tool.to_string()), 150).into_owned()
}

/// A tool as the API names one that may no longer exist.
fn id_of(tool: &ToolId) -> String {
    format!("{}/{}", tool.server, tool.name)
}
