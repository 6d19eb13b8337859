//! The secrets of users.

use std::time::{Duration, SystemTime};

use toolsieve::domain::access::principal::PrincipalId;
use toolsieve::domain::access::secret::{SealedSecret, SecretName, SecretPlace};
use toolsieve::service::ports::{SecretStore, StoredSecret};

pub(super) fn secret(owner: &str, server: &str, name: &str, key_id: &str, nonce: u8) -> SealedSecret {
    let place = SecretPlace { owner: PrincipalId::new(owner), server: server.into(), name: SecretName::new(name).unwrap() };
    let updated_at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123);
    SealedSecret { place, key_id: key_id.into(), nonce: [nonce; 12], sealed: vec![0, 255, nonce], updated_at }
}

pub(crate) async fn secrets_are_kept_by_owner_server_and_name(store: &dyn SecretStore) {
    let owner = PrincipalId::new("user:日本 '");
    let saved = ["a/token", "b/key", "b/token"].map(|place| {
        let (server, name) = place.split_once('/').unwrap();
        secret(owner.as_str(), server, name, "k1", 1)
    });
    for secret in saved.iter().rev().chain([&secret("user:bob", "a", "token", "k2", 2)]) {
        store.save_secret(secret).await.unwrap();
    }
    assert_eq!(store.secrets(&owner).await.unwrap(), saved);
    assert_eq!(store.secrets(&PrincipalId::new("user:nobody")).await.unwrap(), []);
    let replaced = secret(owner.as_str(), "a", "token", "k2", 3);
    store.save_secret(&replaced).await.unwrap();
    assert_eq!(store.secrets(&owner).await.unwrap()[0], replaced);
    let of_others = store.secrets_of_other_keys("k2").await.unwrap();
    assert_eq!(of_others, saved[1..]);
    let of_entry = SealedSecret { place: SecretPlace::of_entry(&"a".into()), ..replaced.clone() };
    store.save_secret(&of_entry).await.unwrap();
    let bob = secret("user:bob", "a", "token", "k2", 2);
    let known = [&bob, &replaced, &saved[1], &saved[2]];
    let known = known.map(|secret| StoredSecret { place: secret.place.clone(), updated_at: secret.updated_at });
    assert_eq!(store.stored_secrets(0, 9).await.unwrap(), (known.to_vec(), 4), "what belongs to a server is not among them");
    assert_eq!(store.stored_secrets(1, 2).await.unwrap(), (known[1..3].to_vec(), 4));
    assert_eq!(store.stored_secrets(4, 2).await.unwrap(), (Vec::new(), 4));

    assert!(store.remove_secret(&saved[1].place).await.unwrap());
    assert!(!store.remove_secret(&saved[1].place).await.unwrap());
    assert_eq!(store.secrets(&owner).await.unwrap(), [replaced, saved[2].clone()]);
    assert_eq!((store.remove_secrets(&owner).await.unwrap(), store.remove_secrets(&owner).await.unwrap()), (2, 0));
    assert_eq!(store.secrets(&PrincipalId::new("user:bob")).await.unwrap().len(), 1);
}

pub(crate) async fn a_secret_is_sealed_anew_only_if_it_is_still_the_same(store: &dyn SecretStore) {
    let former = secret("user:anna", "a", "token", "k1", 1);
    store.save_secret(&former).await.unwrap();
    let new = secret("user:anna", "a", "token", "k2", 2);
    assert!(store.reseal_secret(&former, &new).await.unwrap());
    assert_eq!(store.secrets(&former.place.owner).await.unwrap(), std::slice::from_ref(&new));
    assert!(!store.reseal_secret(&former, &secret("user:anna", "a", "token", "k3", 3)).await.unwrap(), "it was changed meanwhile");
    store.remove_secret(&new.place).await.unwrap();
    assert!(!store.reseal_secret(&new, &former).await.unwrap(), "it was removed meanwhile");
    assert_eq!(store.secrets(&former.place.owner).await.unwrap(), []);
}
