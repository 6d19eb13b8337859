//! Shadow mode: what selections would have saved over the last messages, and which called tools they would have hidden.

use std::collections::{HashMap, HashSet};
use std::time::SystemTime;

use maud::{Markup, html};

use super::layout::Visit;
use super::parts::{Head, grouped, percent, short, table};
use super::{CHAT, PLAYGROUND, TOOL};
use crate::domain::access::principal::Principal;
use crate::domain::catalog::catalog::Catalog;
use crate::domain::catalog::hidden_text::visible;
use crate::domain::catalog::tool::ToolId;
use crate::domain::records::usage::MessageCounts;
use crate::http::state::State;
use crate::service::ports::{EventQuery, StoreError, StoredEvent, StoredEventKind, UsageQuery};
use crate::service::records::usage::UsageOrder;

/// Number of recorded selections, searches and calls that the page reads.
const EVENTS: usize = 3_000;
/// Number of hidden tools in the table.
const WORST: usize = 10;
/// Maximum length of a message, in characters.
const MESSAGE: usize = 300;
/// Seconds of a day.
const DAY: u64 = 24 * 60 * 60;

/// What selections would have done.
#[derive(Debug, Default, PartialEq)]
struct Effect {
    messages: u64,
    /// Tokens of the definitions that were offered, and of those that would have been selected, over all messages.
    tokens_before: u64,
    tokens_after: u64,
    calls: u64,
    hidden: u64,
    /// The tools with the most hidden calls.
    worst: Vec<MissedTool>,
}

/// A called tool that a selection would have hidden.
#[derive(Clone, Debug, PartialEq)]
struct MissedTool {
    tool: ToolId,
    calls: u64,
    hidden: u64,
    /// The newest hidden call: its chat, its caller, and the message before it.
    chat: Option<String>,
    principal: String,
    message: Option<String>,
}

/// The section of the overview.
pub(super) async fn section(visit: &Visit<'_>, state: &State) -> Result<Markup, StoreError> {
    let events = state.activity.find(&EventQuery { limit: EVENTS, ..EventQuery::default() }).await?;
    let texts = visit.texts;
    let days = Days::read(state, &events).await?;
    let of_search = state.select.search_tokens(&Principal::service_key());
    let Effect { messages, tokens_before, tokens_after, calls, hidden, worst } =
        effect(&events, &days, &state.current.snapshot(), of_search);
    if messages == 0 {
        return Ok(html! { p.notice { (texts.shadow_on) } });
    }
    let saved = tokens_before.saturating_sub(tokens_after);
    let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    let heads = [Head::Text(&texts.tool), Head::Number(&texts.calls), Head::Number(&texts.would_hide), Head::Text(&texts.shadow_why)];
    let rows = html! { @for hidden in &worst { (row(visit, hidden)) } };
    Ok(html! {
        section.notice {
            p { (texts.shadow_on) }
            dl.facts {
                dt { (texts.shadow_messages) } dd { (grouped(messages)) }
                dt { (texts.would_save) } dd { (grouped(saved)) " / " (grouped(tokens_before)) " (" (percent(share(saved, tokens_before))) ")" }
                dt { (texts.would_hide) } dd { (grouped(hidden)) " / " (grouped(calls)) " (" (format!("{:.1} %", 100.0 * share(hidden, calls))) ")" }
            }
        }
        @if !worst.is_empty() { h2 { (texts.shadow_worst) } (table(&texts.shadow_worst, &heads, &rows)) }
    })
}

fn row(visit: &Visit<'_>, hidden: &MissedTool) -> Markup {
    let (server, name) = (hidden.tool.server.as_str(), visible(&hidden.tool.name));
    html! {
        tr {
            th scope="row" { a href=(visit.link(TOOL, &[("server", server), ("tool", &name)])) { (short(server, 100)) " / " (short(&name, 100)) } }
            td.number { (grouped(hidden.calls)) }
            td.number { (grouped(hidden.hidden)) }
            td {
                @if let Some(message) = &hidden.message {
                    a href=(visit.link(PLAYGROUND, &[("message", &short(message, MESSAGE))])) { (short(message, 100)) }
                } @else if let Some(chat) = &hidden.chat {
                    a href=(visit.link(CHAT, &[("chat", chat), ("principal", &hidden.principal)])) { (short(chat, 40)) }
                }
            }
        }
    }
}

/// The recorded sums of messages, by day.
struct Days(HashMap<u64, MessageCounts>);

impl Days {
    async fn read(state: &State, events: &[StoredEvent]) -> Result<Self, StoreError> {
        let now = SystemTime::now();
        let since = events.iter().map(|event| event.at).min().unwrap_or(now);
        let query = UsageQuery { since, until: now, server: None, tool: None };
        let days = state.usage.report(&query, UsageOrder::Called, 0).await?.days;
        Ok(Self(days.into_iter().map(|usage| (day(usage.day), usage.messages)).collect()))
    }

    /// The mean tokens of the definitions that messages of a day offered to their callers: the record of a single message has none.
    fn tokens_before(&self, at: SystemTime) -> f64 {
        let messages = self.0.get(&day(at)).filter(|messages| messages.selections > 0);
        messages.map_or(0.0, |messages| messages.tokens_before as f64 / messages.selections as f64)
    }
}

/// The number of whole days since 1970.
fn day(at: SystemTime) -> u64 {
    at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs() / DAY
}

/// Reads the effect from events, newest first. `of_search` is the number of tokens of the search tool, which every message keeps.
fn effect(events: &[StoredEvent], days: &Days, catalog: &Catalog, of_search: u64) -> Effect {
    let tokens = |tool: &ToolId| catalog.tool(tool).map_or(0, |tool| u64::from(tool.tokens));
    let per_tool = catalog.tools().iter().map(|tool| f64::from(tool.tokens)).sum::<f64>() / catalog.tools().len().max(1) as f64;
    let messages: HashMap<&str, &str> = events.iter().filter_map(message_of).collect();
    let narrowed = |event: &StoredEvent| matches!(event.kind, StoredEventKind::Offered { all: None, .. });
    let selections: HashSet<&str> = events.iter().filter(|event| narrowed(event)).filter_map(|event| event.selection.as_deref()).collect();
    let (mut effect, mut hidden) = (Effect::default(), HashMap::<&ToolId, MissedTool>::new());
    let mut tokens_before = 0.0;
    for event in events {
        match &event.kind {
            StoredEventKind::Offered { tools, all: None } => {
                effect.messages += 1;
                tokens_before += days.tokens_before(event.at);
                effect.tokens_after += of_search + tools.iter().map(tokens).sum::<u64>();
            }
            // The means contain these messages too, but shadow mode changes nothing for them.
            StoredEventKind::Offered { all: Some(kept), .. } => tokens_before += days.tokens_before(event.at) - *kept as f64 * per_tool,
            StoredEventKind::Called { tool, recovered, .. } => {
                // Without a selection before it, a call says nothing.
                let Some(selection) = event.selection.as_deref().filter(|selection| selections.contains(selection)) else { continue };
                effect.calls += 1;
                effect.hidden += u64::from(*recovered);
                let message = messages.get(selection).map(|text| (*text).to_owned());
                let new = || MissedTool { tool: tool.clone(), calls: 0, hidden: 0, chat: None, principal: String::new(), message: None };
                let of_tool = hidden.entry(tool).or_insert_with(new);
                of_tool.calls += 1;
                if *recovered && of_tool.hidden == 0 {
                    (of_tool.chat, of_tool.principal, of_tool.message) = (event.chat.clone(), event.principal.clone(), message);
                }
                of_tool.hidden += u64::from(*recovered);
            }
            StoredEventKind::Searched { .. } => {}
        }
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative, and a number of tokens")]
    let rounded = tokens_before.max(0.0).round() as u64;
    effect.tokens_before = rounded;
    effect.worst = hidden.into_values().filter(|tool| tool.hidden > 0).collect();
    effect.worst.sort_by(|one, other| other.hidden.cmp(&one.hidden).then_with(|| one.tool.cmp(&other.tool)));
    effect.worst.truncate(WORST);
    effect
}

fn message_of(event: &StoredEvent) -> Option<(&str, &str)> {
    let is_selection = matches!(event.kind, StoredEventKind::Offered { .. });
    Some((event.selection.as_deref()?, event.message.as_deref()?)).filter(|_| is_selection)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    use serde_json::json;

    use super::{Days, effect};
    use crate::domain::catalog::catalog::{Catalog, CatalogServer, tool};
    use crate::domain::catalog::tool::{ServerName, ToolId};
    use crate::domain::records::usage::MessageCounts;
    use crate::service::ports::{CallOutcome, StoredEvent, StoredEventKind};

    fn event(selection: &str, message: Option<&str>, kind: StoredEventKind) -> StoredEvent {
        StoredEvent {
            id: 1,
            at: SystemTime::UNIX_EPOCH,
            selection: Some(selection.to_owned()),
            principal: "user:anna".to_owned(),
            chat: Some("chat".to_owned()),
            message: message.map(str::to_owned),
            kind,
        }
    }

    fn call(selection: &str, tool: &str, recovered: bool) -> StoredEvent {
        let kind = StoredEventKind::Called { tool: ToolId::new("a", tool), outcome: CallOutcome::Success, took: Duration::ZERO, recovered };
        event(selection, None, kind)
    }

    #[test]
    fn the_worst_tools_come_with_the_newest_message_that_missed_them() {
        let offered = |selection: &str, text: &str| event(selection, Some(text), StoredEventKind::Offered { tools: Vec::new(), all: None });
        let small = event("s0", None, StoredEventKind::Offered { tools: Vec::new(), all: Some(3) });
        let events = [
            call("s2", "often", true),
            offered("s2", "the newest"),
            call("s1", "often", true),
            call("s1", "seldom", true),
            call("s1", "never", false),
            call("s1", "often", false),
            offered("s1", "the oldest"),
            small,
        ];
        let found = effect(&events, &Days(HashMap::new()), &Catalog::default(), 0);
        assert_eq!((found.messages, found.calls, found.hidden), (2, 5, 3), "small catalogs hide nothing");
        let worst: Vec<_> = found.worst.iter().map(|one| (&*one.tool.name, one.calls, one.hidden, one.message.as_deref())).collect();
        assert_eq!(worst, [("often", 3, 2, Some("the newest")), ("seldom", 1, 1, Some("the oldest"))]);
    }

    /// Regression test: every message counted the tools of today's whole catalog, whatever its caller could use.
    #[test]
    fn tokens_before_are_those_that_were_recorded() {
        let named = |name: &str| {
            let mut tool = tool(&ServerName::new("a"), &json!({"name": name, "inputSchema": {"type": "object"}})).unwrap();
            tool.tokens = 1_000;
            Arc::new(tool)
        };
        let catalog = Catalog::new(vec![CatalogServer::untitled(ServerName::new("a"), vec![named("one"), named("two")])]);
        let offered = |all: Option<u64>| {
            let tools = if all.is_none() { vec![ToolId::new("a", "one")] } else { Vec::new() };
            event("s", None, StoredEventKind::Offered { tools, all })
        };
        // Two messages with 3,000 tokens, and one whose single tool is kept.
        let sums = MessageCounts { selections: 3, tokens_before: 7_000, ..MessageCounts::default() };
        let days = Days(HashMap::from([(0, sums)]));
        let found = effect(&[offered(None), offered(Some(1)), offered(None)], &days, &catalog, 50);
        assert_eq!((found.messages, found.tokens_before, found.tokens_after), (2, 6_000, 2_100));
    }

    /// Regression test: calls of clients that select nothing made the share of hidden calls look small.
    #[test]
    fn calls_without_a_selection_do_not_count() {
        let offered = |selection: &str, all: Option<u64>| event(selection, None, StoredEventKind::Offered { tools: Vec::new(), all });
        let mut alone = call("s1", "one", false);
        alone.selection = None;
        let events = [
            alone,
            call("s1", "one", true),
            call("forgotten", "one", false),
            call("s0", "one", false),
            offered("s1", None),
            offered("s0", Some(1)),
        ];
        let found = effect(&events, &Days(HashMap::new()), &Catalog::default(), 0);
        assert_eq!((found.calls, found.hidden), (1, 1));
    }
}
