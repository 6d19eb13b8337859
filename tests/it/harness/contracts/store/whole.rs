//! Several nouns at once.

use std::time::SystemTime;

use toolsieve::service::ports::Store;

use super::fixtures::{chat, events, listing, set, text, vector};

pub(crate) async fn writers_and_readers_do_not_disturb_each_other(store: &dyn Store) {
    let work = (0..40).map(|number| async move {
        let key = chat("me", &number.to_string());
        let tools = set(&["a", "b"], &[]);
        store.save_chat(&key, &tools, 0).await.unwrap();
        store.save_vectors("model", &[(text(number), vector(number))]).await.unwrap();
        store.record(&events(SystemTime::now())).await.unwrap();
        assert_eq!(store.chat(&key).await.unwrap().unwrap().set, tools);
        assert_eq!(store.vectors("model", &[text(number)]).await.unwrap()[&text(number)], vector(number));
    });
    futures::future::join_all(work).await;
}

pub(crate) async fn odd_texts_come_back(store: &dyn Store) {
    for odd in ["", "'; DROP TABLE chat_set; --", "日本 \u{1f600}", "a\nb\t\"c\"", "%_?$1"] {
        store.save_chat(&chat(odd, odd), &set(&[odd], &[]), 0).await.unwrap();
        assert_eq!(store.chat(&chat(odd, odd)).await.unwrap().unwrap().set, set(&[odd], &[]), "{odd:?}");
        store.save_listing(&listing(odd, 1)).await.unwrap();
        store.save_vectors(odd, &[(text(1), vector(1))]).await.unwrap();
        assert_eq!(store.vectors(odd, &[text(1)]).await.unwrap().len(), 1, "{odd:?}");
    }
    assert_eq!(store.listings().await.unwrap().len(), 5);
}
