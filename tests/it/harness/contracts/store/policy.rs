//! The policy.

use toolsieve::service::ports::{PolicyStore, StoredPolicy};

pub(crate) async fn of_two_changes_of_one_policy_one_is_too_late(store: &dyn PolicyStore) {
    assert_eq!(store.policy().await.unwrap(), None);
    assert_eq!(store.save_policy(1, "{}").await.unwrap(), None);
    let both = futures::join!(store.save_policy(0, "one"), store.save_policy(0, "two"));
    let saved = match (both.0.unwrap(), both.1.unwrap()) {
        (Some(1), None) => "one",
        (None, Some(1)) => "two",
        other => panic!("{other:?}"),
    };
    assert_eq!(store.policy().await.unwrap(), Some(StoredPolicy { version: 1, body: saved.into() }));
    for version in 1..150 {
        assert_eq!(store.save_policy(version, "{\"a\": 1}").await.unwrap(), Some(version + 1));
    }
    assert_eq!(store.policy().await.unwrap(), Some(StoredPolicy { version: 150, body: "{\"a\": 1}".into() }));
}
