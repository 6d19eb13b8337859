//! As which client the service signs users in, where it finds the authorization server, and with which key it keeps the tokens.

use std::collections::HashMap;
use std::path::Path;

use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::world::{self, Browser, Lies, PUBLIC, PUBLIC_TLS, World};
use super::{KEY, answer, call, connections, first_sign_in, first_sign_in_by, link, servers, sign_in, start, whoami};
use crate::harness::keys::{self, ADMIN};
use crate::harness::process::built::toolsieve;
use crate::harness::wait::eventually;
use crate::harness::{Running, Start};

const OTHER_KEY: &str = "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=";

/// The number of clients that were registered.
fn registered(world: &World) -> usize {
    world.known().issued.iter().filter(|text| text.starts_with("client-")).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_authorization_server_that_is_an_openid_provider_is_found() {
    let world = world::start();
    world.lie(Lies { openid_only: true, ..Lies::default() });
    let service = start(servers(&world, &json!("oauth")), None).await;
    first_sign_in(&service, "anna").await;
    assert_eq!(whoami(&service, "anna").await, "anna");
    assert_eq!(registered(&world), 1);
}

/// A client that was registered by hand, with all that its authorization server expects.
#[tokio::test(flavor = "multi_thread")]
async fn a_fixed_client_signs_users_in() {
    let world = world::start();
    world.lie(Lies { metadata: vec![("token_endpoint_auth_methods_supported", json!(["client_secret_post"]))], ..Lies::default() });
    world.known().clients.insert("by-hand".to_owned(), vec![format!("{PUBLIC}/ui/oauth/callback")]);
    let auth = json!({
        "type": "oauth", "client_id": "by-hand", "client_secret": "s3cret", "scopes": ["read", "offline_access"],
        "parameters": {"access_type": "offline", "prompt": "consent"},
    });
    let service = start(servers(&world, &auth), None).await;
    first_sign_in(&service, "anna").await;
    assert_eq!(whoami(&service, "anna").await, "anna");
    world.known().expire();
    assert_eq!(whoami(&service, "anna").await, "anna");
    assert_eq!(registered(&world), 0);
    let known = world.known();
    let asked = known.authorizations.last().unwrap();
    let expected = [("client_id", "by-hand"), ("scope", "read offline_access"), ("access_type", "offline"), ("prompt", "consent")];
    assert!(expected.iter().all(|(name, value)| asked[*name] == *value), "{asked:?}");
    assert_eq!(known.refreshes(), 1);
    let is_authenticated = |form: &HashMap<String, String>| form["client_id"] == "by-hand" && form["client_secret"] == "s3cret";
    assert!(known.token_requests.iter().all(is_authenticated));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_metadata_document_describes_the_client_where_that_is_supported() {
    let world = world::start();
    world.lie(Lies { metadata: vec![("client_id_metadata_document_supported", json!(true))], ..Lies::default() });
    let environment = vec![
        ("TOOLSIEVE_ACCESS__TRUST_USERS", "true"),
        ("TOOLSIEVE_ADMIN_KEY", ADMIN),
        ("TOOLSIEVE_SECRETS_KEY", KEY),
        ("TOOLSIEVE_HTTP__PUBLIC_URL", PUBLIC_TLS),
    ];
    let service = Start { servers: servers(&world, &json!("oauth")), key: Some(keys::KEY), environment, ..Start::default() }.start().await;
    // The authorization server reads it without a key.
    let (status, document) = answer(service.client.get(format!("{}/ui/oauth/client.json", service.url))).await;
    assert_eq!((status, &document["client_id"]), (StatusCode::OK, &json!(format!("{PUBLIC_TLS}/ui/oauth/client.json"))), "{document}");
    assert_eq!(document["redirect_uris"], json!([format!("{PUBLIC_TLS}/ui/oauth/callback")]));
    let uris = serde_json::from_value(document["redirect_uris"].clone()).unwrap();
    world.known().clients.insert(document["client_id"].as_str().unwrap().to_owned(), uris);
    first_sign_in_by(Browser::with_tls("anna"), &service, "anna").await;
    assert_eq!(whoami(&service, "anna").await, "anna");
    assert_eq!(registered(&world), 0);
}

async fn with_keys(world: &World, keys: &[(&'static str, &'static str)], folder: TempDir) -> Running {
    let others = [("TOOLSIEVE_ACCESS__TRUST_USERS", "true"), ("TOOLSIEVE_ADMIN_KEY", ADMIN), ("TOOLSIEVE_HTTP__PUBLIC_URL", PUBLIC)];
    let environment = [&others[..], keys].concat();
    let servers = servers(world, &json!("oauth"));
    Start { servers, key: Some(keys::KEY), folder: Some(folder), environment, ..Start::default() }.start().await
}

/// The ids of the keys by which tokens are encrypted.
async fn key_ids(folder: &Path) -> Vec<String> {
    use sqlx::Connection as _;
    let path = folder.join("data/toolsieve.db");
    let mut database = sqlx::SqliteConnection::connect(path.to_str().unwrap()).await.unwrap();
    sqlx::query_scalar("SELECT DISTINCT key_id FROM connection").fetch_all(&mut database).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn another_key_of_the_service_ends_no_sign_in() {
    let world = world::start();
    let service = start(servers(&world, &json!("oauth")), None).await;
    first_sign_in(&service, "anna").await;
    let folder = service.stop().await;
    let former = key_ids(folder.path()).await;
    assert_eq!(former.len(), 1);
    let both = [("TOOLSIEVE_SECRETS_KEY", OTHER_KEY), ("TOOLSIEVE_SECRETS__FORMER_KEYS", KEY)];
    let service = with_keys(&world, &both, folder).await;
    assert_eq!(whoami(&service, "anna").await, "anna");
    eventually("the tokens are encrypted with the new key", async || key_ids(service.folder.path()).await != former).await;
    let service = with_keys(&world, &both[..1], service.stop().await).await;
    assert_eq!(whoami(&service, "anna").await, "anna");
    // Without the key there is no way to the tokens, and one sign-in repairs it.
    let service = with_keys(&world, &[("TOOLSIEVE_SECRETS_KEY", KEY)], service.stop().await).await;
    let (status, body) = call(&service, "anna", "whoami").await;
    assert_eq!((status, &body["code"]), (StatusCode::FORBIDDEN, &json!("sign_in_needed")), "{body}");
    assert!(body["detail"].as_str().unwrap().contains("decrypted"), "{body}");
    sign_in(&service, "anna", "whoami").await;
    assert_eq!(whoami(&service, "anna").await, "anna");
}

/// The command that the documentation names for a user who leaves.
#[tokio::test(flavor = "multi_thread")]
async fn the_command_for_leavers_revokes_the_tokens() {
    let world = world::start();
    let service = start(servers(&world, &json!("oauth")), None).await;
    first_sign_in(&service, "anna").await;
    let mut command = toolsieve();
    command.args(["secrets", "forget", "user:anna", "--url", &service.url, "--admin-key", ADMIN]);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(world.known().revoked.len(), 2, "the refresh token and the access token");
    link(&service, "anna", "whoami").await;
    let known = connections(&service, "anna").await;
    assert_eq!((&known["connections"][0]["connection"], &known["connections"][0]["issuer"]), (&json!("sign_in"), &Value::Null));
}
