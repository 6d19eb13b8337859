//! Every subcommand of the built binary: its help, what wrong use leads to, and what administrators do with it.

use std::fs;
use std::path::Path;
use std::process::Output;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::harness::keys::{ADMIN, KEY, administer, start, start_on, with_key};
use crate::harness::process::built;
use crate::harness::wait::{eventually, when};
use crate::harness::{Running, stdio};

fn toolsieve(words: &[&str]) -> Output {
    built::toolsieve().args(words).output().unwrap()
}

fn printed(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A command on a running service, with the admin key.
fn on(service: &Running, words: &[&str]) -> (Option<i32>, String) {
    let output = toolsieve(&[words, &["--url", &service.url, "--admin-key", ADMIN]].concat());
    (output.status.code(), printed(&output))
}

/// The same as a caller.
fn as_caller(service: &Running, words: &[&str]) -> (Option<i32>, String) {
    let output = toolsieve(&[words, &["--url", &service.url, "--key", KEY]].concat());
    (output.status.code(), printed(&output))
}

/// The subcommands that a help text lists.
fn listed(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   ")).filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

/// All commands that have none below them, and those that do something by themselves, with their helps.
fn tree() -> Vec<(Vec<String>, String)> {
    let (mut found, mut open) = (Vec::new(), vec![Vec::<String>::new()]);
    while let Some(path) = open.pop() {
        let words: Vec<&str> = path.iter().map(String::as_str).chain(["--help"]).collect();
        let output = toolsieve(&words);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", printed(&output));
        let help = String::from_utf8(output.stdout).unwrap();
        open.extend(listed(&help).into_iter().map(|name| [path.as_slice(), &[name]].concat()));
        found.push((path, help));
    }
    found
}

#[test]
fn every_command_has_a_help_and_takes_no_flag_that_it_does_not_name() {
    let tree = tree();
    let names: Vec<String> = tree.iter().map(|(path, _)| path.join(" ")).collect();
    for expected in [
        "serve",
        "policy show",
        "policy set",
        "toolsets remove",
        "sessions create",
        "audit",
        "feedback",
        "backup",
        "restore",
        "tools approve",
    ] {
        assert!(names.iter().any(|name| name == expected), "{expected} is not among {names:?}");
    }
    for (path, help) in &tree {
        assert!(help.contains("Usage: toolsieve"), "{path:?}: {help}");
        // Each flag and each argument says what it is for, in its line or in the next.
        let lines: Vec<&str> = help.lines().collect();
        for (number, line) in lines.iter().enumerate().filter(|(_, line)| line.trim_start().starts_with("--")) {
            let words = line.trim_start().split_once("  ").map(|(_, words)| words.trim()).filter(|words| !words.is_empty());
            assert!(words.is_some() || lines.get(number + 1).is_some_and(|next| !next.trim().is_empty()), "{path:?}: {line}");
        }
        let words: Vec<&str> = path.iter().map(String::as_str).chain(["--no-such-flag"]).collect();
        let output = toolsieve(&words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", printed(&output));
    }
    // What starts no service does not listen, watch or log.
    let looks = ["search", "tools", "check", "openapi", "enrichment"];
    for (path, help) in tree.iter().filter(|(path, _)| path.len() == 1 && looks.contains(&path[0].as_str())) {
        for flag in ["--host", "--port", "--api-key", "--insecure", "--hot-reload", "--log-level"] {
            assert!(!help.contains(flag), "{path:?} has {flag}, which would do nothing");
        }
        assert!(help.contains("--data-dir") && help.contains("--settings"), "{path:?}: {help}");
    }
}

#[test]
fn wrong_use_is_code_2_before_any_service_is_asked() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (broken, list, empty) = (path("broken.json", "{"), path("list.json", "[]"), path("empty.json", "{}"));
    let servers = path("mcp.json", &json!({"mcpServers": {"one": stdio(&[])}}).to_string());
    let cases: [&[&str]; 55] = [
        &["keys", "list", "--url", "foo"],
        &["keys", "list", "--url", "ftp://127.0.0.1"],
        &["keys", "create", "ci", "--expires-in-days", "0"],
        &["keys", "create"],
        &["keys", "rotate", "ci", "--expires-in-days", "x"],
        &["keys"],
        &["policy", "check"],
        &["policy", "check", "--group", "g", "--tool", "x"],
        &["policy", "check", "--tool", "x", "--draft", &broken],
        &["policy", "set", "no/such/file.json"],
        &["policy", "set", &broken],
        &["policy", "set", &list],
        &["policy", "set", &empty],
        &["policy", "set", &empty, "--if-version", "-1"],
        &["toolsets", "set", "code"],
        &["toolsets", "show"],
        &["sessions", "create"],
        &["sessions", "create", "--limit", "3", "--server", "one"],
        &["sessions", "create", "--task", "x", "--limit", "0"],
        &["sessions", "create", "--task", "x", "--mode", "nope"],
        &["sessions", "remove"],
        &["audit", "--limit", "0"],
        &["audit", "--decision", "maybe"],
        &["audit", "--before", "x"],
        &["feedback", "time__now", "helpful"],
        &["feedback", "time__now", "good", "--chat", "1"],
        &["feedback", "time__now", "helpful", "--chat", "1", "--selection", "2"],
        &["backup"],
        &["backup", "copy.tar.gz", "--data-dir", "no/such/folder"],
        &["restore"],
        &["restore", "no/such/file.tar.gz"],
        &["restore", &servers],
        &["secrets", "forget"],
        &["tools", "show", "/nonsense"],
        &["tools", "set", "a/b", "--pinned", "perhaps"],
        &["tools", "approve", "a/b"],
        &["tools", "--config", &servers, "--server", "two"],
        &["usage", "--days", "0"],
        &["usage", "--order", "nope"],
        &["report", "--json", "--html", "x.html"],
        &["mcp-stdio", "--url", "nope"],
        &["mcp-stdio", "--url", "file:///etc"],
        &["search", ""],
        &["search", "x", "--port", "1"],
        &["check", "--config", &servers, "--offline"],
        &["check", "--config", &servers, "--host", "0.0.0.0"],
        &["openapi", "--mode", "meta"],
        &["doctor"],
        &["doctor", "--open-webui", "http://127.0.0.1:9"],
        &["openwebui", "install", "--url", "nope", "--token", "x"],
        &["openwebui", "install", "--url", "http://127.0.0.1:9", "--token", "x", "--auto-enable", "--no-auto-enable"],
        &["openwebui", "install", "--url", "http://127.0.0.1:9", "--token", "x", "--status-line", "--no-status-line"],
        &["openwebui", "install", "--url", "http://127.0.0.1:9", "--token", "x", "--message", ""],
        &["openwebui", "test", "--toolsieve-url", "nope"],
        &["model", "import"],
    ];
    for words in cases {
        let output = toolsieve(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", printed(&output));
        assert!(!output.stderr.is_empty(), "{words:?} says nothing");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_service_refuses_as_wrong_is_code_2_and_says_what_was_meant() {
    let service = start(&[]).await;
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.json");
    fs::write(&rules, json!({"rules": [{"effect": "perhaps"}]}).to_string()).unwrap();
    let rules = rules.to_str().unwrap();
    let cases: [(&[&str], &str); 15] = [
        (&["keys", "create", "a b"], "letters"),
        (&["keys", "create", "x", "--server", "nope"], "there is no server `nope`"),
        (&["keys", "create", "x", "--server", "tiem"], "did you mean `time`?"),
        (&["keys", "create", "x", "--toolset", "nope"], "there is no toolset `nope`"),
        (&["policy", "check", "--principal", "bob"], "there is no principal `bob`"),
        (&["policy", "check", "--tool", "git__git_push"], "there is no tool `git__git_push`"),
        (&["policy", "check", "--tool", "one__echo", "--draft", rules], "rule 1"),
        (&["policy", "set", rules], "rule 1"),
        (&["policy", "set", rules, "--dry-run"], "rule 1"),
        (&["toolsets", "set", "a b", "--server", "time"], "letters"),
        (&["sessions", "list", "--principal", "bob"], "There is no principal `bob`"),
        (&["audit", "--principal", "bob"], "There is no principal `bob`"),
        (&["audit", "--since", "yesterday"], "2027-01-31T00:00:00Z"),
        (&["audit", "--action", "nope"], "action is call"),
        (&["secrets", "forget", "bob"], "write user:ID or key:NAME"),
    ];
    for (words, expected) in cases {
        let (code, text) = on(&service, words);
        assert_eq!(code, Some(2), "{words:?}: {text}");
        assert!(text.contains(expected), "{words:?}: {text}");
    }
    let (code, text) = as_caller(&service, &["sessions", "create", "--server", "tiem"]);
    assert!(code == Some(2) && text.contains("did you mean `time`?"), "{text}");
    // Regression: the message was that the key is not the admin key.
    let (code, text) = on(&service, &["sessions", "remove", "nope"]);
    assert!(code == Some(1) && text.contains("There is no such session. GET /v1/admin/sessions lists the sessions."), "{text}");
    // Nothing of it was done.
    let (_, keys) = administer(&service, Method::GET, "/v1/admin/keys", &json!({})).await;
    assert_eq!(keys["keys"], json!([]));
    let (_, policy) = administer(&service, Method::GET, "/v1/admin/policy", &json!({})).await;
    assert_eq!(policy["version"], 0);
}

/// Neither a service that is away nor a wrong key is wrong use.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_away_or_refuses_is_code_1() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.json");
    fs::write(&rules, r#"{"rules": []}"#).unwrap();
    let rules = rules.to_str().unwrap();
    let commands: [&[&str]; 17] = [
        &["keys", "list"],
        &["keys", "create", "x"],
        &["keys", "revoke", "x"],
        &["policy", "show"],
        &["policy", "set", rules],
        &["policy", "check", "--principal", "anyone"],
        &["toolsets", "list"],
        &["toolsets", "show", "x"],
        &["toolsets", "set", "x", "--server", "time"],
        &["toolsets", "remove", "x"],
        &["sessions", "list"],
        &["sessions", "remove", "x"],
        &["audit"],
        &["secrets", "forget", "user:bob"],
        &["usage"],
        &["report"],
        &["tools", "show", "a/b"],
    ];
    for words in commands {
        let output = toolsieve(&[words, &["--url", &url]].concat());
        assert_eq!(output.status.code(), Some(1), "{words:?}: {}", printed(&output));
        assert!(printed(&output).contains(&url), "{words:?}: {}", printed(&output));
    }
    for words in [&["sessions", "create", "--server", "time"][..], &["feedback", "one__echo", "helpful", "--chat", "1"]] {
        let output = toolsieve(&[words, &["--url", &url]].concat());
        assert_eq!(output.status.code(), Some(1), "{words:?}: {}", printed(&output));
    }
    let service = start(&[]).await;
    for words in commands {
        let output = toolsieve(&[words, &["--url", &service.url, "--admin-key", "wrong"]].concat());
        assert_eq!(output.status.code(), Some(1), "{words:?}: {}", printed(&output));
        assert!(printed(&output).contains("rejected this admin key"), "{words:?}: {}", printed(&output));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_are_shown_tried_out_and_replaced() {
    let service = start(&[]).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.json");
    let name = file.to_str().unwrap();
    let write = |rules: &Value| fs::write(&file, rules.to_string()).unwrap();
    let echo = async || with_key(&service, Method::POST, "/one/echo", KEY).json(&json!({"text": "x"})).send().await.unwrap().status();
    write(&json!({"rules": [{"effect": "block", "tools": ["echo"]}, {"effect": "block", "servers": ["nope"]}]}));

    let (code, text) = on(&service, &["policy", "set", name, "--dry-run"]);
    assert!(code == Some(0) && text.contains("Nothing was changed") && text.contains("warning: rule 2"), "{text}");
    assert_eq!(echo().await, StatusCode::OK, "a trial changes nothing");

    let (code, text) = on(&service, &["policy", "set", name]);
    assert!(code == Some(0) && text.contains("tools: echo") && text.contains("Version 1"), "{text}");
    assert_eq!(echo().await, StatusCode::NOT_FOUND);

    // What was printed can be edited and given back: the version in it is held against the one that holds.
    let output = toolsieve(&["policy", "show", "--json", "--url", &service.url, "--admin-key", ADMIN]);
    let mut shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    shown["rules"].as_array_mut().unwrap().clear();
    write(&shown);
    let (code, text) = on(&service, &["policy", "set", name]);
    assert!(code == Some(0) && text.contains("Version 2"), "{text}");
    assert_eq!(echo().await, StatusCode::OK);
    let (code, text) = on(&service, &["policy", "set", name]);
    assert!(code == Some(1) && text.contains("the current version is 2"), "an older version replaces nothing: {text}");
    let (code, text) = on(&service, &["policy", "set", name, "--if-version", "2"]);
    assert!(code == Some(0) && text.contains("Version 3"), "{text}");
    let (code, text) = on(&service, &["policy", "show"]);
    assert!(code == Some(0) && text.contains("Else: allow. Version 3."), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn toolsets_and_sessions_are_kept_from_the_command_line() {
    let service = start(&[]).await;
    let (code, text) = on(&service, &["toolsets", "set", "clock", "--server", "time", "--description", "What time it is"]);
    assert!(code == Some(0) && text.contains("time__get_current_time"), "{text}");
    let (code, text) = on(&service, &["toolsets", "list"]);
    assert!(code == Some(0) && text.contains("clock") && text.contains("What time it is"), "{text}");
    let (code, text) = on(&service, &["toolsets", "show", "clock", "--json"]);
    let shown: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &shown["servers"], &shown["source"]), (Some(0), &json!(["time"]), &json!("api")));

    let (code, text) = as_caller(&service, &["sessions", "create", "--toolset", "clock", "--ttl-seconds", "600", "--json"]);
    assert_eq!(code, Some(0), "{text}");
    let session: Value = serde_json::from_str(&text).unwrap();
    let (id, path) = (session["id"].as_str().unwrap(), session["url"].as_str().unwrap());
    let document = format!("{path}/openapi.json");
    let get = async || with_key(&service, Method::GET, &document, KEY).send().await.unwrap().status();
    assert_eq!(get().await, StatusCode::OK);
    let (code, text) = on(&service, &["sessions", "list", "--principal", "service-key"]);
    assert!(code == Some(0) && text.contains(id) && text.contains("clock"), "{text}");
    let (code, text) = on(&service, &["sessions", "list", "--principal", "user:bob"]);
    assert!(code == Some(0) && !text.contains(id), "{text}");
    let (code, text) = on(&service, &["sessions", "remove", id]);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(get().await, StatusCode::NOT_FOUND);
    let (code, text) = on(&service, &["sessions", "remove", id]);
    assert_eq!(code, Some(1), "{text}");

    let (code, text) = on(&service, &["toolsets", "remove", "clock"]);
    assert!(code == Some(0) && text.contains("clock is removed"), "{text}");
    let (code, text) = on(&service, &["toolsets", "show", "clock"]);
    assert!(code == Some(1) && text.contains("clock"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_log_is_read_with_its_filters_and_a_verdict_is_kept() {
    let service = start(&[]).await;
    let filter = json!({"messages": [{"role": "user", "content": "what time is it in Tokyo"}], "chat_id": "one"});
    let answer: Value = with_key(&service, Method::POST, "/v1/filter", KEY).json(&filter).send().await.unwrap().json().await.unwrap();
    for tool in ["echo", "process"] {
        with_key(&service, Method::POST, &format!("/one/{tool}"), KEY).json(&json!({"text": "x"})).send().await.unwrap();
    }
    let all = eventually("both calls in the audit log", async || {
        let (code, text) = on(&service, &["audit", "--json", "--action", "call"]);
        assert_eq!(code, Some(0), "{text}");
        when(serde_json::from_str(&text).unwrap(), |all: &Value| all["entries"].as_array().unwrap().len() == 2)
    })
    .await;
    let (code, text) = on(&service, &["audit", "--tool", "echo", "--server", "one", "--principal", "service-key", "--outcome", "success"]);
    assert!(code == Some(0) && text.contains("echo") && !text.contains("process"), "{text}");
    let (_, text) = on(&service, &["audit", "--until", "2001-01-01T00:00:00Z"]);
    assert!(!text.contains("echo"), "{text}");
    let newest = all["entries"][0]["id"].to_string();
    let (_, text) = on(&service, &["audit", "--action", "call", "--before", &newest, "--limit", "1"]);
    assert!(text.contains("echo") && !text.contains("process") && text.contains("--before"), "{text}");

    let selection = answer["selection_id"].as_str().unwrap();
    let (code, text) = as_caller(&service, &["feedback", "time__get_current_time", "helpful", "--selection", selection]);
    assert!(code == Some(0) && text.contains(selection), "{text}");
    let (code, text) = as_caller(&service, &["feedback", "time__get_current_tine", "wrong", "--chat", "one"]);
    assert!(code == Some(1) && text.contains("time__get_current_time"), "{text}");
}

/// The message said "has changed in the meantime" of a definition that had not changed.
#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_fingerprint_of_an_unchanged_tool_is_called_wrong() {
    let service = start(&[]).await;
    let (code, text) = on(&service, &["tools", "approve", "one/echo", "--fingerprint", "00"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("its definition has not changed") && !text.contains("has changed in the meantime"), "{text}");
    let (_, view) = administer(&service, Method::GET, "/v1/admin/tools/one/echo", &json!({})).await;
    let fingerprint = view["definition"]["fingerprint"].as_str().unwrap();
    assert!(text.contains(fingerprint), "{text}");
    let (code, text) = on(&service, &["tools", "approve", "one/echo", "--fingerprint", fingerprint]);
    assert!(code == Some(0) && text.contains("approved"), "{text}");
}

/// L13: `enrichment` advised to leave out a flag that it does not have.
#[test]
fn a_remedy_names_only_flags_that_the_command_has() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("mcp.json");
    fs::write(&config, json!({"mcpServers": {"one": stdio(&[])}}).to_string()).unwrap();
    let run = |words: &[&str]| {
        let data = folder.path().join("data");
        let files = ["--config", config.to_str().unwrap(), "--data-dir", data.to_str().unwrap()];
        toolsieve(&[words, &files].concat())
    };
    for words in [&["enrichment"][..], &["tools", "--offline"], &["check", "--tools", "--offline"], &["openapi", "--offline"]] {
        let output = run(words);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {}", printed(&output));
        let help = printed(&toolsieve(&[words[0], "--help"]));
        let remedy = printed(&output);
        let flags =
            remedy.split(|character: char| !character.is_ascii_lowercase() && character != '-').filter(|word| word.starts_with("--"));
        for flag in flags {
            assert!(help.contains(flag), "{words:?} has no {flag}: {remedy}");
        }
    }
    assert!(!Path::new(&folder.path().join("data")).exists(), "looking writes nothing");
}

/// L8: the sessions outside of a comparison were called `all`.
#[tokio::test(flavor = "multi_thread")]
async fn sessions_outside_of_a_comparison_are_not_called_all() {
    let service = start_on(json!({"time": stdio(&["list=time"])}), &[("TOOLSIEVE_SELECTION__STATIC_SHARE", "0")]).await;
    let filter = json!({"messages": [{"role": "user", "content": "what time is it in Tokyo"}], "chat_id": "one"});
    assert_eq!(with_key(&service, Method::POST, "/v1/filter", KEY).json(&filter).send().await.unwrap().status(), StatusCode::OK);
    let text = eventually("an uncompared session in the report", async || {
        let (code, text) = on(&service, &["report"]);
        assert_eq!(code, Some(0), "{text}");
        when(text, |text| text.lines().next().unwrap_or_default().contains("uncompared"))
    })
    .await;
    assert!(!text.lines().next().unwrap_or_default().contains("all"), "{text}");
}
