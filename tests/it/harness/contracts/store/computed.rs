//! Vectors and token counts.

use std::time::{Duration, SystemTime};

use toolsieve::service::ports::ComputedStore;

use super::fixtures::{text, vector};

pub(crate) async fn vectors_are_kept_by_model_and_text(store: &dyn ComputedStore) {
    store.save_vectors("one", &[(text(1), vector(1)), (text(2), vector(2))]).await.unwrap();
    store.save_vectors("two", &[(text(1), [0.5_f32].into())]).await.unwrap();
    store.save_vectors("one", &[(text(2), vector(22))]).await.unwrap();
    store.save_vectors("one", &[]).await.unwrap();

    let one = store.vectors("one", &[text(1), text(2), text(3)]).await.unwrap();
    assert_eq!(one.len(), 2);
    assert_eq!((&one[&text(1)], &one[&text(2)]), (&vector(1), &vector(22)));
    let two = store.vectors("two", &[text(1), text(2)]).await.unwrap();
    assert_eq!(two.into_iter().collect::<Vec<_>>(), [(text(1), [0.5_f32].into())]);
    assert!(store.vectors("three", &[text(1)]).await.unwrap().is_empty());
    assert!(store.vectors("one", &[]).await.unwrap().is_empty());
}

pub(crate) async fn thousands_of_vectors_go_in_one_call(store: &dyn ComputedStore) {
    let saved: Vec<_> = (0..2000).map(|number| (text(number), vector(number))).collect();
    store.save_vectors("model", &saved).await.unwrap();
    let wanted: Vec<_> = (0..4000).map(text).collect();
    let found = store.vectors("model", &wanted).await.unwrap();
    assert_eq!(found, saved.into_iter().collect());
}

pub(crate) async fn token_counts_are_kept(store: &dyn ComputedStore) {
    let counts: Vec<_> = (0..1000_u16).map(|number| (text(usize::from(number)), u32::from(number) * 3)).collect();
    store.save_token_counts(&counts).await.unwrap();
    store.save_token_counts(&[(text(5), u32::MAX)]).await.unwrap();
    let wanted: Vec<_> = (0..1100).map(text).collect();
    let found = store.token_counts(&wanted).await.unwrap();
    assert_eq!((found.len(), found[&text(999)], found[&text(5)]), (1000, 2997, u32::MAX));
}

pub(crate) async fn what_was_used_lately_is_not_forgotten(store: &dyn ComputedStore) {
    store.save_vectors("one", &[(text(1), vector(1))]).await.unwrap();
    store.save_vectors("two", &[(text(1), vector(1))]).await.unwrap();
    store.save_token_counts(&[(text(1), 1)]).await.unwrap();
    let (now, hour) = (SystemTime::now(), Duration::from_hours(1));
    assert_eq!(store.forget_unused("one", &[], &[], now - hour).await.unwrap(), 0);
    assert_eq!(store.forget_unused("one", &[], &[], now + hour).await.unwrap(), 3);
    assert!(store.vectors("one", &[text(1)]).await.unwrap().is_empty() && store.token_counts(&[text(1)]).await.unwrap().is_empty());
}
