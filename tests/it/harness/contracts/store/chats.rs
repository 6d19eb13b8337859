//! The sets of the chats.

use std::time::Duration;

use toolsieve::domain::selection::chat::{ChatKey, ChatSet};
use toolsieve::service::ports::{ChatStore, StoredChat};

use super::fixtures::{chat, set};

/// The set and the version of a chat that was written just now.
async fn read(store: &dyn ChatStore, key: &ChatKey) -> (ChatSet, u64) {
    let StoredChat { set, version, written_at } = store.chat(key).await.unwrap().unwrap();
    let age = written_at.unwrap().elapsed().unwrap_or_default();
    assert!(age < Duration::from_mins(1), "{age:?}");
    (set, version)
}

pub(crate) async fn chats_are_kept_by_principal(store: &dyn ChatStore) {
    let (mine, theirs) = (chat("me", "chat"), chat("them", "chat"));
    assert_eq!(store.chat(&mine).await.unwrap(), None);
    assert_eq!(store.save_chat(&mine, &set(&["a", "b"], &[]), 0).await.unwrap(), Some(1));
    assert_eq!(store.save_chat(&theirs, &ChatSet::default(), 0).await.unwrap(), Some(1));
    assert_eq!(store.save_chat(&mine, &set(&["c", "a", "b"], &["a"]), 1).await.unwrap(), Some(2));
    assert_eq!(read(store, &mine).await, (set(&["c", "a", "b"], &["a"]), 2));
    assert_eq!(read(store, &theirs).await, (ChatSet::default(), 1));
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
        assert_eq!(read(store, &key).await, (saved, version + 1));
    }
    for late in [0, 4, 6] {
        assert_eq!(store.save_chat(&key, &set(&["c"], &[]), late).await.unwrap(), None, "{late}");
    }
}

pub(crate) async fn many_chats_are_saved_together(store: &dyn ChatStore) {
    let stored = |tools: &[&str], version| StoredChat { set: set(tools, &[]), version, written_at: None };
    assert_eq!(store.save_chats(&[]).await.unwrap(), []);
    assert_eq!(store.save_chat(&chat("me", "old"), &set(&["a"], &[]), 0).await.unwrap(), Some(1));
    let chats = [
        (chat("me", "new"), stored(&["a", "b"], 0)),
        (chat("me", "old"), stored(&["a", "c"], 1)),
        (chat("you", "old"), stored(&["d"], 0)),
        (chat("me", "n\0l"), stored(&["e"], 0)),
    ];
    assert_eq!(store.save_chats(&chats).await.unwrap(), [Some(1), Some(2), Some(1), Some(1)]);
    for (key, StoredChat { set, version, .. }) in &chats {
        assert_eq!(read(store, key).await, (set.clone(), version + 1));
    }
    // Those that another one has changed stay, and the others are saved.
    let again = [(chat("me", "new"), stored(&["x"], 0)), (chat("me", "old"), stored(&["y"], 2)), (chat("me", "none"), stored(&["z"], 3))];
    assert_eq!(store.save_chats(&again).await.unwrap(), [None, Some(3), None]);
    assert_eq!(store.chat(&chat("me", "new")).await.unwrap().unwrap().version, 1);
    assert_eq!(store.chat(&chat("me", "none")).await.unwrap(), None);
}
