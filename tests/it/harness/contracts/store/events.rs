//! The record of selections and calls.

use std::time::{Duration, SystemTime};

use toolsieve::service::ports::Store;

use super::fixtures::{chat, events, set};

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
