//! Verdicts of callers.

use std::time::{Duration, SystemTime};

use toolsieve::domain::catalog::tool::ToolId;
use toolsieve::service::ports::{
    Attribution, EventMessage, Feedback, OfferedTools, SelectionEvent, SelectionEventKind, SelectionName, Store, Usage, Verdict,
};

use super::fixtures::{between, events, hour};

pub(crate) async fn a_selection_is_found_by_its_principal_alone(store: &dyn Store) {
    let offered = |id: &str, (principal, key): (&str, Option<&str>), chat: Option<&str>| SelectionEvent {
        at: SystemTime::now(),
        selection: Some(id.into()),
        principal: principal.into(),
        key: key.map(str::to_owned),
        chat: chat.map(str::to_owned),
        conversation: None,
        attribution: Attribution::default(),
        kind: SelectionEventKind::Offered {
            message: EventMessage::default(),
            tools: OfferedTools::default(),
            tokens_before: 0,
            tokens_after: 0,
            tokens_saved: 0,
            model: None,
            arm: None,
        },
    };
    let (me, them, of_key) = (("me", None), ("them", None), ("me", Some("one")));
    let events = [
        offered("a", me, Some("chat")),
        offered("b", me, Some("chat")),
        offered("c", them, Some("chat")),
        offered("d", me, None),
        offered("e", of_key, Some("chat of a key")),
    ];
    store.record(&events).await.unwrap();
    store.record(&self::events(SystemTime::now())).await.unwrap();
    let find_with = async |principal: &str, key, named| store.selection(principal, key, &named).await.unwrap();
    let find = async |principal: &str, named| find_with(principal, None, named).await;
    let (id, chat) = (|id: &str| SelectionName::Id(id.into()), |chat: &str| SelectionName::Chat(chat.into()));
    assert_eq!(find("me", id("a")).await.as_deref(), Some("a"));
    assert_eq!((find("them", id("a")).await, find("me", id("c")).await, find("me", id("none")).await), (None, None, None));
    assert_eq!(find("me", chat("chat")).await.as_deref(), Some("b"), "the last one");
    assert_eq!(find("them", chat("chat")).await.as_deref(), Some("c"));
    assert_eq!(find("me", chat("other")).await, None);
    for named in [id("e"), chat("chat of a key")] {
        assert_eq!(find_with("me", Some("one"), named.clone()).await.as_deref(), Some("e"));
        assert_eq!((find_with("me", Some("two"), named.clone()).await, find("me", named).await), (None, None), "another key's user");
    }
    assert_eq!(find_with("me", Some("one"), id("a")).await, None, "of the service key's user");
}

pub(crate) async fn the_last_verdict_counts(store: &dyn Store) {
    let tool = ToolId::new("server", "one");
    let feedback = |selection: &str, minutes: u32, verdict| Feedback {
        at: hour(0) + Duration::from_mins(1) * minutes,
        principal: "me".into(),
        selection: selection.into(),
        tool: tool.clone(),
        verdict,
    };
    for given in [feedback("a", 1, Verdict::Helpful), feedback("b", 2, Verdict::Missing), feedback("a", 3, Verdict::Wrong)] {
        store.save_feedback(&given).await.unwrap();
    }
    let usage = store.usage(&between(hour(0), hour(1))).await.unwrap();
    let found = &usage.tools[0];
    assert_eq!((usage.tools.len(), &found.tool, found.helpful, found.wrong, found.missing), (1, &tool, 0, 1, 1));
    assert_eq!(store.usage(&between(hour(24), hour(48))).await.unwrap(), Usage::default());
    assert_eq!(store.forget_before(hour(0), hour(1)).await.unwrap(), 2);
}
