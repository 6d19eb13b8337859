//! What a user's model is shown of what is on offer: what this user may use, and nothing else.

use std::collections::BTreeSet;
use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use toolsieve::service::catalog::reload::Trigger;

use crate::harness::answers::{published, set};
use crate::harness::keys::{ADMIN, KEY, administer, create, with_key};
use crate::harness::rules::rule;
use crate::harness::servers::listed::{Listed, other, read};
use crate::harness::{Running, Start, example, stdio};

const FOREIGN: [&str; 3] = ["weather", "my__tool", "files__never_there"];

/// A caller, with the person for whom it asks.
struct Asking {
    key: String,
    user: Option<(&'static str, &'static str, Vec<&'static str>)>,
    session: Option<String>,
}

impl Asking {
    fn new(key: &str) -> Self {
        Self { key: key.to_owned(), user: None, session: None }
    }

    /// What the person's document has: what they may use.
    async fn may_use(&self, service: &Running) -> BTreeSet<String> {
        let mut request = with_key(service, Method::GET, "/openapi.json", &self.key);
        if let Some((id, email, groups)) = &self.user {
            request = request.header("X-OpenWebUI-User-Id", *id).header("X-OpenWebUI-User-Email", *email);
            request = request.header("X-OpenWebUI-User-Groups", groups.join(","));
        }
        published(&request.send().await.unwrap().json().await.unwrap())
    }

    async fn filter(&self, service: &Running, mut body: Value) -> Value {
        if let Some((id, email, groups)) = &self.user {
            body["user"] = json!({"id": id, "email": email, "role": "user", "groups": groups});
        }
        let response = with_key(service, Method::POST, "/v1/filter", &self.key).json(&body).send().await.unwrap();
        let status = response.status();
        let answer: Value = response.json().await.unwrap();
        assert_eq!(status, StatusCode::OK, "{answer}");
        answer
    }
}

/// All names of an answer, whoever they are said to belong to.
fn names(answer: &Value) -> BTreeSet<String> {
    answer["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

fn servers(listed: &Listed) -> Value {
    json!({"files": listed.server(), "mail": stdio(&["list=mail"]), "one": stdio(&[]), "time": stdio(&["list=time"])})
}

/// Three servers as they are, one with a tool that is quarantined, and one that was removed. With the names of all that was ever
/// published.
async fn start(listed: &Listed) -> (Running, Vec<String>) {
    let environment =
        vec![("TOOLSIEVE_ADMIN_KEY", ADMIN), ("TOOLSIEVE_ACCESS__TRUST_USERS", "true"), ("TOOLSIEVE_DEFINITIONS__CHANGES", "quarantine")];
    let mut all = servers(listed);
    all["zoo"] = stdio(&["list=time"]);
    let service = Start { servers: all, key: Some(KEY), environment, from_files: true, ..Start::default() }.start().await;
    service.settled().await;
    let document = with_key(&service, Method::GET, "/openapi.json", KEY).send().await.unwrap().json().await.unwrap();
    let names = published(&document).into_iter().collect();
    listed.change(&service, &[read("Reads everything."), other("stays")]).await;
    service.configure(&servers(listed));
    service.reload.reload(Trigger::Request).await;
    service.until(|state| state["servers"].as_array().is_some_and(|servers| servers.len() == 4)).await;
    service.settled().await;
    (service, names)
}

/// What the answer shows of what was ever published may be used, and these functions of others stay.
fn holds(answer: &Value, may_use: &BTreeSet<String>, kept: &[&str], what: &str) -> Result<(), TestCaseError> {
    let ours: BTreeSet<String> = names(answer).into_iter().filter(|name| name.contains("__")).collect();
    let shown: BTreeSet<String> = ours.difference(&set(&FOREIGN)).cloned().collect();
    prop_assert!(shown.is_subset(may_use), "{what}: {:?}", shown.difference(may_use));
    prop_assert!(names(answer).is_superset(&set(kept)), "{what}: {answer}");
    let defined = answer["definitions"].as_array().into_iter().flatten();
    for definition in defined.map(|definition| definition["function"]["name"].as_str().unwrap()) {
        prop_assert!(may_use.contains(definition), "{what}: {definition}");
    }
    let tokens = |which: &str| answer["tokens"][which].as_u64().unwrap();
    prop_assert!(tokens("after") <= tokens("before") || answer["definitions"].is_array(), "{what}: {answer}");
    Ok(())
}

async fn check(service: &Running, asking: &Asking, everything: &[String]) -> Result<(), TestCaseError> {
    let may_use = asking.may_use(service).await;
    let offered: Vec<&str> = everything.iter().map(String::as_str).chain(FOREIGN).chain(["find_tools", "run_tool"]).collect();
    let connections = match &asking.session {
        Some(id) => json!({"server:all": "/", "server:session": format!("/s/{id}")}),
        None => json!({"server:all": "/", "server:mail": "/mail", "server:gone": "/zoo"}),
    };
    let called: Vec<Value> = everything.iter().map(|name| json!({"function": {"name": name}})).collect();
    for text in ["thanks!", "send an email, read a file and tell me what time it is"] {
        let message = json!({"role": "user", "content": text});
        let body = json!({"messages": [message], "tools": offered, "limit": 128});
        holds(&asking.filter(service, body).await, &may_use, &FOREIGN, "names")?;
        let ids: Vec<&String> = connections.as_object().unwrap().keys().collect();
        let body = json!({"messages": [message], "tools": offered, "connections": connections, "tool_ids": ids, "chat_id": "c"});
        holds(&asking.filter(service, body).await, &may_use, &FOREIGN, "connections")?;
        let before = json!({"role": "assistant", "content": "", "tool_calls": called});
        let body = json!({"messages": [message, before, message], "tools": offered, "connections": connections});
        holds(&asking.filter(service, body).await, &may_use, &FOREIGN, "called before")?;
        let body = json!({"messages": [message], "tools": offered, "keep": offered});
        let answer = asking.filter(service, body).await;
        holds(&answer, &may_use, &FOREIGN, "to be kept")?;
        prop_assert!(names(&answer).is_superset(&may_use), "what is to be kept and may be used stays: {answer}");
        let definitions: Vec<Value> =
            offered.iter().map(|name| json!({"name": name, "description": "Sends an email.", "parameters": {}})).collect();
        let body = json!({"messages": [message], "tools": definitions, "narrow_foreign": true, "limit": 128});
        holds(&asking.filter(service, body).await, &may_use, &[], "definitions")?;
        let meta = ["find_tools", "run_tool", "describe_tools"];
        let body = json!({"messages": [message], "tools": meta, "connections": connections, "disclose": everything});
        holds(&asking.filter(service, body).await, &may_use, &[], "disclosed")?;
        let body = json!({"messages": [message], "connections": connections, "tool_ids": ids, "limit": 128});
        holds(&asking.filter(service, body).await, &may_use, &[], "what is published")?;
    }
    Ok(())
}

/// Open WebUI fetches one document for all its users. Somebody with restricted rights was shown nearly the whole catalog with each
/// message, and everybody what was removed or withheld since.
#[tokio::test(flavor = "multi_thread")]
async fn no_function_that_the_caller_may_not_use_is_ever_in_the_answer() {
    let listed = Listed::new(&[read("Reads a file."), other("stays")]);
    let (service, everything) = start(&listed).await;
    assert!(everything.iter().any(|name| name == "files__read") && everything.iter().any(|name| name.starts_with("zoo__")));
    let body = json!({"tools": ["mail__*", "files__*"], "exclude": ["send_*"]});
    let (status, answer) = administer(&service, Method::PUT, "/v1/admin/toolsets/letters", &body).await;
    assert!(status.is_success(), "{answer}");
    let (_, of_toolset) = create(&service, json!({"name": "a", "toolsets": ["letters"], "groups": ["guests"]})).await;
    let (_, of_servers) = create(&service, json!({"name": "b", "servers": ["mail", "time"]})).await;
    let (_, trusted) = create(&service, json!({"name": "t", "toolsets": ["letters"], "trusted": true})).await;
    let (_, made) = service.post("/v1/sessions", &json!({"servers": ["mail", "files"]})).await;
    let session = made["id"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
    let anna = || Some(("u1", "u1@example.org", vec!["staff", "others"]));
    let callers = [
        Asking { session: Some(session), ..Asking::new(KEY) },
        Asking::new(&of_toolset),
        Asking::new(&of_servers),
        Asking { user: anna(), ..Asking::new(KEY) },
        Asking { user: Some(("u2", "u2@example.com", vec!["guests"])), ..Asking::new(KEY) },
        Asking { user: anna(), ..Asking::new(&trusted) },
    ];
    let (handle, cases) = (tokio::runtime::Handle::current(), Config { cases: 16, failure_persistence: None, ..Config::default() });
    let strategy = (prop::collection::vec(rule(), 0..8), any::<bool>());
    let result = tokio::task::block_in_place(|| {
        TestRunner::new(cases).run(&strategy, |(rules, denies)| {
            handle.block_on(async {
                let body = json!({"rules": rules, "default": if denies { "deny" } else { "allow" }});
                let (status, answer) = administer(&service, Method::PUT, "/v1/admin/policy", &body).await;
                if status == StatusCode::UNPROCESSABLE_ENTITY && answer["detail"].as_str().unwrap().contains("under the same conditions") {
                    return Err(TestCaseError::reject("contradiction"));
                }
                prop_assert_eq!(status, StatusCode::OK, "{}", answer);
                for asking in &callers {
                    check(&service, asking, &everything).await?;
                }
                Ok(())
            })
        })
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}

/// The document that a client has outlives a restart of the service.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_published_before_a_restart_is_not_taken_for_foreign() {
    let listed = Listed::new(&[read("Reads a file."), other("stays")]);
    let (service, everything) = start(&listed).await;
    let folder = service.stop().await;
    let environment = vec![("TOOLSIEVE_ADMIN_KEY", ADMIN), ("TOOLSIEVE_DEFINITIONS__CHANGES", "quarantine")];
    let service = Start { servers: servers(&listed), key: Some(KEY), environment, folder: Some(folder), ..Start::default() }.start().await;
    service.settled().await;
    let asking = Asking::new(KEY);
    let offered: Vec<&str> = everything.iter().map(String::as_str).chain(FOREIGN).collect();
    let body = json!({"messages": [{"role": "user", "content": "thanks!"}], "tools": offered});
    let answer = asking.filter(&service, body).await;
    assert_eq!(names(&answer), set(&FOREIGN), "{answer}");
    assert_eq!(answer["tokens"]["after"], 0, "nothing of ours is kept");
    let message = json!({"role": "user", "content": "what time is it in Tokyo"});
    let answer = asking.filter(&service, json!({"messages": [message], "tools": offered})).await;
    assert!(names(&answer).contains("time__get_current_time"), "{answer}");
    assert!(names(&answer).iter().all(|name| !name.starts_with("zoo__") && name != "files__read"), "{answer}");
}

/// The path of a connection may be one that the service does not know: a proxy's, or that of a toolset that was removed.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_of_unknown_path_keeps_the_tools_that_only_it_can_have() {
    let service = Running::on(json!({"mail": stdio(&["list=mail"]), "time": stdio(&["list=time"])})).await;
    let document = service.get("/openapi.json").await.1;
    let body = json!({
        "messages": [{"role": "user", "content": "what time is it in Tokyo, and send an email to Anna"}],
        "tools": published(&document),
        "connections": {"server:m": "/mail", "server:x": "/gone"},
        "tool_ids": ["server:m", "server:x"],
        "limit": 4,
    });
    let (_, answer) = service.post("/v1/filter", &body).await;
    let chosen = names(&answer);
    assert!(chosen.contains("mail__send_email"), "{answer}");
    assert!(chosen.contains("time__get_current_time"), "another connection has better ones, but not these: {answer}");
    assert!(chosen.len() <= 4 && published(&document).len() == 5, "they are narrowed: {answer}");
    assert_eq!(answer["tool_ids"], json!(["server:m", "server:x"]));
    let warning = "server:x stays switched on: nothing is published under /gone. Its tools are narrowed by their names";
    assert_eq!(answer["warnings"], json!([warning]));
}

/// A server that is killed, and does not come back, once there is such a file.
fn mortal(end: &Path, list: &str) -> Value {
    let (end, server) = (end.display(), example("test-stdio-server"));
    let watch = format!("(while [ ! -e {end} ]; do kill -0 $$ || exit; sleep 0.05; done; kill -9 $$) >/dev/null 2>&1 </dev/null &");
    json!({"command": "sh", "args": ["-c", format!("test -e {end} && exit 1; {watch} exec {} list={list}", server.display())]})
}

/// Two servers have the same tools and one of them dies: its tools were offered, alone, and every call failed.
#[tokio::test(flavor = "multi_thread")]
async fn of_duplicates_those_that_answer_are_offered() {
    let folder = tempfile::tempdir().unwrap();
    let (mail, time) = (folder.path().join("mail"), folder.path().join("time"));
    let servers = json!({"mail": mortal(&mail, "mail"), "other": stdio(&["list=mail"]), "time": mortal(&time, "time")});
    let service = Running::on(servers).await;
    let ask = async |text: &str| {
        let (_, answer) = service.post("/v1/filter", &json!({"messages": [{"role": "user", "content": text}]})).await;
        (names(&answer), answer["warnings"].clone())
    };
    let of = |names: &BTreeSet<String>, server: &str| names.iter().any(|name| name.starts_with(server));
    let call = json!({"role": "assistant", "content": "Sent.", "tool_calls": [{"function": {"name": "mail__send_email"}}]});
    let in_chat = async |last: &[Value]| {
        let messages: Vec<Value> =
            [json!({"role": "user", "content": "send an email message to Anna"})].iter().chain(last).cloned().collect();
        names(&service.post("/v1/filter", &json!({"messages": messages, "chat_id": "c"})).await.1)
    };
    assert!(in_chat(&[]).await.contains("mail__send_email"));
    let (before, warnings) = ask("send an email message to Anna").await;
    assert!(of(&before, "mail__") && !of(&before, "other__") && warnings == json!([]), "one of both: {before:?} {warnings}");

    std::fs::write(&mail, "").unwrap();
    service.until(|state| state["servers"][0]["phase"] == "retrying").await;
    let (after, warnings) = ask("send an email message to Berta").await;
    assert!(after.contains("other__send_email") && !of(&after, "mail__") && warnings == json!([]), "{after:?} {warnings}");
    let (_, found) = service.post("/v1/tools/search", &json!({"queries": ["send an email message"], "limit": 2})).await;
    assert_eq!(found["tools"][0]["name"], "other__send_email", "{found}");
    // A chat that has called the one whose server died gets the other.
    let more = in_chat(&[call, json!({"role": "user", "content": "send it to Berta too"})]).await;
    assert!(more.contains("other__send_email"), "{more:?}");

    // Where nothing else fits it stays: its server may be back when it is called.
    std::fs::write(&time, "").unwrap();
    service.until(|state| state["servers"][2]["phase"] == "retrying").await;
    let (only, warnings) = ask("what time is it in Tokyo").await;
    assert!(only.contains("time__get_current_time"), "{only:?}");
    assert_eq!(warnings, json!(["time is down; its tools are still offered"]));
}
