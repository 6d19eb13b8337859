//! The servers: their state and their usage, changed definitions, and tools that resemble each other.

use std::collections::HashMap;

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use maud::{Markup, html};

use super::definitions::{Approval, approve as approve_button, difference, is_open, state as state_of};
use super::layout::{Place, Visit};
use super::parts::{Head, Part, UNKNOWN, done, grouped, last_days, milliseconds, moment, pager, share, short, table};
use super::server::server_phase;
use super::text::{Texts, reason};
use super::{SERVER, SERVERS, TOOL, TOOLS};
use crate::domain::access::management::ManagedBy;
use crate::domain::catalog::tool::ServerName;
use crate::http::blocking::blocking;
use crate::http::body::Body;
use crate::http::caller::Caller;
use crate::http::pages::browser::{Fields, address, see};
use crate::http::problem::Problem;
use crate::http::routes::admin::{quantile_milliseconds, servers, tools};
use crate::http::state::State;
use crate::service::catalog::definitions::{DefinitionCounts, PartView};
use crate::service::catalog::tool_admin::{Duplicates, ServerView, ToolFilter, ToolView};
use crate::service::records::usage::{ServerUsage, UsageOrder};

/// Number of servers in the table.
const PAGE: usize = 30;
/// Number of changed and of new tools, of groups of near duplicates, and of tools in a group.
const MOST: usize = 10;
/// Number of changed servers and prompts.
const PARTS: usize = 5;
/// Number of changes per definition.
const CHANGES: usize = 3;

/// The definition of a server itself or of one of its prompts.
struct ServerPart {
    server: ServerName,
    /// Empty for the server itself.
    prompt: String,
    view: PartView,
}

/// What the page shows.
struct Found {
    servers: Vec<ServerView>,
    usage: HashMap<ServerName, ServerUsage>,
    parts: Vec<ServerPart>,
    changed: Vec<ToolView>,
    new: Vec<ToolView>,
    /// Number of all changed and of all new tools.
    counts: (usize, usize),
    duplicates: Duplicates,
}

pub(super) async fn show(state: web::Data<State>, caller: Caller, request: HttpRequest) -> HttpResponse {
    let visit = match Visit::begin(&state, &caller, &request) {
        Ok(visit) => visit,
        Err(elsewhere) => return elsewhere,
    };
    answer(&state, visit, &Fields::of_query(&request), None).await
}

/// Approves the definition of a tool, a server or a prompt.
pub(super) async fn approve(state: web::Data<State>, caller: Caller, request: HttpRequest, body: Body) -> HttpResponse {
    let (visit, fields) = match Visit::with_form(&state, &request, &body, SERVERS) {
        Ok(begun) => begun,
        Err(elsewhere) => return elsewhere,
    };
    let (server, tool, fingerprint) = (fields.text("server"), fields.text("tool"), fields.text("fingerprint"));
    let approved = if tool.is_empty() {
        servers::approve(&state, &caller.0, ServerName::from(server), fields.given("prompt"), fingerprint).await.map(|_| ())
    } else {
        tools::approve(&state, &caller.0, &state.tool_admin.named(server, tool), fingerprint).await.map(|_| ())
    };
    match approved {
        Err(problem) => answer(&state, visit, &Fields::default(), Some(&problem)).await,
        Ok(()) if fields.text("back") == "tool" => see(&state, &address(TOOL, &[("server", server), ("tool", tool), ("done", "approved")])),
        Ok(()) => see(&state, &address(SERVERS, &[("done", "approved")])),
    }
}

async fn answer(state: &web::Data<State>, visit: Visit<'_>, query: &Fields, problem: Option<&Problem>) -> HttpResponse {
    let found = match find(state).await {
        Ok(found) => found,
        Err(problem) => return visit.failed(&problem),
    };
    let texts = visit.texts;
    let body = html! {
        @if let Some(problem) = problem { p.bad role="alert" { (reason(texts, problem)) } }
        (done(&visit, query))
        (table_of_servers(&visit, &found, query.number("offset")))
        @if visit.may_change() { p { a href=(visit.at(SERVER)) { (texts.new_server) } } }
        h2 { (texts.definition_changes) }
        (changes(&visit, &found))
        h2 { (texts.duplicates) }
        p.quiet { (texts.duplicates_hint) }
        (duplicates(&visit, &found.duplicates))
    };
    let status = problem.map_or(StatusCode::OK, |problem| problem.code.status());
    visit.page_with(status, Place::Servers, &texts.servers, &body)
}

async fn find(state: &web::Data<State>) -> Result<Found, Problem> {
    let servers = state.tool_admin.servers().await?;
    let usage = state.usage.report(&last_days(), UsageOrder::Called, 0).await?.servers;
    let mut parts = Vec::new();
    // Of all servers: a change must not hide on another part of the list.
    for server in servers.iter().filter(|server| server.definitions != DefinitionCounts::default()) {
        let Some(view) = state.tool_admin.server_definition(&server.server).await? else { continue };
        let all = view.definition.into_iter().map(|view| (String::new(), view)).chain(view.prompts);
        let open = all.filter(|(_, view)| is_open(view.state));
        parts.extend(open.map(|(prompt, view)| ServerPart { server: server.server.clone(), prompt, view }));
    }
    let (changed, changed_count) = open_tools(state, &ToolFilter { changed: Some(true), ..ToolFilter::default() }).await?;
    let (new, new_count) = open_tools(state, &ToolFilter { new: Some(true), ..ToolFilter::default() }).await?;
    let all = state.clone();
    let duplicates = blocking(move || all.tool_admin.duplicates()).await?;
    let usage = usage.into_iter().map(|usage| (usage.server.clone(), usage)).collect();
    Ok(Found { servers, usage, parts, changed, new, counts: (changed_count, new_count), duplicates })
}

/// The first tools of a filter with their differences, and the number of all.
async fn open_tools(state: &State, filter: &ToolFilter) -> Result<(Vec<ToolView>, usize), Problem> {
    let page = state.tool_admin.list(filter, 0, MOST);
    let mut views = Vec::with_capacity(page.tools.len());
    for tool in page.tools {
        let id = state.tool_admin.named(&tool.server, &tool.tool);
        views.push(state.tool_admin.show(&id).await?.unwrap_or(tool));
    }
    Ok((views, page.total))
}

fn table_of_servers(visit: &Visit<'_>, found: &Found, offset: usize) -> Markup {
    let texts = visit.texts;
    if found.servers.is_empty() {
        return html! { p { (texts.no_servers) } };
    }
    let heads = [
        Head::Text(&texts.server),
        Head::Text(&texts.state),
        Head::Number(&texts.tools),
        Head::Number(&texts.tokens),
        Head::Number(&texts.calls),
        Head::Number(&texts.success),
        Head::Number("p50 / p95 ms"),
        Head::Number(&texts.changes),
        Head::Text(&texts.last_listed),
        Head::Text(&texts.error),
        Head::Text(&texts.actions),
    ];
    let rows =
        html! { @for server in found.servers.iter().skip(offset).take(PAGE) { (row(visit, server, found.usage.get(&server.server))) } };
    html! {
        (table(&texts.servers, &heads, &rows))
        @if found.servers.len() > PAGE {
            (pager(texts, Part { offset, limit: PAGE, total: found.servers.len() }, |at| visit.link(SERVERS, &[("offset", &at.to_string())])))
        }
        p.quiet { (texts.last_days) ". " (texts.success_hint) }
    }
}

fn row(visit: &Visit<'_>, server: &ServerView, usage: Option<&ServerUsage>) -> Markup {
    let name = server.server.as_str();
    let (half, most) = usage.map_or((None, None), |usage| quantile_milliseconds(&usage.latencies));
    let counts = server.definitions;
    html! {
        tr {
            th scope="row" {
                a href=(visit.link(TOOLS, &[("server", name)])) { (short(name, 100)) }
                @if let Some(version) = &server.version { small.quiet { (short(version, 40)) } }
                @if server.managed_by == ManagedBy::File { small.quiet { (visit.texts.in_servers_file) } }
            }
            td { (server_phase(visit.texts, server)) }
            td.number { (grouped(server.tools as u64)) }
            td.number { (grouped(server.tokens)) }
            td.number { (usage.map_or_else(|| "0".to_owned(), |usage| grouped(usage.counts.called))) }
            td.number { (usage.map_or_else(|| UNKNOWN.to_owned(), |usage| share(usage.counts.succeeded, usage.counts.called))) }
            td.number { (milliseconds(half)) " / " (milliseconds(most)) }
            td.number { (counts.changed + counts.new) }
            td { (moment(server.listed_at)) }
            td.bad lang="en" { (short(server.error.as_deref().unwrap_or_default(), 300)) }
            td { a href=(visit.link(SERVER, &[("server", name)])) aria-label={ (visit.texts.change) ": " (short(name, 100)) } { (visit.texts.change) } }
        }
    }
}

fn changes(visit: &Visit<'_>, found: &Found) -> Markup {
    let texts = visit.texts;
    if found.parts.is_empty() && found.changed.is_empty() && found.new.is_empty() {
        return html! { p { (texts.no_changes) } };
    }
    let more = |filter: &str, shown: usize, all: usize| {
        html! { @if all > shown { p { a href=(visit.link(TOOLS, &[("state", filter)])) { (grouped((all - shown) as u64)) " " (texts.more_tools) } } } }
    };
    html! {
        @for part in found.parts.iter().take(PARTS) { (changed_part(visit, part)) }
        @if found.parts.len() > PARTS { p.quiet { (grouped((found.parts.len() - PARTS) as u64)) " " (texts.more_parts) } }
        @for tool in found.changed.iter().chain(&found.new) { (changed_tool(visit, tool)) }
        (more("changed", found.changed.len(), found.counts.0))
        (more("new", found.new.len(), found.counts.1))
    }
}

fn changed_tool(visit: &Visit<'_>, tool: &ToolView) -> Markup {
    let (texts, definition) = (visit.texts, &tool.definition);
    let approval = definition.fingerprint.as_deref().map(|fingerprint| Approval {
        server: &tool.server,
        tool: &tool.tool,
        prompt: "",
        fingerprint,
        back: "servers",
    });
    html! {
        section.change {
            h3 {
                a href=(visit.link(TOOL, &[("server", &tool.server), ("tool", &tool.tool)])) { (short(&tool.server, 100)) " / " (short(&tool.tool, 100)) }
                " " (state_of(texts, definition.state))
            }
            @if let Some(at) = definition.changed_at { p.quiet { (texts.changed_at) " " (moment(Some(at))) } }
            @if let Some(changes) = &tool.difference { (difference(texts, changes, CHANGES)) }
            @else if let Some(description) = &tool.description { p { (short(description, 300)) } }
            @if let Some(approval) = &approval { (approve_button(visit, approval)) }
        }
    }
}

fn changed_part(visit: &Visit<'_>, part: &ServerPart) -> Markup {
    let (texts, ServerPart { server, prompt, view }) = (visit.texts, part);
    let approval = Approval { server: server.as_str(), tool: "", prompt, fingerprint: &view.fingerprint, back: "servers" };
    html! {
        section.change {
            h3 {
                (short(server.as_str(), 100)) ": "
                @if prompt.is_empty() { (texts.title_and_instructions) } @else { (texts.prompt) " " (short(prompt, 100)) }
                " " (state_of(texts, view.state))
            }
            @if let Some(changes) = &view.difference { (difference(texts, changes, CHANGES)) }
            (approve_button(visit, &approval))
        }
    }
}

fn duplicates(visit: &Visit<'_>, found: &Duplicates) -> Markup {
    let texts = visit.texts;
    if found.groups.is_empty() && found.lookalikes.is_empty() {
        return html! { p { (texts.no_duplicates) } };
    }
    let tool = |server: &str, tool: &str| {
        html! { li { a href=(visit.link(TOOL, &[("server", server), ("tool", tool)])) { (short(server, 100)) " / " (short(tool, 100)) } } }
    };
    html! {
        @for group in found.groups.iter().take(MOST) {
            p { (kind(texts, group.same_name, group.same_definition)) }
            ul {
                @for one in group.tools.iter().take(MOST) { (tool(&one.server, &one.tool)) }
                (rest(texts, group.tools.len()))
            }
        }
        (rest_of_groups(texts, found.groups.len()))
        @for group in found.lookalikes.iter().take(MOST) {
            p { (texts.lookalikes) }
            ul {
                @for one in group.iter().take(MOST) { li { (short(&one.server, 100)) " / " code { (short(&one.tool, 200)) } } }
                (rest(texts, group.len()))
            }
        }
        (rest_of_groups(texts, found.lookalikes.len()))
    }
}

fn kind(texts: &Texts, same_name: bool, same_definition: bool) -> &str {
    match (same_name, same_definition) {
        (_, true) => &texts.same_definition,
        (true, false) => &texts.same_name,
        (false, false) => &texts.similar_texts,
    }
}

fn rest(texts: &Texts, tools: usize) -> Markup {
    html! { @if tools > MOST { li.quiet { (grouped((tools - MOST) as u64)) " " (texts.more_tools) } } }
}

fn rest_of_groups(texts: &Texts, groups: usize) -> Markup {
    html! { @if groups > MOST { p.quiet { (grouped((groups - MOST) as u64)) " " (texts.more_groups) } } }
}
