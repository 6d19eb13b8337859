//! Rules: one answer on every path, changed while running.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use toolsieve::service::catalog::reload::Trigger;

use crate::harness::answers::{published, shape};
use crate::harness::keys::{ADMIN, KEY, administer, command, create, with_key};
use crate::harness::rules::rule;
use crate::harness::wait::{eventually, when};
use crate::harness::{Running, Start, stdio};

fn servers() -> Value {
    json!({"one": stdio(&[]), "mail": stdio(&["list=mail"]), "time": stdio(&["list=time"])})
}

async fn start() -> Running {
    let environment = vec![("TOOLSIEVE_ADMIN_KEY", ADMIN), ("TOOLSIEVE_ACCESS__TRUST_USERS", "true")];
    let running = Start { servers: servers(), key: Some(KEY), environment, ..Start::default() }.start().await;
    running.settled().await;
    running
}

async fn put(service: &Running, rules: Value) -> Value {
    let (status, answer) = administer(service, Method::PUT, "/v1/admin/policy", &json!({"rules": rules})).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_tool_is_gone_at_once_and_comes_back() {
    let service = start().await;
    let call = || service.request(Method::POST, "/one/echo").json(&json!({}));
    assert_eq!(call().send().await.unwrap().status(), StatusCode::OK);
    put(&service, json!([{"effect": "block", "tools": ["echo"]}])).await;
    assert_eq!(call().send().await.unwrap().status(), StatusCode::NOT_FOUND, "the first call after the answer");
    put(&service, json!([])).await;
    assert_eq!(call().send().await.unwrap().status(), StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_denied_answers_as_what_does_not_exist() {
    let denied = start().await;
    let rules = json!([{"effect": "block", "tools": ["echo"]}, {"effect": "block", "servers": ["mail"]}]);
    put(&denied, rules).await;
    let mut one = stdio(&[]);
    one["disabledTools"] = json!(["echo"]);
    let servers = json!({"one": one, "time": stdio(&["list=time"])});
    let absent = Start { servers, key: Some(KEY), ..Start::default() }.start().await;
    absent.settled().await;
    let message = json!([{"role": "user", "content": "thanks!"},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "mail__send_email"}}, {"function": {"name": "one__echo"}}]}]);
    let requests: Vec<(Method, &str, Value)> = vec![
        (Method::POST, "/one/echo", json!({})),
        (Method::POST, "/one/ech", json!({})),
        (Method::POST, "/mail/send_email", json!({})),
        (Method::POST, "/mail/v1/tools/search", json!([])),
        (Method::POST, "/v1/tools/search", json!({"queries": ["email"], "servers": ["mail"]})),
        (Method::POST, "/v1/tools/search", json!({"queries": ["email"], "servers": ["mial"]})),
        (Method::GET, "/mail/openapi.json", json!({})),
        (Method::GET, "/mail/docs", json!({})),
        (Method::POST, "/v1/tools/call", json!({"name": "one__echo", "arguments": {}})),
        (Method::POST, "/v1/tools/call", json!({"name": "mail__send_emai"})),
        (Method::PUT, "/v1/secrets/mail/token", json!({"value": "x"})),
    ];
    for (method, path, body) in requests {
        let ask = |service: &Running| service.request(method.clone(), path).json(&body);
        let (one, other) = (shape(ask(&denied)).await, shape(ask(&absent)).await);
        assert_eq!(one, other, "{path}");
    }
    let filters = [
        json!({"messages": message, "tools": ["no_such", "time__get_current_time"], "chat_id": "c"}),
        json!({"messages": message, "connections": {"a": "/mail", "b": "/one", "c": "/"}, "tool_ids": ["a", "b", "c"]}),
        json!({"messages": message, "connections": {"a": "/mail"}, "chat_id": "d"}),
    ];
    for body in filters {
        let ask = async |service: &Running| {
            let mut answer = service.post("/v1/filter", &body).await.1;
            for (name, kind) in [("took_ms", "number"), ("selection_id", "text")] {
                let value = answer[name].take();
                assert!(if kind == "number" { value.is_f64() } else { value.is_string() }, "{name}: {value}");
            }
            // Scores are relative to the whole index.
            answer["tools"].as_array_mut().unwrap().iter_mut().for_each(|tool| tool["score"] = Value::Null);
            answer
        };
        assert_eq!(ask(&denied).await, ask(&absent).await, "{body}");
    }
    let document = async |service: &Running, path: &str| service.get(path).await.1;
    for path in ["/openapi.json", "/one/openapi.json", "/openapi.json?mode=meta"] {
        assert_eq!(document(&denied, path).await, document(&absent, path).await, "{path}");
    }
    let names = |state: Value| state["servers"].as_array().unwrap().iter().map(|server| server["server"].to_string()).collect::<Vec<_>>();
    assert_eq!(names(denied.get("/readyz").await.1), names(absent.get("/readyz").await.1));
    let tools_of_one = |state: Value| {
        let servers = state["servers"].as_array().unwrap();
        servers.iter().find(|server| server["server"] == "one").unwrap()["tools"].as_u64().unwrap()
    };
    let all = administer(&denied, Method::GET, "/readyz", &json!({})).await.1;
    assert_eq!(tools_of_one(denied.get("/readyz").await.1) + 1, tools_of_one(all), "one is denied");
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_are_versioned_checked_and_kept() {
    let service = start().await;
    let path = "/v1/admin/policy";
    let (_, empty) = administer(&service, Method::GET, path, &json!({})).await;
    assert_eq!((&empty["version"], &empty["effective_default"]), (&json!(0), &json!("allow")));
    let replace = async |tag: &str, rules: Value| {
        let request = with_key(&service, Method::PUT, path, ADMIN).header("If-Match", tag).json(&json!({"rules": rules}));
        let response = request.send().await.unwrap();
        let tag = response.headers().get("etag").map(|tag| tag.to_str().unwrap().to_owned());
        (response.status(), tag, response.json::<Value>().await.unwrap())
    };
    let block = json!([{"effect": "block", "servers": ["time"]}, {"effect": "block", "tools": ["no_such_tool"]}]);
    let (status, tag, view) = replace("\"0\"", block.clone()).await;
    assert_eq!((status, tag.as_deref(), &view["rules"]), (StatusCode::OK, Some("\"1\""), &block));
    assert_eq!(view["warnings"], json!([{"source": "api", "number": 2, "reason": "it matches no current tool"}]));
    for late in ["\"0\"", "\"2\"", "nonsense"] {
        assert_eq!(replace(late, json!([])).await.0, StatusCode::PRECONDITION_FAILED, "{late}");
    }
    // The last one would count, without a word.
    let twice = r#"{"rules": [{"effect": "block", "effect": "allow"}]}"#;
    let response = with_key(&service, Method::PUT, path, ADMIN).body(twice).send().await.unwrap();
    let (status, problem) = (response.status(), response.json::<Value>().await.unwrap());
    assert!(
        status == StatusCode::UNPROCESSABLE_ENTITY && problem["detail"].as_str().unwrap().contains("\"effect\" occurs twice"),
        "{problem}"
    );
    for (rules, parts) in [
        (json!([{"effect": "block"}, {"effect": "block", "tool": ["a"]}, {"effect": "x"}]), ["rule 2: unknown field `tool`", "rule 3: "]),
        (json!([{"effect": "block", "tools": ["a["]}]), ["rule 1: tools: ", "a["]),
        (json!([{"effect": "block", "tools": ["a"]}, {"effect": "allow", "tools": ["a"]}]), ["rule 2: it says allow", "rule 1 says block"]),
    ] {
        let (status, _, problem) = replace("\"1\"", rules).await;
        assert_eq!((status, &problem["code"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!("invalid_request")));
        assert!(parts.iter().all(|part| problem["detail"].as_str().unwrap().contains(part)), "{problem}");
    }
    // Trying out changes nothing.
    let draft = json!({"tool": "one__echo", "principal": "service-key", "policy": {"default": "deny"}});
    let (_, answer) = administer(&service, Method::POST, "/v1/admin/policy/check", &draft).await;
    assert_eq!((&answer["decisions"][0]["effect"], &answer["decisions"][0]["rule"]), (&json!("block"), &Value::Null), "{answer}");
    assert_eq!(service.post("/one/echo", &json!({})).await.0, StatusCode::OK);

    let environment = vec![("TOOLSIEVE_ADMIN_KEY", ADMIN)];
    let service =
        Start { servers: servers(), key: Some(KEY), environment, folder: Some(service.stop().await), ..Start::default() }.start().await;
    let (_, view) = administer(&service, Method::GET, path, &json!({})).await;
    assert_eq!((&view["version"], &view["rules"]), (&json!(1), &block));
    assert_eq!(service.get("/time/openapi.json").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_says_who_may_and_which_rule_decides() {
    let service = start().await;
    create(&service, json!({"name": "ci", "servers": ["one"], "groups": ["robots"]})).await;
    put(&service, json!([{"effect": "allow", "principals": ["user:*@example.org"]}, {"effect": "block", "tools": ["echo"]}])).await;
    let check = async |body: Value| {
        let (status, answer) = administer(&service, Method::POST, "/v1/admin/policy/check", &body).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        answer["decisions"].as_array().unwrap().clone()
    };
    let who = check(json!({"tool": "one/echo"})).await;
    let names: Vec<&str> = who.iter().map(|decision| decision["principal"].as_str().unwrap()).collect();
    assert_eq!(names, ["anyone", "service-key", "admin", "key:ci", "a user of no group"]);
    assert!(
        who.iter().all(|decision| decision["effect"] == "block" && decision["rule"] == json!({"source": "api", "number": 2})),
        "{who:?}"
    );
    // Regression: the groups that Open WebUI sends were missing, because only rules name them.
    let draft = json!({"rules": [{"effect": "allow", "groups": ["admins", "x-*"]}, {"effect": "block", "tools": ["echo"]}]});
    let who = check(json!({"tool": "one/echo", "policy": draft})).await;
    let of_groups: Vec<_> = who[4..].iter().map(|decision| (&decision["principal"], &decision["effect"])).collect();
    assert_eq!(of_groups, [(&json!("a user of no group"), &json!("block")), (&json!("a user of admins"), &json!("allow"))]);
    let anna = check(json!({"tool": "one__echo", "principal": "user:anna@example.org"})).await;
    assert_eq!((&anna[0]["effect"], &anna[0]["reason"]), (&json!("allow"), &json!("rule 1 says allow")));
    let ci = check(json!({"principal": "key:ci"})).await;
    let may: BTreeSet<&str> =
        ci.iter().filter(|decision| decision["effect"] == "allow").map(|decision| decision["server"].as_str().unwrap()).collect();
    assert_eq!((may, json!(ci.len())), (BTreeSet::from(["one"]), service.get("/readyz").await.1["tools"].clone()));
    let words = ["policy", "check", "--tool", "one__echo", "--principal", "key:ci"];
    let (code, table, warnings) = command(&service, &words);
    let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!((code, row.join(" ")), (Some(0), "key:ci one__echo no rule 2 says block".to_owned()), "{warnings}");
    for (body, part) in
        [(json!({}), "name a tool"), (json!({"tool": "x"}), "no tool `x`"), (json!({"principal": "key:x"}), "key:NAME of an active key")]
    {
        let (status, problem) = administer(&service, Method::POST, "/v1/admin/policy/check", &body).await;
        assert!(status == StatusCode::UNPROCESSABLE_ENTITY && problem["detail"].as_str().unwrap().contains(part), "{problem}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_and_groups_of_the_settings_are_reloaded() {
    let environment = vec![("TOOLSIEVE_ADMIN_KEY", ADMIN), ("TOOLSIEVE_ACCESS__TRUST_USERS", "true")];
    let service = Start { servers: servers(), key: Some(KEY), environment, from_files: true, ..Start::default() }.start().await;
    service.settled().await;
    let file = service.folder.path().join("toolsieve.toml");
    let set = async |text: &str| {
        std::fs::write(&file, text).unwrap();
        service.reload.reload(Trigger::Request).await;
        service.get("/readyz").await.1["reload"].clone()
    };
    let echo = async |email: &str| {
        let request = service.request(Method::POST, "/one/echo").json(&json!({}));
        request.header("X-OpenWebUI-User-Id", "u").header("X-OpenWebUI-User-Email", email).send().await.unwrap().status()
    };
    let rules =
        "[access]\ndefault = \"deny\"\n[groups]\nstaff = [\"Anna@example.org\"]\n[[policy]]\neffect = \"allow\"\ngroups = [\"staff\"]\n";
    assert_eq!(set(rules).await["needs_restart"], json!([]));
    assert_eq!((echo("anna@example.org").await, echo("x@example.org").await), (StatusCode::OK, StatusCode::NOT_FOUND));
    assert_eq!(service.post("/one/echo", &json!({})).await.0, StatusCode::NOT_FOUND, "the key itself is in no group");
    let state =
        set(&rules.replace("[[policy]]", "[[policy]]\neffect = \"block\"\ngroups = [\"staff\"]\n[[policy]]\ntool = [\"a\"]\n[[policy]]"))
            .await;
    assert_eq!(state["state"], "failed");
    let problems = state["problems"].to_string();
    assert!(problems.contains("rule 2: it has no effect") && problems.contains("rule 3 of the settings: it says allow"), "{problems}");
    assert_eq!(echo("anna@example.org").await, StatusCode::OK, "what held still holds");
    set("").await;
    assert_eq!(echo("x@example.org").await, StatusCode::OK);
}

/// Regression: Open WebUI escapes letters outside ASCII in headers, so rules for such groups, addresses and models never applied.
#[tokio::test(flavor = "multi_thread")]
async fn rules_match_the_letters_that_open_webui_escapes() {
    let service = start().await;
    let block = |condition: &str, of: &str| json!({"effect": "block", "tools": ["echo"], condition: [of]});
    put(
        &service,
        json!([
            block("groups", "Zürich"),
            block("principals", "user:jörg@example.org"),
            block("principals", "user:名"),
            block("principals", "user:anna@example.org"),
            block("models", "größe"),
        ]),
    )
    .await;
    let shows = async |caller: [&str; 4]| {
        let [id, email, groups, model] = caller;
        let ask = |method: Method, path: &str| {
            let request = with_key(&service, method, path, KEY).header("X-OpenWebUI-User-Id", id).header("X-OpenWebUI-User-Email", email);
            request.header("X-OpenWebUI-User-Groups", groups.as_bytes()).header("X-OpenWebUI-Model-Id", model)
        };
        let status = ask(Method::POST, "/one/echo").json(&json!({})).send().await.unwrap().status();
        let document: Value = ask(Method::GET, "/openapi.json").send().await.unwrap().json().await.unwrap();
        let is_there = published(&document).contains("one__echo");
        assert_eq!(is_there, status == StatusCode::OK, "{caller:?}: the document and {status}");
        is_there
    };
    for blocked in [
        ["u", "u@example.org", "Bern,Z%C3%BCrich,Basel", "m"],
        ["u", "u@example.org", "Z%c3%bcrich", "m"],
        ["u", "u@example.org", "Zürich", "m"],
        ["u", "J%C3%96RG@example.org", "", "m"],
        ["%E5%90%8D", "u@example.org", "", "m"],
        ["u", "u@example.org", "", "gr%C3%B6%C3%9Fe"],
    ] {
        assert!(!shows(blocked).await, "{blocked:?}");
    }
    // Open WebUI escapes no ASCII, so a person wrote these escapes: with them, nobody passes for another.
    for another in [
        ["u", "%61nna@example.org", "%5Aürich,Z%C3rich", "m"],
        ["u", "j%C3%B6rg%40example.org", "Genf%2CZ%C3%BCrich", "gr%C3%B6%73%73e"],
        ["u", "%C2%A0anna@example.org", "Z%C3%BCrich-Nord", "m"],
    ] {
        assert!(shows(another).await, "{another:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_log_says_who_did_what_and_never_with_which_words() {
    let service = start().await;
    let (id, key) = create(&service, json!({"name": "ci", "servers": ["one"]})).await;
    put(&service, json!([{"effect": "block", "tools": ["fail"]}, {"effect": "allow", "tools": ["echo"]}])).await;
    let call = async |key: &str, path: &str| {
        let request = with_key(&service, Method::POST, path, key).json(&json!({"text": "a-word-of-mine"}));
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!(call(&key, "/one/echo").await, 200);
    assert_eq!(call(&key, "/one/fail").await, 404);
    assert_eq!(call(&key, "/time/get_current_time").await, 404);
    assert_eq!(call(&key, "/one/no_such_tool").await, 404);
    administer(&service, Method::DELETE, &format!("/v1/admin/keys/{id}"), &json!({})).await;
    let log = eventually("the revocation in the audit log", async || {
        let (status, log) = administer(&service, Method::GET, "/v1/admin/audit?limit=50", &json!({})).await;
        assert_eq!(status, StatusCode::OK, "{log}");
        when(log, |log| log["entries"][0]["action"] == "key_revoke")
    })
    .await;
    assert!(!log.to_string().contains("a-word-of-mine") && !log.to_string().contains(&key));
    let lines: Vec<String> = log["entries"]
        .as_array()
        .unwrap()
        .iter()
        .rev()
        .map(|entry| {
            let of = |name: &str| entry[name].as_str().unwrap_or("-").to_owned();
            let rule = entry["rule"]["number"].as_u64().map_or("-".to_owned(), |number| number.to_string());
            [of("principal"), of("action"), of("tool"), of("subject"), of("decision"), rule, of("outcome")].join(" ")
        })
        .collect();
    assert_eq!(
        lines,
        [
            "admin key_create - ci allow - -",
            "admin policy_replace - version 1 allow - -",
            "key:ci call echo - allow 2 success",
            "key:ci call fail - block 1 -",
            "key:ci call get_current_time - block - -",
            "admin key_revoke - ci allow - -",
        ]
    );
    let echo = log["entries"].as_array().unwrap().iter().find(|entry| entry["tool"] == "echo").unwrap();
    assert!(echo["took_ms"].as_f64().unwrap() > 0.0 && echo["bytes"] == 25, "{echo}");
    let (_, denied) = administer(&service, Method::GET, "/v1/admin/audit?decision=block&tool=fail", &json!({})).await;
    assert_eq!((denied["entries"].as_array().unwrap().len(), &denied["next"]), (1, &Value::Null));
    for wrong in ["decision=no", "since=yesterday", "limit=0", "who=me", "outcome=fine"] {
        let (status, _) = administer(&service, Method::GET, &format!("/v1/admin/audit?{wrong}"), &json!({})).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{wrong}");
    }
}

/// Callers at the same time, each with tools of its own, while other rules come and go.
#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_callers_never_see_each_others_tools() {
    const CALLERS: usize = 100;
    let service = start().await;
    let document = service.get("/openapi.json").await.1;
    let tools: Vec<String> = published(&document).into_iter().collect();
    let mut callers = Vec::new();
    let mut rules = Vec::new();
    for number in 0..CALLERS {
        let (_, key) = create(&service, json!({"name": format!("k{number}")})).await;
        let own: BTreeSet<String> =
            [number, number / 7 + 3 * number, 5 * number + number / 11].map(|at| tools[at % tools.len()].clone()).into();
        rules.push(json!({"effect": "allow", "principals": [format!("key:k{number}")], "tools": own}));
        callers.push((key, own));
    }
    let policy = |extra: &[Value]| json!({"default": "deny", "rules": ([rules.as_slice(), extra].concat())});
    administer(&service, Method::PUT, "/v1/admin/policy", &policy(&[])).await;
    let looks = callers.iter().map(async |(key, own)| {
        for round in 0..5 {
            let ask = async |method: Method, path: &str, body: Value| {
                with_key(&service, method, path, key).json(&body).send().await.unwrap().json::<Value>().await.unwrap()
            };
            assert_eq!(published(&ask(Method::GET, "/openapi.json", json!({})).await), *own);
            // The words of one's own tools, because a search for nothing that is there finds nothing.
            let words = own.iter().cloned().collect::<Vec<_>>().join(" ");
            let query = json!({"queries": ["send an email, tell the time, echo", words], "limit": 100});
            assert_eq!(names(&ask(Method::POST, "/v1/tools/search", query).await), *own);
            let message = json!([{"role": "user", "content": "send an email and tell me what time it is"}]);
            let selection = ask(Method::POST, "/v1/filter", json!({"messages": message, "limit": 128, "chat_id": "one"})).await;
            assert!(names(&selection).is_subset(own), "{selection}");
            let name = &tools[(round * 13) % tools.len()];
            let code = ask(Method::POST, "/v1/tools/call", json!({"name": name, "arguments": []})).await["code"].clone();
            assert_eq!(code == "invalid_arguments", own.contains(name), "{name}: {code}");
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

/// A caller, and how the check of the policy calls it.
struct Who {
    key: String,
    user: Option<(&'static str, &'static str)>,
    groups: &'static str,
    model: Option<&'static str>,
    asked: Value,
}

impl Who {
    fn request(&self, service: &Running, method: Method, path: &str) -> RequestBuilder {
        let mut request = with_key(service, method, path, &self.key);
        if let Some((id, email)) = self.user {
            request = request.header("X-OpenWebUI-User-Id", id).header("X-OpenWebUI-User-Email", email);
            request = request.header("X-OpenWebUI-User-Groups", self.groups);
        }
        match self.model {
            Some(model) => request.header("X-OpenWebUI-Model-Id", model),
            None => request,
        }
    }

    /// One request over MCP.
    async fn mcp(&self, service: &Running, path: &str, method: &str, params: Value) -> Value {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let request = self.request(service, Method::POST, path).header("accept", "application/json, text/event-stream");
        request.json(&message).send().await.unwrap().json().await.unwrap()
    }

    async fn ask(&self, service: &Running, method: Method, path: &str, body: &Value) -> (StatusCode, Value) {
        let response = self.request(service, method, path).json(body).send().await.unwrap();
        (response.status(), response.json().await.unwrap())
    }
}

/// Published names in a document, without the meta-tools.
fn names(answer: &Value) -> BTreeSet<String> {
    let ours = answer["tools"].as_array().unwrap().iter().filter(|tool| tool["server"].is_string());
    ours.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// Every interface shows a caller what the rules say, and nothing else.
async fn agrees(service: &Running, who: &Who) -> Result<(), TestCaseError> {
    let (_, checked) = administer(service, Method::POST, "/v1/admin/policy/check", &who.asked).await;
    let decisions = checked["decisions"].as_array().unwrap();
    let text = |decision: &Value, name: &str| decision[name].as_str().unwrap().to_owned();
    let allowed: BTreeSet<String> =
        decisions.iter().filter(|decision| decision["effect"] == "allow").map(|decision| text(decision, "name")).collect();

    let (_, document) = who.ask(service, Method::GET, "/openapi.json", &json!({})).await;
    prop_assert_eq!(published(&document), allowed.clone(), "the document");
    for server in ["one", "mail", "time"] {
        let of_server: BTreeSet<String> = allowed.iter().filter(|name| name.starts_with(&format!("{server}__"))).cloned().collect();
        let (status, document) = who.ask(service, Method::GET, &format!("/{server}/openapi.json"), &json!({})).await;
        if of_server.is_empty() {
            prop_assert_eq!(status, StatusCode::NOT_FOUND, "{}", server);
        } else {
            prop_assert_eq!(published(&document), of_server, "{}", server);
        }
    }
    for path in ["/mcp", "/mcp?mode=lazy"] {
        let answer = who.mcp(service, path, "tools/list", json!({})).await;
        let tools = answer["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned());
        prop_assert_eq!(tools.filter(|name| name.contains("__")).collect::<BTreeSet<_>>(), allowed.clone(), "{}", path);
    }
    let words = allowed.iter().cloned().collect::<Vec<_>>().join(" ");
    let query = json!({"queries": ["send an email, tell the time, echo", words], "limit": 100});
    let (_, found) = who.ask(service, Method::POST, "/v1/tools/search", &query).await;
    prop_assert_eq!(names(&found), allowed.clone(), "the search");
    let query = json!({"queries": ["send an email, tell the time, echo", words], "limit": 100, "servers": ["mail", "tim"]});
    let (_, found) = who.ask(service, Method::POST, "/v1/tools/search", &query).await;
    let of_mail: BTreeSet<String> = allowed.iter().filter(|name| name.starts_with("mail__")).cloned().collect();
    prop_assert_eq!(names(&found), of_mail.clone(), "the search of servers");
    let unknown = found["unknown_servers"].as_array().unwrap();
    prop_assert_eq!(unknown.iter().any(|server| server["name"] == "mail"), of_mail.is_empty(), "{}", found);
    let shows_time = allowed.iter().any(|name| name.starts_with("time__"));
    prop_assert_eq!(unknown.iter().any(|server| server["did_you_mean"] == "time"), shows_time, "{}", found);
    let task = json!({"task": "send an email with the time", "limit": 10});
    let (_, chosen) = who.ask(service, Method::POST, "/v1/tools/smart_select", &task).await;
    prop_assert!(names(&chosen).is_subset(&allowed), "smart select: {chosen}");
    let to_load = chosen["toolsets"].as_array().into_iter().flatten().flat_map(|toolset| toolset["has"].as_array().unwrap());
    let to_load: BTreeSet<String> = to_load.map(|name| name.as_str().unwrap().to_owned()).collect();
    prop_assert_eq!(to_load, names(&chosen), "the toolsets to load: {}", chosen);
    let everything: Vec<String> = decisions.iter().map(|decision| text(decision, "name")).collect();
    let message = json!([{"role": "user", "content": "send an email and tell me what time it is"}]);
    for offered in [json!({"tools": everything}), json!({})] {
        let mut body = offered;
        body["messages"] = message.clone();
        body["limit"] = json!(128);
        body["model"] = who.model.into();
        let (_, selection) = who.ask(service, Method::POST, "/v1/filter", &body).await;
        prop_assert!(names(&selection).is_subset(&allowed), "the filter: {selection}");
    }
    for decision in decisions {
        let (name, server, tool) = (text(decision, "name"), text(decision, "server"), text(decision, "tool"));
        // Where the tool is reached, these arguments are refused, so that nothing is run.
        let expected = if allowed.contains(&name) { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::NOT_FOUND };
        let (status, body) = who.ask(service, Method::POST, &format!("/{server}/{tool}"), &json!([])).await;
        prop_assert_eq!(status, expected, "{} {}", name, body);
        let (status, body) = who.ask(service, Method::POST, "/v1/tools/call", &json!({"name": name, "arguments": []})).await;
        prop_assert_eq!(status, expected, "{} {}", name, body);
        let described = who.mcp(service, "/mcp", "tools/describe_batch", json!({"names": [name]})).await;
        let is_described = described["result"]["tools"].as_array().is_some_and(|tools| !tools.is_empty());
        prop_assert_eq!(is_described, expected != StatusCode::NOT_FOUND, "{} {}", name, described);
        if expected == StatusCode::NOT_FOUND {
            let called = who.mcp(service, "/mcp", "tools/call", json!({"name": name, "arguments": {}})).await;
            let unknown = who.mcp(service, "/mcp", "tools/call", json!({"name": "no__such", "arguments": {}})).await;
            prop_assert!(called["error"].is_object(), "{} {}", name, called);
            prop_assert_eq!(&called["error"]["code"], &unknown["error"]["code"], "{} {}", called, unknown);
        }
        prop_assert!(expected != StatusCode::NOT_FOUND || !body["detail"].as_str().unwrap().contains(&format!("`{name}`")), "{body}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn all_interfaces_agree_under_generated_policies() {
    let service = start().await;
    let (_, plain) = create(&service, json!({"name": "a", "groups": ["guests"]})).await;
    let (_, narrow) = create(&service, json!({"name": "b", "servers": ["mail", "time"]})).await;
    let callers = [
        Who { key: KEY.into(), user: None, groups: "", model: None, asked: json!({"principal": "service-key"}) },
        Who { key: plain, user: None, groups: "", model: None, asked: json!({"principal": "key:a"}) },
        Who { key: narrow, user: None, groups: "", model: Some("gpt-5"), asked: json!({"principal": "key:b", "model": "gpt-5"}) },
        Who {
            key: KEY.into(),
            user: Some(("u1", "u1@example.org")),
            groups: "staff, others",
            model: Some("gpt-5"),
            asked: json!({"principal": "user:u1", "email": "u1@example.org", "groups": ["staff"], "model": "gpt-5"}),
        },
    ];
    let (handle, cases) = (tokio::runtime::Handle::current(), Config { cases: 12, failure_persistence: None, ..Config::default() });
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
                for who in &callers {
                    agrees(&service, who).await?;
                }
                Ok(())
            })
        })
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}
