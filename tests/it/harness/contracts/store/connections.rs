//! Sign-ins of users to servers.

use std::time::{Duration, SystemTime};

use toolsieve::domain::access::principal::PrincipalId;
use toolsieve::service::ports::{ConnectVisit, ConnectionStore, PendingSignIn, StoredConnection, VisitCaller, VisitKey};

use super::secrets::secret;

const NOW: SystemTime = SystemTime::UNIX_EPOCH;

fn after(seconds: u64) -> SystemTime {
    NOW + Duration::from_secs(seconds)
}

pub(crate) fn connection(owner: &str, server: &str, key_id: &str) -> StoredConnection {
    StoredConnection {
        sealed: secret(owner, server, "oauth.grant", key_id, 1),
        sign_in: "one".to_owned(),
        version: 1,
        ended: None,
        issuer: "https://issuer.example".to_owned(),
        scopes: vec!["read".to_owned()],
        wanted: Vec::new(),
        expires_at: Some(after(100)),
        connected_at: after(1),
    }
}

fn visit(id: &str, owner: &str) -> ConnectVisit {
    ConnectVisit {
        id: id.to_owned(),
        owner: PrincipalId::new(owner),
        person: "Änna 日本".to_owned(),
        servers: vec!["a".into(), "b".into()],
        caller: VisitCaller {
            email: Some("anna@example.org".to_owned()),
            name: Some("Änna".to_owned()),
            groups: ["ops".to_owned()].into(),
            secret_servers: vec!["c".into()],
            key: Some(VisitKey { id: "0123456789ab".to_owned(), hash: "ab".repeat(32) }),
        },
        server: Some("a".into()),
        expires_at: after(10),
    }
}

pub(crate) async fn sign_ins_come_back_as_they_were(store: &dyn ConnectionStore) {
    let (one, other) = (connection("user:anna", "a", "k1"), connection("user:anna", "b", "k2"));
    let owner = one.sealed.place.owner.clone();
    for connection in [&other, &one, &connection("user:bob", "a", "k1")] {
        store.save_connection(connection).await.unwrap();
    }
    assert_eq!(store.connections(&owner).await.unwrap(), [one.clone(), other.clone()]);
    assert_eq!(store.connection(&owner, &"b".into()).await.unwrap(), Some(other.clone()));
    assert_eq!(store.connection(&owner, &"c".into()).await.unwrap(), None);
    assert_eq!(store.connections_of_other_keys("k1").await.unwrap(), [other]);

    // A new sign-in replaces the former one, which can't be changed or removed any more.
    let new = StoredConnection { sign_in: "two".to_owned(), expires_at: None, ..one.clone() };
    store.save_connection(&new).await.unwrap();
    assert!(!store.change_connection(1, &StoredConnection { version: 2, ..one.clone() }).await.unwrap());
    assert!(!store.remove_connection(&one).await.unwrap());
    assert_eq!(store.connection(&owner, &"a".into()).await.unwrap(), Some(new.clone()));
    assert!(store.remove_connection(&new).await.unwrap());
    assert_eq!(store.connections(&owner).await.unwrap().len(), 1);
}

pub(crate) async fn of_two_refreshes_one_is_claimed(store: &dyn ConnectionStore) {
    let first = connection("user:anna", "a", "k1");
    store.save_connection(&first).await.unwrap();
    assert!(store.claim_refresh(&first, after(0), after(10)).await.unwrap());
    assert!(!store.claim_refresh(&first, after(9), after(20)).await.unwrap(), "somebody has claimed it");
    assert!(store.claim_refresh(&first, after(10), after(20)).await.unwrap(), "whoever claimed it did not finish in time");
    // Neither another key nor a scope that a call lacked keeps the claimed refresh from storing its tokens.
    let resealed = secret("user:anna", "a", "oauth.grant", "k2", 1);
    store.reseal_connection(&first, &resealed).await.unwrap();
    store.want_scopes(&first, &["more".to_owned()]).await.unwrap();
    let wanting = StoredConnection { sealed: resealed, wanted: vec!["more".to_owned()], ..first.clone() };
    assert_eq!(store.connection(&first.sealed.place.owner, &"a".into()).await.unwrap(), Some(wanting.clone()));
    assert!(!store.claim_refresh(&first, after(19), after(30)).await.unwrap(), "it is still claimed");
    let refreshed = StoredConnection { version: 2, scopes: Vec::new(), ..first.clone() };
    assert!(store.change_connection(1, &refreshed).await.unwrap());
    store.reseal_connection(&first, &wanting.sealed).await.unwrap();
    let second = StoredConnection { wanted: wanting.wanted, ..refreshed };
    assert!(!store.change_connection(1, &second).await.unwrap(), "somebody else was quicker");
    assert!(!store.claim_refresh(&first, after(30), after(40)).await.unwrap(), "the tokens are others");
    assert_eq!(store.connection(&first.sealed.place.owner, &"a".into()).await.unwrap(), Some(second.clone()));
    // The change has ended the claim.
    assert!(store.claim_refresh(&second, after(11), after(20)).await.unwrap());
    store.release_refresh(&second).await.unwrap();
    assert!(store.claim_refresh(&second, after(11), after(20)).await.unwrap());
    let ended = StoredConnection { version: 3, ended: Some("revoked".to_owned()), ..second.clone() };
    assert!(store.change_connection(2, &ended).await.unwrap());
    assert!(!store.claim_refresh(&ended, after(30), after(40)).await.unwrap(), "it has ended");
}

pub(crate) async fn a_pending_sign_in_is_taken_once_by_its_session(store: &dyn ConnectionStore) {
    let pending = PendingSignIn {
        state: "state".to_owned(),
        session: "session".to_owned(),
        sealed: secret("user:anna", "a", "oauth.pending", "k1", 1),
        expires_at: after(10),
    };
    store.save_sign_in(&pending).await.unwrap();
    assert_eq!(store.take_sign_in("state", "other", after(1)).await.unwrap(), None);
    assert_eq!(store.take_sign_in("other", "session", after(1)).await.unwrap(), None);
    assert_eq!(store.take_sign_in("state", "session", after(10)).await.unwrap(), None, "too late");
    assert_eq!(store.take_sign_in("state", "session", after(1)).await.unwrap(), Some(pending));
    assert_eq!(store.take_sign_in("state", "session", after(1)).await.unwrap(), None);

    let client = secret("service", "a", "oauth.client", "k1", 2);
    store.save_oauth_client("https://issuer.example", &client).await.unwrap();
    assert_eq!(store.oauth_client(&"a".into(), "https://issuer.example").await.unwrap(), Some(client));
    assert_eq!(store.oauth_client(&"a".into(), "https://other.example").await.unwrap(), None);
    store.remove_oauth_client(&"a".into(), "https://issuer.example").await.unwrap();
    assert_eq!(store.oauth_client(&"a".into(), "https://issuer.example").await.unwrap(), None);
}

pub(crate) async fn a_link_opens_one_session(store: &dyn ConnectionStore) {
    let link = visit("link", "user:anna");
    store.save_connect_link(&link).await.unwrap();
    assert_eq!(store.connect_link("link", after(1)).await.unwrap(), Some(link.clone()));
    assert_eq!(store.connect_link("link", after(10)).await.unwrap(), None);
    assert_eq!(store.connect_session("link", after(1)).await.unwrap(), None, "a link is no session");
    assert_eq!(store.open_connect_session("link", "session", after(20), after(1)).await.unwrap(), Some(link.clone()));
    assert_eq!(store.open_connect_session("link", "again", after(20), after(1)).await.unwrap(), None);
    let session = ConnectVisit { id: "session".to_owned(), expires_at: after(20), ..link };
    assert_eq!(store.connect_session("session", after(19)).await.unwrap(), Some(session));
    assert_eq!(store.connect_session("again", after(1)).await.unwrap(), None);

    for owner in ["user:anna", "user:bob"] {
        store.save_connect_link(&visit(owner, owner)).await.unwrap();
    }
    store.end_connect_visits(&PrincipalId::new("user:anna")).await.unwrap();
    assert_eq!(store.connect_session("session", after(1)).await.unwrap(), None);
    assert_eq!(store.connect_link("user:anna", after(1)).await.unwrap(), None);
    assert_eq!(store.forget_connect_visits_before(after(9)).await.unwrap(), 0);
    assert_eq!(store.forget_connect_visits_before(after(10)).await.unwrap(), 1);
    assert_eq!(store.connect_link("user:bob", after(1)).await.unwrap(), None);
}
