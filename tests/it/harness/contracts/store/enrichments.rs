//! What models and admins write about tools.

use std::time::{Duration, SystemTime};

use toolsieve::domain::selection::enrichment::Author;
use toolsieve::service::ports::EnrichmentStore;

use super::fixtures::{text, written};

pub(crate) async fn what_is_written_is_kept_by_tool_and_author(store: &dyn EnrichmentStore) {
    let (one, two, admin) = (written("one", "a"), written("two", "b"), written("admin", ""));
    for (tool, written) in [(1, &one), (1, &two), (2, &one), (2, &admin)] {
        store.save_enrichment(&text(tool), written).await.unwrap();
    }
    let tools = [text(1), text(2), text(3)];
    assert_eq!(store.enrichments(None, &tools).await.unwrap(), [(text(2), admin.clone())].into());
    assert_eq!(store.enrichments(Some("one"), &tools).await.unwrap(), [(text(1), one.clone()), (text(2), admin.clone())].into());
    assert_eq!(store.enrichments(Some("two"), &tools).await.unwrap()[&text(1)], two);
    assert!(store.enrichments(Some("one"), &[]).await.unwrap().is_empty());

    store.save_enrichment(&text(1), &written("one", "c")).await.unwrap();
    assert_eq!(store.enrichments(Some("one"), &tools).await.unwrap()[&text(1)], written("one", "c"));
    assert_eq!(store.enrichments(Some("two"), &tools).await.unwrap()[&text(1)], two);

    assert!(store.remove_enrichment(&text(2), &Author::Admin).await.unwrap());
    assert!(!store.remove_enrichment(&text(2), &Author::Admin).await.unwrap());
    assert_eq!(store.enrichments(Some("one"), &tools).await.unwrap()[&text(2)], one);

    for number in 0..600 {
        store.save_enrichment(&text(number), &written("many", &number.to_string())).await.unwrap();
    }
    let many: Vec<_> = (0..700).map(text).collect();
    let found = store.enrichments(Some("many"), &many).await.unwrap();
    assert_eq!((found.len(), &found[&text(599)]), (600, &written("many", "599")));
}

pub(crate) async fn what_is_written_and_used_lately_is_not_forgotten(store: &dyn EnrichmentStore) {
    for author in ["one", "two", "admin"] {
        store.save_enrichment(&text(1), &written(author, "a")).await.unwrap();
    }
    let (now, hour) = (SystemTime::now(), Duration::from_hours(1));
    assert_eq!(store.forget_unused_enrichments(Some("one"), &[], now - hour).await.unwrap(), 0);
    assert_eq!(store.forget_unused_enrichments(None, &[], now + hour).await.unwrap(), 3);
    assert!(store.enrichments(Some("one"), &[text(1)]).await.unwrap().is_empty());
}
