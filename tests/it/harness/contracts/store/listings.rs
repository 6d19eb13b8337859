//! The listings of the servers.

use std::time::{Duration, SystemTime};

use toolsieve::domain::catalog::tool::ServerName;
use toolsieve::domain::catalog::user_lists::{ListOwner, UserList};
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

/// Regression test: each replica replaced the list that others had stored.
pub(crate) async fn lists_of_users_are_merged(store: &dyn ListingStore) {
    let all = listing("crm", 3);
    let with = |tools: &[usize]| ServerListing { tools: tools.iter().map(|tool| all.tools[*tool].clone()).collect(), ..all.clone() };
    let of = |user: &str, tools: &[usize]| UserList {
        owner: ListOwner::of(user),
        tools: with(tools).tools,
        expired: Vec::new(),
        is_of_new_server: false,
    };
    // Two replicas, each of which knows only the tools of its own users.
    store.merge_listing(&with(&[0, 1]), &[of("anna", &[0, 1])]).await.unwrap();
    store.merge_listing(&with(&[2]), &[of("bob", &[2])]).await.unwrap();
    assert_eq!(store.listings().await.unwrap(), [with(&[0, 1, 2])]);
    // Bob has the first tool now too, and Anna none of hers.
    store.merge_listing(&with(&[0, 2]), &[of("bob", &[0, 2])]).await.unwrap();
    store.merge_listing(&with(&[]), &[of("anna", &[])]).await.unwrap();
    assert_eq!(store.listings().await.unwrap(), [with(&[0, 2])]);
    store.merge_listing(&with(&[]), &[of("bob", &[]), of("carol", &[1])]).await.unwrap();
    assert_eq!(store.listings().await.unwrap(), [with(&[1])]);
    // A list that is the same for all users replaces them.
    store.save_listing(&with(&[0])).await.unwrap();
    store.merge_listing(&with(&[0, 2]), &[of("bob", &[2])]).await.unwrap();
    assert_eq!(store.listings().await.unwrap(), [with(&[0, 2])]);
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
