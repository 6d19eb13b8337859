//! What an admin writes about tools, and tags that settings give them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use toolsieve::adapters::store::SqliteStore;
use toolsieve::domain::access::tool_facts::ToolOverride;
use toolsieve::domain::catalog::tool::ServerName;
use toolsieve::domain::catalog::user_lists::{ListOwner, UserList};
use toolsieve::service::catalog::current::CurrentCatalog;
use toolsieve::service::catalog::definitions::Definitions;
use toolsieve::service::catalog::rebuild::Rebuilds;
use toolsieve::service::catalog::refresh::{CatalogInputs, Refresh};
use toolsieve::service::catalog::reload::Trigger;
use toolsieve::service::catalog::tool_facts::ToolOverrides;
use toolsieve::service::ports::{ServerEvent, ServerListing, Store};
use toolsieve::settings::Settings;

use crate::harness::answers::shape;
use crate::harness::contracts::store::listing;
use crate::harness::keys::{ADMIN, KEY, administer, command, start, with_key};
use crate::harness::wait::{eventually, quickest, when};
use crate::harness::{LONG, Running, Start, stdio};

const CLOCK: &str = "/v1/admin/tools/time/get_current_time";
/// Found by new words after this time, as the README promises.
const A_MOMENT: Duration = Duration::from_secs(1);
/// A word that no tool has.
const WORD: &str = "zeitgeber";

async fn get(service: &Running, path: &str) -> Value {
    let (status, answer) = administer(service, Method::GET, path, &json!({})).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    answer
}

async fn write(service: &Running, path: &str, body: Value) -> Value {
    let (status, answer) = administer(service, Method::PUT, path, &body).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    answer
}

async fn names(service: &Running, filter: &str) -> Vec<String> {
    let page = get(service, &format!("/v1/admin/tools?{filter}")).await;
    page["tools"].as_array().unwrap().iter().map(|tool| tool["tool"].as_str().unwrap().to_owned()).collect()
}

async fn best(service: &Running, query: &str) -> String {
    let (_, found) = service.post("/v1/tools/search", &json!({"queries": [query], "limit": 1})).await;
    // Nothing is found by a word that no tool has.
    found["tools"][0]["name"].as_str().unwrap_or_default().to_owned()
}

async fn until_best(service: &Running, query: &str, name: &str) -> Duration {
    let begun = Instant::now();
    eventually(&format!("`{query}` finds {name}"), async || when(best(service, query).await, |best| best == name)).await;
    begun.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_admin_writes_holds_at_once_and_the_raw_tool_stays_raw() {
    let service = start(&[]).await;
    let before = get(&service, CLOCK).await;
    assert_eq!((&before["version"], &before["written"], &before["pinned"]), (&json!(0), &Value::Null, &json!(false)));
    assert_ne!(best(&service, WORD).await, "time__get_current_time", "nothing says so yet");

    let facts = json!({"tags": ["clock"], "synonyms": [WORD, "how late"], "description": "Says how late it is.", "pinned": true});
    write(&service, CLOCK, facts.clone()).await;
    until_best(&service, WORD, "time__get_current_time").await;
    let mut words = ["quokkalore", "brindlewick", "wobbegong"].into_iter();
    quickest("found by a new word", A_MOMENT, async || {
        let word = words.next().unwrap();
        assert_ne!(best(&service, word).await, "time__get_current_time", "nothing says so yet");
        write(&service, CLOCK, json!({"synonyms": [word]})).await;
        until_best(&service, word, "time__get_current_time").await
    })
    .await;
    let writes = 2 + (3 - words.len());
    let after = write(&service, CLOCK, facts.clone()).await;
    until_best(&service, WORD, "time__get_current_time").await;
    assert_eq!((&after["version"], &after["written"], &after["synonyms"]), (&json!(writes), &facts, &facts["synonyms"]));
    assert_eq!((&after["tags"], &after["description"]), (&json!([{"tag": "clock", "source": "admin"}]), &json!("Says how late it is.")));
    assert_eq!((&after["raw"], &after["definition"]["state"]), (&before["raw"], &json!("same")), "it is no change of the definition");
    assert!(after["tokens"] != before["tokens"], "{after}");

    let operation = service.get("/openapi.json").await.1["paths"]["/time/get_current_time"]["post"].clone();
    assert_eq!(operation["description"], "Says how late it is.");
    let (_, described) = service.post("/v1/tools/search", &json!({"queries": [WORD], "limit": 1, "detail": "full"})).await;
    assert_eq!(described["tools"][0]["description"], "Says how late it is.");
    let thanks = json!({"messages": [{"role": "user", "content": "thanks!"}]});
    let (_, selected) = service.post("/v1/filter", &thanks).await;
    let pinned = selected["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "time__get_current_time").cloned();
    assert!(pinned.is_some_and(|tool| tool["reason"].as_str().unwrap().contains("pinned")), "{selected}");

    let rules = json!({"rules": [{"effect": "block", "tags": ["clock"]}]});
    assert_eq!(administer(&service, Method::PUT, "/v1/admin/policy", &rules).await.0, StatusCode::OK);
    let call = || service.request(Method::POST, "/time/get_current_time").json(&json!({}));
    assert_eq!(call().send().await.unwrap().status(), StatusCode::NOT_FOUND, "rules go by the tag");
    write(&service, CLOCK, json!({})).await;
    assert_ne!(call().send().await.unwrap().status(), StatusCode::NOT_FOUND, "and the tag is gone at once");
    let operation = service.get("/openapi.json").await.1["paths"]["/time/get_current_time"]["post"].clone();
    assert_eq!(operation["description"], "Get the current time in a specific timezone");
}

#[tokio::test(flavor = "multi_thread")]
async fn writing_is_versioned_checked_and_for_the_admin_key_alone() {
    let service = start(&[]).await;
    let put = async |tag: &str, body: Value| {
        let response = with_key(&service, Method::PUT, CLOCK, ADMIN).header("If-Match", tag).json(&body).send().await.unwrap();
        let tag = response.headers().get("etag").map(|tag| tag.to_str().unwrap().to_owned());
        (response.status(), tag, response.json::<Value>().await.unwrap())
    };
    let (status, tag, _) = put("\"0\"", json!({"tags": ["a"]})).await;
    assert_eq!((status, tag.as_deref()), (StatusCode::OK, Some("\"1\"")));
    for late in ["\"0\"", "\"2\"", "nonsense"] {
        assert_eq!(put(late, json!({})).await.0, StatusCode::PRECONDITION_FAILED, "{late}");
    }
    for (body, words) in [
        (json!({"tag": ["a"]}), "unknown field `tag`"),
        (json!({"tags": "a"}), "invalid type"),
        (json!({"tags": [""]}), "1 to 64 characters"),
        (json!({"synonyms": ["the"]}), "no searchable word"),
        (json!({"description": " "}), "it is empty"),
        (json!({"description": "a\u{200b}b"}), "U+200B"),
    ] {
        let (status, _, problem) = put("\"1\"", body).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
        assert!(problem["detail"].as_str().unwrap().contains(words), "{problem}");
    }
    let unknown = administer(&service, Method::PUT, "/v1/admin/tools/time/no_such", &json!({"tags": ["a"]})).await;
    assert_eq!((unknown.0, &unknown.1["code"]), (StatusCode::NOT_FOUND, &json!("not_found")));
    assert_eq!(administer(&service, Method::GET, "/v1/admin/tools/time/no_such", &json!({})).await.0, StatusCode::NOT_FOUND);
    for path in ["/v1/admin/tools?limit=0", "/v1/admin/tools?colour=red", "/v1/admin/tools?pinned=perhaps"] {
        assert_eq!(administer(&service, Method::GET, path, &json!({})).await.0, StatusCode::UNPROCESSABLE_ENTITY, "{path}");
    }
    let named = crate::harness::keys::create(&service, json!({"name": "ci", "trusted": true})).await.1;
    for (method, path) in [
        (Method::GET, "/v1/admin/tools"),
        (Method::GET, "/v1/admin/tools/duplicates"),
        (Method::GET, "/v1/admin/servers"),
        (Method::GET, CLOCK),
        (Method::PUT, CLOCK),
        (Method::DELETE, CLOCK),
        (Method::POST, "/v1/admin/tools/time/get_current_time/approve"),
    ] {
        let ask = |path: &str| with_key(&service, method.clone(), path, &named).json(&json!({"fingerprint": "x"}));
        assert_eq!(shape(ask(path)).await, shape(ask("/v1/admin/nothing")).await, "{method} {path}");
    }
    let (status, gone) = administer(&service, Method::DELETE, CLOCK, &json!({})).await;
    assert_eq!((status, &gone["written"], &gone["version"]), (StatusCode::OK, &Value::Null, &json!(2)));
    assert_eq!(administer(&service, Method::DELETE, CLOCK, &json!({})).await.0, StatusCode::NOT_FOUND);
    assert_eq!(put("\"1\"", json!({})).await.0, StatusCode::PRECONDITION_FAILED, "versions are not used again");

    let log = eventually("both changes in the audit log", async || {
        when(get(&service, "/v1/admin/audit?tool=get_current_time").await, |log| {
            let actions: Vec<&str> = log["entries"].as_array().unwrap().iter().map(|entry| entry["action"].as_str().unwrap()).collect();
            actions == ["tool_facts_remove", "tool_facts_replace"]
        })
    })
    .await;
    assert_eq!((&log["entries"][0]["principal"], &log["entries"][0]["subject"]), (&json!("admin"), &json!("version 2")), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn facts_stay_over_a_restart_and_while_the_server_is_away() {
    let service = start(&[]).await;
    write(&service, CLOCK, json!({"tags": ["clock"], "description": "Says how late it is."})).await;
    write(&service, "/v1/admin/tools/one/echo", json!({"pinned": true})).await;
    assert_eq!(names(&service, "tag=clock").await, ["get_current_time"]);
    assert_eq!(names(&service, "pinned=true").await, ["echo"]);
    assert_eq!(names(&service, "server=time&text=LATE").await, ["get_current_time"]);
    assert_eq!(names(&service, "server=time&text=convert").await, ["convert_time"]);
    let page = get(&service, "/v1/admin/tools?server=time&limit=1").await;
    assert_eq!((&page["total"], &page["next"], page["tools"].as_array().unwrap().len()), (&json!(2), &json!(1), 1));
    let page = get(&service, "/v1/admin/tools?server=time&limit=1&offset=1").await;
    assert_eq!((&page["next"], &page["tools"][0]["tool"]), (&Value::Null, &json!("get_current_time")));

    let environment = vec![("TOOLSIEVE_ADMIN_KEY", ADMIN)];
    let only = json!({"one": stdio(&[])});
    let away =
        Start { servers: only, key: Some(KEY), environment: environment.clone(), folder: Some(service.stop().await), ..Start::default() }
            .start()
            .await;
    away.settled().await;
    let view = get(&away, CLOCK).await;
    assert_eq!((&view["published"], &view["written"]["tags"]), (&json!(false), &json!(["clock"])), "{view}");
    write(&away, CLOCK, json!({"tags": ["later"]})).await;

    let servers = json!({"one": stdio(&[]), "time": stdio(&["list=time"])});
    let back = Start { servers, key: Some(KEY), environment, folder: Some(away.stop().await), ..Start::default() }.start().await;
    // The tools of the other server come a moment after it is connected.
    back.until(|state| state["tools"] == 25).await;
    assert_eq!(names(&back, "tag=later").await, ["get_current_time"]);
    assert_eq!((names(&back, "pinned=true").await, names(&back, "tag=clock").await.len()), (vec!["echo".to_owned()], 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_give_tags_and_a_reload_takes_them_over() {
    let mut time = stdio(&["list=time"]);
    time["tags"] = json!(["clock"]);
    let servers = json!({"mail": stdio(&["list=mail"]), "time": time});
    let service = Start { servers: servers.clone(), from_files: true, ..Start::default() }.start().await;
    service.settled().await;
    let tagged = async |tag: &str| {
        let page = service.get(&format!("/v1/admin/tools?tag={tag}")).await.1;
        page["tools"].as_array().unwrap().iter().map(|tool| tool["tool"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!((tagged("clock").await, tagged("sends").await.len()), (vec!["convert_time".to_owned(), "get_current_time".to_owned()], 0));
    let reload = async |settings: &str| {
        std::fs::write(service.folder.path().join("toolsieve.toml"), settings).unwrap();
        service.reload.reload(Trigger::Request).await;
        service.get("/readyz").await.1["reload"].clone()
    };
    let rules = "[[tag]]\ntag = \"sends\"\ntools = [\"send_*\"]\n[[policy]]\neffect = \"block\"\ntags = [\"sends\"]\n";
    let state = reload(rules).await;
    assert_eq!((&state["state"], &state["needs_restart"]), (&json!("applied"), &json!([])), "{state}");
    let status = async || service.post("/mail/send_email", &json!({})).await.0;
    eventually("the rule holds", async || when(status().await, |status| *status == StatusCode::NOT_FOUND)).await;
    assert_eq!(tagged("sends").await, ["send_email"]);
    let state = reload("[[tag]]\ntag = \"\"\n[[tag]]\ntag = \"x\"\ngroups = [\"a\"]\n").await;
    let problems = state["problems"].to_string();
    assert!(problems.contains("rule 1: its tag is not a text") && problems.contains("rule 2: groups can't be a condition"), "{state}");
    reload("").await;
    eventually("the tag is gone", async || tagged("sends").await.is_empty()).await;
    assert_ne!(service.post("/mail/send_email", &json!({})).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_and_duplicates_are_reported() {
    let servers = json!({"mail": stdio(&["list=mail"]), "post": stdio(&["list=mail"]), "time": stdio(&["list=time"]),
        "gone": {"command": "/no/such/program"}});
    let service = Start { servers, ..Start::default() }.start().await;
    service
        .until(|state| {
            let phases: Vec<&str> = state["servers"].as_array().unwrap().iter().map(|server| server["phase"].as_str().unwrap()).collect();
            phases == ["connected", "connected", "connected", "retrying"] && state["tools"] == 8
        })
        .await;
    let mut answer = json!(null);
    eventually("the times of the lists are stored", async || {
        answer = service.get("/v1/admin/servers").await.1;
        answer["servers"].as_array().unwrap().iter().all(|server| server["server"] == "gone" || server["listed_at"].is_string())
    })
    .await;
    let servers = answer["servers"].as_array().unwrap();
    let mail = servers.iter().find(|server| server["server"] == "mail").unwrap();
    assert_eq!(
        (&mail["phase"], &mail["tools"], &mail["title"], &mail["changed"]),
        (&json!("connected"), &json!(3), &json!("Test server"), &json!(0))
    );
    assert!(mail["tokens"].as_u64().unwrap() > 50 && mail["protocol"].is_string() && mail["listed_at"].is_string(), "{mail}");
    let gone = servers.iter().find(|server| server["server"] == "gone").unwrap();
    assert!(gone["error"].is_string() && gone["listed_at"].is_null() && gone["tools"] == 0, "{gone}");

    let (_, answer) = service.get("/v1/admin/tools/duplicates").await;
    let groups = answer["groups"].as_array().unwrap();
    let pairs: Vec<String> = groups.iter().map(|group| group["tools"][0]["tool"].as_str().unwrap().to_owned()).collect();
    assert_eq!(pairs, ["list_emails", "search_emails", "send_email"], "{answer}");
    assert_eq!(
        (&groups[0]["same_name"], &groups[0]["same_definition"], &groups[0]["tools"][1]["server"]),
        (&json!(true), &json!(true), &json!("post"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_shows_and_writes() {
    let service = start(&[]).await;
    let words = |more: &[&'static str]| [&["tools"], more].concat();
    let (code, shown, error) = command(&service, &words(&["set", "time/get_current_time", "--tag", "clock", "--pinned", "true"]));
    assert!(code == Some(0) && shown.contains("tags         clock") && shown.contains("pinned       true"), "{shown}{error}");
    let (_, shown, _) = command(&service, &words(&["set", "time/get_current_time", "--synonym", "how late"]));
    assert!(shown.contains("clock") && shown.contains("how late") && shown.contains("definition   same"), "{shown}");
    let (_, shown, _) = command(&service, &words(&["show", "time/get_current_time", "--json"]));
    let view: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(view["written"], json!({"tags": ["clock"], "synonyms": ["how late"], "description": null, "pinned": true}));
    let (_, shown, _) = command(&service, &words(&["unset", "time/get_current_time"]));
    assert!(!shown.contains("clock"), "{shown}");
    let (code, _, error) = command(&service, &words(&["approve", "time/get_current_time", "--fingerprint", "abc"]));
    assert!(code == Some(1) && error.contains("this is not the fingerprint of the tool"), "{error}");
    for (wrong, code, part) in [
        (vec!["tools", "show", "time/"], 2, "SERVER/TOOL"),
        (vec!["tools", "set", "time", "--tag", "x"], 2, "SERVER/TOOL"),
        (vec!["tools", "show", "nowhere"], 1, "There is no such server"),
        (vec!["tools", "set", "time/get_current_time"], 2, "nothing to write"),
        (vec!["tools", "show", "time/none"], 1, "No such tool ever existed"),
    ] {
        let (found, _, error) = command(&service, &wrong);
        assert!(found == Some(code) && error.contains(part), "{error}");
    }
}

/// Regression test: a server that a reload had added stayed without tools if it listed them before the catalog expected it.
#[tokio::test(flavor = "multi_thread")]
async fn a_listing_that_comes_before_its_server_is_expected_is_not_lost() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&folder.path().join("t.db")).await.unwrap());
    let live = Settings::defaults().unwrap().live;
    let (rebuilds, requests) = Rebuilds::channel();
    let overrides = Arc::new(ToolOverrides::start(store.clone(), rebuilds, &live).await.unwrap());
    let definitions = Arc::new(Definitions::start(store.clone(), live.definitions).await.unwrap());
    let current = Arc::new(CurrentCatalog::default());
    let of = |names: &[&str]| -> Arc<BTreeMap<ServerName, BTreeSet<String>>> {
        Arc::new(names.iter().map(|name| (ServerName::from(*name), BTreeSet::new())).collect())
    };
    let (configured, changes) = watch::channel(of(&["alpha"]));
    let inputs = CatalogInputs { overrides, definitions, rebuilds: requests };
    let count = Arc::new(|texts: &[String]| vec![1; texts.len()]);
    let mut refresh = Refresh::new(Arc::clone(&current), store, count, changes, inputs);
    let (events, stream) = mpsc::channel(1);
    let following = tokio::spawn(async move { refresh.follow(stream).await });
    let names = || current.snapshot().servers().iter().map(|server| server.name.to_string()).collect::<Vec<_>>();
    for name in ["beta", "gamma", "alpha"] {
        events.send(ServerEvent::Listed(listing(name, 2))).await.unwrap();
    }
    events.send(ServerEvent::Removed { server: "gamma".into() }).await.unwrap();
    // The queue has room for one, so everything before the removal has been handled then.
    events.send(ServerEvent::Failed { server: "alpha".into(), reason: "a test".into(), is_connected: false }).await.unwrap();
    eventually("only the expected server is there", async || when(names(), |names| names == &["alpha"]).map_err(|all| all.join(" "))).await;
    configured.send_replace(of(&["alpha", "beta", "gamma"]));
    eventually("the early one is there, and the removed one is not", async || {
        when(names(), |names| names == &["alpha", "beta"]).map_err(|all| all.join(" "))
    })
    .await;
    drop(events);
    following.await.unwrap();
}

/// Regression test: each service replaced the list that another one on the same store had stored for its own users.
#[tokio::test(flavor = "multi_thread")]
async fn services_merge_what_their_users_have_listed() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&folder.path().join("t.db")).await.unwrap());
    let live = Settings::defaults().unwrap().live;
    let all = listing("crm", 3);
    let with = |tools: &[usize]| ServerListing { tools: tools.iter().map(|tool| all.tools[*tool].clone()).collect(), ..all.clone() };
    // What a service's own users have listed, and the list of one of them.
    let listed = |merged: &[usize], user: &str, tools: &[usize]| ServerEvent::ListedForUser {
        listing: with(merged),
        list: UserList { owner: ListOwner::of(user), tools: with(tools).tools, expired: Vec::new(), is_of_new_server: false },
    };
    let service = async |events: Vec<ServerEvent>| {
        let (rebuilds, requests) = Rebuilds::channel();
        let overrides = Arc::new(ToolOverrides::start(store.clone(), rebuilds, &live).await.unwrap());
        let definitions = Arc::new(Definitions::start(store.clone(), live.definitions).await.unwrap());
        let current = Arc::new(CurrentCatalog::default());
        let (_configured, changes) = watch::channel(Arc::new([(ServerName::from("crm"), BTreeSet::new())].into()));
        let inputs = CatalogInputs { overrides, definitions, rebuilds: requests };
        let count = Arc::new(|texts: &[String]| vec![1; texts.len()]);
        let mut refresh = Refresh::new(Arc::clone(&current), store.clone(), count, changes, inputs);
        let (sender, stream) = mpsc::channel(events.len());
        for event in events {
            sender.send(event).await.unwrap();
        }
        drop(sender);
        refresh.follow(stream).await;
        current.snapshot().tools().len()
    };
    assert_eq!(service(vec![listed(&[0, 1], "anna", &[0, 1])]).await, 2);
    // The second list changes nothing for its service, but makes Bob the last one who has the tool.
    assert_eq!(service(vec![listed(&[1, 2], "bob", &[1, 2]), listed(&[1, 2], "bob", &[1, 2])]).await, 2);
    assert_eq!(store.listings().await.unwrap(), [with(&[0, 1, 2])]);
    service(vec![listed(&[1], "anna", &[])]).await;
    assert_eq!(store.listings().await.unwrap(), [with(&[1, 2])]);
    service(vec![listed(&[1], "anna", &[1]), listed(&[1], "bob", &[1]), listed(&[1], "anna", &[1]), listed(&[1], "bob", &[])]).await;
    assert_eq!(store.listings().await.unwrap(), [with(&[1])], "a list that is the same as before counts too");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_was_written_about_is_made_and_counted_anew() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&folder.path().join("t.db")).await.unwrap());
    let live = Settings::defaults().unwrap().live;
    let (rebuilds, requests) = Rebuilds::channel();
    let overrides = Arc::new(ToolOverrides::start(store.clone(), rebuilds, &live).await.unwrap());
    let definitions = Arc::new(Definitions::start(store.clone(), live.definitions).await.unwrap());
    let current = Arc::new(CurrentCatalog::default());
    let (_configured, changes) = watch::channel(Arc::new([(ServerName::from("alpha"), BTreeSet::new())].into()));
    let counted: Arc<Mutex<Vec<String>>> = Arc::default();
    let count = {
        let counted = Arc::clone(&counted);
        Arc::new(move |texts: &[String]| {
            counted.lock().unwrap().extend_from_slice(texts);
            texts.iter().map(|_| 1).collect()
        })
    };
    let inputs = CatalogInputs { overrides: Arc::clone(&overrides), definitions, rebuilds: requests };
    let mut refresh = Refresh::new(Arc::clone(&current), store, count, changes, inputs);
    let (events, stream) = mpsc::channel(1);
    let following = tokio::spawn(async move { refresh.follow(stream).await });
    let mut news = current.changes();
    events.send(ServerEvent::Listed(listing("alpha", 3))).await.unwrap();
    tokio::time::timeout(LONG, news.changed()).await.expect("a catalog in time").unwrap();

    let before = current.snapshot();
    assert_eq!((before.tools().len(), counted.lock().unwrap().len() >= 3), (3, true));
    counted.lock().unwrap().clear();
    let written = ToolOverride { description: Some("Something else.".into()), ..ToolOverride::default() };
    overrides.replace(&before.tools()[1].id, Some(written), None).await.unwrap();
    let after = current.snapshot();
    let texts = std::mem::take(&mut *counted.lock().unwrap());
    assert!(texts.len() == 1 && texts[0].contains("Something else."), "{texts:?}");
    let is_same: Vec<bool> = before.tools().iter().zip(after.tools()).map(|(one, other)| Arc::ptr_eq(one, other)).collect();
    assert_eq!(is_same, [true, false, true]);
    overrides.replace(&before.tools()[1].id, None, None).await.unwrap();
    assert_eq!(current.snapshot().version(), before.version(), "without it everything is as it was");
    assert!(counted.lock().unwrap().is_empty(), "what was counted once is known");
    drop(events);
    following.await.unwrap();
}
