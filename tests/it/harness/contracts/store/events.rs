//! The record of selections and calls.

use std::time::{Duration, SystemTime};

use toolsieve::domain::catalog::tool::ToolId;
use toolsieve::service::ports::{
    Attribution, CallOutcome, EventQuery, OfferedTools, SelectionEvent, SelectionEventKind, Store, StoredEventKind,
};
use uuid::Uuid;

use super::fixtures::{called, chat, events, hour, message, set};

pub(crate) async fn events_are_found_by_what_they_say(store: &dyn Store) {
    let (one, two) = (ToolId::new("server", "one"), ToolId::new("日本", "two"));
    let event = |number: u32, principal: &str, chat: Option<&str>, kind| SelectionEvent {
        at: hour(number),
        selection: Some("selection".into()),
        principal: principal.into(),
        key: None,
        chat: chat.map(str::to_owned),
        conversation: None,
        attribution: Attribution::default(),
        kind,
    };
    let offered = |tools| SelectionEventKind::Offered {
        message: message(),
        tools,
        tokens_before: 900,
        tokens_after: 30,
        tokens_saved: 870,
        model: None,
        arm: None,
    };
    let recorded = [
        event(1, "user:anna", Some("a"), offered([one.clone(), two.clone()].into_iter().collect())),
        event(2, "user:anna", Some("a"), called(&two, CallOutcome::ToolError, Duration::from_micros(1_500), true)),
        event(3, "user:bob", Some("a"), SelectionEventKind::Searched { message: message(), tools: vec![one.clone()], recovered: true }),
        event(4, "user:bob", None, offered(OfferedTools::all(vec![one.clone(), two.clone()]))),
        event(5, "user:bob", None, SelectionEventKind::Listed { bound: 3 }),
    ];
    store.record(&recorded).await.unwrap();
    let find = async |query: EventQuery| store.events(&EventQuery { limit: query.limit.max(10), ..query }).await.unwrap();
    let all = find(EventQuery::default()).await;
    assert_eq!(all.iter().map(|event| event.at).collect::<Vec<_>>(), [4, 3, 2, 1].map(hour), "newest first, without what is only summed");
    let expected = [
        StoredEventKind::Offered { tools: Vec::new(), all: Some(2) },
        StoredEventKind::Searched { tools: vec![one.clone()], recovered: true },
        StoredEventKind::Called { tool: two.clone(), outcome: CallOutcome::ToolError, took: Duration::from_micros(1_500), recovered: true },
        StoredEventKind::Offered { tools: vec![one.clone(), two.clone()], all: None },
    ];
    assert_eq!(all.iter().map(|event| event.kind.clone()).collect::<Vec<_>>(), expected);
    let last = &all[3];
    assert_eq!((last.principal.as_str(), last.chat.as_deref(), last.selection.as_deref()), ("user:anna", Some("a"), Some("selection")));
    assert_eq!((last.message.as_deref(), all[2].message.as_deref()), (Some("what somebody wrote"), None));

    for (query, hours) in [
        (EventQuery { chat: Some("a".into()), ..EventQuery::default() }, vec![3, 2, 1]),
        (EventQuery { principal: Some("user:anna".into()), chat: Some("a".into()), ..EventQuery::default() }, vec![2, 1]),
        (EventQuery { tool: Some(two.clone()), ..EventQuery::default() }, vec![2, 1]),
        (EventQuery { outcome: Some(CallOutcome::ToolError), ..EventQuery::default() }, vec![2]),
        (EventQuery { outcome: Some(CallOutcome::Success), ..EventQuery::default() }, vec![]),
        (EventQuery { before: Some(all[1].id), ..EventQuery::default() }, vec![2, 1]),
        (EventQuery { principal: Some("' OR 1 = 1".into()), ..EventQuery::default() }, vec![]),
    ] {
        let found = find(query.clone()).await;
        assert_eq!(found.iter().map(|event| event.at).collect::<Vec<_>>(), hours.into_iter().map(hour).collect::<Vec<_>>(), "{query:?}");
    }
    assert_eq!(store.events(&EventQuery { limit: 1, ..EventQuery::default() }).await.unwrap().len(), 1);
}

pub(crate) async fn chats_and_events_are_forgotten_by_age(store: &dyn Store) {
    let now = SystemTime::now();
    let (day, hour) = (Duration::from_hours(24), Duration::from_hours(1));
    store.record(&[]).await.unwrap();
    store.record(&events(now - day)).await.unwrap();
    store.record(&events(now)).await.unwrap();
    store.save_chat(&chat("me", "chat"), &set(&["a"], &[]), 0).await.unwrap();

    assert_eq!(store.forget_before(now - 2 * day, now - 2 * day).await.unwrap(), 0);
    assert_eq!(store.forget_before(now - hour, now - hour).await.unwrap(), 3, "the three old events");
    assert!(store.chat(&chat("me", "chat")).await.unwrap().is_some());
    assert_eq!(store.forget_before(now + hour, now - hour).await.unwrap(), 1, "the chat");
    assert_eq!(store.chat(&chat("me", "chat")).await.unwrap(), None);
    assert_eq!(store.forget_before(now + hour, now + hour).await.unwrap(), 3, "the other events");
}

pub(crate) async fn events_that_come_again_are_counted_once(store: &dyn Store) {
    let (now, batch) = (SystemTime::now(), Uuid::now_v7());
    for _ in 0..2 {
        store.record_once(batch, &events(now)).await.unwrap();
    }
    assert_eq!(store.events(&EventQuery { limit: 100, ..EventQuery::default() }).await.unwrap().len(), 3);
    store.record(&events(now)).await.unwrap();
    assert_eq!(store.events(&EventQuery { limit: 100, ..EventQuery::default() }).await.unwrap().len(), 6);
}
