//! Sessions: what they publish, whose they are, how they end, and a hundred of them at a time.

use std::collections::BTreeSet;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::harness::answers::{operations, published, set, shape};
use crate::harness::keys::{ADMIN, KEY, administer, create, start_on, with_key};
use crate::harness::servers::four;
use crate::harness::wait::{eventually, when};
use crate::harness::{Running, Start};

async fn start(environment: &[(&'static str, &'static str)]) -> Running {
    start_on(four(), environment).await
}

async fn make(service: &Running, key: &str, body: Value) -> Value {
    let response = with_key(service, Method::POST, "/v1/sessions", key).json(&body).send().await.unwrap();
    let (status, answer) = (response.status(), response.json::<Value>().await.unwrap());
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    answer
}

async fn get(service: &Running, key: &str, path: &str) -> (StatusCode, Value) {
    let response = with_key(service, Method::GET, path, key).send().await.unwrap();
    (response.status(), response.json().await.unwrap())
}

fn names(answer: &Value) -> BTreeSet<String> {
    answer["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

async fn put_toolset(service: &Running) {
    let letters = json!({"servers": ["mail"], "exclude": ["send_*"], "always": ["files__list_directory"]});
    let (status, answer) = administer(service, Method::PUT, "/v1/admin/toolsets/letters", &letters).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_publishes_what_was_chosen_and_reaches_the_rest() {
    let service = start(&[("TOOLSIEVE_HTTP__PUBLIC_URL", "https://tools.example.org/x/")]).await;
    put_toolset(&service).await;
    let session = make(&service, KEY, json!({"toolsets": ["letters"], "servers": ["time"], "tools": ["files/read_file"]})).await;
    let expected = ["files__list_directory", "files__read_file", "mail__list_emails", "mail__search_emails", "time__convert_time"];
    let expected: BTreeSet<String> = set(&expected).into_iter().chain(set(&["time__get_current_time"])).collect();
    assert_eq!(names(&session), expected);
    let id = session["id"].as_str().unwrap();
    assert_eq!((id.len(), &session["url"]), (32, &json!(format!("https://tools.example.org/x/s/{id}"))));
    let address = format!("/s/{id}");
    let response = service.request(Method::GET, &format!("{address}/openapi.json")).send().await.unwrap();
    let tag = response.headers()["etag"].clone();
    let document: Value = response.json().await.unwrap();
    assert_eq!(published(&document), expected);
    assert!(operations(&document).is_superset(&set(&["find_tools", "run_tool"])));
    assert_eq!(document["servers"], json!([{"url": address}]));
    let again = service.request(Method::GET, &format!("{address}/openapi.json")).header("if-none-match", &tag).send().await.unwrap();
    assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
    assert_eq!(published(&service.get(&format!("{address}/openapi.json?mode=meta")).await.1), set(&[]));
    for path in document["paths"].as_object().unwrap().keys() {
        let (status, body) = service.post(&format!("{address}{path}"), &json!([])).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{path} {body}");
    }
    // What is not published is found and run all the same.
    let query = json!({"queries": ["send an email"], "limit": 1});
    assert_eq!(names(&service.post(&format!("{address}/v1/tools/search"), &query).await.1), set(&["mail__send_email"]));
    let call = json!({"name": "one__echo", "arguments": {"to": "a"}});
    assert_eq!(service.post(&format!("{address}/v1/tools/call"), &call).await.0, StatusCode::OK);
    assert_eq!(service.post(&format!("{address}/v1/admin/keys"), &json!({})).await.0, StatusCode::NOT_FOUND);
    // A connection of Open WebUI can be one.
    let body = json!({"messages": [{"role": "user", "content": "what time is it in Tokyo"}], "connections": {"a": address, "b": "/files"}, "tool_ids": ["a", "b"]});
    let (_, filtered) = service.post("/v1/filter", &body).await;
    assert_eq!(filtered["tool_ids"], json!(["a"]), "{filtered}");
    // A rule counts at once.
    let rules = json!({"rules": [{"effect": "block", "tools": ["read_file", "search_emails", "echo"]}]});
    assert_eq!(administer(&service, Method::PUT, "/v1/admin/policy", &rules).await.0, StatusCode::OK);
    let blocked = set(&["files__read_file", "mail__search_emails"]);
    let left: BTreeSet<String> = expected.difference(&blocked).cloned().collect();
    let response = service.request(Method::GET, &format!("{address}/openapi.json")).header("if-none-match", &tag).send().await.unwrap();
    assert_eq!(published(&response.json().await.unwrap()), left);
    assert_eq!(service.post(&format!("{address}/v1/tools/call"), &call).await.0, StatusCode::NOT_FOUND);
    assert_eq!(service.post(&format!("{address}/files/read_file"), &json!({})).await.0, StatusCode::NOT_FOUND);
    assert_eq!(names(&service.get(&format!("/v1/sessions/{id}")).await.1), left);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_given_its_tools() {
    let service = start(&[]).await;
    put_toolset(&service).await;
    let session = make(&service, KEY, json!({"task": "send an email to Anna", "limit": 2})).await;
    let first = &session["tools"][0];
    assert_eq!((&first["name"], &first["reason"]), (&json!("mail__send_email"), &json!("fits the message (rank 1)")), "{session}");
    assert!(first["score"].as_f64().is_some() && session["tools"].as_array().unwrap().len() <= 2, "{session}");
    let (_, document) = service.get(&format!("{}/openapi.json", session["url"].as_str().unwrap())).await;
    assert_eq!(published(&document), names(&session));
    // Out of a toolset: what is always on in it, and what is named, are there beside the choice.
    let body = json!({"task": "look for a letter", "toolsets": ["letters"], "tools": ["time__convert_time"], "limit": 1});
    let session = make(&service, KEY, body).await;
    assert_eq!(session["tools"][0]["name"], "mail__search_emails", "{session}");
    assert_eq!(names(&session), set(&["mail__search_emails", "files__list_directory", "time__convert_time"]));
    let nothing = make(&service, KEY, json!({"task": "thanks!"})).await;
    let (_, document) = service.get(&format!("{}/openapi.json", nothing["url"].as_str().unwrap())).await;
    assert_eq!(operations(&document), set(&["find_tools", "run_tool"]), "{nothing}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_its_owners_alone() {
    let service = start(&[("TOOLSIEVE_ACCESS__TRUST_USERS", "true")]).await;
    let (_, mine) = create(&service, json!({"name": "mine"})).await;
    let (_, theirs) = create(&service, json!({"name": "theirs"})).await;
    let session = make(&service, &mine, json!({"servers": ["time"]})).await;
    let id = session["id"].as_str().unwrap().to_owned();
    let unknown = "A".repeat(32);
    for key in [theirs.as_str(), KEY, ADMIN] {
        for (method, path) in [
            (Method::GET, "/s/ID/openapi.json"),
            (Method::GET, "/s/ID/docs/"),
            (Method::GET, "/s/ID/time/openapi.json"),
            (Method::POST, "/s/ID/time/get_current_time"),
            (Method::POST, "/s/ID/v1/tools/search"),
            (Method::GET, "/v1/sessions/ID"),
            (Method::DELETE, "/v1/sessions/ID"),
        ] {
            let ask = |id: &str| {
                let request = with_key(&service, method.clone(), &path.replace("ID", id), key);
                shape(if method == Method::POST { request.json(&json!({})) } else { request })
            };
            let absent = ask(&unknown).await;
            assert_eq!(absent.0, StatusCode::NOT_FOUND, "{path}");
            for id in [id.as_str(), "short", &id[1..]] {
                assert_eq!(ask(id).await, absent, "{method} {path}");
            }
        }
        assert_eq!(get(&service, key, "/v1/sessions").await.1, json!({"sessions": []}));
    }
    let nobody = service.client.get(format!("{}/s/{id}/openapi.json", service.url)).send().await.unwrap();
    assert_eq!(nobody.status(), StatusCode::UNAUTHORIZED);
    // Users are told from each other, and from the key that speaks for them.
    let as_user = |id: &str, method: Method, path: &str| {
        with_key(&service, method, path, KEY).header("X-OpenWebUI-User-Id", id.to_owned()).json(&json!({"servers": ["mail"]}))
    };
    let session: Value = as_user("u1", Method::POST, "/v1/sessions").send().await.unwrap().json().await.unwrap();
    let document = format!("{}/openapi.json", session["url"].as_str().unwrap());
    assert_eq!(as_user("u1", Method::GET, &document).send().await.unwrap().status(), StatusCode::OK);
    assert_eq!(as_user("u2", Method::GET, &document).send().await.unwrap().status(), StatusCode::NOT_FOUND);
    assert_eq!(service.get(&document).await.0, StatusCode::NOT_FOUND);

    let (_, own) = get(&service, &mine, "/v1/sessions").await;
    assert_eq!((&own["sessions"][0]["id"], own["sessions"].as_array().unwrap().len()), (&json!(id), 1));
    let end = with_key(&service, Method::DELETE, &format!("/v1/sessions/{id}"), &mine).send().await.unwrap();
    assert_eq!(end.status(), StatusCode::NO_CONTENT);
    assert_eq!(get(&service, &mine, &format!("/s/{id}/openapi.json")).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_not_be_made_is_reported_with_the_reason() {
    let service = start(&[]).await;
    put_toolset(&service).await;
    let (_, narrow) = create(&service, json!({"name": "narrow", "servers": ["time"]})).await;
    for (body, part) in [
        (json!({}), "name what the session publishes"),
        (json!({"task": "  "}), "name what the session publishes"),
        (json!({"toolsets": ["leters"]}), "there is no toolset `leters`; did you mean `letters`?"),
        (json!({"servers": ["tme", "mail"], "tools": ["time__get_curent_time", "x"]}), "there is no server `tme`"),
        (
            json!({"tools": ["time__get_curent_time", "x"]}),
            "`time__get_curent_time`; did you mean `time__get_current_time`?; there is no tool `x`",
        ),
        (json!({"servers": ["time"], "ttl_seconds": 0}), "ttl_seconds is 1 to 2592000"),
        (json!({"servers": ["time"], "ttl_seconds": 2_592_001}), "ttl_seconds is 1 to 2592000"),
        (json!({"task": "a", "limit": 0}), "limit is 1 to 128"),
        (json!({"server": ["time"]}), "unknown field `server`"),
        (json!({"servers": "time"}), "expected a sequence"),
    ] {
        let (status, problem) = service.post("/v1/sessions", &body).await;
        let detail = problem["detail"].as_str().unwrap();
        assert!(status == StatusCode::UNPROCESSABLE_ENTITY && detail.contains(part), "{body}: {detail}");
    }
    // What is hidden is told as what does not exist.
    let ask = async |body: Value| {
        let answer = with_key(&service, Method::POST, "/v1/sessions", &narrow).json(&body).send().await.unwrap();
        answer.json::<Value>().await.unwrap()["detail"].as_str().unwrap().to_owned()
    };
    let hidden = ask(json!({"toolsets": ["letters"], "servers": ["mail"], "tools": ["mail__send_email"]})).await;
    assert_eq!(hidden, "there is no toolset `letters`; there is no server `mail`; there is no tool `mail__send_email`.");
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_few_end_and_survive() {
    let caps = [("TOOLSIEVE_SESSIONS__PER_CALLER", "2"), ("TOOLSIEVE_SESSIONS__TOTAL", "3")];
    let service = start(&caps).await;
    let (_, other) = create(&service, json!({"name": "other"})).await;
    let (_, third) = create(&service, json!({"name": "third"})).await;
    let address = |session: &Value| format!("{}/openapi.json", session["url"].as_str().unwrap());
    let one = make(&service, KEY, json!({"servers": ["time"]})).await;
    let two = make(&service, KEY, json!({"servers": ["mail"]})).await;
    let three = make(&service, KEY, json!({"servers": ["files"]})).await;
    assert!(three["warnings"][0].as_str().unwrap().contains("2 sessions"), "{three}");
    assert_eq!(service.get(&address(&one)).await.0, StatusCode::NOT_FOUND, "the oldest made room");
    make(&service, &other, json!({"servers": ["time"]})).await;
    let full = with_key(&service, Method::POST, "/v1/sessions", &third).json(&json!({"servers": ["time"]})).send().await.unwrap();
    assert_eq!((full.status(), full.headers().contains_key("retry-after")), (StatusCode::TOO_MANY_REQUESTS, true));
    assert_eq!(service.get(&address(&two)).await.0, StatusCode::OK, "nobody can push out those of others");

    let short = make(&service, KEY, json!({"servers": ["time"], "ttl_seconds": 1})).await;
    assert_eq!(service.get(&address(&short)).await.0, StatusCode::OK);
    eventually("the session ends after its second", async || service.get(&address(&short)).await.0 != StatusCode::OK).await;
    let mut environment = vec![("TOOLSIEVE_ADMIN_KEY", ADMIN)];
    environment.extend_from_slice(&caps);
    let folder = service.stop().await;
    let service = Start { servers: four(), key: Some(KEY), environment, folder: Some(folder), ..Start::default() }.start().await;
    let (status, document) = service.get(&address(&two)).await;
    assert_eq!((status, published(&document).len()), (StatusCode::OK, 3), "it survives a restart");
    assert_eq!(service.get(&address(&three)).await.0, StatusCode::NOT_FOUND, "it was not used, and made room");
    make(&service, &third, json!({"servers": ["time"]})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_of_the_header_is_a_chat() {
    let service = start(&[]).await;
    let ask = async |text: &str, session: &str| {
        let body = json!({"messages": [{"role": "user", "content": text}]});
        let request = service.request(Method::POST, "/v1/filter").header("X-Session-Id", session.to_owned()).json(&body);
        names(&request.send().await.unwrap().json::<Value>().await.unwrap())
    };
    let first = ask("what time is it in Tokyo", "one").await;
    assert!(first.contains("time__get_current_time"), "{first:?}");
    assert_eq!(ask("thanks!", "one").await, first);
    assert_eq!(ask("thanks!", "two").await, set(&["find_tools"]));
}

/// A hundred callers, each with rules and sessions of its own, while rules come and go.
#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_sessions_never_see_each_others_tools() {
    const CALLERS: usize = 100;
    let service = start(&[]).await;
    let tools: Vec<String> = published(&service.get("/openapi.json").await.1).into_iter().collect();
    let mut callers = Vec::new();
    let mut rules = Vec::new();
    for number in 0..CALLERS {
        let (_, key) = create(&service, json!({"name": format!("k{number}")})).await;
        let own: BTreeSet<String> = [number, number / 3 + 2 * number + 1, 5 * number].map(|at| tools[at % tools.len()].clone()).into();
        rules.push(json!({"effect": "allow", "principals": [format!("key:k{number}")], "tools": own}));
        callers.push((key, own));
    }
    let policy = |extra: &[Value]| {
        let rules = [rules.as_slice(), extra].concat();
        json!({"default": "deny", "rules": rules})
    };
    administer(&service, Method::PUT, "/v1/admin/policy", &policy(&[])).await;
    let ids = tokio::sync::Mutex::new(Vec::new());
    let looks = callers.iter().map(async |(key, own)| {
        let chosen = own.first().unwrap();
        let session = make(&service, key, json!({"tools": [chosen]})).await;
        let task = make(&service, key, json!({"task": "send an email, tell the time, read a file"})).await;
        assert!(names(&task).is_subset(own), "{task}");
        let address = session["url"].as_str().unwrap();
        ids.lock().await.push(address.to_owned());
        for round in 0..5 {
            let (_, document) = get(&service, key, &format!("{address}/openapi.json")).await;
            assert_eq!(published(&document), BTreeSet::from([chosen.clone()]));
            let words = own.iter().cloned().collect::<Vec<_>>().join(" ");
            let query = json!({"queries": ["send an email, tell the time, read a file", words], "limit": 100});
            let found = with_key(&service, Method::POST, &format!("{address}/v1/tools/search"), key).json(&query).send().await.unwrap();
            assert_eq!(names(&found.json().await.unwrap()), *own);
            let name = &tools[(round * 4) % tools.len()];
            let call = json!({"name": name, "arguments": []});
            let answer = with_key(&service, Method::POST, &format!("{address}/v1/tools/call"), key).json(&call).send().await.unwrap();
            assert_eq!(answer.status() == StatusCode::UNPROCESSABLE_ENTITY, own.contains(name), "{name}");
            // Another one's, whichever was made last.
            let other = ids.lock().await.iter().rev().find(|other| *other != address).cloned();
            if let Some(other) = other {
                assert_eq!(get(&service, key, &format!("{other}/openapi.json")).await.0, StatusCode::NOT_FOUND);
            }
        }
    });
    let changes = async {
        for round in 0..10 {
            let other = json!({"effect": "allow", "principals": [format!("key:nobody-{round}")]});
            let (status, answer) = administer(&service, Method::PUT, "/v1/admin/policy", &policy(&[other])).await;
            assert_eq!(status, StatusCode::OK, "{answer}");
        }
    };
    futures::join!(futures::future::join_all(looks), changes);
}

#[tokio::test(flavor = "multi_thread")]
async fn administrators_see_all_sessions_and_end_them() {
    let service = start(&[]).await;
    let (_, other) = create(&service, json!({"name": "other"})).await;
    let own = make(&service, KEY, json!({"servers": ["time"]})).await;
    let others = make(&service, &other, json!({"tools": ["mail/send_email"]})).await;
    let (_, listed) = administer(&service, Method::GET, "/v1/admin/sessions", &json!({})).await;
    let owners: Vec<_> = listed["sessions"].as_array().unwrap().iter().map(|session| session["principal"].as_str().unwrap()).collect();
    assert_eq!(BTreeSet::from_iter(owners), BTreeSet::from(["service-key", "key:other"]));
    let (_, listed) = administer(&service, Method::GET, "/v1/admin/sessions?principal=key:other", &json!({})).await;
    assert_eq!(listed["sessions"].as_array().unwrap().len(), 1);
    assert_eq!(listed["sessions"][0]["tools"], json!(["mail/send_email"]));
    let path = format!("/v1/admin/sessions/{}", others["id"].as_str().unwrap());
    for (method, path, nothing) in
        [(Method::GET, "/v1/admin/sessions", "/v1/admin/nothing"), (Method::DELETE, path.as_str(), "/v1/admin/nothing/there")]
    {
        let seen = async |path: &str| with_key(&service, method.clone(), path, &other).send().await.unwrap().status();
        assert_eq!(seen(path).await, seen(nothing).await, "to others it is not there");
    }
    let end = async || with_key(&service, Method::DELETE, &path, ADMIN).send().await.unwrap().status();
    assert_eq!((end().await, end().await), (StatusCode::NO_CONTENT, StatusCode::NOT_FOUND));
    let address = |session: &Value| format!("{}/openapi.json", session["url"].as_str().unwrap());
    let gone = with_key(&service, Method::GET, &address(&others), &other).send().await.unwrap();
    assert_eq!(gone.status(), StatusCode::NOT_FOUND);
    assert_eq!(service.get(&address(&own)).await.0, StatusCode::OK);
    let log = eventually("the end of the session in the audit log", async || {
        let (_, log) = administer(&service, Method::GET, "/v1/admin/audit?action=session_end", &json!({})).await;
        when(log, |log| log["entries"].as_array().is_some_and(|entries| !entries.is_empty()))
    })
    .await;
    assert_eq!(log["entries"][0]["subject"], "key:other", "{log}");
}
