//! The store as a whole.

use toolsieve::service::ports::{Store, UpkeepStore};
use uuid::Uuid;

use super::fixtures::listing;

pub(crate) async fn it_names_its_installation(store: &dyn UpkeepStore) {
    assert_eq!(store.installation().await.unwrap(), None);
    let id = Uuid::new_v4();
    for claimed in [id, Uuid::new_v4()] {
        assert_eq!(store.claim_installation(claimed).await.unwrap(), id);
        assert_eq!(store.installation().await.unwrap(), Some(id));
    }
}

pub(crate) async fn it_says_whether_it_answers(store: &dyn UpkeepStore) {
    store.check().await.unwrap();
}

pub(crate) async fn shrinking_loses_nothing(store: &dyn Store) {
    for number in 0..20 {
        store.save_listing(&listing(&number.to_string(), 100)).await.unwrap();
    }
    for number in 1..20 {
        store.remove_listing(&number.to_string().as_str().into()).await.unwrap();
    }
    store.shrink().await.unwrap();
    assert_eq!(store.listings().await.unwrap(), [listing("0", 100)]);
    store.save_listing(&listing("1", 1)).await.unwrap();
    assert_eq!(store.listings().await.unwrap().len(), 2);
}
