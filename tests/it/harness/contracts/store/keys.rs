//! The API keys.

use std::time::{Duration, SystemTime};

use toolsieve::domain::access::api_key::{ApiKey, KeyId, KeyRole};
use toolsieve::domain::access::principal::PrincipalId;
use toolsieve::domain::access::switches::UserSwitch;
use toolsieve::domain::text::canonical::Fingerprint;
use toolsieve::domain::toolsets::mode::{DefaultMode, Mode};
use toolsieve::domain::toolsets::session::{ID_BYTES, Session, SessionContents, SessionId};
use toolsieve::service::ports::{KeyStore, SessionCaps, Store};

use super::fixtures::{chat, set};
use super::secrets::secret;

fn key(id: &str, name: &str) -> ApiKey {
    let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    ApiKey {
        id: KeyId::new(id),
        name: name.into(),
        hash: Fingerprint::of_text(id),
        servers: Some(["one".into(), "日本".into()].into()),
        toolsets: Some(["mail".into(), "files".into()].into()),
        groups: ["a".to_owned(), "b, c".to_owned()].into(),
        trusted: true,
        role: None,
        created_at: at(1_000),
        expires_at: Some(at(9_000_000_000)),
        revoked_at: None,
        last_used_at: None,
    }
}

pub(crate) async fn api_keys_come_back_as_they_were(store: &dyn KeyStore) {
    assert_eq!(store.api_keys().await.unwrap(), []);
    let full = key("b", "full");
    let bare = ApiKey {
        servers: None,
        toolsets: None,
        groups: [].into(),
        trusted: false,
        role: Some(KeyRole::Viewer),
        expires_at: None,
        ..key("a", "bare")
    };
    for key in [&full, &bare] {
        store.save_api_key(key).await.unwrap();
    }
    let sorted = async || {
        let mut keys = store.api_keys().await.unwrap();
        keys.sort_by(|one, other| one.id.cmp(&other.id));
        keys
    };
    assert_eq!(sorted().await, [bare.clone(), full.clone()]);
    let used = SystemTime::UNIX_EPOCH + Duration::from_hours(500_000);
    store.touch_api_key(&full.id, used).await.unwrap();
    store.touch_api_key(&KeyId::new("none"), used).await.unwrap();
    let rotated = ApiKey { hash: Fingerprint::of_text("new"), revoked_at: Some(used), ..bare };
    store.save_api_key(&rotated).await.unwrap();
    assert_eq!(sorted().await, [rotated, ApiKey { last_used_at: Some(used), ..full }]);
}

pub(crate) async fn two_keys_in_use_never_have_one_name(store: &dyn KeyStore) {
    let save = async |key: ApiKey| store.save_api_key(&key).await.unwrap();
    assert!(save(key("a", "name")).await);
    assert!(!save(key("b", "name")).await);
    assert_eq!(store.api_keys().await.unwrap(), [key("a", "name")]);
    assert!(save(ApiKey { revoked_at: Some(SystemTime::UNIX_EPOCH), ..key("a", "name") }).await);
    assert!(save(key("b", "name")).await);
    // Several services may add a key at the same moment.
    let (one, other, third) = (key("c", "other"), key("d", "other"), key("e", "other"));
    let saved = tokio::join!(save(one), save(other), save(third));
    assert_eq!([saved.0, saved.1, saved.2].into_iter().filter(|is_saved| *is_saved).count(), 1, "{saved:?}");
}

/// The next key with this name belongs to somebody else.
pub(crate) async fn what_is_stored_under_a_name_goes_with_its_key(store: &dyn Store) {
    let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let names = ["revoked", "expired", "kept"];
    let [revoked, expired, kept] = names.map(|name| key(name, name));
    let (expired, ended) = (ApiKey { expires_at: Some(at(2_000)), ..expired }, ApiKey { revoked_at: Some(at(3_000)), ..revoked.clone() });
    for key in [&revoked, &expired, &kept] {
        store.save_api_key(key).await.unwrap();
    }
    for (number, name) in (0..).zip(names) {
        save_belongings(store, number, &PrincipalId::of_key(name)).await;
    }
    let belongings = async || {
        let mut counts = Vec::new();
        for name in names {
            let owner = PrincipalId::of_key(name);
            let (secrets, sessions) = (store.secrets(&owner).await.unwrap(), store.sessions(Some(&owner), at(0)).await.unwrap());
            let chat = store.chat(&chat(owner.as_str(), "chat")).await.unwrap();
            let off = store.switched_off().await.unwrap().contains(&(owner, UserSwitch::Narrowing));
            counts.push((secrets.len(), sessions.len(), chat.is_some(), off));
        }
        counts
    };
    let (all, none) = ((1, 1, true, true), (0, 0, false, false));
    assert_eq!(belongings().await, [all, all, all]);
    store.revoke_api_key(&ended).await.unwrap();
    assert_eq!(belongings().await, [none, all, all]);
    assert_eq!(store.forget_keys_ended_before(at(2_000)).await.unwrap(), []);
    assert_eq!(store.forget_keys_ended_before(at(2_001)).await.unwrap(), [expired.id]);
    assert_eq!(belongings().await, [none, none, all]);
    // Another key may have the name of a revoked one by now.
    save_belongings(store, 9, &PrincipalId::of_key("revoked")).await;
    assert_eq!(store.forget_keys_ended_before(at(3_001)).await.unwrap(), [ended.id]);
    assert_eq!(belongings().await, [all, none, all]);
    assert_eq!(store.api_keys().await.unwrap(), [kept]);
}

async fn save_belongings(store: &dyn Store, number: u8, owner: &PrincipalId) {
    let session = Session {
        id: SessionId::of_bytes([number; ID_BYTES]),
        owner: owner.clone(),
        contents: SessionContents::default(),
        mode: DefaultMode::Named(Mode::Dynamic),
        created_at: SystemTime::UNIX_EPOCH,
        expires_at: SystemTime::UNIX_EPOCH + Duration::from_hours(3),
    };
    store.save_session(&session, SessionCaps { of_one: 9, of_all: 9 }).await.unwrap();
    store.save_secret(&secret(owner.as_str(), "server", "token", "k1", 1)).await.unwrap();
    store.save_switch(owner, UserSwitch::Narrowing, false).await.unwrap();
    store.save_chat(&chat(owner.as_str(), "chat"), &set(&["a"], &[]), 0).await.unwrap();
}
