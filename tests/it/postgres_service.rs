//! The whole service with its state in PostgreSQL.

use std::process::Output;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::callers::{self, Who, found, select, user};
use crate::harness::keys::{ADMIN, KEY, administer, create, with_key};
use crate::harness::process::built::toolsieve;
use crate::harness::process::{Service, write_config};
use crate::harness::servers::http::HttpServer;
use crate::harness::servers::postgres::{Postgres, schema, shared};
use crate::harness::wait::{eventually, when};
use crate::harness::{Running, Start, stdio};

fn leaked(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

/// The variables that choose a schema of the shared server.
fn on(schema: &str) -> Vec<(&'static str, &'static str)> {
    vec![("DATABASE_URL", leaked(shared().url())), ("TOOLSIEVE_STORE__SCHEMA", leaked(schema.to_owned()))]
}

async fn start(environment: Vec<(&'static str, &'static str)>, folder: Option<TempDir>) -> Running {
    let environment = [vec![("TOOLSIEVE_ADMIN_KEY", ADMIN)], environment].concat();
    let servers = json!({"one": stdio(&[]), "time": stdio(&["list=time"])});
    let running = Start { servers, key: Some(KEY), environment, folder, ..Start::default() }.start().await;
    running.settled().await;
    running
}

async fn calls(service: &Running, key: &str) -> StatusCode {
    with_key(service, Method::POST, "/one/echo", key).json(&json!({"text": "a"})).send().await.unwrap().status()
}

async fn names(service: &Running) -> Vec<String> {
    let (_, keys) = administer(service, Method::GET, "/v1/admin/keys", &Value::Null).await;
    keys["keys"].as_array().unwrap().iter().map(|key| key["name"].as_str().unwrap().to_owned()).collect()
}

async fn block(service: &Running) -> StatusCode {
    let rules = json!({"rules": [{"effect": "block", "tools": ["fail"]}]});
    administer(service, Method::PUT, "/v1/admin/policy", &rules).await.0
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_and_rules_survive_a_restart_and_hold_in_every_service() {
    let name = schema();
    let service = start(on(&name), None).await;
    let (_, key) = create(&service, json!({"name": "first"})).await;
    assert_eq!(calls(&service, &key).await, StatusCode::OK);
    assert_eq!(block(&service).await, StatusCode::OK);
    let blocked = with_key(&service, Method::POST, "/one/fail", &key).json(&json!({})).send().await.unwrap();
    assert_eq!(blocked.status(), StatusCode::NOT_FOUND);
    let message = json!({"messages": [{"role": "user", "content": "what time is it in Tokyo?"}], "chat_id": "chat"});
    let (status, chosen) = service.post("/v1/filter", &message).await;
    assert_eq!((status, &chosen["warnings"]), (StatusCode::OK, &json!([])), "{chosen}");
    let offered = chosen["tools"].clone();

    // A second service with a folder of its own, on the same database.
    let second = start(on(&name), None).await;
    assert_eq!(calls(&second, &key).await, StatusCode::OK);
    let blocked = with_key(&second, Method::POST, "/one/fail", &key).json(&json!({})).send().await.unwrap();
    assert_eq!(blocked.status(), StatusCode::NOT_FOUND);
    let (_, other) = create(&second, json!({"name": "second"})).await;
    // A chat goes on where another service has begun it.
    let thanks = json!({"messages": [{"role": "user", "content": "thanks!"}], "chat_id": "chat"});
    let (_, answer) = eventually("the chat's set is written", async || {
        when(second.post("/v1/filter", &thanks).await, |(_, answer)| {
            let names =
                |answer: &Value| -> Vec<Value> { answer["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect() };
            names(&json!({"tools": offered})).iter().all(|name| names(answer).contains(name))
        })
        .map_err(|(_, answer)| answer)
    })
    .await;
    assert_eq!(answer["warnings"], json!([]));

    let folder = service.stop().await;
    assert!(!folder.path().join("data/toolsieve.db").exists(), "a file beside the database");
    let service = start(on(&name), Some(folder)).await;
    assert_eq!(names(&service).await, ["first", "second"]);
    assert_eq!(calls(&service, &other).await, StatusCode::OK);
    let (_, usage) = administer(&service, Method::GET, "/v1/admin/usage", &Value::Null).await;
    assert!(usage.to_string().contains("echo"), "{usage}");
    drop((service, second));
}

/// The number of the last change that a service's state contains, and the name of its process.
async fn state(service: &Running) -> (u64, String) {
    let response = reqwest::get(format!("{}/healthz", service.url)).await.unwrap();
    let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
    (header("x-toolsieve-state").parse().unwrap(), header("x-toolsieve-replica"))
}

/// Regression test: a key whose name another service gave away at the same moment was refused with 500.
#[tokio::test(flavor = "multi_thread")]
async fn two_services_never_give_one_name_to_two_keys() {
    let name = schema();
    let (one, two) = (start(on(&name), None).await, start(on(&name), None).await);
    for round in 0..5 {
        let body = json!({"name": format!("key-{round}")});
        let create = async |service: &Running| administer(service, Method::POST, "/v1/admin/keys", &body).await.0;
        let (first, second) = tokio::join!(create(&one), create(&two));
        let mut statuses = [first, second];
        statuses.sort_unstable();
        assert_eq!(statuses, [StatusCode::CREATED, StatusCode::CONFLICT], "{round}");
    }
}

/// Keys, rules, toolsets, overrides, search texts, servers and approvals apply in every service, not only in the one that stored them.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_applies_in_every_service() {
    let name = schema();
    let (one, two) = (start(on(&name), None).await, start(on(&name), None).await);
    let names = [state(&one).await.1, state(&two).await.1];
    assert_ne!(names[0], names[1]);
    // What `one` is told to change is in `two` as soon as its state has the number of the answer.
    let changed = async |method: Method, path: &str, body: Value| {
        let request = with_key(&one, method, path, ADMIN).json(&body);
        let response = request.send().await.unwrap();
        assert!(response.status().is_success(), "{path}: {}", response.status());
        let number: u64 = response.headers()["x-toolsieve-state"].to_str().unwrap().parse().unwrap();
        let begun = std::time::Instant::now();
        eventually("the change is in the other service", async || when(state(&two).await.0, |seen| *seen >= number)).await;
        println!("{path}: after {:?}", begun.elapsed());
        response.json::<Value>().await.unwrap_or_default()
    };
    let key = changed(Method::POST, "/v1/admin/keys", json!({"name": "new"})).await;
    let (text, id) = (key["key"].as_str().unwrap(), key["id"].as_str().unwrap());
    assert_eq!(calls(&two, text).await, StatusCode::OK);

    changed(Method::PUT, "/v1/admin/policy", json!({"rules": [{"effect": "block", "tools": ["echo"]}]})).await;
    assert_eq!(calls(&two, text).await, StatusCode::NOT_FOUND);
    changed(Method::PUT, "/v1/admin/policy", json!({"rules": []})).await;
    assert_eq!(calls(&two, text).await, StatusCode::OK);

    changed(Method::PUT, "/v1/admin/toolsets/words", json!({"tools": ["echo"]})).await;
    let (_, toolset) = administer(&two, Method::GET, "/v1/admin/toolsets/words", &Value::Null).await;
    assert_eq!(toolset["members"], json!(["one__echo"]));

    changed(Method::PUT, "/v1/admin/tools/one/echo", json!({"shape": {"disabled": true}})).await;
    assert_eq!(calls(&two, text).await, StatusCode::NOT_FOUND);
    changed(Method::PUT, "/v1/admin/tools/one/echo", json!({"description": "Says it once more."})).await;
    assert_eq!(calls(&two, text).await, StatusCode::OK);
    let (_, document) = administer(&two, Method::GET, "/openapi.json", &Value::Null).await;
    assert!(document.to_string().contains("Says it once more."), "{document}");

    // Search texts are in the next index.
    let first = async || {
        let query = json!({"queries": ["a hedgehog plays the trombone"], "limit": 1});
        let (_, answer) = administer(&two, Method::POST, "/v1/tools/search", &query).await;
        answer["tools"][0]["name"].as_str().unwrap_or_default().to_owned()
    };
    assert_ne!(first().await, "one__echo");
    let texts = json!({"function": "Plays music.", "queries": ["a hedgehog plays the trombone"]});
    changed(Method::PUT, "/v1/admin/enrichment/one/echo", texts).await;
    eventually("the other service searches the texts", async || first().await == "one__echo").await;
    changed(Method::DELETE, "/v1/admin/enrichment/one/echo", Value::Null).await;
    eventually("the other service has forgotten the texts", async || first().await != "one__echo").await;

    let server = HttpServer::start(&["list=mail"]);
    let entry = json!({"type": "http", "url": format!("http://127.0.0.1:{}/mcp", server.port)});
    changed(Method::PUT, "/v1/admin/servers/mail", entry).await;
    eventually("the server has listed its tools", async || two.get("/mail/openapi.json").await.0 == StatusCode::OK).await;
    let process = async || {
        let response = with_key(&two, Method::POST, "/one/process", text).json(&json!({})).send().await.unwrap();
        response.json::<Value>().await.unwrap_or_default()["pid"].as_u64()
    };
    let before = process().await.unwrap();
    changed(Method::POST, "/v1/admin/servers/one/restart", Value::Null).await;
    eventually("the other service's process is another one", async || process().await.is_some_and(|now| now != before)).await;
    changed(Method::PATCH, "/v1/admin/servers/one", json!({"enabled": false})).await;
    eventually("the server is off everywhere", async || calls(&two, text).await == StatusCode::NOT_FOUND).await;
    changed(Method::PATCH, "/v1/admin/servers/one", json!({"enabled": true})).await;
    eventually("the server is on everywhere", async || calls(&two, text).await == StatusCode::OK).await;
    changed(Method::DELETE, "/v1/admin/servers/mail", Value::Null).await;
    eventually("the server is gone everywhere", async || two.get("/mail/openapi.json").await.0 == StatusCode::NOT_FOUND).await;

    changed(Method::DELETE, &format!("/v1/admin/keys/{id}"), Value::Null).await;
    assert_eq!(calls(&two, text).await, StatusCode::UNAUTHORIZED);
    // A service that starts later has the same number.
    let last = state(&one).await.0;
    let three = start(on(&name), None).await;
    assert_eq!(state(&three).await.0, last);
    drop((one, two, three));
}

/// The new server lacks the last changes, so their numbers are free again.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_failover_that_loses_changes_the_state_is_that_of_the_new_server() {
    let name = schema();
    let service = start(on(&name), None).await;
    let (_, kept) = create(&service, json!({"name": "kept"})).await;
    let (_, lost) = create(&service, json!({"name": "lost"})).await;
    assert_eq!((calls(&service, &kept).await, calls(&service, &lost).await), (StatusCode::OK, StatusCode::OK));
    let before = state(&service).await.0;
    let table = format!("\"{name}\".api_key");
    shared()
        .run(&format!(
            "BEGIN; ALTER TABLE {table} DISABLE TRIGGER USER; DELETE FROM {table} WHERE name = 'lost'; \
             ALTER TABLE {table} ENABLE TRIGGER USER; \
             UPDATE \"{name}\".state_version SET version = version - 1 WHERE part IN ('all', 'keys'); COMMIT"
        ))
        .await;
    eventually("the lost key is unknown", async || calls(&service, &lost).await == StatusCode::UNAUTHORIZED).await;
    eventually("the number is that of the new server", async || when(state(&service).await.0, |number| *number == before - 1)).await;
    assert_eq!(calls(&service, &kept).await, StatusCode::OK);
    // The next change gets the number of the lost one.
    let (_, next) = create(&service, json!({"name": "next"})).await;
    assert!(calls(&service, &next).await == StatusCode::OK && state(&service).await.0 >= before);
    // Once more, and another change has had the number of the lost one meanwhile.
    let number = state(&service).await.0;
    shared()
        .run(&format!(
            "BEGIN; ALTER TABLE {table} DISABLE TRIGGER USER; DELETE FROM {table} WHERE name = 'next'; \
             ALTER TABLE {table} ENABLE TRIGGER USER; \
             UPDATE \"{name}\".state_version SET token = gen_random_uuid() WHERE part IN ('all', 'keys'); COMMIT"
        ))
        .await;
    eventually("the key is unknown", async || calls(&service, &next).await == StatusCode::UNAUTHORIZED).await;
    assert_eq!((state(&service).await.0, calls(&service, &kept).await), (number, StatusCode::OK));
}

/// Regression test: a running service took over the empty state of another installation, and blocked tools could be called.
#[tokio::test(flavor = "multi_thread")]
async fn the_state_of_another_installation_in_the_same_schema_is_not_taken_over() {
    let name = schema();
    let service = start(on(&name), None).await;
    let (_, key) = create(&service, json!({"name": "kept"})).await;
    assert_eq!(block(&service).await, StatusCode::OK);
    let blocked = async || with_key(&service, Method::POST, "/one/fail", &key).json(&json!({})).send().await.unwrap().status();
    assert_eq!(blocked().await, StatusCode::NOT_FOUND);
    let before = state(&service).await.0;
    let dump = format!("\"{name}_kept\"");
    shared().run(&format!("ALTER SCHEMA \"{name}\" RENAME TO {dump}")).await;

    // A service with a folder of its own creates the schema anew.
    let other = start(on(&name), None).await;
    create(&other, json!({"name": "theirs"})).await;
    let ready = async || {
        let (_, ready) = administer(&service, Method::GET, "/readyz", &Value::Null).await;
        when(ready["store"].clone(), |store| store.to_string().contains("another installation"))
    };
    let store = eventually("the other installation is noticed", ready).await;
    assert_eq!(store["state"], "failed", "{store}");
    assert_eq!((blocked().await, calls(&service, &key).await), (StatusCode::NOT_FOUND, StatusCode::OK), "the old state applies");
    assert_eq!(state(&service).await.0, before);
    let (status, refused) = administer(&service, Method::POST, "/v1/admin/keys", &json!({"name": "lost"})).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "nothing is stored in the other installation: {refused}");
    assert_eq!(names(&other).await, ["theirs"]);

    other.stop().await;
    shared().run(&format!("DROP SCHEMA \"{name}\" CASCADE; ALTER SCHEMA {dump} RENAME TO \"{name}\"")).await;
    eventually("the own schema is used again", async || {
        let (status, answer) = administer(&service, Method::POST, "/v1/admin/keys", &json!({"name": "after"})).await;
        if status == StatusCode::CREATED { Ok(()) } else { Err(answer) }
    })
    .await;
    assert_eq!((blocked().await, names(&service).await), (StatusCode::NOT_FOUND, vec!["kept".to_owned(), "after".to_owned()]));
    service.stop().await;
}

/// A user switches the selection off in one service, and on again in the other.
#[tokio::test(flavor = "multi_thread")]
async fn a_switch_of_a_user_applies_in_every_service() {
    let name = schema();
    let public = "http://toolsieve.test";
    let environment = || [on(&name), vec![("TOOLSIEVE_ACCESS__TRUST_USERS", "true"), ("TOOLSIEVE_HTTP__PUBLIC_URL", public)]].concat();
    let (one, two) = (start(environment(), None).await, start(environment(), None).await);
    let of = |service: &Running, method: Method, path: &str| service.request(method, path).header("X-OpenWebUI-User-Id", "anna");
    let keeps_all = async |service: &Running| {
        let message = json!({"messages": [{"role": "user", "content": "what time is it in Tokyo?"}]});
        let answer: Value = of(service, Method::POST, "/v1/filter").json(&message).send().await.unwrap().json().await.unwrap();
        answer.to_string().contains("switched the selection off")
    };
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let post = async |service: &Running, path: &str, cookie: &str, form: &[(&str, &str)]| {
        let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let request = client.post(format!("{}{path}", service.url)).header("content-type", "application/x-www-form-urlencoded");
        let response = request.header("cookie", cookie).body(body).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::SEE_OTHER, "{path}");
        response
    };
    let known: Value = of(&one, Method::GET, "/v1/connections").send().await.unwrap().json().await.unwrap();
    let link = known["link"].as_str().unwrap().split("link=").nth(1).unwrap();
    let entered = post(&two, "/ui/me/enter", "", &[("link", link)]).await;
    let cookie = entered.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    assert!(!keeps_all(&one).await && !keeps_all(&two).await);
    for (changing, other, to) in [(&one, &two, "off"), (&two, &one, "on")] {
        let page = client.get(format!("{}/ui/me", changing.url)).header("cookie", &cookie).send().await.unwrap().text().await.unwrap();
        let csrf = page.split("name=\"csrf\" value=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
        let changed = post(changing, "/ui/me/selection", &cookie, &[("csrf", csrf), ("selection", to)]).await;
        let number: u64 = changed.headers()["x-toolsieve-state"].to_str().unwrap().parse().unwrap();
        assert_eq!(keeps_all(changing).await, to == "off");
        eventually("the change is in the other service", async || when(state(other).await.0, |seen| *seen >= number)).await;
        assert_eq!(keeps_all(other).await, to == "off", "{to}");
    }
}

/// The user's calls went to both services, which have them in memory and perhaps still in a queue.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_user_taught_is_forgotten_in_every_service() {
    let name = schema();
    let (one, two) = (callers::start(&on(&name), None).await, callers::start(&on(&name), None).await);
    let scopes = async |service: &Running| {
        let (_, shown) = administer(service, Method::GET, "/v1/admin/learning", &Value::Null).await;
        shown["scopes"].as_array().unwrap().len()
    };
    let teach = async |service: &Running, who: &'static str| {
        select(service, user(who), Some(who), "please say the arguments again").await;
        let call = user(who).request(service, "/left/echo").header("X-OpenWebUI-Chat-Id", who);
        assert_eq!(call.json(&json!({"text": "a"})).send().await.unwrap().status(), StatusCode::OK);
    };
    for service in [&one, &two] {
        teach(service, "anna").await;
        assert_eq!(scopes(service).await, 2, "the user's own scope, and that of all");
    }
    let forget = |who: &str| format!("/v1/admin/learning?principal=user%3A{who}");
    assert_eq!(administer(&one, Method::DELETE, &forget("anna"), &Value::Null).await.0, StatusCode::OK);
    assert_eq!(scopes(&one).await, 0);
    eventually("the other service has forgotten it", async || when(scopes(&two).await, |number| *number == 0)).await;
    // Only that is forgotten: not the rest, and not once more what was forgotten before.
    teach(&one, "anna").await;
    teach(&two, "ben").await;
    assert_eq!(administer(&two, Method::DELETE, &forget("nobody"), &Value::Null).await.0, StatusCode::OK);
    let number = state(&two).await.0;
    eventually("the change is in the other service", async || when(state(&one).await.0, |seen| *seen >= number)).await;
    for service in [&one, &two] {
        eventually("both users have taught both services", async || when(scopes(service).await, |number| *number == 3)).await;
    }
    assert_eq!(administer(&two, Method::DELETE, "/v1/admin/learning?all=true", &Value::Null).await.0, StatusCode::OK);
    eventually("the other service has forgotten everything", async || when(scopes(&one).await, |number| *number == 0)).await;
    for service in [one, two] {
        // Stores what is queued.
        service.stop().await;
    }
    assert_eq!(scopes(&callers::start(&on(&name), None).await).await, 0, "nothing of it was stored");
}

/// A load balancer sends each request anywhere. The chat's first message was answered by the service that receives the call.
#[tokio::test(flavor = "multi_thread")]
async fn calls_and_verdicts_teach_every_service_wherever_their_message_was_answered() {
    let name = schema();
    let (one, two) = (callers::start(&on(&name), None).await, callers::start(&on(&name), None).await);
    let (message, alike) = ("please say the arguments again, those of order 7", "please say the arguments again, those of order 9");
    let first = async |service: &Running, who| found(service, who, alike).await[0]["name"].as_str().unwrap().to_owned();
    let plain = first(&one, user("newcomer")).await;
    let other = if plain == "left__echo" { "right__echo" } else { "left__echo" };
    let learned = async |who| {
        for service in [&one, &two] {
            eventually("both services have learned it", async || when(first(service, who).await, |first| *first == other)).await;
        }
    };
    let ask = async |service: &Running, who: Who<'_>, id: &str, text: &str| -> Value {
        let body = json!({"messages": [{"role": "user", "content": text}], "chat_id": "chat", "message_id": id});
        who.request(service, "/v1/filter").json(&body).send().await.unwrap().json().await.unwrap()
    };
    let anna = user("anna");
    ask(&two, anna, "m1", "send an email to Zoe").await;
    ask(&one, anna, "m2", message).await;
    let call = anna.request(&two, &format!("/{}", other.replace("__", "/"))).header("X-OpenWebUI-Chat-Id", "chat");
    let called = call.header("X-OpenWebUI-Message-Id", "m2").json(&json!({"text": "a"})).send().await.unwrap();
    assert_eq!(called.status(), StatusCode::OK);
    learned(anna).await;
    let about_mail = found(&two, anna, "send an email to Zoe").await;
    assert_eq!(about_mail[0]["name"], "mail__send_email", "the message before has taught nothing");
    let ben = user("ben");
    let selected = ask(&one, ben, "m3", message).await;
    let verdict = json!({"selection_id": selected["selection_id"], "tool": other, "verdict": "missing"});
    eventually("the selection is stored", async || {
        let given = ben.request(&two, "/v1/feedback").json(&verdict).send().await.unwrap().status();
        when(given, |status| *status == StatusCode::OK)
    })
    .await;
    learned(ben).await;
    assert_eq!(first(&two, user("newcomer")).await, plain, "two people are not enough for everybody");
}

/// A service that does not know a key yet must not answer that there is none.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_revoked_where_its_creation_is_not_known_yet() {
    let name = schema();
    let (one, two) = (start(on(&name), None).await, start(on(&name), None).await);
    shared().run(&format!("ALTER TABLE \"{name}\".api_key DISABLE TRIGGER USER")).await;
    let (id, key) = create(&one, json!({"name": "new"})).await;
    assert_eq!(calls(&two, &key).await, StatusCode::UNAUTHORIZED);
    let (status, revoked) = administer(&two, Method::DELETE, &format!("/v1/admin/keys/{id}"), &Value::Null).await;
    assert_eq!((status, &revoked["state"]), (StatusCode::OK, &json!("revoked")), "{revoked}");
    // Nor may one that does not know the revocation yet give the key a new secret.
    let (status, rotated) = administer(&one, Method::POST, &format!("/v1/admin/keys/{id}/rotate"), &json!({})).await;
    assert_eq!(status, StatusCode::NOT_FOUND, "{rotated}");
    drop((one, two));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_server_answers_go_on_and_nothing_is_lost() {
    let mut server = tokio::task::block_in_place(Postgres::start);
    let service = start(vec![("DATABASE_URL", leaked(server.url()))], None).await;
    let (_, key) = create(&service, json!({"name": "kept"})).await;
    let message = |chat: &str| json!({"messages": [{"role": "user", "content": "what time is it in Tokyo?"}], "chat_id": chat});
    let (_, before) = service.post("/v1/filter", &message("before")).await;
    assert_eq!(before["warnings"], json!([]));
    tokio::task::block_in_place(|| server.crash());

    let (status, answer) = service.post("/v1/filter", &message("during")).await;
    assert_eq!((status, &answer["tools"]), (StatusCode::OK, &before["tools"]), "{answer}");
    assert!(answer["warnings"].to_string().contains("store"), "{answer}");
    assert_eq!(calls(&service, &key).await, StatusCode::OK);
    let (status, refused) = administer(&service, Method::POST, "/v1/admin/keys", &json!({"name": "lost"})).await;
    assert!(status.is_server_error(), "{status} {refused}");
    let text = refused.to_string();
    assert!(!text.contains("geheim"), "{text}");
    let (_, ready) = service.get("/readyz").await;
    assert_eq!(ready["store"]["state"], "failed", "{ready}");

    tokio::task::block_in_place(|| server.resume());
    let second = start(vec![("DATABASE_URL", leaked(server.url()))], None).await;
    eventually("a key can be created again", async || {
        let (status, answer) = administer(&service, Method::POST, "/v1/admin/keys", &json!({"name": "after"})).await;
        if status == StatusCode::CREATED { Ok(()) } else { Err(answer) }
    })
    .await;
    // Notifications arrive again too.
    block(&second).await;
    let blocked = async || with_key(&service, Method::POST, "/one/fail", &key).json(&json!({})).send().await.unwrap().status();
    eventually("the rule is in the first service", async || when(blocked().await, |status| *status == StatusCode::NOT_FOUND)).await;
    second.stop().await;
    let folder = service.stop().await;
    let service = start(vec![("DATABASE_URL", leaked(server.url()))], Some(folder)).await;
    assert_eq!(names(&service).await, ["kept", "after"]);
    assert_eq!(calls(&service, &key).await, StatusCode::OK);
    service.stop().await;
}

fn output(folder: &TempDir, words: &[&str], environment: &[(&str, &str)]) -> (Option<i32>, String) {
    write_config(folder.path(), &json!({"one": stdio(&[])}));
    let mut command = toolsieve();
    command.args(words).arg("--data-dir").arg(folder.path().join("data"));
    if let ["serve" | "doctor" | "tools" | "search", ..] = words {
        command.arg("--config").arg(folder.path().join("mcp.json"));
    }
    let Output { status, stdout, stderr } = command.envs(environment.iter().copied()).output().unwrap();
    let text = [stdout, stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    assert!(!text.contains("geheim"), "{text}");
    (status.code(), text)
}

#[test]
fn what_prevents_the_start_ends_the_process_with_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let serve = |url: &str| output(&folder, &["serve", "--port", "0"], &[("DATABASE_URL", url)]);
    let (code, text) = serve("mysql://root:geheim@db/toolsieve");
    assert!(code == Some(2) && text.contains("store.url") && text.contains("postgres://"), "{code:?} {text}");
    let (code, text) = serve(&shared().url_of("tester:geheim", "postgres"));
    assert!(code == Some(2) && text.contains("refuses the user"), "{code:?} {text}");
    let (code, text) = serve("postgres://tester:geheim@127.0.0.1:1/toolsieve");
    assert!(code == Some(1) && text.contains("can't be reached"), "{code:?} {text}");
    let (code, text) =
        output(&folder, &["serve", "--port", "0"], &[("DATABASE_URL", &shared().url()), ("TOOLSIEVE_STORE__SCHEMA", "No \"quotes\"")]);
    assert!(code == Some(2) && text.contains("store.schema"), "{code:?} {text}");

    let url = shared().url();
    let (code, text) = output(&folder, &["backup", "file.tar.gz"], &[("DATABASE_URL", &url)]);
    assert!(code == Some(2) && text.contains("pg_dump"), "{code:?} {text}");
    let (code, text) = output(&folder, &["restore", "file.tar.gz"], &[("DATABASE_URL", &url)]);
    assert!(code == Some(2) && text.contains("pg_restore"), "{code:?} {text}");
}

/// Regression test: the doctor found nothing wrong with a database in which the service can't create its tables.
#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_finds_a_database_in_which_the_tables_cannot_be_created() {
    let (folder, name) = (tempfile::tempdir().unwrap(), schema());
    let role = format!("{name}_role");
    shared().run(&format!("CREATE ROLE {role} LOGIN PASSWORD 'geheim'")).await;
    let url = shared().url_of(&format!("{role}:geheim"), "postgres");
    let run = |command: &str| {
        let environment = [("DATABASE_URL", url.as_str()), ("TOOLSIEVE_STORE__SCHEMA", name.as_str())];
        tokio::task::block_in_place(|| output(&folder, &[command, "--port", "0"], &environment))
    };
    let (code, text) = run("doctor");
    assert!(code == Some(1) && text.contains("AUTHORIZATION"), "{code:?} {text}");
    // The schema is there, but the role may not use it.
    shared().run(&format!("CREATE SCHEMA {name}")).await;
    for (command, expected) in [("doctor", Some(1)), ("serve", Some(2))] {
        let (code, text) = run(command);
        assert!(code == expected && text.contains("GRANT USAGE, CREATE"), "{command}: {code:?} {text}");
    }
    shared()
        .run(&format!("GRANT USAGE, CREATE ON SCHEMA {name} TO {role}; ALTER ROLE {role} SET default_transaction_read_only = on"))
        .await;
    let (code, text) = run("doctor");
    assert!(code == Some(1) && text.contains("read-only"), "{code:?} {text}");
    shared().run(&format!("ALTER ROLE {role} RESET default_transaction_read_only")).await;
    let (code, text) = run("doctor");
    assert!(code == Some(0) && text.contains("tables are created at the first start"), "{code:?} {text}");
    let mut connection = shared().connect().await;
    let count = "SELECT count(*) FROM pg_tables WHERE schemaname = $1";
    let tables: i64 = sqlx::query_scalar(count).bind(&name).fetch_one(&mut connection).await.unwrap();
    assert_eq!(tables, 0, "the doctor leaves nothing behind");
}

/// Its rules would be missing.
#[tokio::test(flavor = "multi_thread")]
async fn the_database_of_another_installation_is_refused() {
    let (one, other) = (schema(), schema());
    let service = start(on(&one), None).await;
    assert_eq!(block(&service).await, StatusCode::OK);
    let folder = service.stop().await;
    let with_keys = start(on(&other), None).await;
    create(&with_keys, json!({"name": "theirs"})).await;
    with_keys.stop().await;
    for (name, reason) in [(other, "another installation"), (schema(), "it is empty")] {
        let (code, text) = output(&folder, &["serve", "--port", "0"], &on(&name));
        assert!(code == Some(2) && text.contains(reason) && text.contains("store.url"), "{code:?} {text}");
    }
    // The right one is still taken.
    start(on(&one), Some(folder)).await.stop().await;
}

/// Regression test: PostgreSQL's texts can't contain NUL, so such a request got 500, and such a chat was another one than in a file.
#[tokio::test(flavor = "multi_thread")]
async fn control_characters_in_names_are_refused() {
    let service = start(on(&schema()), None).await;
    for (method, path) in [
        (Method::GET, "/v1/admin/usage?server=%00"),
        (Method::GET, "/v1/admin/usage?tool=a%0Ab"),
        (Method::GET, "/v1/admin/audit?principal=user:%00"),
        (Method::DELETE, "/v1/admin/secrets/user:%00"),
        (Method::DELETE, "/v1/admin/learning?principal=user:%00"),
    ] {
        let (status, answer) = administer(&service, method.clone(), path, &Value::Null).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{method} {path}: {answer}");
    }
    for member in ["chat_id", "message_id", "model"] {
        let message = json!({"messages": [{"role": "user", "content": "hello"}], member: "a\0b"});
        let (status, answer) = service.post("/v1/filter", &message).await;
        assert_eq!((status, &answer["parameter"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!(member)), "{answer}");
    }
    let search = json!({"queries": ["time"], "chat_id": "a\0b"});
    assert_eq!(service.post("/v1/tools/search", &search).await.0, StatusCode::UNPROCESSABLE_ENTITY);
    service.stop().await;
}

/// Commands read the tools from the database.
#[tokio::test(flavor = "multi_thread")]
async fn commands_read_the_database() {
    let name = schema();
    let folder = start(on(&name), None).await.stop().await;
    let (code, text) = output(&folder, &["tools", "--offline"], &on(&name));
    assert!(code == Some(0) && text.contains("echo"), "{code:?} {text}");
    let (code, text) = output(&folder, &["search", "say the arguments again"], &on(&name));
    assert!(code == Some(0) && text.contains("one/echo"), "{code:?} {text}");
}

/// A service moves from its folder to a database, and back.
#[tokio::test(flavor = "multi_thread")]
async fn an_installation_moves_to_the_database_and_back() {
    let name = schema();
    let service = start(Vec::new(), None).await;
    let (_, key) = create(&service, json!({"name": "moved"})).await;
    let copying = |folder: &TempDir, from: &str, to: &str| output(folder, &["store", "copy", "--from", from, "--to", to], &on(&name));
    let folder = service.stop().await;
    let (code, text) = output(&folder, &["store", "copy", "--from", "folder", "--to", "database"], &[]);
    assert!(code == Some(2) && text.contains("DATABASE_URL"), "{code:?} {text}");
    let (code, text) = copying(&folder, "folder", "database");
    assert!(code == Some(0) && text.contains("api_key") && text.contains("compared"), "{code:?} {text}");
    assert!(text.contains("links to them no longer work"), "{text}");
    let (code, text) = copying(&folder, "folder", "database");
    assert!(code == Some(2) && text.contains("not empty"), "{code:?} {text}");

    let service = start(on(&name), Some(folder)).await;
    assert_eq!((names(&service).await, calls(&service, &key).await), (vec!["moved".to_owned()], StatusCode::OK));
    create(&service, json!({"name": "later"})).await;
    eventually("the service leads", async || administer(&service, Method::GET, "/readyz", &Value::Null).await.1["leader"] == true).await;
    let (code, text) = copying(&tempfile::tempdir().unwrap(), "database", "folder");
    assert!(code == Some(1) && text.contains("stop all services first"), "{code:?} {text}");
    let folder = service.stop().await;
    std::fs::remove_file(folder.path().join("data/toolsieve.db")).unwrap();
    let (code, text) = copying(&folder, "database", "folder");
    assert_eq!(code, Some(0), "{text}");
    let service = start(Vec::new(), Some(folder)).await;
    assert_eq!(names(&service).await, ["moved", "later"]);
    service.stop().await;
}

/// The binary says where its state is, and stops in order.
#[tokio::test(flavor = "multi_thread")]
async fn the_log_names_the_database_without_its_password() {
    let (folder, name) = (tempfile::tempdir().unwrap(), schema());
    let mut service = Service::start(folder.path(), &json!({"one": stdio(&[])}), |command| {
        command.envs(on(&name)).env("TOOLSIEVE_LOG", "debug");
    });
    let log = service.until_logged("PostgreSQL database");
    assert!(log.contains(&shared().port.to_string()) && !log.contains("geheim"), "{log}");
    assert!(service.stop().success());
}
