//! All tools in one table, with a search and filters.

use std::collections::HashMap;

use actix_web::{HttpRequest, HttpResponse, web};
use maud::{Markup, html};

use super::definitions::state as state_of;
use super::layout::{Place, Visit};
use super::parts::{Form, Head, Part, UNKNOWN, done, grouped, last_days, moment, pager, share, short, table};
use super::{TOOL, TOOLS};
use crate::domain::access::tool_facts::ToolOverride;
use crate::domain::catalog::hidden_text::visible;
use crate::http::body::Body;
use crate::http::caller::Caller;
use crate::http::pages::browser::{Fields, address, see};
use crate::http::problem::Problem;
use crate::http::routes::admin::tools;
use crate::http::state::State;
use crate::service::catalog::tool_admin::{ToolFilter, ToolPage, ToolView};
use crate::service::ports::ToolUsage;
use crate::service::records::usage::UsageOrder;

/// Number of tools in the table.
const PAGE: usize = 50;
/// Number of tags per tool in the table.
const TAGS: usize = 3;
/// Maximum length of a name in the table, in characters.
const NAME: usize = 80;
/// The fields of the query, without the message about a change.
const KEPT: [&str; 5] = ["text", "server", "tag", "state", "offset"];

/// The usage of each tool, by the names that a [`ToolView`] contains.
type Used = HashMap<(String, String), ToolUsage>;

pub(super) async fn show(state: web::Data<State>, caller: Caller, request: HttpRequest) -> HttpResponse {
    let visit = match Visit::begin(&state, &caller, &request) {
        Ok(visit) => visit,
        Err(elsewhere) => return elsewhere,
    };
    let query = Fields::of_query(&request);
    let used = match used(&state).await {
        Ok(used) => used,
        Err(problem) => return visit.failed(&problem),
    };
    let texts = visit.texts;
    let page = state.tool_admin.list(&filter(&query), query.number("offset"), PAGE);
    let body = html! {
        (done(&visit, &query))
        (search(&visit, &query))
        @if page.tools.is_empty() { p { (texts.no_tools) } } @else { (found(&visit, &query, &page, &used)) }
    };
    visit.page(Place::Tools, &texts.tools, &body)
}

/// The usage of all tools in the last 30 days.
async fn used(state: &State) -> Result<Used, Problem> {
    let report = state.usage.report(&last_days(), UsageOrder::Called, usize::MAX).await?;
    Ok(report.tools.into_iter().map(|usage| ((usage.tool.server.to_string(), visible(&usage.tool.name)), usage)).collect())
}

/// Pins a tool, or ends that. Everything else that is written about the tool stays as it is.
pub(super) async fn pin(state: web::Data<State>, caller: Caller, request: HttpRequest, body: Body) -> HttpResponse {
    let (visit, fields) = match Visit::with_form(&state, &request, &body, TOOLS) {
        Ok(begun) => begun,
        Err(elsewhere) => return elsewhere,
    };
    let pinned = async {
        let id = state.tool_admin.named(fields.text("of"), fields.text("tool"));
        let view = state.tool_admin.show(&id).await?.ok_or_else(tools::unknown)?;
        let pinned = fields.text("do") == "pin";
        if !pinned {
            tools::check_unpin(&state, &id)?;
        }
        let written = ToolOverride { pinned, ..view.written.unwrap_or_default() };
        tools::write(&state, &caller.0, &id, Some(written), Some(view.version)).await
    };
    match pinned.await {
        Ok(_) => {
            let kept = KEPT.map(|name| (name, fields.text(name)));
            see(&state, &address(TOOLS, &[kept.as_slice(), &[("done", "saved")]].concat()))
        }
        Err(problem) => visit.failed(&problem),
    }
}

fn filter(query: &Fields) -> ToolFilter {
    let state = query.text("state");
    ToolFilter {
        server: query.given("server").map(str::to_owned),
        tag: query.given("tag").map(str::to_owned),
        pinned: (state == "pinned").then_some(true),
        changed: (state == "changed").then_some(true),
        new: (state == "new").then_some(true),
        disabled: (state == "disabled").then_some(true),
        text: query.given("text").map(str::to_owned),
    }
}

fn search(visit: &Visit<'_>, query: &Fields) -> Markup {
    let (texts, form) = (visit.texts, Form::new(visit.texts, query, None));
    let states = [
        ("", texts.any.as_str()),
        ("pinned", &texts.pinned),
        ("changed", &texts.state_changed),
        ("new", &texts.state_new),
        ("disabled", &texts.switched_off),
    ];
    html! {
        form.columns role="search" method="get" action=(visit.at(TOOLS)) {
            (form.input("text", &texts.search, &texts.search_hint, "search"))
            (form.line("server", &texts.server, ""))
            (form.line("tag", &texts.tag, ""))
            (form.choice("state", &texts.state, &states))
            p.all { button { (texts.find) } }
        }
    }
}

fn found(visit: &Visit<'_>, query: &Fields, page: &ToolPage, used: &Used) -> Markup {
    let texts = visit.texts;
    let heads = [
        Head::Text(&texts.tool),
        Head::Text(&texts.state),
        Head::Number(&texts.calls),
        Head::Number(&texts.success),
        Head::Number(&texts.recovered_share),
        Head::Text(&texts.last_used),
        Head::Number(&texts.tokens),
        Head::Text(&texts.tags),
        Head::Text(&texts.actions),
    ];
    let heads = if visit.may_change() { &heads[..] } else { &heads[..heads.len() - 1] };
    let rows = html! {
        @for tool in &page.tools { (row(visit, query, tool, used.get(&(tool.server.clone(), tool.tool.clone())))) }
    };
    let link = |offset: usize| {
        let offset = offset.to_string();
        let kept = ["text", "server", "tag", "state"].map(|name| (name, query.text(name)));
        visit.link(TOOLS, &[kept.as_slice(), &[("offset", if offset == "0" { "" } else { &offset })]].concat())
    };
    html! {
        (table(&texts.tools, heads, &rows))
        (pager(texts, Part { offset: query.number("offset"), limit: PAGE, total: page.total }, link))
        p.quiet { (texts.last_days) ". " (texts.recovered_hint) }
    }
}

fn row(visit: &Visit<'_>, query: &Fields, tool: &ToolView, used: Option<&ToolUsage>) -> Markup {
    let texts = visit.texts;
    let counts = used.map(|used| used.counts).unwrap_or_default();
    let tags: Vec<_> = tool.tags.iter().take(TAGS).map(|tag| short(&tag.tag, 30)).collect();
    html! {
        tr {
            th scope="row" {
                a href=(visit.link(TOOL, &[("server", &tool.server), ("tool", &tool.tool)])) { (short(&tool.server, NAME)) " / " (short(&tool.tool, NAME)) }
                @if tool.pinned { small.notable { (texts.pinned) } }
                @if tool.disabled { small.notable { (texts.switched_off) } }
                @if tool.hard_to_find.is_some() {
                    small { a.notable href={ (visit.link(TOOL, &[("server", &tool.server), ("tool", &tool.tool)])) "#found" } { (texts.hard_to_find) } }
                }
            }
            td { (state_of(texts, tool.definition.state)) @if !tool.published && tool.definition.state.is_none() { span.quiet { (texts.not_listed) } } }
            td.number { (grouped(counts.called)) }
            td.number { (share(counts.succeeded, counts.called)) }
            td.number { (share(counts.recovered, counts.called)) }
            td { (moment(used.and_then(|used| used.called_at))) }
            td.number { (tool.tokens.map_or_else(|| UNKNOWN.to_owned(), |tokens| grouped(tokens.into()))) }
            td { (tags.join(", ")) @if tool.tags.len() > TAGS { " +" (tool.tags.len() - TAGS) } }
            @if visit.may_change() { td { (pin_button(visit, query, tool)) } }
        }
    }
}

/// The button that pins a tool. What a file says about a tool can only be changed there.
fn pin_button(visit: &Visit<'_>, query: &Fields, tool: &ToolView) -> Markup {
    let (texts, id) = (visit.texts, visit.state.tool_admin.named(&tool.server, &tool.tool));
    if visit.state.tool_admin.overrides.check_given(&id).is_err() {
        return html! { span.quiet { (texts.in_file) } };
    }
    let (action, name) = if tool.pinned { ("unpin", &texts.unpin) } else { ("pin", &texts.pin) };
    html! {
        form method="post" action=(visit.at(TOOLS)) {
            (visit.token())
            input type="hidden" name="of" value=(tool.server);
            input type="hidden" name="tool" value=(tool.tool);
            @for kept in KEPT { @if let Some(value) = query.given(kept) { input type="hidden" name=(kept) value=(value); } }
            button.small name="do" value=(action) aria-label={ (name) ": " (short(&tool.server, NAME)) " / " (short(&tool.tool, NAME)) } { (name) }
        }
    }
}
