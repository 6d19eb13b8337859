//! A person's own page, `/ui/me`: the switch of the selection, what was learned from the person, and secrets.

use std::collections::BTreeSet;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::world::{Browser, PUBLIC, Page, hidden};
use super::{KEY, answer, connections, of};
use crate::harness::keys::{self, ADMIN, administer, create, with_key};
use crate::harness::servers::http::HttpServer;
use crate::harness::wait::{eventually, when};
use crate::harness::{Running, Start, example, stdio};

const MESSAGE: &str = "what time is it in Tokyo";

async fn start(servers: Value, folder: Option<TempDir>, more: &[(&'static str, &'static str)]) -> Running {
    let environment = [("TOOLSIEVE_ACCESS__TRUST_USERS", "true"), ("TOOLSIEVE_ADMIN_KEY", ADMIN), ("TOOLSIEVE_HTTP__PUBLIC_URL", PUBLIC)];
    let environment = environment.into_iter().chain(more.iter().copied()).collect();
    let running = Start { servers, key: Some(keys::KEY), folder, environment, ..Start::default() }.start().await;
    running.settled().await;
    running
}

fn servers() -> Value {
    json!({"time": stdio(&["list=time"]), "mail": stdio(&["list=mail"]), "files": stdio(&["list=files"])})
}

/// A browser in a person's own session.
async fn entered(service: &Running, person: &str) -> Browser {
    let link = connections(service, person).await["link"].as_str().unwrap().to_owned();
    let mut browser = Browser::of(person);
    let page = browser.open(service, &link).await;
    let entered = browser.submit(service, "/ui/me/enter", &[("link", hidden(&page.text, "link").as_str())]).await;
    assert_eq!(entered.location.as_deref(), Some("/ui/me"), "{entered:?}");
    browser
}

/// Sends a form of the page with the token of its session.
async fn send(service: &Running, browser: &mut Browser, path: &str, form: &[(&str, &str)]) -> Page {
    let page = browser.open(service, "/ui/me").await;
    let csrf = hidden(&page.text, "csrf");
    browser.submit(service, path, &[&[("csrf", csrf.as_str())], form].concat()).await
}

async fn filter(service: &Running, user: &str) -> Value {
    let body = json!({"messages": [{"role": "user", "content": MESSAGE}]});
    let (status, answer) = answer(of(service, user, Method::POST, "/v1/filter").json(&body)).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    answer
}

fn names(answer: &Value) -> BTreeSet<&str> {
    answer["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

fn keeps_all(answer: &Value) -> bool {
    let is_why = |tool: &Value| tool["reason"].as_str().unwrap().contains("switched the selection off");
    let tools = answer["tools"].as_array().unwrap();
    tools.iter().filter(|tool| tool["server"].is_string()).all(is_why) && answer["tokens"]["after"] == answer["tokens"]["before"]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_switches_the_selection_off_for_every_client() {
    let service = start(servers(), None, &[]).await;
    let selected = filter(&service, "anna").await;
    assert!(!keeps_all(&selected), "{selected}");
    let mut browser = entered(&service, "anna").await;
    let page = browser.open(&service, "/ui/me").await;
    assert!(page.text.contains("The selection is on for you.") && !page.text.contains("<script"), "{page:?}");
    let forged = browser.submit(&service, "/ui/me/selection", &[("csrf", "of somebody else"), ("selection", "off")]).await;
    assert_eq!(forged.status, StatusCode::FORBIDDEN);
    let wrong = send(&service, &mut browser, "/ui/me/selection", &[("selection", "maybe")]).await;
    assert_eq!(wrong.status, StatusCode::UNPROCESSABLE_ENTITY, "{wrong:?}");
    assert_eq!(names(&filter(&service, "anna").await), names(&selected), "nothing has changed");

    let done = send(&service, &mut browser, "/ui/me/selection", &[("selection", "off")]).await;
    assert_eq!((done.status, done.location.as_deref()), (StatusCode::SEE_OTHER, Some("/ui/me?done=saved")));
    let page = browser.open(&service, "/ui/me?done=saved").await;
    assert!(page.text.contains("You have switched the selection off.") && page.text.contains("Your change is saved."), "{page:?}");
    let all = filter(&service, "anna").await;
    assert!(keeps_all(&all) && all["needs_tool"] == true && names(&all).len() > names(&selected).len(), "{all}");
    assert_eq!(names(&filter(&service, "ben").await), names(&selected), "others are as before");
    // Whatever client names the person.
    let (_, other) = create(&service, json!({"name": "other", "trusted": true})).await;
    let body = json!({"messages": [{"role": "user", "content": MESSAGE}], "user": {"id": "anna"}});
    let response = with_key(&service, Method::POST, "/v1/filter", &other).json(&body).send().await.unwrap();
    assert!(keeps_all(&response.json().await.unwrap()));
    let metrics = with_key(&service, Method::GET, "/metrics", ADMIN).send().await.unwrap().text().await.unwrap();
    assert!(metrics.contains("toolsieve_selections_total{kind=\"switched_off\"} 2"), "{metrics}");
    // An explanation says why, and what would be selected.
    let body = json!({"messages": [{"role": "user", "content": MESSAGE}], "as": {"principal": "user:anna"}});
    let (_, explained) = administer(&service, Method::POST, "/v1/filter?explain=true", &body).await;
    assert!(keeps_all(&explained) && !explained["explain"]["candidates"].as_array().unwrap().is_empty(), "{explained}");
    let kept = explained["explain"]["kept"].as_array().unwrap();
    assert!(kept.iter().any(|kept| kept["reason"].as_str().unwrap().contains("switched the selection off")), "{explained}");

    // A restart keeps it, until the person, or the end of the person's data, switches it on again.
    let service = start(servers(), Some(service.stop().await), &[]).await;
    assert!(keeps_all(&filter(&service, "anna").await));
    let mut browser = entered(&service, "anna").await;
    send(&service, &mut browser, "/ui/me/selection", &[("selection", "on")]).await;
    assert_eq!(names(&filter(&service, "anna").await), names(&selected));
    send(&service, &mut browser, "/ui/me/selection", &[("selection", "off")]).await;
    let (_, forgotten) = administer(&service, Method::DELETE, "/v1/admin/secrets/user:anna", &json!({})).await;
    assert_eq!(forgotten["switches"], 1, "{forgotten}");
    assert_eq!(names(&filter(&service, "anna").await), names(&selected));
    let of_anna = async || {
        let (_, audit) = administer(&service, Method::GET, "/v1/admin/audit?action=switch_off", &json!({})).await;
        let entries = audit["entries"].as_array().unwrap();
        entries.iter().filter(|entry| entry["principal"] == "user:anna" && entry["subject"] == "narrowing").count()
    };
    eventually("both changes are in the audit log", async || when(of_anna().await, |count| *count == 2)).await;
}

/// The next key with this name belongs to somebody else.
#[tokio::test(flavor = "multi_thread")]
async fn a_switch_ends_with_its_key() {
    let service = start(servers(), None, &[]).await;
    let (id, key) = create(&service, json!({"name": "bot"})).await;
    let link = with_key(&service, Method::GET, "/v1/connections", &key).send().await.unwrap().json::<Value>().await.unwrap();
    let mut browser = Browser::of("bot");
    let page = browser.open(&service, link["link"].as_str().unwrap()).await;
    browser.submit(&service, "/ui/me/enter", &[("link", hidden(&page.text, "link").as_str())]).await;
    send(&service, &mut browser, "/ui/me/selection", &[("selection", "off")]).await;
    let body = json!({"messages": [{"role": "user", "content": MESSAGE}]});
    let is_off = async |key: &str| {
        let response = with_key(&service, Method::POST, "/v1/filter", key).json(&body).send().await.unwrap();
        keeps_all(&response.json().await.unwrap())
    };
    assert!(is_off(&key).await);
    administer(&service, Method::DELETE, &format!("/v1/admin/keys/{id}"), &json!({})).await;
    let (_, next) = create(&service, json!({"name": "bot"})).await;
    assert!(!is_off(&next).await);
    assert_eq!(browser.open(&service, "/ui/me").await.status, StatusCode::FORBIDDEN, "its session has ended, too");
}

/// Regression test: a link and its session went on after the key with which the link was requested, and could replace secrets.
#[tokio::test(flavor = "multi_thread")]
async fn a_link_and_its_session_end_with_the_key() {
    let service = start(servers(), None, &[]).await;
    let (id, first) = create(&service, json!({"name": "webui", "trusted": true})).await;
    let link = async |key: &str| {
        let request = with_key(&service, Method::GET, "/v1/connections", key).header("X-OpenWebUI-User-Id", "anna");
        answer(request).await.1["link"].as_str().unwrap().to_owned()
    };
    let enter = async |link: &str| {
        let mut browser = Browser::of("anna");
        let page = browser.open(&service, link).await;
        let entered = browser.submit(&service, "/ui/me/enter", &[("link", hidden(&page.text, "link").as_str())]).await;
        assert_eq!(entered.location.as_deref(), Some("/ui/me"), "{entered:?}");
        browser
    };
    // Nobody has opened the second link.
    let mut browser = enter(&link(&first).await).await;
    let csrf = hidden(&browser.open(&service, "/ui/me").await.text, "csrf");
    let unused = link(&first).await;
    let of_service_key = connections(&service, "anna").await["link"].as_str().unwrap().to_owned();
    assert_ne!(unused, of_service_key, "each key has its own link");

    let (status, rotated) = administer(&service, Method::POST, &format!("/v1/admin/keys/{id}/rotate"), &json!({})).await;
    assert_eq!(status, StatusCode::OK, "{rotated}");
    let second = rotated["key"].as_str().unwrap();
    let ended = [
        browser.open(&service, "/ui/me").await,
        browser.submit(&service, "/ui/me/selection", &[("csrf", csrf.as_str()), ("selection", "off")]).await,
        Browser::of("anna").open(&service, &unused).await,
        Browser::of("anna").submit(&service, "/ui/me/enter", &[("link", unused.split("link=").nth(1).unwrap())]).await,
    ];
    assert!(ended.iter().all(|page| page.status == StatusCode::FORBIDDEN), "{ended:?}");
    assert!(!keeps_all(&filter(&service, "anna").await), "nothing has changed");

    let mut browser = enter(&link(second).await).await;
    let unused = link(second).await;
    assert_eq!(administer(&service, Method::DELETE, &format!("/v1/admin/keys/{id}"), &json!({})).await.0, StatusCode::OK);
    assert_eq!(browser.open(&service, "/ui/me").await.status, StatusCode::FORBIDDEN);
    assert_eq!(Browser::of("anna").open(&service, &unused).await.status, StatusCode::FORBIDDEN);
    enter(&of_service_key).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_sees_and_forgets_what_was_learned_from_them_alone() {
    let servers = json!({"left": stdio(&["list=small"]), "right": stdio(&["list=small"]), "mail": stdio(&["list=mail"])});
    let environment = [("TOOLSIEVE_LEARNING__MODE", "auto"), ("TOOLSIEVE_SELECTION__GATE", "false")];
    let service = start(servers, None, &environment).await;
    let message = "please say the arguments again, those of order 7";
    for (user, tool) in [("anna", "/right/echo"), ("ben", "/left/echo"), ("ben", "/mail/send_email")] {
        let body = json!({"messages": [{"role": "user", "content": message}], "chat_id": user});
        assert_eq!(answer(of(&service, user, Method::POST, "/v1/filter").json(&body)).await.0, StatusCode::OK);
        let body =
            if tool.ends_with("echo") { json!({"text": "a"}) } else { json!({"to": ["a@example.org"], "subject": "a", "body": "b"}) };
        let call = of(&service, user, Method::POST, tool).header("X-OpenWebUI-Chat-Id", user).json(&body);
        let (status, answered) = answer(call).await;
        assert!(status == StatusCode::OK || status == StatusCode::UNPROCESSABLE_ENTITY, "{tool}: {answered}");
    }
    let mut browser = entered(&service, "anna").await;
    let page = browser.open(&service, "/ui/me").await;
    assert!(page.text.contains("right/echo") && !page.text.contains("mail/send_email") && !page.text.contains("order 7"), "{page:?}");
    // A tool that the person may no longer use has no name. It can still be forgotten.
    let rules = json!({"rules": [{"effect": "block", "servers": ["right"], "principals": ["user:anna"]}]});
    assert_eq!(administer(&service, Method::PUT, "/v1/admin/policy", &rules).await.0, StatusCode::OK);
    let page = browser.open(&service, "/ui/me").await;
    assert!(!page.text.contains("right/echo") && page.text.contains("a tool that you can't use at present"), "{page:?}");
    let question = browser.open(&service, "/ui/me/forget").await;
    assert!(question.status == StatusCode::OK && question.text.contains("can't be undone"), "{question:?}");
    let forged = browser.submit(&service, "/ui/me/forget", &[("csrf", "wrong")]).await;
    assert_eq!(forged.status, StatusCode::FORBIDDEN);
    let scopes = async || administer(&service, Method::GET, "/v1/admin/learning", &json!({})).await.1["scopes"].to_string();
    assert!(scopes().await.contains("user:anna"));
    let csrf = hidden(&question.text, "csrf");
    let done = browser.submit(&service, "/ui/me/forget", &[("csrf", csrf.as_str())]).await;
    assert_eq!(done.location.as_deref(), Some("/ui/me?done=forgotten"), "{done:?}");
    let page = browser.open(&service, "/ui/me?done=forgotten").await;
    assert!(page.text.contains("Nothing was learned from you yet.") && page.text.contains("is forgotten."), "{page:?}");
    let left = scopes().await;
    assert!(!left.contains("user:anna") && left.contains("user:ben"), "{left}");
    assert!(entered(&service, "ben").await.open(&service, "/ui/me").await.text.contains("left/echo"));
}

/// Regression test: the page of a link that was requested with one key showed and deleted what users of other keys had taught.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_shows_and_forgets_only_what_came_with_its_key() {
    let servers = json!({"left": stdio(&["list=small"]), "right": stdio(&["list=small"])});
    let service = start(servers, None, &[("TOOLSIEVE_LEARNING__MODE", "auto"), ("TOOLSIEVE_SELECTION__GATE", "false")]).await;
    let mut keys = Vec::new();
    for name in ["acme", "beta", "gamma"] {
        keys.push(create(&service, json!({"name": name, "trusted": true})).await.1);
    }
    let request = |key: &str, method: Method, path: &str| with_key(&service, method, path, key).header("X-OpenWebUI-User-Id", "anna");
    for (key, server) in [(&keys[0], "right"), (&keys[1], "left")] {
        let tool = &format!("/{server}/echo");
        // If the other server's tool were offered first, the call would be evidence against it.
        let tools = ["echo", "sleep"].map(|tool| format!("{server}__{tool}"));
        let message = json!({"role": "user", "content": "please say the arguments again, those of order 7"});
        let body = json!({"messages": [message], "chat_id": "a", "tools": tools});
        assert_eq!(answer(request(key, Method::POST, "/v1/filter").json(&body)).await.0, StatusCode::OK);
        let call = request(key, Method::POST, tool).header("X-OpenWebUI-Chat-Id", "a").json(&json!({"text": "a"}));
        let (status, answered) = answer(call).await;
        assert_eq!(status, StatusCode::OK, "{tool}: {answered}");
    }
    let mut browsers = Vec::new();
    for key in &keys {
        let link = answer(request(key, Method::GET, "/v1/connections")).await.1["link"].as_str().unwrap().to_owned();
        let mut browser = Browser::of("anna");
        let page = browser.open(&service, &link).await;
        browser.submit(&service, "/ui/me/enter", &[("link", hidden(&page.text, "link").as_str())]).await;
        browsers.push(browser);
    }
    let shown = async |browser: &mut Browser| {
        let page = browser.open(&service, "/ui/me").await;
        ["right/echo", "left/echo"].map(|tool| page.text.contains(tool))
    };
    for (browser, expected) in browsers.iter_mut().zip([[true, false], [false, true], [false, false]]) {
        assert_eq!(shown(browser).await, expected);
    }
    let forget = async |browser: &mut Browser| {
        let csrf = hidden(&browser.open(&service, "/ui/me/forget").await.text, "csrf");
        let done = browser.submit(&service, "/ui/me/forget", &[("csrf", csrf.as_str())]).await;
        assert_eq!(done.location.as_deref(), Some("/ui/me?done=forgotten"), "{done:?}");
    };
    // What counts for others of the key is forgotten too.
    let scopes = async || {
        let (_, learned) = administer(&service, Method::GET, "/v1/admin/learning", &json!({})).await;
        learned["scopes"].as_array().unwrap().len()
    };
    for (place, left, of_scopes) in [(2, [true, false], 4), (1, [true, false], 2), (0, [false, false], 0)] {
        forget(&mut browsers[place]).await;
        assert_eq!((shown(&mut browsers[0]).await, scopes().await), (left, of_scopes), "{place}");
        assert_eq!(shown(&mut browsers[place]).await, [false, false], "{place}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_stored_and_removed_and_never_shown() {
    let env = json!({"TOKEN": "{{secret.token}}", "WHO": "{{user.id}} {{user.name}}"});
    let web = HttpServer::start(&["list=mail"]);
    let address = format!("http://127.0.0.1:{}/mcp", web.port);
    let servers = json!({
        "mine": {"command": example("test-stdio-server"), "args": [], "env": env},
        "crm": {"type": "http", "url": address, "headers": {"X-Token": "{{secret.token}}"}},
        "time": stdio(&["list=time"])
    });
    let service = start(servers, None, &[("TOOLSIEVE_SECRETS_KEY", KEY)]).await;
    let rules = json!({"rules": [{"effect": "block", "servers": ["crm"], "principals": ["user:ben"]}]});
    let (status, problem) = administer(&service, Method::PUT, "/v1/admin/policy", &rules).await;
    assert_eq!(status, StatusCode::OK, "{problem}");

    let mut anna = entered(&service, "anna").await;
    let page = anna.open(&service, "/ui/me").await;
    assert!(page.text.contains("mine: token") && page.text.contains("crm: token") && page.text.contains("missing"), "{page:?}");
    let value = " anna value-1 ";
    let stored = send(&service, &mut anna, "/ui/me/secret", &[("server", "mine"), ("name", "token"), ("value", value)]).await;
    assert_eq!((stored.status, stored.location.as_deref()), (StatusCode::SEE_OTHER, Some("/ui/me?done=saved")), "{stored:?}");
    let (status, body) = answer(of(&service, "anna", Method::POST, "/mine/environment").json(&json!({}))).await;
    assert_eq!((status, &body["TOKEN"], &body["WHO"]), (StatusCode::OK, &json!(value), &json!("anna anna")), "{body}");
    let page = anna.open(&service, "/ui/me").await;
    assert!(page.text.contains(">stored<") && !page.text.contains("value-1"), "{page:?}");

    // What is wrong stands at the field of this secret, and the value is not repeated.
    let wrong = send(&service, &mut anna, "/ui/me/secret", &[("server", "crm"), ("name", "token"), ("value", "wörtlich-2")]).await;
    assert_eq!(wrong.status, StatusCode::UNPROCESSABLE_ENTITY, "{wrong:?}");
    let alert = wrong.text.split("role=\"alert\">").nth(1).and_then(|rest| rest.split('<').next()).unwrap();
    assert!(alert.contains("one line of ASCII") && !wrong.text.contains("rtlich-2"), "{wrong:?}");
    assert_eq!(wrong.text.matches("aria-invalid").count(), 1, "{wrong:?}");
    let empty = send(&service, &mut anna, "/ui/me/secret", &[("server", "mine"), ("name", "token"), ("value", "")]).await;
    assert!(empty.status == StatusCode::UNPROCESSABLE_ENTITY && empty.text.contains("A secret has 1 to 16384 bytes."), "{empty:?}");
    let unknown = send(&service, &mut anna, "/ui/me/secret", &[("server", "mine"), ("name", "other"), ("value", "a")]).await;
    assert_eq!(unknown.status, StatusCode::UNPROCESSABLE_ENTITY, "{unknown:?}");
    let long = "+".repeat(16_384);
    let stored = send(&service, &mut anna, "/ui/me/secret", &[("server", "mine"), ("name", "token"), ("value", &long)]).await;
    assert_eq!(stored.status, StatusCode::SEE_OTHER, "the longest secret");
    let forged = anna.submit(&service, "/ui/me/secret", &[("csrf", "x"), ("server", "mine"), ("name", "token"), ("value", "a")]).await;
    assert_eq!(forged.status, StatusCode::FORBIDDEN);

    // Ben may not know of crm, and sees nothing of anna's secrets.
    let mut ben = entered(&service, "ben").await;
    let page = ben.open(&service, "/ui/me").await;
    assert!(page.text.contains("mine: token") && !page.text.contains("crm") && !page.text.contains(">stored<"), "{page:?}");
    for server in ["crm", "none"] {
        let denied = send(&service, &mut ben, "/ui/me/secret", &[("server", server), ("name", "token"), ("value", "a")]).await;
        assert_eq!(denied.status, StatusCode::NOT_FOUND, "{server}");
    }
    let removed = send(&service, &mut ben, "/ui/me/secret/remove", &[("server", "mine"), ("name", "token")]).await;
    assert_eq!(removed.status, StatusCode::NOT_FOUND, "{removed:?}");
    let removed = send(&service, &mut anna, "/ui/me/secret/remove", &[("server", "mine"), ("name", "token")]).await;
    assert_eq!(removed.location.as_deref(), Some("/ui/me?done=removed"), "{removed:?}");
    let (_, secrets) = answer(of(&service, "anna", Method::GET, "/v1/secrets")).await;
    assert!(secrets["secrets"].as_array().unwrap().iter().all(|secret| secret["state"] == "missing"), "{secrets}");
    let audit = async || administer(&service, Method::GET, "/v1/admin/audit?limit=100", &json!({})).await.1;
    let is_whole = |audit: &Value| audit.to_string().contains("secret_remove");
    let audit = eventually("the removal is in the audit log", async || when(audit().await, is_whole)).await;
    assert!(!audit.to_string().contains("value-1"), "{audit}");
}

/// Without a key for secrets there are none, and without a session there is nothing.
#[tokio::test(flavor = "multi_thread")]
async fn the_page_shows_only_what_there_is() {
    let service = start(servers(), None, &[]).await;
    let mut browser = entered(&service, "anna").await;
    let page = browser.open(&service, "/ui/me").await;
    assert!(!page.text.contains("Your secrets") && page.text.contains("Learning is switched off."), "{page:?}");
    let (_, of_admin) = administer(&service, Method::GET, "/v1/connections", &json!(null)).await;
    assert_eq!(of_admin, json!({"connections": []}), "an administrator has no page of their own");
    let mut stranger = Browser::of("stranger");
    for path in ["/ui/me", "/ui/me/forget"] {
        assert_eq!(stranger.open(&service, path).await.status, StatusCode::FORBIDDEN, "{path}");
    }
    for path in ["/ui/me/selection", "/ui/me/forget", "/ui/me/secret", "/ui/me/secret/remove"] {
        let page = stranger.submit(&service, path, &[("csrf", "x"), ("selection", "off"), ("server", "a"), ("name", "b")]).await;
        assert_eq!(page.status, StatusCode::FORBIDDEN, "{path}");
    }
}
