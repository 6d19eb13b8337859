//! Batches of events as lines of JSON. Many events of a batch share a list of tools, which the line contains once.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::domain::catalog::tool::ToolId;
use crate::service::ports::{OfferedTools, SelectionEvent, SelectionEventKind};
use crate::service::records::spooling::parsed;

#[derive(Serialize)]
struct Line<'a> {
    id: String,
    lists: Vec<List<&'a [ToolId]>>,
    /// Each event with the position of its list.
    events: Vec<(&'a SelectionEvent, Option<usize>)>,
}

#[derive(Deserialize)]
struct ReadLine {
    id: String,
    lists: Vec<List<Vec<ToolId>>>,
    events: Vec<(SelectionEvent, Option<usize>)>,
}

#[derive(Serialize, Deserialize)]
struct List<T> {
    /// Whether all tools were kept.
    is_all: bool,
    tools: T,
}

pub(super) fn encode(id: Uuid, events: &[SelectionEvent]) -> Result<Vec<u8>, serde_json::Error> {
    let (mut lists, mut known) = (Vec::new(), HashMap::new());
    let mut line = Vec::with_capacity(events.len());
    for event in events {
        let SelectionEventKind::Offered { tools, .. } = &event.kind else {
            line.push((event, None));
            continue;
        };
        let (list, is_all) = (tools.tools(), tools.view().is_some());
        let position = *known.entry((list, is_all)).or_insert_with(|| {
            lists.push(List { is_all, tools: list });
            lists.len() - 1
        });
        line.push((event, Some(position)));
    }
    serde_json::to_vec(&Line { id: id.to_string(), lists, events: line })
}

pub(super) fn decode(line: &[u8]) -> Result<(Uuid, Vec<SelectionEvent>), serde_json::Error> {
    let ReadLine { id, lists, events } = serde_json::from_slice(line)?;
    let list = |List { is_all, tools }| if is_all { OfferedTools::all(tools) } else { OfferedTools::from_iter(tools) };
    let lists: Vec<OfferedTools> = lists.into_iter().map(list).collect();
    let event = |(mut event, position): (SelectionEvent, Option<usize>)| {
        if let (SelectionEventKind::Offered { tools, .. }, Some(list)) = (&mut event.kind, position.and_then(|at| lists.get(at))) {
            *tools = list.clone();
        }
        event
    };
    Ok((parsed(&id)?, events.into_iter().map(event).collect()))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::domain::records::conversation::Conversation;
    use crate::service::ports::{Attribution, CallOutcome, EventMessage};

    fn event(kind: SelectionEventKind) -> SelectionEvent {
        SelectionEvent {
            at: SystemTime::now(),
            selection: Some("selection".to_owned()),
            principal: "user:a\n\0".to_owned(),
            key: Some("0123".to_owned()),
            chat: Some("chat".to_owned()),
            conversation: Some(Conversation::chat("chat")),
            attribution: Attribution { groups: vec!["sales".to_owned()], user: None },
            kind,
        }
    }

    fn offered(tools: OfferedTools) -> SelectionEvent {
        let message = EventMessage { text: Some("two\nlines".to_owned()) };
        let kind =
            SelectionEventKind::Offered { message, tools, tokens_before: 9, tokens_after: 3, tokens_saved: 6, model: None, arm: None };
        event(kind)
    }

    #[test]
    fn a_batch_is_one_line_and_contains_a_shared_list_once() {
        let tools = |count: usize| (0..count).map(|number| ToolId::new("one", format!("tool-{number}")));
        let all = OfferedTools::all(tools(100).collect());
        let called = SelectionEventKind::Called {
            tool: ToolId::new("one", "echo"),
            outcome: CallOutcome::Success,
            took: Duration::from_millis(7),
            recovered: true,
        };
        let events = [offered(all.clone()), offered(tools(2).collect()), offered(all), event(called)];
        let id = Uuid::now_v7();
        let line = encode(id, &events).unwrap();
        assert!(!line.contains(&b'\n'));
        assert_eq!(String::from_utf8_lossy(&line).matches("tool-99").count(), 1);
        assert_eq!(decode(&line).unwrap(), (id, events.to_vec()));
    }
}
