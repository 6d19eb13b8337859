//! Rules, what they permit, keys, toolsets and secrets.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{servers, signed_in};
use crate::harness::keys::{ADMIN, KEY, SECRETS_KEY, administer, command, create, start_on, with_key};
use crate::harness::wait::{eventually, when};
use crate::harness::{Running, Start, example, stdio};

async fn policy(service: &Running) -> Value {
    administer(service, Method::GET, "/v1/admin/policy", &json!({})).await.1
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_shows_who_loses_what_before_it_is_saved() {
    let service = start_on(servers(), &[]).await;
    create(&service, json!({"name": "ci", "groups": ["builders"]})).await;
    let mut browser = signed_in(&service).await;
    let page = browser.see("/ui/access").await;
    assert!(page.words().contains("There are no rules here."), "{}", page.words());

    let rule = [("version", "0"), ("do", "set"), ("effect", "block"), ("servers", "mail"), ("groups", "builders")];
    let page = browser.send_form("/ui/access", &rule).await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.text);
    assert_eq!(policy(&service).await["rules"], json!([]), "nothing is saved yet");
    let words = page.words();
    assert!(words.contains("Not saved yet") && words.contains("key:ci") && words.contains("A user of builders"), "{words}");
    assert!(!words.contains("A user of no group"), "others lose nothing: {words}");
    let draft = page.hidden("draft");
    let check = json!({"principal": "key:ci", "policy": serde_json::from_str::<Value>(&draft).unwrap()});
    let (_, check) = administer(&service, Method::POST, "/v1/admin/policy/check", &check).await;
    let decisions = check["decisions"].as_array().unwrap();
    let lost = decisions.iter().find(|decision| decision["effect"] == "block").unwrap()["name"].as_str().unwrap();
    assert!(words.contains(lost), "{lost}: {words}");

    // A second rule, moved before the first one.
    let rule = [("version", "0"), ("do", "set"), ("draft", &*draft), ("effect", "allow"), ("servers", "time\r\nfiles")];
    let draft = browser.send_form("/ui/access", &rule).await.hidden("draft");
    let dragged = browser.send_form("/ui/access", &[("version", "0"), ("do", "move-0-1"), ("draft", &draft)]).await.hidden("draft");
    let far = browser.send_form("/ui/access", &[("version", "0"), ("do", "move-0-2"), ("draft", &draft)]).await.hidden("draft");
    assert_eq!(far, draft, "a place that does not exist changes nothing");
    let draft = browser.send_form("/ui/access", &[("version", "0"), ("do", "up-1"), ("draft", &draft)]).await.hidden("draft");
    assert_eq!(dragged, draft, "a dragged rule is a moved rule");
    let page = browser.send_form("/ui/access", &[("version", "0"), ("do", "edit-0"), ("draft", &draft)]).await;
    assert!(page.text.contains("\ntime\nfiles</textarea>"), "{}", page.text);
    let saved = browser.send_form("/ui/access", &[("version", "0"), ("do", "save"), ("draft", &draft)]).await;
    assert_eq!((saved.status, saved.location.as_deref()), (StatusCode::SEE_OTHER, Some("/ui/access?done=saved")), "{}", saved.text);
    let rules =
        json!([{"effect": "allow", "servers": ["time", "files"]}, {"effect": "block", "servers": ["mail"], "groups": ["builders"]}]);
    assert_eq!(policy(&service).await["rules"], rules);

    // A mistake is named in the words of the API, and the draft stays.
    let wrong = [("version", "1"), ("do", "set"), ("effect", "block"), ("annotations", "sometimesHint")];
    let page = browser.send_form("/ui/access", &wrong).await;
    let body = json!({"rules": [rules[0], rules[1], {"effect": "block", "annotations": ["sometimesHint"]}]});
    let (status, problem) = administer(&service, Method::PUT, "/v1/admin/policy", &body).await;
    assert_eq!((page.status, status), (StatusCode::UNPROCESSABLE_ENTITY, StatusCode::UNPROCESSABLE_ENTITY));
    assert!(page.words().contains(problem["detail"].as_str().unwrap()), "{problem}: {}", page.words());
    assert!(page.text.contains("sometimesHint</textarea>"), "{}", page.text);

    // Of two administrators, the second one sees both versions.
    assert_eq!(administer(&service, Method::PUT, "/v1/admin/policy", &json!({"rules": []})).await.0, StatusCode::OK);
    let draft = json!({"default": null, "rules": [rules[0]]}).to_string();
    let page = browser.send_form("/ui/access", &[("version", "1"), ("do", "save"), ("draft", &draft)]).await;
    assert_eq!(page.status, StatusCode::PRECONDITION_FAILED, "{}", page.text);
    assert!(page.words().contains("somebody else has saved"), "{}", page.words());
    let (version, draft) = (page.hidden("version"), page.hidden("draft"));
    let again = [("version", version.as_str()), ("do", "save"), ("draft", draft.as_str())];
    assert_eq!(browser.send_form("/ui/access", &again).await.status, StatusCode::SEE_OTHER);
    assert_eq!(policy(&service).await["rules"], json!([rules[0]]));
}

/// Regression test: the buttons of a page named rules by their places among the rules in effect, not among those that it showed.
#[tokio::test(flavor = "multi_thread")]
async fn buttons_of_an_old_page_act_on_the_rules_that_it_shows() {
    let service = start_on(servers(), &[]).await;
    let rule = |server: &str| json!({"effect": "block", "servers": [server]});
    let put = async |rules: Value| administer(&service, Method::PUT, "/v1/admin/policy", &json!({"rules": rules})).await.0;
    assert_eq!(put(json!([rule("mail"), rule("time")])).await, StatusCode::OK);
    let mut browser = signed_in(&service).await;
    let page = browser.see("/ui/access").await;
    assert!(!page.words().contains("Not saved yet"), "the rules in effect are no draft: {}", page.words());
    let (version, draft) = (page.hidden("version"), page.hidden("draft"));
    let theirs = json!([rule("files"), rule("mail"), rule("time")]);
    assert_eq!(put(theirs.clone()).await, StatusCode::OK);
    for (action, expected) in [
        ("remove-0", json!([rule("time")])),
        ("down-0", json!([rule("time"), rule("mail")])),
        ("move-1-0", json!([rule("time"), rule("mail")])),
    ] {
        let page = browser.send_form("/ui/access", &[("version", &*version), ("draft", &*draft), ("do", action)]).await;
        let edited: Value = serde_json::from_str(&page.hidden("draft")).unwrap();
        assert_eq!((page.status, &edited["rules"]), (StatusCode::OK, &expected), "{action}");
        // The other version is shown before anything is stored.
        let (version, draft) = (page.hidden("version"), page.hidden("draft"));
        let page = browser.send_form("/ui/access", &[("version", &*version), ("draft", &*draft), ("do", "save")]).await;
        assert_eq!(page.status, StatusCode::PRECONDITION_FAILED, "{action}: {}", page.text);
        assert!(page.words().contains("somebody else has saved") && page.words().contains("files"), "{action}: {}", page.words());
        assert_eq!(policy(&service).await["rules"], theirs, "{action}");
    }
}

/// Regression test: with many known groups, the caller that a rule names was left out, and "Nobody loses or gains a tool" was shown.
#[tokio::test(flavor = "multi_thread")]
async fn callers_that_a_draft_names_are_compared_even_among_many_groups() {
    let service = start_on(servers(), &[]).await;
    let groups: Vec<String> = (0..70).map(|number| format!("g{number:02}")).collect();
    let rules = json!({"rules": [{"effect": "block", "tools": ["no_such_tool"], "groups": groups}]});
    assert_eq!(administer(&service, Method::PUT, "/v1/admin/policy", &rules).await.0, StatusCode::OK);
    let mut browser = signed_in(&service).await;
    let words = browser.see("/ui/access").await.words();
    assert!(words.contains("rule 1: it matches no current tool"), "the warnings about the saved rules: {words}");

    let rule = |condition: &'static str, pattern: &'static str| {
        [("version", "1"), ("do", "set"), ("effect", "block"), ("servers", "mail"), (condition, pattern)]
    };
    let words = browser.send_form("/ui/access", &rule("principals", "user:zed")).await.words();
    assert!(words.contains("user:zed") && words.contains("mail__"), "{words}");
    for (condition, pattern) in [("principals", "user:bob*"), ("groups", "intern*"), ("models", "gpt*")] {
        let words = browser.send_form("/ui/access", &rule(condition, pattern)).await.words();
        assert!(words.contains("Not all callers were compared") && !words.contains("Nobody loses"), "{pattern}: {words}");
        assert!(words.contains(&format!("these patterns of the changed rules: {pattern}")), "{pattern}: {words}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_created_and_revoked() {
    let service = start_on(servers(), &[]).await;
    let mut browser = signed_in(&service).await;
    for (name, value) in [("name", "a b"), ("servers", "tiem"), ("toolsets", "none"), ("expires_in_days", "soon")] {
        let form = [("name", "ci"), (name, value)];
        let form = if name == "name" { &form[1..] } else { &form[..] };
        let page = browser.send_form("/ui/access/keys", form).await;
        let body = match name {
            "name" => json!({"name": value}),
            "expires_in_days" => json!({"name": "ci", name: value}),
            _ => json!({"name": "ci", name: [value]}),
        };
        let (status, problem) = administer(&service, Method::POST, "/v1/admin/keys", &body).await;
        assert_eq!(page.status, status, "{}", page.text);
        let error = page.text.split(&format!("id=\"{name}-error\"")).nth(1).unwrap_or_else(|| panic!("{name}: {}", page.text));
        let detail = problem["detail"].as_str().unwrap().split(" at line").next().unwrap().replace('"', "&quot;");
        // The API names a place in the body, which people at a form don't know.
        let says = if name == "expires_in_days" { "Write a whole number of days." } else { &detail };
        assert!(error.contains(says), "{says}: {error}");
    }
    let form = [("name", "ci"), ("servers", "time"), ("groups", "builders\r\nqa"), ("expires_in_days", "7"), ("trusted", "true")];
    let page = browser.send_form("/ui/access/keys", &form).await;
    assert_eq!(page.status, StatusCode::CREATED, "{}", page.text);
    let key = page.text.split("class=\"secret\">").nth(1).unwrap().split('<').next().unwrap();
    let seen = with_key(&service, Method::GET, "/openapi.json", key).send().await.unwrap();
    assert_eq!(seen.status(), StatusCode::OK);
    let (_, keys) = administer(&service, Method::GET, "/v1/admin/keys", &json!({})).await;
    let record = &keys["keys"][0];
    assert_eq!((&record["servers"], &record["groups"], &record["trusted"]), (&json!(["time"]), &json!(["builders", "qa"]), &json!(true)));
    let page = browser.see("/ui/access/keys").await;
    assert!(page.words().contains("active") && !page.text.contains(key), "the key is shown once: {}", page.text);

    let id = record["id"].as_str().unwrap();
    let page = browser.see(&format!("/ui/access/keys?revoke={id}")).await;
    assert!(page.words().contains("stops working at once"), "{}", page.words());
    let page = browser.send_form("/ui/access/keys", &[("revoke", id)]).await;
    assert_eq!(page.location.as_deref(), Some("/ui/access/keys?done=revoked"), "{}", page.text);
    assert_eq!(with_key(&service, Method::GET, "/openapi.json", key).send().await.unwrap().status(), StatusCode::UNAUTHORIZED);
    eventually("the revocation is in the audit log", async || {
        let (_, log) = administer(&service, Method::GET, "/v1/admin/audit?principal=admin&action=key_revoke", &json!({})).await;
        when(log, |log| log["entries"][0]["subject"] == "ci")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn toolsets_are_written_and_removed() {
    let service = start_on(servers(), &[]).await;
    let mut browser = signed_in(&service).await;
    let page = browser.send_form("/ui/access/toolset", &[("name", "clock"), ("do", "save")]).await;
    let (status, problem) = administer(&service, Method::PUT, "/v1/admin/toolsets/clock", &json!({})).await;
    assert_eq!(page.status, status);
    assert!(page.words().contains(problem["detail"].as_str().unwrap()), "{problem}: {}", page.words());
    let form = [("name", "clock"), ("description", "Tells <b>time</b>."), ("servers", "time"), ("exclude", "{a,b}*\r\nc"), ("do", "save")];
    let page = browser.send_form("/ui/access/toolset", &form).await;
    assert_eq!(page.location.as_deref(), Some("/ui/access/toolsets?done=saved"), "{}", page.text);
    let (_, view) = administer(&service, Method::GET, "/v1/admin/toolsets/clock", &json!({})).await;
    assert_eq!(
        (&view["servers"], &view["exclude"], &view["description"]),
        (&json!(["time"]), &json!(["{a,b}*", "c"]), &json!("Tells <b>time</b>."))
    );
    let page = browser.see("/ui/access/toolset?name=clock").await;
    assert!(page.words().contains("time__get_current_time") && !page.text.contains("<b>"), "{}", page.text);
    assert!(browser.see("/ui/access/toolsets").await.words().contains("clock"));
    assert_eq!(browser.open("/ui/access/toolset?name=none").await.status, StatusCode::NOT_FOUND);

    // A removal opens what only a rule on the toolset blocks, so the page names the rules and the keys that refer to it.
    let rules = json!({"rules": [{"effect": "allow", "servers": ["mail"]}, {"effect": "block", "toolsets": ["clo*"]}]});
    assert_eq!(administer(&service, Method::PUT, "/v1/admin/policy", &rules).await.0, StatusCode::OK);
    create(&service, json!({"name": "ci", "toolsets": ["clock"]})).await;
    create(&service, json!({"name": "boundless"})).await;
    let words = browser.see("/ui/access/toolset?name=clock&do=remove").await.words();
    assert!(words.contains("Rule 2: Block · Toolsets: clo*") && !words.contains("Rule 1"), "{words}");
    assert!(words.contains("limited to this toolset: ci") && !words.contains("boundless"), "{words}");
    let page = browser.send_form("/ui/access/toolset", &[("name", "clock"), ("do", "remove")]).await;
    assert_eq!(page.location.as_deref(), Some("/ui/access/toolsets?done=removed"), "{}", page.text);
    let (status, _) = administer(&service, Method::GET, "/v1/admin/toolsets/clock", &json!({})).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let words = browser.see("/ui/access").await.words();
    assert!(words.contains("rule 2: it matches no current tool"), "{words}");
}

/// The tools of a caller on the page are those of `POST /v1/admin/policy/check`, with the same reasons.
#[tokio::test(flavor = "multi_thread")]
async fn a_check_says_who_may_use_what_and_why() {
    let service = start_on(servers(), &[]).await;
    create(&service, json!({"name": "ci", "groups": ["builders"]})).await;
    let rules = json!({"rules": [{"effect": "block", "servers": ["mail"], "groups": ["builders"]}]});
    assert_eq!(administer(&service, Method::PUT, "/v1/admin/policy", &rules).await.0, StatusCode::OK);
    let mut browser = signed_in(&service).await;
    let page = browser.see("/ui/access/check?principal=key%3Aci").await;
    let (_, check) = administer(&service, Method::POST, "/v1/admin/policy/check", &json!({"principal": "key:ci"})).await;
    let decisions = check["decisions"].as_array().unwrap();
    for decision in decisions {
        for member in ["name", "reason"] {
            assert!(page.words().contains(decision[member].as_str().unwrap()), "{decision}: {}", page.words());
        }
    }
    let of = |effect: &str| decisions.iter().filter(|decision| decision["effect"] == effect).count();
    assert!(of("block") > 0 && of("allow") > 0, "{check}");
    let counts = format!("Allow: {} · Block: {}", of("allow"), of("block"));
    assert!(page.words().contains(&counts), "{counts}: {}", page.words());
    let page = browser.see("/ui/access/check?principal=key%3Aci&effect=block").await;
    assert!(page.text.contains("mail__") && !page.text.contains("time__"), "{}", page.text);
    // A group needs no caller, and a tool alone shows all callers that are known.
    let page = browser.see("/ui/access/check?groups=builders&tool=mail%2Fsend_email").await;
    assert!(page.words().contains("user:?") && page.words().contains("Allow: 0 · Block: 1"), "{}", page.words());
    let page = browser.see("/ui/access/check?tool=mail__send_email").await;
    assert!(page.words().contains("key:ci") && page.words().contains("service-key"), "{}", page.words());
    let page = browser.open("/ui/access/check?principal=key%3Anobody%3Cb%3E").await;
    assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", page.text);
    assert!(page.words().contains("there is no principal `key:nobody<b>`") && !page.text.contains("<b>"), "{}", page.text);
    // The playground leads to the check of the same caller.
    let form = [("message", "send an email to Ada"), ("principal", "key:ci"), ("groups", "")];
    let page = browser.send_form("/ui/playground", &form).await;
    assert!(page.text.contains("/ui/access/check?principal=key%3Aci"), "{}", page.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_and_presets_of_the_settings_are_shown() {
    let settings =
        "[groups]\nbuilders = [\"anna@example.org\", \"ben\"]\n[toolsets.clock]\nservers = [\"time\"]\n[presets]\nday = [\"clock\"]\n";
    let start = Start { servers: json!({"time": stdio(&["list=time"])}), key: Some(KEY), from_files: true, ..Start::default() };
    let service = Start { environment: vec![("TOOLSIEVE_ADMIN_KEY", ADMIN)], settings: settings.to_owned(), ..start }.start().await;
    service.settled().await;
    let mut browser = signed_in(&service).await;
    let page = browser.see("/ui/access/check").await;
    assert!(page.text.contains("/ui/access/check?groups=builders") && page.words().contains("builders (2)"), "{}", page.text);
    assert!(!page.text.contains("anna"), "only numbers of members: {}", page.text);
    let words = browser.see("/ui/access/toolsets").await.words();
    assert!(words.contains("day") && words.contains("--preset"), "{words}");
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_listed_without_values_and_deleted_for_a_caller() {
    let servers = json!({"mine": {"command": example("test-stdio-server"), "env": {"TOKEN": "{{secret.token}}"}}});
    let service = start_on(servers, &[("TOOLSIEVE_SECRETS_KEY", SECRETS_KEY)]).await;
    let mut browser = signed_in(&service).await;
    assert!(browser.see("/ui/access/secrets").await.words().contains("Nobody has stored a secret."));
    for name in ["one", "two"] {
        let (_, key) = create(&service, json!({"name": name})).await;
        let put = with_key(&service, Method::PUT, "/v1/secrets/mine/token", &key).json(&json!({"value": "the-hidden-value"}));
        assert!(put.send().await.unwrap().status().is_success());
    }
    let page = browser.see("/ui/access/secrets").await;
    let words = page.words();
    assert!(words.contains("key:one") && words.contains("key:two") && words.contains("token"), "{words}");
    assert!(!page.text.contains("the-hidden-value"), "{}", page.text);
    let (code, shown, error) = command(&service, &["secrets", "list"]);
    assert!(code == Some(0) && shown.contains("key:one") && !shown.contains("the-hidden-value"), "{shown}{error}");

    let page = browser.see("/ui/access/secrets?forget=key%3Aone").await;
    assert!(page.words().contains("Delete all: key:one"), "{}", page.words());
    assert!(browser.see("/ui/access/secrets").await.words().contains("key:one"), "a link deletes nothing");
    let page = browser.send_form("/ui/access/secrets", &[("forget", "key:one")]).await;
    assert_eq!(page.location.as_deref(), Some("/ui/access/secrets?done=forgotten"), "{}", page.text);
    let words = browser.see("/ui/access/secrets?done=forgotten").await.words();
    assert!(!words.contains("key:one") && words.contains("key:two") && words.contains("is deleted"), "{words}");
    let page = browser.send_form("/ui/access/secrets", &[("forget", "anyone")]).await;
    assert!(page.status == StatusCode::UNPROCESSABLE_ENTITY && page.words().contains("write user:ID or key:NAME"), "{}", page.text);
    eventually("the deletion is in the audit log", async || {
        let (_, log) = administer(&service, Method::GET, "/v1/admin/audit?action=secrets_forget", &json!({})).await;
        when(log, |log| log["entries"][0]["subject"] == "key:one")
    })
    .await;
}
