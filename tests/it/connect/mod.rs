//! Users sign in to MCP servers: with a real authorization server, which can lie, and a browser. Or their own tokens are exchanged there.

mod clients;
mod exchange;
mod account;
mod world;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use actix_web::web::Data;
use futures::future::join_all;
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use sqlx::Connection as _;
use tempfile::TempDir;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use self::world::{Browser, Lies, PUBLIC, Page, World, hidden, next, posted};
use crate::harness::keys::{self, ADMIN, administer, create, with_key};
use crate::harness::mcp::rpc;
use crate::harness::process::database::change;
use crate::harness::wait::{eventually, when};
use crate::harness::{Running, Start};

const KEY: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

async fn start(servers: Value, folder: Option<TempDir>) -> Running {
    let environment = vec![
        ("TOOLSIEVE_ACCESS__TRUST_USERS", "true"),
        ("TOOLSIEVE_ADMIN_KEY", ADMIN),
        ("TOOLSIEVE_SECRETS_KEY", KEY),
        ("TOOLSIEVE_HTTP__PUBLIC_URL", PUBLIC),
        // The filter keeps the few tools that it is offered.
        ("TOOLSIEVE_SELECTION__NARROW_ABOVE_TOKENS", "3000"),
    ];
    Start { servers, key: Some(keys::KEY), folder, environment, ..Start::default() }.start().await
}

fn servers(world: &World, auth: &Value) -> Value {
    json!({"jira": {"type": "streamable-http", "url": world.mcp(), "auth": auth}})
}

async fn service(world: &World) -> Running {
    start(servers(world, &json!("oauth")), None).await
}

fn of(service: &Running, user: &str, method: Method, path: &str) -> RequestBuilder {
    service.request(method, path).header("X-OpenWebUI-User-Id", user).header("X-OpenWebUI-User-Name", user)
}

async fn answer(request: RequestBuilder) -> (StatusCode, Value) {
    let response = request.send().await.unwrap();
    (response.status(), response.json().await.unwrap_or_default())
}

async fn call(service: &Running, user: &str, tool: &str) -> (StatusCode, Value) {
    answer(of(service, user, Method::POST, &format!("/jira/{tool}")).json(&json!({}))).await
}

async fn connections(service: &Running, user: &str) -> Value {
    let (status, body) = answer(of(service, user, Method::GET, "/v1/connections")).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    body
}

/// The link that a call without a sign-in returns.
async fn link(service: &Running, user: &str, tool: &str) -> String {
    let (status, body) = call(service, user, tool).await;
    assert_eq!((status, &body["code"]), (StatusCode::FORBIDDEN, &json!("sign_in_needed")), "{body}");
    let link = body["sign_in_url"].as_str().unwrap().to_owned();
    assert!(link.starts_with(PUBLIC) && body["detail"].as_str().unwrap().contains(&link), "{body}");
    link
}

/// Opens the list of a user's connections, and begins the sign-in from there.
async fn connect(service: &Running, user: &str) -> (Browser, Page) {
    connect_in(Browser::of(user), service, user).await
}

async fn connect_in(mut browser: Browser, service: &Running, user: &str) -> (Browser, Page) {
    let link = connections(service, user).await["link"].as_str().unwrap().to_owned();
    let page = browser.open(service, &link).await;
    let entered = browser.submit(service, "/ui/me/enter", &[("link", hidden(&page.text, "link").as_str())]).await;
    assert_eq!((entered.status, entered.location.as_deref()), (StatusCode::SEE_OTHER, Some("/ui/me")));
    let list = browser.open(service, "/ui/me").await;
    assert!(list.text.contains("not connected"), "{list:?}");
    let csrf = hidden(&list.text, "csrf");
    let page = browser.submit(service, "/ui/me/connect", &[("csrf", csrf.as_str()), ("server", "jira")]).await;
    (browser, page)
}

/// Signs the first user in, so that the server's tools are listed.
async fn first_sign_in(service: &Running, user: &str) {
    first_sign_in_by(Browser::of(user), service, user).await;
}

async fn first_sign_in_by(browser: Browser, service: &Running, user: &str) {
    sign_in_from_list(browser, service, user).await;
    service.until(|ready| ready["tools"] == 2).await;
}

async fn sign_in_from_list(browser: Browser, service: &Running, user: &str) {
    let (mut browser, page) = connect_in(browser, service, user).await;
    let back = browser.at_issuer(&page).await;
    connected(&browser.open(service, &back).await);
}

async fn sign_in(service: &Running, user: &str, tool: &str) {
    connected(&Browser::of(user).sign_in(service, &link(service, user, tool).await).await);
}

fn connected(page: &Page) {
    assert_eq!(page.status, StatusCode::OK, "{page:?}");
    assert!(page.text.contains("<h1>Connected</h1>"), "{page:?}");
}

async fn whoami(service: &Running, user: &str) -> Value {
    let (status, body) = call(service, user, "whoami").await;
    assert_eq!(status, StatusCode::OK, "{body}");
    body["sub"].clone()
}

/// Whether a file of the database contains any of these texts.
fn found_in_store(folder: &TempDir, texts: &[String]) -> Vec<String> {
    let files = ["toolsieve.db", "toolsieve.db-wal"].map(|file| std::fs::read(folder.path().join("data").join(file)).unwrap_or_default());
    let is_in = |text: &&String| files.iter().any(|bytes| bytes.windows(text.len()).any(|part| part == text.as_bytes()));
    texts.iter().filter(is_in).cloned().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_user_calls_with_their_own_sign_in_and_a_restart_keeps_it() {
    let world = world::start();
    let service = service(&world).await;
    assert_eq!(connections(&service, "anna").await["connections"][0]["connection"], "sign_in");
    first_sign_in(&service, "anna").await;
    assert_eq!(whoami(&service, "anna").await, "anna");

    let search = async |user: &str| {
        let request = of(&service, user, Method::POST, "/v1/tools/search").json(&json!({"queries": ["tells whoami"]}));
        answer(request).await.1["tools"][0]["connection"].clone()
    };
    assert_eq!((search("anna").await, search("bob").await), (json!("ready"), json!("sign_in")));
    let message = json!({"messages": [{"role": "user", "content": "tell me whoami"}], "tools": ["jira__whoami"]});
    let (_, selection) = answer(of(&service, "bob", Method::POST, "/v1/filter").json(&message)).await;
    assert!(selection["tools"].as_array().unwrap().iter().any(|tool| tool["connection"] == "sign_in"), "{selection}");

    sign_in(&service, "bob", "whoami").await;
    assert_eq!((whoami(&service, "anna").await, whoami(&service, "bob").await), (json!("anna"), json!("bob")));
    // The service itself is not a person.
    let (status, body) = answer(service.request(Method::POST, "/jira/whoami").json(&json!({}))).await;
    assert_eq!((status, &body["code"]), (StatusCode::FORBIDDEN, &json!("user_needed")), "{body}");
    let (_, audit) = administer(&service, Method::GET, "/v1/admin/audit?limit=100", &json!(null)).await;

    let folder = service.stop().await;
    let issued = world.known().issued.clone();
    assert!(issued.iter().all(|text| !audit.to_string().contains(text)));
    assert_eq!(found_in_store(&folder, &issued), Vec::<String>::new());
    let service = start(servers(&world, &json!("oauth")), Some(folder)).await;
    service.until(|ready| ready["tools"] == 2).await;
    let before = world.known().token_requests.len();
    assert_eq!((whoami(&service, "anna").await, whoami(&service, "bob").await), (json!("anna"), json!("bob")));
    assert_eq!(world.known().token_requests.len(), before, "nothing needs to be refreshed");
    // The service's own key and the users' headers reach nobody.
    assert!(world.known().seen.iter().all(|value| value.starts_with("Bearer access-")), "{:?}", world.known().seen);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_calls_after_the_expiry_make_one_refresh() {
    let world = world::start();
    let service = Arc::new(service(&world).await);
    first_sign_in(&service, "anna").await;
    for round in 1..=2 {
        world.known().expire();
        let calls = (0..20).map(|_| {
            let service = Arc::clone(&service);
            async move { whoami(&service, "anna").await }
        });
        assert!(join_all(calls).await.iter().all(|sub| sub == "anna"));
        assert_eq!(world.known().refreshes(), round);
    }
    // The refresh token of each round was used once: a second use would have ended the sign-in.
    assert_eq!(whoami(&service, "anna").await, "anna");
}

/// Regression test: calls waited for a refresh although their token was valid.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_still_valid_is_used_while_it_is_refreshed() {
    let world = world::start();
    let service = service(&world).await;
    first_sign_in(&service, "anna").await;
    let folder = service.stop().await;
    // It expires in half a minute, and was issued long ago.
    let soon =
        "UPDATE connection SET updated_at = updated_at - 3600000, expires_at = 1000 * CAST(strftime('%s', 'now') AS INTEGER) + 30000";
    change(&folder.path().join("data/toolsieve.db"), soon).await;
    world.lie(Lies { holds_tokens: true, ..Lies::default() });
    let service = start(servers(&world, &json!("oauth")), Some(folder)).await;
    service.until(|ready| ready["tools"] == 2).await;
    // The request for another token ends after 10 seconds.
    let called = timeout(Duration::from_secs(8), whoami(&service, "anna")).await;
    assert_eq!(called.expect("the call did not wait"), "anna");
    eventually("the refresh goes on", async || world.known().refreshes() == 1).await;
}

/// Regression test: the first list after a restart removed the tools that only others see.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_each_user_still_has_their_own_tools() {
    let world = world::start();
    world.known().own_tools = Some("before");
    let service = service(&world).await;
    sign_in_from_list(Browser::of("anna"), &service, "anna").await;
    service.until(|ready| ready["tools"] == 2).await;
    sign_in(&service, "bob", "whoami").await;
    assert_eq!(whoami(&service, "bob").await, "bob");
    service.until(|ready| ready["tools"] == 3).await;
    let service = start(servers(&world, &json!("oauth")), Some(service.stop().await)).await;
    service.until(|ready| ready["tools"] == 3).await;
    world.known().own_tools = Some("after");
    assert_eq!(whoami(&service, "anna").await, "anna");
    let describes = async |name: &str| {
        let (_, document) = service.get("/openapi.json").await;
        document["paths"][format!("/jira/{name}")]["post"]["description"].as_str().unwrap_or_default().to_owned()
    };
    eventually("her list is in the catalog", async || when(describes("of_anna").await, |text| text.contains("after"))).await;
    assert!(describes("of_bob").await.contains("before"), "nobody has listed it since");
    let (status, body) = call(&service, "bob", "of_bob").await;
    assert_eq!((status, &body["sub"]), (StatusCode::OK, &json!("bob")), "{body}");
}

/// Regression test: in quarantine, each prompt cost a list of all prompts.
#[tokio::test(flavor = "multi_thread")]
async fn in_quarantine_a_user_s_prompts_are_listed_once() {
    let world = world::start();
    let environment = vec![
        ("TOOLSIEVE_ACCESS__TRUST_USERS", "true"),
        ("TOOLSIEVE_SECRETS_KEY", KEY),
        ("TOOLSIEVE_HTTP__PUBLIC_URL", PUBLIC),
        ("TOOLSIEVE_DEFINITIONS__CHANGES", "quarantine"),
    ];
    let servers = servers(&world, &json!("oauth"));
    let service = Start { servers, key: Some(keys::KEY), environment, ..Start::default() }.start().await;
    first_sign_in(&service, "anna").await;
    let get = async |user: &str| {
        let params = json!({"name": format!("jira__of_{user}")});
        rpc(&service, "/mcp", &[("x-openwebui-user-id", "anna"), ("x-openwebui-user-name", "anna")], "prompts/get", params).await
    };
    for _ in 0..3 {
        let got = get("anna").await;
        assert!(got.to_string().contains("Hello anna"), "{got}");
    }
    assert_eq!(world.known().prompt_lists, 1);
    // A prompt that is not in the list may be a new one.
    get("bob").await;
    assert_eq!(world.known().prompt_lists, 2);
}

/// Whoever gives a server another address gets no tokens of its users there.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_stay_with_the_address_of_the_sign_in() {
    let (world, other) = (world::start(), world::start());
    let service = service(&world).await;
    first_sign_in(&service, "anna").await;
    let service = start(servers(&other, &json!("oauth")), Some(service.stop().await)).await;
    let link = link(&service, "anna", "whoami").await;
    assert!(other.known().seen.is_empty(), "{:?}", other.known().seen);
    connected(&Browser::of("anna").sign_in(&service, &link).await);
    assert_eq!(whoami(&service, "anna").await, "anna");
}

/// As after a crash between the answer of the authorization server and its storage.
#[tokio::test(flavor = "multi_thread")]
async fn a_refresh_whose_answer_is_lost_does_not_end_the_sign_in() {
    let world = world::start();
    let service = service(&world).await;
    first_sign_in(&service, "anna").await;
    world.lie(Lies { loses_answers: true, ..Lies::default() });
    world.known().expire();
    let (status, body) = call(&service, "anna", "whoami").await;
    assert_eq!((status, &body["code"]), (StatusCode::SERVICE_UNAVAILABLE, &json!("server_unavailable")), "{body}");
    world.lie(Lies::default());
    // Another process finds the former refresh token in the store.
    let service = start(servers(&world, &json!("oauth")), Some(service.stop().await)).await;
    eventually("the former refresh token is used again", async || call(&service, "anna", "whoami").await.0 == StatusCode::OK).await;
    assert_eq!(world.known().refreshes(), 2);
}

/// An authorization server without a grace period takes the former refresh token for a stolen one. The person gets a link, and one
/// sign-in repairs everything.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_of_a_strict_server_leads_to_a_new_sign_in() {
    let world = world::start();
    let service = service(&world).await;
    first_sign_in(&service, "anna").await;
    world.lie(Lies { loses_answers: true, ..Lies::default() });
    world.known().has_no_grace = true;
    world.known().expire();
    assert_eq!(call(&service, "anna", "whoami").await.0, StatusCode::SERVICE_UNAVAILABLE);
    world.lie(Lies::default());
    let service = start(servers(&world, &json!("oauth")), Some(service.stop().await)).await;
    let (status, body) = call(&service, "anna", "whoami").await;
    assert_eq!((status, &body["code"]), (StatusCode::FORBIDDEN, &json!("sign_in_needed")), "{body}");
    assert_eq!(service.get("/readyz").await.1["tools"], 2, "the tools stay listed");
    sign_in(&service, "anna", "whoami").await;
    assert_eq!(whoami(&service, "anna").await, "anna");
}

/// A revoked key leaves no valid token behind, and its name gives a later key nothing.
#[tokio::test(flavor = "multi_thread")]
async fn the_tokens_of_a_revoked_key_are_revoked() {
    let world = world::start();
    let service = service(&world).await;
    first_sign_in(&service, "anna").await;
    let call = async |key: &str| answer(with_key(&service, Method::POST, "/jira/whoami", key).json(&json!({}))).await;
    let (id, key) = create(&service, json!({"name": "ci"})).await;
    let link = call(&key).await.1["sign_in_url"].as_str().unwrap().to_owned();
    connected(&Browser::of("robot").sign_in(&service, &link).await);
    assert_eq!(call(&key).await.1["sub"], "robot");
    assert!(world.known().revoked.is_empty());
    let (status, body) = administer(&service, Method::DELETE, &format!("/v1/admin/keys/{id}"), &json!(null)).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    assert_eq!(world.known().revoked.len(), 2, "the refresh token and the access token");
    let (_, key) = create(&service, json!({"name": "ci"})).await;
    let (status, body) = call(&key).await;
    assert_eq!((status, &body["code"]), (StatusCode::FORBIDDEN, &json!("sign_in_needed")), "{body}");
    assert_eq!(whoami(&service, "anna").await, "anna");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_sign_in_leads_to_a_new_one_and_the_tools_stay() {
    let world = world::start();
    let service = service(&world).await;
    first_sign_in(&service, "anna").await;
    world.known().revoke("anna");
    let link = link(&service, "anna", "whoami").await;
    let known = connections(&service, "anna").await;
    assert_eq!(known["connections"][0]["connection"], "sign_in");
    assert!(known["connections"][0]["reason"].as_str().unwrap().contains("revoked"), "{known}");
    assert_eq!(service.get("/readyz").await.1["tools"], 2);
    connected(&Browser::of("anna").sign_in(&service, &link).await);
    assert_eq!(whoami(&service, "anna").await, "anna");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_lacks_a_permission_asks_for_it() {
    let world = world::start();
    world.known().needs = HashMap::from([("secrets".to_owned(), "admin".to_owned())]);
    let service = service(&world).await;
    first_sign_in(&service, "anna").await;
    assert_eq!(whoami(&service, "anna").await, "anna");
    sign_in(&service, "anna", "secrets").await;
    assert_eq!(world.known().authorizations.last().unwrap()["scope"], "read admin");
    let (status, body) = call(&service, "anna", "secrets").await;
    assert_eq!((status, &body["scope"]), (StatusCode::OK, &json!("read admin")), "{body}");

    // Regression test: the next sign-in requested only the configured scopes, so that it took two again, each time.
    for tool in ["secrets", "whoami"] {
        world.known().revoke("anna");
        sign_in(&service, "anna", tool).await;
        assert_eq!(world.known().authorizations.last().unwrap()["scope"], "read admin", "{tool}");
        let (status, body) = call(&service, "anna", "secrets").await;
        assert_eq!((status, &body["scope"]), (StatusCode::OK, &json!("read admin")), "{tool}: {body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_leaves_is_signed_out_everywhere() {
    let world = world::start();
    let service = service(&world).await;
    first_sign_in(&service, "anna").await;
    sign_in(&service, "bob", "whoami").await;
    let (status, body) = administer(&service, Method::DELETE, "/v1/admin/secrets/user%3Aanna", &json!(null)).await;
    assert_eq!((status, &body["sign_ins"]), (StatusCode::OK, &json!(1)), "{body}");
    assert_eq!(world.known().revoked.len(), 2, "the refresh token and the access token");
    link(&service, "anna", "whoami").await;
    assert_eq!(whoami(&service, "bob").await, "bob");

    // A person can do the same on the page.
    let mut browser = Browser::of("bob");
    let entry = connections(&service, "bob").await["link"].as_str().unwrap().to_owned();
    let page = browser.open(&service, &entry).await;
    browser.submit(&service, "/ui/me/enter", &[("link", hidden(&page.text, "link").as_str())]).await;
    let list = browser.open(&service, "/ui/me").await;
    assert!(list.text.contains(&world.issuer()), "{list:?}");
    let csrf = hidden(&list.text, "csrf");
    let page = browser.submit(&service, "/ui/me/disconnect", &[("csrf", csrf.as_str()), ("server", "jira")]).await;
    assert_eq!((page.status, page.location.as_deref()), (StatusCode::SEE_OTHER, Some("/ui/me")));
    link(&service, "bob", "whoami").await;
    assert_eq!(world.known().revoked.len(), 4);
    eventually("the audit log says so", async || {
        let (_, audit) = administer(&service, Method::GET, "/v1/admin/audit?limit=100", &json!(null)).await;
        ["sign_in", "sign_out", "user:bob"].iter().all(|word| audit.to_string().contains(word))
    })
    .await;
}

/// Regression test: a sign-in whose tokens came after its person or key was deleted stayed, with valid tokens.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_leaves_while_signing_in_stays_signed_out() {
    let world = world::start();
    let service = service(&world).await;
    first_sign_in(&service, "bob").await;
    let (id, key) = create(&service, json!({"name": "ci"})).await;
    let of_key = answer(with_key(&service, Method::POST, "/jira/whoami", &key).json(&json!({}))).await.1["sign_in_url"].take();
    for (link, leave) in [
        (link(&service, "anna", "whoami").await, "/v1/admin/secrets/user%3Aanna".to_owned()),
        (of_key.as_str().unwrap().to_owned(), format!("/v1/admin/keys/{id}")),
    ] {
        let requests = world.known().token_requests.len();
        let revoked = world.known().revoked.len();
        let permits = Arc::new(Semaphore::new(0));
        world.lie(Lies { tokens_wait: Some(Arc::clone(&permits)), ..Lies::default() });
        let leaving = async {
            eventually("the code was sent", async || world.known().token_requests.len() > requests).await;
            let (status, body) = administer(&service, Method::DELETE, &leave, &json!(null)).await;
            assert_eq!(status, StatusCode::OK, "{body}");
            permits.add_permits(1);
        };
        let mut browser = Browser::of("anna");
        let (page, ()) = tokio::join!(browser.sign_in(&service, &link), leaving);
        assert_eq!(page.status, StatusCode::FORBIDDEN, "{page:?}");
        assert!(page.text.contains("Nothing was stored"), "{page:?}");
        assert_eq!(world.known().revoked.len(), revoked + 2, "the refresh token and the access token");
    }
    assert_eq!(connections(&service, "anna").await["connections"][0]["connection"], "sign_in");
    assert_eq!(whoami(&service, "bob").await, "bob");
}

/// The attacks of RFC 9700 on the client.
#[tokio::test(flavor = "multi_thread")]
async fn answers_that_belong_to_nobody_here_are_refused() {
    let world = world::start();
    let service = service(&world).await;
    first_sign_in(&service, "anna").await;
    let refused = |page: &Page, words: &str| {
        assert_eq!(page.status, StatusCode::FORBIDDEN, "{page:?}");
        assert!(page.text.contains(words) && page.location.is_none(), "{page:?}");
    };
    let not_begun = "was not begun here";

    // The code of another person: Mallory signs in, and sends Bob the address to which Mallory was sent back.
    let (mut mallory, mut bob) = (Browser::of("mallory"), Browser::of("bob"));
    let page = mallory.reach_issuer(&service, &link(&service, "mallory", "whoami").await).await;
    let of_mallory = mallory.at_issuer(&page).await;
    refused(&bob.open(&service, &of_mallory).await, "link is used");
    let page = bob.reach_issuer(&service, &link(&service, "bob", "whoami").await).await;
    let of_bob = bob.at_issuer(&page).await;
    refused(&bob.open(&service, &of_mallory).await, not_begun);
    // Bob's own sign-in with the code of Mallory: the proof key doesn't fit.
    let code = |address: &str| address.split("code=").nth(1).unwrap().split('&').next().unwrap().to_owned();
    let mixed = of_bob.replace(&code(&of_bob), &code(&of_mallory));
    let page = bob.open(&service, &mixed).await;
    assert_eq!(page.status, StatusCode::BAD_GATEWAY, "{page:?}");
    assert!(page.text.contains("invalid_grant") && page.text.contains("Nothing was stored"), "{page:?}");
    // The state of that attempt is used.
    refused(&bob.open(&service, &of_bob).await, not_begun);
    assert_eq!(connections(&service, "bob").await["connections"][0]["connection"], "sign_in");

    // A replayed answer.
    let mut bob = Browser::of("bob");
    let page = bob.reach_issuer(&service, &link(&service, "bob", "whoami").await).await;
    let back = bob.at_issuer(&page).await;
    connected(&bob.open(&service, &back).await);
    refused(&bob.open(&service, &back).await, not_begun);
    assert_eq!(whoami(&service, "bob").await, "bob");

    // An answer of another authorization server, or of one that doesn't say which it is.
    for answers_as in ["https://evil.example", ""] {
        world.lie(Lies { answers_as: Some(answers_as.to_owned()), ..Lies::default() });
        let before = world.known().token_requests.len();
        let page = Browser::of("carl").sign_in(&service, &link(&service, "carl", "whoami").await).await;
        refused(&page, "another authorization server");
        assert_eq!(world.known().token_requests.len(), before, "no code is sent anywhere");
    }
    world.lie(Lies::default());

    // Somebody who says no.
    let page = Browser::of("nobody").sign_in(&service, &link(&service, "nobody", "whoami").await).await;
    refused(&page, "cancelled or denied");
}

/// Removes all links from the database, as if another replica had opened them.
async fn forget_links(folder: &TempDir) {
    let path = folder.path().join("data/toolsieve.db");
    let mut database = sqlx::SqliteConnection::connect(path.to_str().unwrap()).await.unwrap();
    sqlx::query("DELETE FROM connect_visit WHERE kind = 'link'").execute(&mut database).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_is_for_one_person_and_works_once() {
    let world = world::start();
    let service = service(&world).await;
    first_sign_in(&service, "anna").await;
    let bobs = link(&service, "bob", "whoami").await;
    assert_eq!(link(&service, "bob", "whoami").await, bobs, "repeated calls get the same link");
    forget_links(&service.folder).await;
    let bobs = {
        let new = link(&service, "bob", "whoami").await;
        assert_ne!(new, bobs, "another replica has opened the former one");
        new
    };
    let (entry, signed) = bobs.split_once("link=").unwrap();
    let (id, signature) = signed.split_once('.').unwrap();
    let other = if signature.starts_with('A') { "B" } else { "A" };
    for wrong in [format!("{id}.{other}{}", &signature[1..]), format!("{id}."), id.to_owned(), format!("x{id}.{signature}"), String::new()]
    {
        let page = Browser::of("bob").open(&service, &format!("{entry}link={wrong}")).await;
        assert_eq!(page.status, StatusCode::FORBIDDEN, "{wrong}: {page:?}");
        let page = Browser::of("bob").submit(&service, "/ui/me/enter", &[("link", wrong.as_str())]).await;
        assert_eq!((page.status, page.text.contains("no longer valid")), (StatusCode::FORBIDDEN, true), "{wrong}");
    }
    // Only a form uses the link: a program that looks at it doesn't.
    for _ in 0..2 {
        let page = Browser::of("bob").open(&service, &bobs).await;
        assert!(page.text.contains("<strong>bob</strong>"), "{page:?}");
    }
    let mut bob = Browser::of("bob");
    let page = bob.reach_issuer(&service, &bobs).await;
    assert!(next(&page).starts_with(&world.issuer()), "{page:?}");
    let again = Browser::of("bob").submit(&service, "/ui/me/enter", &[("link", signed)]).await;
    assert_eq!(again.status, StatusCode::FORBIDDEN);
    assert_ne!(link(&service, "bob", "whoami").await, bobs, "a used link is not given again");

    // Without a session nothing is shown, and a form without the session's own token does nothing.
    assert_eq!(Browser::of("bob").open(&service, "/ui/me").await.status, StatusCode::FORBIDDEN);
    let list = bob.open(&service, "/ui/me").await;
    let csrf = hidden(&list.text, "csrf");
    for (path, form) in [
        ("/ui/me/connect", vec![("server", "jira")]),
        ("/ui/me/disconnect", vec![("server", "jira"), ("csrf", "x")]),
        ("/ui/me/connect", vec![("server", "jira"), ("csrf", csrf.as_str()), ("csrf", csrf.as_str())]),
    ] {
        assert_eq!(bob.submit(&service, path, &form).await.status, StatusCode::FORBIDDEN, "{path}");
    }
    let page = bob.submit(&service, "/ui/me/connect", &[("server", "other"), ("csrf", csrf.as_str())]).await;
    assert_eq!(page.status, StatusCode::NOT_FOUND, "{page:?}");
    // Another program on the same host may have set a cookie of the same name, which browsers send first if its path is longer.
    let own = bob.cookie.clone().unwrap();
    bob.cookie = Some(format!("toolsieve_me=x; {own}"));
    assert_eq!(bob.open(&service, "/ui/me").await.status, StatusCode::OK);
    bob.cookie = Some(own);
    // No parameter decides where a person is sent.
    let page = bob.open(&service, "/ui/me?next=https://evil.example&redirect_uri=https://evil.example").await;
    assert!(page.location.is_none() && !page.text.contains("evil"), "{page:?}");
    // A form of another site is refused before it is read.
    let foreign = service.client.post(format!("{}/ui/me/disconnect", service.url)).header("cookie", bob.cookie.clone().unwrap());
    let foreign = posted(foreign.header("origin", "https://evil.example"), &[("csrf", csrf.as_str()), ("server", "jira")]);
    assert_eq!(answer(foreign).await.1["code"], "foreign_origin");
    // Strangers may send forms, but only small ones.
    let large = service.client.post(format!("{}/ui/me/enter", service.url)).header("origin", PUBLIC).body("x".repeat(5_000));
    assert_eq!(answer(large).await.1["code"], "body_too_large");
}

/// What a server does wrong.
type Misbehave = fn(&Data<World>) -> Lies;

#[tokio::test(flavor = "multi_thread")]
async fn bad_servers_get_no_code_and_leave_nothing_behind() {
    let elsewhere = |world: &Data<World>| format!("{}/token", world.mcp());
    let cases: [(&str, Value, Misbehave); 10] = [
        ("name another issuer", json!("oauth"), |_| Lies { metadata: vec![("issuer", json!("https://evil.example"))], ..Lies::default() }),
        ("describe another resource", json!("oauth"), |_| Lies {
            resource: vec![("resource", json!("https://evil.example/mcp"))],
            ..Lies::default()
        }),
        ("the issuer is not an address", json!("oauth"), |_| Lies {
            resource: vec![("authorization_servers", json!(["https://issuer.example/a\u{0}\u{202e}b"]))],
            ..Lies::default()
        }),
        ("is not https", json!("oauth"), |_| Lies {
            metadata: vec![("token_endpoint", json!("http://evil.example/token"))],
            ..Lies::default()
        }),
        ("is not https", json!("oauth"), |_| Lies {
            metadata: vec![("authorization_endpoint", json!("javascript:alert(1)//\"><script>"))],
            ..Lies::default()
        }),
        ("PKCE", json!("oauth"), |_| Lies { metadata: vec![("code_challenge_methods_supported", json!(["plain"]))], ..Lies::default() }),
        ("larger than 65536 bytes", json!("oauth"), |_| Lies { large: true, ..Lies::default() }),
        ("did not answer within 10 s", json!("oauth"), |_| Lies { hangs: true, ..Lies::default() }),
        ("private", json!({"type": "oauth", "private_addresses": false}), |_| Lies::default()),
        ("register", json!("oauth"), |_| Lies { metadata: vec![("registration_endpoint", Value::Null)], ..Lies::default() }),
    ];
    for (words, auth, lies) in cases {
        let world = world::start();
        world.lie(lies(&world));
        let service = start(servers(&world, &auth), None).await;
        let (_, page) = connect(&service, "anna").await;
        assert_eq!(page.status, StatusCode::BAD_GATEWAY, "{words}: {page:?}");
        assert!(page.text.contains(words) && !page.text.contains("<script"), "{words}: {page:?}");
        let ready = service.get("/readyz").await.1;
        assert!(ready["servers"][0]["error"].as_str().unwrap().contains(words), "{words}: {ready}");
        let known = connections(&service, "anna").await;
        assert_eq!((&known["connections"][0]["connection"], &known["connections"][0]["issuer"]), (&json!("sign_in"), &Value::Null));
        assert!(world.known().token_requests.is_empty() && world.known().authorizations.is_empty(), "{words}");
    }

    // A token endpoint that sends the code elsewhere.
    let world = world::start();
    let service = service(&world).await;
    world.lie(Lies { redirect: Some(elsewhere(&world)), ..Lies::default() });
    let (mut browser, page) = connect(&service, "anna").await;
    let back = browser.at_issuer(&page).await;
    let page = browser.open(&service, &back).await;
    assert_eq!(page.status, StatusCode::BAD_GATEWAY, "{page:?}");
    assert!(page.text.contains("redirects the request"), "{page:?}");
    assert_eq!(world.known().token_requests.len(), 1);
    assert_eq!(connections(&service, "anna").await["connections"][0]["connection"], "sign_in");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_sign_in_can_serve_all_users() {
    let world = world::start();
    let service = start(servers(&world, &json!({"type": "oauth", "for": "all"})), None).await;
    let (status, body) = administer(&service, Method::GET, "/v1/connections", &json!(null)).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    assert_eq!(connections(&service, "anna").await["connections"], json!([]), "users sign in nowhere");
    let mut admin = Browser::of("team");
    let page = admin.open(&service, body["link"].as_str().unwrap()).await;
    admin.submit(&service, "/ui/me/enter", &[("link", hidden(&page.text, "link").as_str())]).await;
    let csrf = hidden(&admin.open(&service, "/ui/me").await.text, "csrf");
    let page = admin.submit(&service, "/ui/me/connect", &[("csrf", csrf.as_str()), ("server", "jira")]).await;
    let back = admin.at_issuer(&page).await;
    connected(&admin.open(&service, &back).await);
    service.until(|ready| ready["tools"] == 2).await;
    assert_eq!((whoami(&service, "anna").await, whoami(&service, "bob").await), (json!("team"), json!("team")));

    world.known().revoke("team");
    let (status, body) = call(&service, "anna", "whoami").await;
    assert_eq!((status, &body["code"]), (StatusCode::FORBIDDEN, &json!("sign_in_needed")));
    assert!(body["sign_in_url"].is_null() && body["detail"].as_str().unwrap().contains("administrator"), "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_signs_in_by_itself() {
    let world = world::start();
    let auth = json!({"type": "oauth", "for": "machine", "client_id": "robot", "client_secret": "s3cret"});
    let service = start(servers(&world, &auth), None).await;
    service.until(|ready| ready["tools"] == 2).await;
    assert_eq!(whoami(&service, "anna").await, "robot");
    // It needs no user, and a token that ends is replaced.
    world.known().expire();
    let (status, body) = answer(service.request(Method::POST, "/jira/whoami").json(&json!({}))).await;
    assert_eq!((status, &body["sub"]), (StatusCode::OK, &json!("robot")), "{body}");
    assert_eq!(connections(&service, "anna").await["connections"], json!([]));

    // A rotated secret counts for the stored token too.
    world.known().robot_secret = "rotated";
    world.known().expire();
    let (status, body) = call(&service, "anna", "whoami").await;
    assert_eq!((status, &body["code"]), (StatusCode::SERVICE_UNAVAILABLE, &json!("server_unavailable")), "{body}");
    let auth = json!({"type": "oauth", "for": "machine", "client_id": "robot", "client_secret": "rotated"});
    let service = start(servers(&world, &auth), Some(service.stop().await)).await;
    assert_eq!(whoami(&service, "anna").await, "robot");
    // And so does another resource: the stored token is for the former one, and nobody could delete it.
    let auth =
        json!({"type": "oauth", "for": "machine", "client_id": "robot", "client_secret": "rotated", "resource": "https://other.example"});
    let service = start(servers(&world, &auth), Some(service.stop().await)).await;
    let (status, body) = call(&service, "anna", "whoami").await;
    assert_eq!(world.known().token_requests.last().unwrap()["resource"], "https://other.example");
    // Regression test: it asked for an administrator's sign-in, which does not exist here.
    assert_eq!((status, &body["code"]), (StatusCode::SERVICE_UNAVAILABLE, &json!("server_unavailable")), "{body}");
    assert!(body["detail"].as_str().unwrap().contains("rejects the token that the authorization server issued"), "{body}");

    // With a wrong secret, callers and administrators get the reason.
    let wrong = json!({"type": "oauth", "for": "machine", "client_id": "robot", "client_secret": "wrong"});
    let service = start(servers(&world, &wrong), None).await;
    let error = |ready: &Value| ready["servers"][0]["error"].as_str().is_some_and(|error| error.contains("invalid_client"));
    service.until(error).await;
}

/// Regression test: its further tokens had only the configured permissions.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_requests_the_permissions_that_its_calls_lack() {
    let world = world::start();
    world.known().needs = HashMap::from([("secrets".to_owned(), "admin".to_owned())]);
    let auth = json!({"type": "oauth", "for": "machine", "client_id": "robot", "client_secret": "s3cret"});
    let service = start(servers(&world, &auth), None).await;
    service.until(|ready| ready["tools"] == 2).await;
    for _ in 0..2 {
        let (status, body) = call(&service, "anna", "secrets").await;
        assert_eq!((status, &body["scope"]), (StatusCode::OK, &json!("read admin")), "{body}");
        // The next token has them too.
        world.known().expire();
    }
    world.known().needs = HashMap::from([("secrets".to_owned(), "more".to_owned()), ("whoami".to_owned(), "read".to_owned())]);
    world.known().robot_scope = Some("read");
    let (status, body) = call(&service, "anna", "secrets").await;
    assert_eq!((status, &body["code"]), (StatusCode::SERVICE_UNAVAILABLE, &json!("server_unavailable")), "{body}");
    assert!(body["detail"].as_str().unwrap().contains("more permissions than the authorization server grants: more"), "{body}");
    assert_eq!(whoami(&service, "anna").await, "robot");
}

/// Regression test: a call with an expired token was sent only once more, so a permission that it lacked too was never requested.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_with_an_expired_token_may_lack_a_permission_too() {
    let world = world::start();
    world.known().needs = HashMap::from([("secrets".to_owned(), "admin".to_owned())]);
    let auth = json!({"type": "oauth", "for": "machine", "client_id": "robot", "client_secret": "s3cret"});
    let service = start(servers(&world, &auth), None).await;
    service.until(|ready| ready["tools"] == 2).await;
    world.known().expire();
    let (status, body) = call(&service, "anna", "secrets").await;
    assert_eq!((status, &body["scope"]), (StatusCode::OK, &json!("read admin")), "{body}");
    // What the authorization server never grants is not requested for ever.
    world.known().needs = HashMap::from([("secrets".to_owned(), "more".to_owned())]);
    world.known().robot_scope = Some("read");
    world.known().expire();
    let before = world.known().token_requests.len();
    let (status, body) = call(&service, "anna", "secrets").await;
    assert_eq!((status, &body["code"]), (StatusCode::SERVICE_UNAVAILABLE, &json!("server_unavailable")), "{body}");
    assert_eq!(world.known().token_requests.len(), before + 2);
}

/// Regression test: one authorization server without an answer kept the tools of all others away.
#[tokio::test(flavor = "multi_thread")]
async fn an_authorization_server_that_hangs_delays_no_other_server() {
    let (hanging, world) = (world::start(), world::start());
    hanging.lie(Lies { hangs: true, ..Lies::default() });
    let auth = json!({"type": "oauth", "for": "machine", "client_id": "robot", "client_secret": "s3cret"});
    let mut all = servers(&world, &auth);
    // They are asked in any order.
    for number in 0..4 {
        all[format!("hanging{number}")] = servers(&hanging, &auth)["jira"].take();
    }
    let service = start(all, None).await;
    // Its metadata are given up after 10 seconds.
    timeout(Duration::from_secs(8), service.until(|ready| ready["tools"] == 2)).await.expect("the others are listed at once");
}

/// Calls wait for a token neither longer than for a result, nor one after the other.
#[tokio::test(flavor = "multi_thread")]
async fn calls_do_not_queue_behind_an_authorization_server_that_fails() {
    let world = world::start();
    let mut servers = servers(&world, &json!({"type": "oauth", "for": "machine", "client_id": "robot", "client_secret": "wrong"}));
    servers["jira"]["listWith"] = json!({"Authorization": format!("Bearer {}", world.known().reader())});
    let service = Arc::new(start(servers.clone(), None).await);
    service.until(|ready| ready["tools"] == 2).await;
    let before = world.known().token_requests.len();
    let calls = (0..20).map(|_| {
        let service = Arc::clone(&service);
        async move { call(&service, "anna", "whoami").await }
    });
    for (status, body) in join_all(calls).await {
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{body}");
        assert!(body["detail"].as_str().unwrap().contains("invalid_client"), "{body}");
    }
    // A second one if the calls take longer than a failure counts.
    let requests = world.known().token_requests.len() - before;
    assert!(requests <= 2, "{requests} requests");

    world.lie(Lies { hangs: true, ..Lies::default() });
    servers["jira"]["timeout"] = json!(1);
    let service = start(servers, None).await;
    service.until(|ready| ready["tools"] == 2).await;
    let (status, body) = call(&service, "anna", "whoami").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{body}");
    assert!(body["detail"].as_str().unwrap().contains("within 1 s"), "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_can_show_an_address_is_asked_to() {
    let world = world::start();
    let service = service(&world).await;
    first_sign_in(&service, "anna").await;
    let mcp = async |user: &str, session: Option<&str>, message: Value| {
        let request = of(&service, user, Method::POST, "/mcp?mode=full").header("accept", "application/json, text/event-stream");
        let request = session.into_iter().fold(request, |request, id| request.header("mcp-session-id", id));
        request.json(&message).send().await.unwrap()
    };
    for (elicitation, is_asked) in [(json!({"url": {}}), true), (json!({"form": {}}), false)] {
        let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {"elicitation": elicitation}, "clientInfo": {"name": "t", "version": "1"},
        }});
        let response = mcp("bob", None, hello).await;
        let id = response.headers()["mcp-session-id"].to_str().unwrap().to_owned();
        mcp("bob", Some(&id), json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "jira__whoami", "arguments": {}}});
        let text = mcp("bob", Some(&id), call).await.text().await.unwrap();
        assert!(text.contains(PUBLIC), "{text}");
        assert_eq!(text.contains("-32042"), is_asked, "{text}");
        assert_eq!(text.contains("\"isError\":true"), !is_asked, "{text}");
    }
}
