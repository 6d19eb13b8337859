//! What admins write about tools.

use std::time::{Duration, SystemTime};

use toolsieve::domain::access::tool_facts::ToolOverride;
use toolsieve::domain::catalog::tool::ToolId;
use toolsieve::service::ports::{StoredToolOverride, ToolOverrideStore};

pub(crate) async fn of_two_writings_about_one_tool_one_is_too_late(store: &dyn ToolOverrideStore) {
    let (one, other) = (ToolId::new("server", "日本 '\u{200b}"), ToolId::new("other", "日本 '\u{200b}"));
    let written = |tag: &str| ToolOverride { tags: vec![tag.into()], description: Some("\"quoted\"\n".into()), ..ToolOverride::default() };
    assert_eq!(store.tool_overrides().await.unwrap(), []);
    assert_eq!(store.save_tool_override(&one, 1, Some(&written("a"))).await.unwrap(), None);
    let (first, second) = (written("first"), written("second"));
    let both = futures::join!(store.save_tool_override(&one, 0, Some(&first)), store.save_tool_override(&one, 0, Some(&second)));
    let saved = match (both.0.unwrap(), both.1.unwrap()) {
        (Some(1), None) => first,
        (None, Some(1)) => second,
        other => panic!("{other:?}"),
    };
    let stored = |tool: &ToolId, version, written| StoredToolOverride { tool: tool.clone(), version, written };
    assert_eq!(store.tool_overrides().await.unwrap(), [stored(&one, 1, Some(saved))]);
    assert_eq!(store.save_tool_override(&one, 1, None).await.unwrap(), Some(2));
    assert_eq!(store.save_tool_override(&one, 0, Some(&written("a"))).await.unwrap(), None, "what was taken back has a version too");
    assert_eq!(store.save_tool_override(&other, 0, Some(&written("b"))).await.unwrap(), Some(1));
    let mut all = store.tool_overrides().await.unwrap();
    all.sort_by(|one, other| one.tool.cmp(&other.tool));
    assert_eq!(all, [stored(&other, 1, Some(written("b"))), stored(&one, 2, None)]);
    let (now, hour) = (SystemTime::now(), Duration::from_hours(1));
    assert_eq!(store.forget_tool_overrides_before(now - hour).await.unwrap(), []);
    assert_eq!(store.forget_tool_overrides_before(now + hour).await.unwrap(), [one]);
    assert_eq!(store.tool_overrides().await.unwrap(), [stored(&other, 1, Some(written("b")))], "what holds is not forgotten");
}
