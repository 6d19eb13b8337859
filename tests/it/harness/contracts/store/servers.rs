//! The servers that the API manages.

use std::time::SystemTime;

use serde_json::json;
use toolsieve::domain::access::principal::PrincipalId;
use toolsieve::domain::access::secret::{NONCE_BYTES, SealedSecret, SecretName, SecretPlace};
use toolsieve::domain::catalog::tool::ServerName;
use toolsieve::service::ports::{Overwrites, Store, StoredServer};

use super::connections::connection;

fn sealed(place: SecretPlace, letter: u8) -> SealedSecret {
    let updated_at = SystemTime::UNIX_EPOCH;
    SealedSecret { place, key_id: "key".into(), nonce: [letter; NONCE_BYTES], sealed: vec![letter; 40], updated_at }
}

fn server(name: &str) -> StoredServer {
    let name = ServerName::from(name);
    let entry = json!({"url": "https://example.org/日本", "headers": {"A": "(stored)"}});
    let values = sealed(SecretPlace::of_entry(&name), 7);
    StoredServer { name, entry: Some(entry), enabled: true, restarts: 0, sealed: Some(values) }
}

pub(crate) async fn servers_come_back_as_they_were(store: &dyn Store) {
    assert_eq!(store.servers().await.unwrap(), []);
    let (one, two) = (server("b"), StoredServer { sealed: None, enabled: false, ..server("a") });
    store.save_server(&one, false, Overwrites::Anything).await.unwrap();
    store.save_server(&two, false, Overwrites::Anything).await.unwrap();
    assert_eq!(store.servers().await.unwrap(), [two.clone(), one.clone()]);
    // Of a server in the file, only what differs is stored.
    let of_file = ServerName::from("c");
    store.switch_server(&of_file, false).await.unwrap();
    store.restart_server(&of_file).await.unwrap();
    store.restart_server(&one.name).await.unwrap();
    let of_file = StoredServer { name: of_file, entry: None, enabled: false, restarts: 1, sealed: None };
    let one = StoredServer { restarts: 1, ..one };
    assert_eq!(store.servers().await.unwrap(), [two.clone(), one.clone(), of_file.clone()]);
    // A new entry replaces the secret values too, and no restart is forgotten.
    let one = StoredServer { entry: Some(json!({"url": "https://example.org"})), sealed: None, restarts: 1, ..one };
    store.save_server(&StoredServer { restarts: 0, ..one.clone() }, true, Overwrites::Anything).await.unwrap();
    store.switch_server(&two.name, true).await.unwrap();
    let two = StoredServer { enabled: true, ..two };
    assert_eq!(store.servers().await.unwrap(), [two, one.clone(), of_file]);
    // Somebody who knows another entry, or none, changes nothing.
    let former = json!({"url": "https://example.com"});
    for known in [None, Some(&former)] {
        let changed = StoredServer { entry: Some(former.clone()), ..one.clone() };
        assert!(!store.save_server(&changed, true, Overwrites::Only(known)).await.unwrap());
        assert!(!store.remove_server(&one.name, Overwrites::Only(known)).await.unwrap());
    }
    assert!(store.servers().await.unwrap().contains(&one));
    assert!(store.save_server(&one, false, Overwrites::Only(one.entry.as_ref())).await.unwrap());
    assert!(store.remove_server(&one.name, Overwrites::Only(one.entry.as_ref())).await.unwrap());
    assert!(!store.remove_server(&one.name, Overwrites::Anything).await.unwrap());
    assert_eq!(store.servers().await.unwrap().len(), 2);
}

pub(crate) async fn what_users_stored_for_a_server_goes_with_it(store: &dyn Store) {
    let (one, other) = (server("one"), server("other"));
    let anna = PrincipalId::new("user:anna");
    let place =
        |server: &StoredServer| SecretPlace { owner: anna.clone(), server: server.name.clone(), name: SecretName::new("token").unwrap() };
    for server in [&one, &other] {
        store.save_server(server, false, Overwrites::Anything).await.unwrap();
        store.save_secret(&sealed(place(server), 1)).await.unwrap();
        store.save_connection(&connection("user:anna", server.name.as_str(), "k")).await.unwrap();
    }
    assert_eq!(store.connections_to(&one.name).await.unwrap(), [connection("user:anna", "one", "k")]);
    assert_eq!(store.forget_users_of_server(&one.name).await.unwrap(), 2);
    assert_eq!(store.servers().await.unwrap(), [one.clone(), other.clone()], "the entry keeps its secrets");
    store.save_secret(&sealed(place(&one), 2)).await.unwrap();
    store.remove_server(&one.name, Overwrites::Anything).await.unwrap();
    assert_eq!(store.secrets(&anna).await.unwrap(), [sealed(place(&other), 1)]);
    assert_eq!(store.connections(&anna).await.unwrap(), [connection("user:anna", "other", "k")]);
    // A server of this name has no secret values, until somebody stores some.
    store.save_server(&StoredServer { sealed: None, ..one.clone() }, true, Overwrites::Anything).await.unwrap();
    assert_eq!(store.servers().await.unwrap(), [StoredServer { sealed: None, ..one }, other]);
}
