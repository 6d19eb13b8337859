//! The definitions of tools.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use toolsieve::domain::catalog::definition::LISTED;
use toolsieve::domain::catalog::tool::{ServerName, ToolId};
use toolsieve::service::ports::{DefinitionStore, StoredDefinition};

use super::fixtures::text;

pub(crate) async fn definitions_are_kept_as_they_were_seen_first(store: &dyn DefinitionStore) {
    let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let first = |number: usize| {
        let tool = ToolId::new("server", format!("tool{number:04}"));
        StoredDefinition { tool, fingerprint: text(number), is_new: number == 1, first_seen: at(9), noticed: None, approved: None }
    };
    let sorted = async || {
        let mut all = store.definitions().await.unwrap();
        all.sort_by(|one, other| one.tool.cmp(&other.tool));
        all
    };
    store.add_definitions(&[]).await.unwrap();
    assert_eq!(sorted().await, []);
    let all: Vec<_> = (0..700).map(|number| (first(number), format!("{{\"n\": {number}}}"))).collect();
    store.add_definitions(&all).await.unwrap();
    let again = (StoredDefinition { fingerprint: text(5_000), is_new: true, ..first(2) }, "{}".to_owned());
    store.add_definitions(&[again]).await.unwrap();
    let mut expected: Vec<_> = (0..700).map(first).collect();
    assert_eq!(sorted().await, expected);
    assert_eq!(store.definition(&expected[2].tool).await.unwrap().as_deref(), Some("{\"n\": 2}"));
    assert_eq!(store.definition(&ToolId::new("server", "none")).await.unwrap(), None);

    let (server, noticed) = (ServerName::from("server"), |known: &StoredDefinition| (Arc::clone(&known.tool.name), text(6_000)));
    store.note_definitions(&server, &[], at(10)).await.unwrap();
    store.note_definitions(&"other".into(), &[noticed(&expected[0])], at(10)).await.unwrap();
    let others: Vec<_> = [("none".into(), text(6_000))].into_iter().chain(expected[1..400].iter().map(noticed)).collect();
    store.note_definitions(&server, &others, at(10)).await.unwrap();
    expected[1..400].iter_mut().for_each(|known| known.noticed = Some((text(6_000), at(10))));
    assert_eq!(sorted().await, expected);
    store.approve_definition(&expected[1].tool, &text(6_000), "{\"n\": 6}", at(11)).await.unwrap();
    expected[1] =
        StoredDefinition { fingerprint: text(6_000), is_new: false, noticed: None, approved: Some(at(11)), ..expected[1].clone() };
    assert_eq!(sorted().await, expected);
    assert_eq!(store.definition(&expected[1].tool).await.unwrap().as_deref(), Some("{\"n\": 6}"));
}

/// Prompts are listed when somebody asks for them, so an approved one may be unseen for long.
pub(crate) async fn what_was_approved_or_listed_lately_is_not_forgotten(store: &dyn DefinitionStore) {
    let (now, day) = (SystemTime::now(), Duration::from_hours(24));
    let [approved, gone, listed, server] = ["approved", "gone", "listed", LISTED].map(|name| ToolId::new("server", name));
    for tool in [&approved, &gone, &listed, &server] {
        let definition = StoredDefinition {
            tool: tool.clone(),
            fingerprint: text(1),
            is_new: true,
            first_seen: SystemTime::UNIX_EPOCH,
            noticed: None,
            approved: None,
        };
        store.add_definitions(&[(definition, "{}".to_owned())]).await.unwrap();
    }
    store.approve_definition(&approved, &text(2), "{}", now).await.unwrap();
    store.note_definitions_seen(&ServerName::from("server"), &["listed".into(), "unknown".into()], now + 3 * day).await.unwrap();
    store.note_definitions_seen(&ServerName::from("another"), &["gone".into()], now + 3 * day).await.unwrap();
    assert_eq!(store.forget_definitions_before(now - day).await.unwrap(), [], "all of them are new");
    assert_eq!(store.forget_definitions_before(now + day).await.unwrap(), [gone]);
    let mut left: Vec<_> = store.definitions().await.unwrap().into_iter().map(|definition| definition.tool).collect();
    left.sort_unstable();
    let mut expected = [approved, listed, server];
    expected.sort_unstable();
    assert_eq!(left, expected);
}
