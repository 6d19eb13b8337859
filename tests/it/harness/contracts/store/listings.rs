//! The listings of the servers.

use std::time::{Duration, SystemTime};

use toolsieve::domain::catalog::tool::ServerName;
use toolsieve::service::ports::{ListingStore, ServerListing};

use super::fixtures::listing;

pub(crate) async fn listings_come_back_as_they_were(store: &dyn ListingStore) {
    assert_eq!(store.listings().await.unwrap(), []);
    let saved = [listing("alpha", 0), listing("beta", 300)];
    for listing in &saved {
        store.save_listing(listing).await.unwrap();
    }
    let mut found = store.listings().await.unwrap();
    found.sort_by(|one, two| one.server.cmp(&two.server));
    assert_eq!(found, saved);
    // Equality of JSON objects does not look at the order of their keys, publishing does.
    assert_eq!(found[1].tools[7].to_string(), saved[1].tools[7].to_string());
}

pub(crate) async fn a_listing_replaces_the_one_before(store: &dyn ListingStore) {
    store.save_listing(&listing("alpha", 5)).await.unwrap();
    let new = ServerListing { title: None, skipped: Vec::new(), ..listing("alpha", 2) };
    store.save_listing(&new).await.unwrap();
    assert_eq!(store.listings().await.unwrap(), [new]);
}

pub(crate) async fn a_removed_listing_is_gone(store: &dyn ListingStore) {
    store.save_listing(&listing("alpha", 1)).await.unwrap();
    store.save_listing(&listing("beta", 1)).await.unwrap();
    store.remove_listing(&"alpha".into()).await.unwrap();
    store.remove_listing(&"never there".into()).await.unwrap();
    assert_eq!(store.listings().await.unwrap(), [listing("beta", 1)]);
}

pub(crate) async fn servers_say_when_they_were_listed(store: &dyn ListingStore) {
    assert!(store.listing_times().await.unwrap().is_empty());
    let before = SystemTime::now() - Duration::from_secs(1);
    store.save_listing(&listing("alpha", 1)).await.unwrap();
    let times = store.listing_times().await.unwrap();
    assert_eq!(times.len(), 1);
    assert!(times[&ServerName::from("alpha")] > before && times[&ServerName::from("alpha")] < before + Duration::from_mins(5));
}
