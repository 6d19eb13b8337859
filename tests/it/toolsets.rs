//! Toolsets: addresses, rules, keys, the filter, the command line, and that nobody learns of one who sees nothing in it.

use std::collections::BTreeSet;
use std::fs;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use toolsieve::service::catalog::reload::Trigger;

use crate::harness::answers::{operations, published, set, shape};
use crate::harness::keys::{ADMIN, KEY, administer, command, create, start_on, with_key};
use crate::harness::servers::four;
use crate::harness::wait::{eventually, when};
use crate::harness::{Running, Start, process};

async fn start() -> Running {
    start_on(four(), &[]).await
}

async fn put(service: &Running, name: &str, body: Value) -> Value {
    let (status, answer) = administer(service, Method::PUT, &format!("/v1/admin/toolsets/{name}"), &body).await;
    assert!(status.is_success(), "{answer}");
    answer
}

/// Letters without sending them, and the clock: over two servers, with one tool that is always on.
async fn put_letters(service: &Running) -> Value {
    let body = json!({"description": "Read letters", "servers": ["mail"], "exclude": ["send_*"], "always": ["time__get_current_time"]});
    put(service, "letters", body).await
}

fn names(answer: &Value) -> BTreeSet<String> {
    let ours = answer["tools"].as_array().unwrap().iter().filter(|tool| tool["server"].is_string());
    ours.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

const LETTERS: [&str; 3] = ["mail__list_emails", "mail__search_emails", "time__get_current_time"];

#[tokio::test(flavor = "multi_thread")]
async fn everything_below_its_address_knows_only_its_tools() {
    let service = start().await;
    let view = put_letters(&service).await;
    assert_eq!((&view["members"], &view["source"]), (&json!(LETTERS), &json!("api")), "{view}");
    let response = service.request(Method::GET, "/toolsets/letters/openapi.json").send().await.unwrap();
    let tag = response.headers()["etag"].clone();
    let document: Value = response.json().await.unwrap();
    assert_eq!(published(&document), set(&LETTERS));
    assert!(operations(&document).contains("find_tools") && operations(&document).contains("run_tool"));
    assert_eq!((&document["info"]["title"], &document["info"]["description"]), (&json!("letters"), &json!("Read letters")));
    assert_eq!(document["servers"], json!([{"url": "/toolsets/letters"}]));
    let again = service.request(Method::GET, "/toolsets/letters/openapi.json").header("if-none-match", &tag).send().await.unwrap();
    assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
    // What is always on is there even where the others are not.
    let (_, meta) = service.get("/toolsets/letters/openapi.json?mode=meta").await;
    assert_eq!(published(&meta), set(&["time__get_current_time"]));
    assert_eq!(published(&service.get("/openapi.json?mode=meta").await.1), set(&[]));
    let (_, mail) = service.get("/toolsets/letters/mail/openapi.json").await;
    assert_eq!((published(&mail), &mail["servers"][0]["url"]), (set(&LETTERS[..2]), &json!("/toolsets/letters/mail")));
    assert_eq!(service.get("/toolsets/letters/files/openapi.json").await.0, StatusCode::NOT_FOUND);

    // Whatever a document lists is there below the same address.
    for path in document["paths"].as_object().unwrap().keys() {
        let (status, body) = service.post(&format!("/toolsets/letters{path}"), &json!([])).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{path} {body}");
    }
    let call = async |path: &str, body: Value| service.post(&format!("/toolsets/letters{path}"), &body).await.0;
    for absent in ["/mail/send_email", "/files/read_file", "/toolsets/letters/mail/list_emails", "/v1/admin/keys"] {
        assert_eq!(call(absent, json!({})).await, StatusCode::NOT_FOUND, "{absent}");
    }
    assert_eq!(call("/v1/tools/call", json!({"name": "mail__send_email", "arguments": {}})).await, StatusCode::NOT_FOUND);
    put(&service, "small", json!({"servers": ["one"]})).await;
    assert_eq!(service.post("/toolsets/small/one/echo", &json!({"a": 1})).await.0, StatusCode::OK);
    let run = json!({"name": "one__echo", "arguments": {"a": 1}});
    assert_eq!(service.post("/toolsets/small/v1/tools/call", &run).await.0, StatusCode::OK);
    let query = json!({"queries": ["send an email, read a file"], "limit": 100});
    assert_eq!(names(&service.post("/toolsets/letters/v1/tools/search", &query).await.1), set(&LETTERS));
    let (_, chosen) = service.post("/toolsets/letters/v1/tools/smart_select", &json!({"task": "send an email", "limit": 10})).await;
    assert_eq!(names(&chosen), set(&LETTERS));
    let (_, filtered) = service.post("/toolsets/letters/v1/filter", &json!({"messages": [{"role": "user", "content": "thanks!"}]})).await;
    assert_eq!(names(&filtered), set(&["time__get_current_time"]), "always on: {filtered}");
    let page = service.request(Method::GET, "/toolsets/letters/docs").send().await.unwrap();
    assert_eq!((page.status(), page.url().path()), (StatusCode::OK, "/toolsets/letters/docs/"));
    let viewer = service.request(Method::GET, "/toolsets/letters/docs/swagger-initializer.js").send().await.unwrap().text().await.unwrap();
    assert!(viewer.contains("\"../openapi.json\""), "{viewer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_sees_nothing_of_is_not_there() {
    let service = start().await;
    put_letters(&service).await;
    put(&service, "empty", json!({"servers": ["no_such"]})).await;
    let (_, narrow) = create(&service, json!({"name": "narrow", "servers": ["files"]})).await;
    for path in ["openapi.json", "docs", "docs/", "mail/openapi.json", "v1/toolsets", "readyz", "nothing"] {
        let ask = |name: &str| shape(with_key(&service, Method::GET, &format!("/toolsets/{name}/{path}"), &narrow));
        let unknown = ask("unknown").await;
        assert_eq!(unknown.0, StatusCode::NOT_FOUND, "{path}");
        assert_eq!(ask("letters").await, unknown, "{path}");
        assert_eq!(ask("empty").await, unknown, "{path}");
    }
    // As what is at no address at all.
    let absent = shape(with_key(&service, Method::GET, "/unknown/openapi.json", &narrow)).await;
    assert_eq!(shape(with_key(&service, Method::GET, "/toolsets/letters/openapi.json", &narrow)).await, absent);
    let post = |path: &'static str| shape(with_key(&service, Method::POST, path, &narrow).json(&json!({})));
    assert_eq!(post("/toolsets/letters/mail/list_emails").await, post("/unknown/list_emails").await);
    let ask = async |key: &str| with_key(&service, Method::GET, "/v1/toolsets", key).send().await.unwrap().json::<Value>().await.unwrap();
    assert_eq!(ask(&narrow).await, json!({"toolsets": []}));
    let seen = ask(KEY).await;
    let tokens = seen["toolsets"][0]["tokens"].as_u64().unwrap();
    assert_eq!(seen, json!({"toolsets": [{"name": "letters", "description": "Read letters", "tools": 3, "tokens": tokens}]}));
    assert!((30..500).contains(&tokens), "{tokens}");
    // A rule changes it at once.
    let rules = json!({"rules": [{"effect": "block", "toolsets": ["let*"], "principals": ["service-key"]}]});
    assert_eq!(administer(&service, Method::PUT, "/v1/admin/policy", &rules).await.0, StatusCode::OK);
    assert_eq!(service.get("/toolsets/letters/openapi.json").await.0, StatusCode::NOT_FOUND);
    assert_eq!(published(&service.get("/openapi.json").await.1).len(), 13 - LETTERS.len());
    let check = json!({"tool": "mail__list_emails", "principal": "service-key"});
    let (_, checked) = administer(&service, Method::POST, "/v1/admin/policy/check", &check).await;
    assert_eq!((&checked["decisions"][0]["effect"], &checked["decisions"][0]["rule"]["number"]), (&json!("block"), &json!(1)), "{checked}");
}

#[tokio::test(flavor = "multi_thread")]
async fn administrators_change_them_and_the_settings_keep_their_own() {
    let environment = vec![("TOOLSIEVE_ADMIN_KEY", ADMIN)];
    let service = Start { servers: four(), key: Some(KEY), environment, from_files: true, ..Start::default() }.start().await;
    service.settled().await;
    let file = service.folder.path().join("toolsieve.toml");
    let write = async |text: &str| {
        fs::write(&file, text).unwrap();
        service.reload.reload(Trigger::Request).await;
        service.get("/readyz").await.1["reload"].clone()
    };
    let state = write("[toolsets.clock]\nservers = [\"time\"]\ndescription = \"Times\"\n[presets]\nall = [\"clock\"]\n").await;
    assert_eq!((&state["state"], &state["needs_restart"]), (&json!("applied"), &json!([])), "{state}");
    assert_eq!(published(&service.get("/toolsets/clock/openapi.json").await.1).len(), 2);
    let ask =
        async |method: Method, name: &str, body: Value| administer(&service, method, &format!("/v1/admin/toolsets/{name}"), &body).await;
    for method in [Method::PUT, Method::DELETE] {
        let (status, problem) = ask(method, "clock", json!({"servers": ["mail"]})).await;
        assert_eq!((status, &problem["code"]), (StatusCode::CONFLICT, &json!("managed_by_file")), "{problem}");
    }
    for (name, body, part) in [
        ("mail", json!({}), "selects no tool"),
        ("mail", json!({"server": ["mail"]}), "unknown field `server`"),
        ("mail", json!({"servers": ["a["]}), "a["),
        ("ma%20il", json!({"servers": ["mail"]}), "letters, digits"),
    ] {
        let (status, problem) = ask(Method::PUT, name, body).await;
        assert!(status == StatusCode::UNPROCESSABLE_ENTITY && problem["detail"].as_str().unwrap().contains(part), "{problem}");
    }
    let (status, view) = ask(Method::PUT, "mail", json!({"servers": ["mail", "male"]})).await;
    assert_eq!((status, view["members"].as_array().unwrap().len()), (StatusCode::CREATED, 3));
    assert_eq!(view["warnings"], json!(["it contains no tool of the server `male`"]));
    assert_eq!(ask(Method::PUT, "mail", json!({"tools": ["mail__send_email"]})).await.0, StatusCode::OK);
    assert_eq!(published(&service.get("/toolsets/mail/openapi.json").await.1), set(&["mail__send_email"]));
    let (_, all) = administer(&service, Method::GET, "/v1/admin/toolsets", &json!({})).await;
    let listed: Vec<(&str, &str)> =
        all["toolsets"].as_array().unwrap().iter().map(|one| (one["name"].as_str().unwrap(), one["source"].as_str().unwrap())).collect();
    assert_eq!(listed, [("clock", "settings"), ("mail", "api")]);
    let managed: Vec<&Value> = all["toolsets"].as_array().unwrap().iter().map(|one| &one["managed_by"]).collect();
    assert_eq!(managed, ["file", "api"]);
    // Others find no such routes.
    let absent = shape(with_key(&service, Method::GET, "/v1/admin/nothing", KEY)).await;
    assert_eq!(shape(with_key(&service, Method::GET, "/v1/admin/toolsets", KEY)).await, absent);

    let folder = service.stop().await;
    let environment = vec![("TOOLSIEVE_ADMIN_KEY", ADMIN)];
    let service = Start { servers: four(), key: Some(KEY), environment, folder: Some(folder), ..Start::default() }.start().await;
    assert_eq!(published(&service.get("/toolsets/mail/openapi.json").await.1), set(&["mail__send_email"]), "it survives a restart");
    let gone = with_key(&service, Method::DELETE, "/v1/admin/toolsets/mail", ADMIN);
    assert_eq!(gone.send().await.unwrap().status(), StatusCode::NO_CONTENT);
    assert_eq!(service.get("/toolsets/mail/openapi.json").await.0, StatusCode::NOT_FOUND);
    assert_eq!(administer(&service, Method::DELETE, "/v1/admin/toolsets/mail", &json!({})).await.0, StatusCode::NOT_FOUND);
    let log = eventually("three entries in the audit log", async || {
        let (_, log) = administer(&service, Method::GET, "/v1/admin/audit", &json!({})).await;
        when(log, |log| log["entries"].as_array().unwrap().len() == 3)
    })
    .await;
    let audited = log["entries"].as_array().unwrap().iter().map(|entry| format!("{} {}", entry["action"], entry["subject"]));
    let audited: Vec<String> = audited.collect();
    assert_eq!(audited, ["\"toolset_remove\" \"mail\"", "\"toolset_replace\" \"mail\"", "\"toolset_replace\" \"mail\""]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_kept_to_its_toolsets() {
    let service = start().await;
    put_letters(&service).await;
    put(&service, "clock", json!({"servers": ["time"]})).await;
    let (code, _, error) = command(&service, &["keys", "create", "ci", "--toolset", "leters"]);
    assert!(code == Some(2) && error.contains("did you mean `letters`?"), "{error}");
    let (code, key, error) = command(&service, &["keys", "create", "ci", "--toolset", "letters"]);
    assert_eq!(code, Some(0), "{error}");
    let (_, table, _) = command(&service, &["keys", "list"]);
    assert!(table.lines().nth(1).unwrap().contains("letters"), "{table}");
    let ask = async |path: &str| {
        let response = with_key(&service, Method::GET, path, &key).send().await.unwrap();
        (response.status(), response.json::<Value>().await.unwrap())
    };
    assert_eq!(published(&ask("/openapi.json").await.1), set(&LETTERS));
    // The key's toolsets and the one of the address: what is in both.
    assert_eq!(published(&ask("/toolsets/clock/openapi.json").await.1), set(&["time__get_current_time"]));
    assert_eq!(ask("/files/openapi.json").await.0, StatusCode::NOT_FOUND);
    let check = json!({"tool": "mail__send_email", "principal": "key:ci"});
    let (_, checked) = administer(&service, Method::POST, "/v1/admin/policy/check", &check).await;
    assert_eq!(checked["decisions"][0]["effect"], "block", "{checked}");
    let gone = with_key(&service, Method::DELETE, "/v1/admin/toolsets/letters", ADMIN);
    assert_eq!(gone.send().await.unwrap().status(), StatusCode::NO_CONTENT);
    assert_eq!(published(&ask("/openapi.json").await.1), set(&[]), "without its toolset it reaches nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_filter_keeps_the_connection_of_a_toolset_for_its_tools_alone() {
    let service = start().await;
    put(&service, "post", json!({"servers": ["mail"]})).await;
    put(&service, "clock", json!({"tools": ["time__*"], "always": ["files__list_directory"]})).await;
    let filter = async |text: &str, connections: Value| {
        let ids: Vec<&String> = connections.as_object().unwrap().keys().collect();
        let body = json!({"messages": [{"role": "user", "content": text}], "connections": connections, "tool_ids": ids});
        service.post("/v1/filter", &body).await.1
    };
    let plain = json!({"a": "/toolsets/post", "b": "/time", "c": "http"});
    let answer = filter("send an email to Anna", plain).await;
    assert_eq!(answer["tool_ids"], json!(["a", "c"]), "{answer}");
    assert!(names(&answer).contains("mail__send_email"), "{answer}");
    assert!(answer["warnings"].to_string().contains("c stays switched on"), "{answer}");
    let answer = filter("what time is it in Tokyo", json!({"a": "/toolsets/post", "b": "/toolsets/clock/openapi.json"})).await;
    assert_eq!(answer["tool_ids"], json!(["b"]), "{answer}");
    let always = answer["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "files__list_directory").unwrap();
    assert_eq!(always["reason"], "always on in its toolset");
    let answer = filter("thanks!", json!({"a": "/toolsets/post", "b": "/toolsets/clock"})).await;
    assert_eq!((names(&answer), &answer["tool_ids"]), (set(&["files__list_directory"]), &json!(["b"])), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_chooses_what_is_shown() {
    const SETTINGS: &str = "[toolsets.post]\nservers = [\"mail\"]\n[toolsets.clock]\nservers = [\"time\"]\n\
        [toolsets.risky]\ntools = [\"send_*\", \"move_*\"]\n[presets]\noffice = [\"post\", \"clock\"]\n";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("toolsieve.toml");
    fs::write(&file, SETTINGS).unwrap();
    let serve = |arguments: &[&str]| {
        process::write_config(folder.path(), &four());
        let mut command = process::command(folder.path());
        command.args(["--port", "0", "--settings"]).arg(&file).args(arguments);
        command
    };
    for (arguments, parts) in [
        (vec!["--toolsets", "post,clok"], vec!["--toolsets: there is no toolset `clok`", "did you mean `clock`?"]),
        (vec!["--exclude", "zzz"], vec!["--exclude: there is no toolset `zzz`", "clock, post, risky"]),
        (vec!["--preset", "ofice"], vec!["--preset: there is no preset `ofice`", "did you mean `office`?"]),
    ] {
        let output = tokio::task::block_in_place(|| serve(&arguments).output().unwrap());
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && parts.iter().all(|part| error.contains(part)), "{arguments:?}: {error}");
    }
    let shown = async |arguments: Vec<&str>| {
        let settings = file.clone();
        let service = process::Service::start(folder.path(), &four(), |command| {
            command.arg("--settings").arg(settings).args(arguments);
        });
        let client = reqwest::Client::new();
        eventually("all 13 tools", async || {
            let ready: Value = client.get(format!("{}/readyz", service.url)).send().await.unwrap().json().await.unwrap();
            when(ready, |ready| ready["tools"] == 13)
        })
        .await;
        let document: Value = client.get(format!("{}/openapi.json", service.url)).send().await.unwrap().json().await.unwrap();
        let denied = client.post(format!("{}/v1/tools/call", service.url)).json(&json!({"name": "files__move_file"})).send().await.unwrap();
        (published(&document), denied.status())
    };
    assert_eq!(
        shown(vec!["--preset", "office", "--exclude", "risky"]).await,
        (set(&["mail__list_emails", "mail__search_emails", "time__convert_time", "time__get_current_time"]), StatusCode::NOT_FOUND)
    );
    let (all, _) = shown(vec!["--exclude", "risky"]).await;
    assert_eq!(all.len(), 13 - 2, "{all:?}");
}
