//! The sets of the chats.

use toolsieve::domain::selection::chat::ChatSet;
use toolsieve::service::ports::{ChatStore, StoredChat};

use super::fixtures::{chat, set};

pub(crate) async fn chats_are_kept_by_principal(store: &dyn ChatStore) {
    let (mine, theirs) = (chat("me", "chat"), chat("them", "chat"));
    assert_eq!(store.chat(&mine).await.unwrap(), None);
    assert_eq!(store.save_chat(&mine, &set(&["a", "b"], &[]), 0).await.unwrap(), Some(1));
    assert_eq!(store.save_chat(&theirs, &ChatSet::default(), 0).await.unwrap(), Some(1));
    assert_eq!(store.save_chat(&mine, &set(&["c", "a", "b"], &["a"]), 1).await.unwrap(), Some(2));
    assert_eq!(store.chat(&mine).await.unwrap(), Some(StoredChat { set: set(&["c", "a", "b"], &["a"]), version: 2 }));
    assert_eq!(store.chat(&theirs).await.unwrap(), Some(StoredChat { set: ChatSet::default(), version: 1 }));
    assert_eq!(store.chat(&chat("me", "other")).await.unwrap(), None);
}

pub(crate) async fn of_two_changes_of_one_chat_one_is_too_late(store: &dyn ChatStore) {
    let key = chat("me", "chat");
    for version in 0..5 {
        let (one, two) = (set(&["a"], &[]), set(&["b"], &[]));
        let both = futures::join!(store.save_chat(&key, &one, version), store.save_chat(&key, &two, version));
        let saved = match (both.0.unwrap(), both.1.unwrap()) {
            (Some(next), None) if next == version + 1 => one,
            (None, Some(next)) if next == version + 1 => two,
            other => panic!("{other:?}"),
        };
        assert_eq!(store.chat(&key).await.unwrap(), Some(StoredChat { set: saved, version: version + 1 }));
    }
    for late in [0, 4, 6] {
        assert_eq!(store.save_chat(&key, &set(&["c"], &[]), late).await.unwrap(), None, "{late}");
    }
}
