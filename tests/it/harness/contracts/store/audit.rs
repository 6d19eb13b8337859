//! The audit log.

use std::time::{Duration, SystemTime};

use toolsieve::domain::access::principal::Principal;
use toolsieve::domain::access::rule::{Effect, RulePlace, RuleSource};
use toolsieve::domain::catalog::tool::ToolId;
use toolsieve::service::ports::{AuditAction, AuditEntry, AuditQuery, AuditStore, CallOutcome, Store};
use uuid::Uuid;

/// After an outage, nobody knows whether a batch was stored, so it is sent again.
pub(crate) async fn a_batch_that_comes_again_is_stored_once(store: &dyn Store) {
    let entry = |subject: &str| AuditEntry::of_change(&Principal::admin_key(), AuditAction::KeyCreate, subject.to_owned());
    let (first, second) = (Uuid::now_v7(), Uuid::now_v7());
    for _ in 0..3 {
        store.save_audit_once(first, &[entry("a"), entry("b")]).await.unwrap();
    }
    store.save_audit_once(second, &[entry("c")]).await.unwrap();
    let subjects = async || {
        let found = store.audit(&AuditQuery { limit: 100, ..AuditQuery::default() }).await.unwrap();
        found.into_iter().rev().map(|stored| stored.entry.subject.unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(subjects().await, ["a", "b", "c"]);
    assert_eq!(store.forget_batches_before(SystemTime::now() + Duration::from_mins(1)).await.unwrap(), 2);
    store.save_audit_once(second, &[entry("d")]).await.unwrap();
    assert_eq!(subjects().await, ["a", "b", "c", "d"]);
}

pub(crate) async fn the_audit_log_is_found_by_what_it_says(store: &dyn AuditStore) {
    let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let call = |seconds: u64, principal: &str, tool: &str| AuditEntry {
        at: at(seconds),
        principal: principal.into(),
        action: AuditAction::Call,
        tool: Some(ToolId::new("server", tool)),
        server: None,
        subject: None,
        decision: Effect::Allow,
        rule: Some(RulePlace { source: RuleSource::Settings, number: 3 }),
        outcome: Some(CallOutcome::ToolError),
        took: Duration::from_micros(1_500),
        bytes: Some(12),
    };
    let denied = AuditEntry {
        decision: Effect::Block,
        rule: Some(RulePlace { source: RuleSource::Api, number: 1 }),
        outcome: None,
        bytes: None,
        ..call(2, "key:ci", "b")
    };
    let change = AuditEntry {
        subject: Some("日本".into()),
        ..AuditEntry::of_change(&Principal::admin_key(), AuditAction::KeyCreate, String::new())
    };
    let change = AuditEntry { at: at(3), ..change };
    let read = AuditEntry {
        action: AuditAction::ResourceRead,
        tool: None,
        server: Some("reads".into()),
        subject: Some("test://note".into()),
        ..call(3, "anyone", "")
    };
    let saved = [call(1, "anyone", "a"), denied.clone(), change.clone(), read.clone()];
    store.save_audit(&[]).await.unwrap();
    store.save_audit(&saved).await.unwrap();
    let find = async |query: AuditQuery| {
        let found = store.audit(&AuditQuery { limit: if query.limit == 0 { 100 } else { query.limit }, ..query }).await.unwrap();
        assert!(found.windows(2).all(|pair| pair[0].id > pair[1].id));
        found
    };
    let entries = async |query| find(query).await.into_iter().map(|found| found.entry).collect::<Vec<_>>();
    assert_eq!(entries(AuditQuery::default()).await, [read.clone(), change.clone(), denied.clone(), saved[0].clone()]);
    for query in [
        AuditQuery { server: Some("reads".into()), ..AuditQuery::default() },
        AuditQuery { action: Some(AuditAction::ResourceRead), ..AuditQuery::default() },
    ] {
        assert_eq!(entries(query.clone()).await, std::slice::from_ref(&read), "{query:?}");
    }
    for query in [
        AuditQuery { principal: Some("key:ci".into()), ..AuditQuery::default() },
        AuditQuery { tool: Some("b".into()), server: Some("server".into()), ..AuditQuery::default() },
        AuditQuery { decision: Some(Effect::Block), ..AuditQuery::default() },
        AuditQuery { since: Some(at(2)), until: Some(at(3)), ..AuditQuery::default() },
    ] {
        assert_eq!(entries(query.clone()).await, std::slice::from_ref(&denied), "{query:?}");
    }
    assert_eq!(entries(AuditQuery { action: Some(AuditAction::KeyCreate), ..AuditQuery::default() }).await, [change]);
    assert_eq!(entries(AuditQuery { outcome: Some(CallOutcome::ToolError), ..AuditQuery::default() }).await, [read, saved[0].clone()]);
    let first = find(AuditQuery { limit: 3, ..AuditQuery::default() }).await;
    let rest = find(AuditQuery { before: Some(first[2].id), ..AuditQuery::default() }).await;
    assert_eq!((first.len(), rest.len(), &rest[0].entry), (3, 1, &saved[0]));
    store.save_audit(&vec![call(9, "many", "a"); 250]).await.unwrap();
    assert_eq!(find(AuditQuery { principal: Some("many".into()), limit: 300, ..AuditQuery::default() }).await.len(), 250);
    assert_eq!(store.forget_audit_before(at(3)).await.unwrap(), 2);
    assert_eq!(find(AuditQuery { limit: 300, ..AuditQuery::default() }).await.len(), 252);
    // More than a store deletes in one transaction.
    store.save_audit(&vec![call(9, "many", "a"); 5_001]).await.unwrap();
    assert_eq!(store.forget_audit_before(at(10)).await.unwrap(), 5_253);
}
