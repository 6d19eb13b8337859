//! Shadow mode: what selections would have saved over the last messages, and which called tools they would have hidden.

use std::collections::HashMap;

use maud::{Markup, html};

use super::layout::Visit;
use super::parts::{Head, grouped, percent, short, table};
use super::{CHAT, PLAYGROUND, TOOL};
use crate::domain::catalog::catalog::Catalog;
use crate::domain::catalog::hidden_text::visible;
use crate::domain::catalog::tool::ToolId;
use crate::http::state::State;
use crate::service::ports::{EventQuery, StoreError, StoredEvent, StoredEventKind};

/// Number of recorded selections, searches and calls that the page reads.
const EVENTS: usize = 3_000;
/// Number of hidden tools in the table.
const WORST: usize = 10;
/// Maximum length of a message, in characters.
const MESSAGE: usize = 300;

/// What selections would have done.
#[derive(Debug, Default, PartialEq)]
struct Effect {
    messages: u64,
    /// Tokens of the definitions of all tools, and of those that would have been selected, over all messages.
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
    let Effect { messages, tokens_before, tokens_after, calls, hidden, worst } = effect(&events, &state.current.snapshot());
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

/// Reads the effect from events, newest first.
fn effect(events: &[StoredEvent], catalog: &Catalog) -> Effect {
    let tokens = |tool: &ToolId| catalog.tool(tool).map_or(0, |tool| u64::from(tool.tokens));
    let all: u64 = catalog.tools().iter().map(|tool| u64::from(tool.tokens)).sum();
    let messages: HashMap<&str, &str> = events.iter().filter_map(message_of).collect();
    let (mut effect, mut hidden) = (Effect::default(), HashMap::<&ToolId, MissedTool>::new());
    for event in events {
        match &event.kind {
            StoredEventKind::Offered { tools, all: None } => {
                effect.messages += 1;
                effect.tokens_before += all;
                effect.tokens_after += tools.iter().map(tokens).sum::<u64>();
            }
            StoredEventKind::Called { tool, recovered, .. } => {
                effect.calls += 1;
                effect.hidden += u64::from(*recovered);
                let message = event.selection.as_deref().and_then(|selection| messages.get(selection)).map(|text| (*text).to_owned());
                let new = || MissedTool { tool: tool.clone(), calls: 0, hidden: 0, chat: None, principal: String::new(), message: None };
                let of_tool = hidden.entry(tool).or_insert_with(new);
                of_tool.calls += 1;
                if *recovered && of_tool.hidden == 0 {
                    (of_tool.chat, of_tool.principal, of_tool.message) = (event.chat.clone(), event.principal.clone(), message);
                }
                of_tool.hidden += u64::from(*recovered);
            }
            StoredEventKind::Offered { .. } | StoredEventKind::Searched { .. } => {}
        }
    }
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
    use std::time::{Duration, SystemTime};

    use super::effect;
    use crate::domain::catalog::catalog::Catalog;
    use crate::domain::catalog::tool::ToolId;
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
        let found = effect(&events, &Catalog::default());
        assert_eq!((found.messages, found.calls, found.hidden), (2, 5, 3), "small catalogs hide nothing");
        let worst: Vec<_> = found.worst.iter().map(|one| (&*one.tool.name, one.calls, one.hidden, one.message.as_deref())).collect();
        assert_eq!(worst, [("often", 3, 2, Some("the newest")), ("seldom", 1, 1, Some("the oldest"))]);
    }
}
