//! Loading: into a session and into a chat, over HTTP and over MCP, and what is told where neither is there.

use std::collections::BTreeSet;
use std::sync::Arc;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use toolsieve::adapters::tokens::TokenCounter;
use toolsieve::domain::access::visibility::{Scope, Visibility};
use toolsieve::domain::catalog::catalog::{self, Catalog, CatalogServer};
use toolsieve::domain::catalog::tool::ServerName;
use toolsieve::domain::publishing::meta_tools::{MetaTool, Purpose};
use toolsieve::domain::toolsets::mode::Mode;
use toolsieve::service::publishing::publish::Publish;

use crate::harness::answers::{operations, published, set};
use crate::harness::keys::{ADMIN, KEY, administer, create, start_on, with_key};
use crate::harness::mcp::client::Client;
use crate::harness::mcp::rpc;
use crate::harness::servers::four;
use crate::harness::{Running, Start, stdio};

const META: [&str; 6] = ["find_tools", "load_toolset", "unload_toolset", "list_available_toolsets", "enable_tool_group", "run_tool"];

async fn start(environment: &[(&'static str, &'static str)]) -> Running {
    start_on(four(), environment).await
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().unwrap_or_else(|| panic!("{list}")).iter().map(|text| text.as_str().unwrap()).collect()
}

async fn session(service: &Running, body: Value) -> String {
    let (status, made) = service.post("/v1/sessions", &body).await;
    assert_eq!(status, StatusCode::CREATED, "{made}");
    assert_eq!(made["mode"], "dynamic");
    format!("/s/{}", made["id"].as_str().unwrap())
}

async fn listed(service: &Running, path: &str, headers: &[(&'static str, &str)]) -> Vec<String> {
    let answer = rpc(service, path, headers, "tools/list", json!({})).await;
    let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}"));
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

async fn call(service: &Running, path: &str, name: &str, arguments: Value) -> Value {
    rpc(service, path, &[], "tools/call", json!({"name": name, "arguments": arguments})).await["result"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_loads_and_unloads() {
    let service = start(&[]).await;
    let letters = json!({"description": "Letters", "servers": ["mail"], "exclude": ["send_*"]});
    administer(&service, Method::PUT, "/v1/admin/toolsets/letters", &letters).await;
    let at = session(&service, json!({"servers": ["time"], "mode": "dynamic"})).await;
    let document = async || service.get(&format!("{at}/openapi.json")).await.1;
    let initial = set(&["time__convert_time", "time__get_current_time"]);
    assert_eq!((operations(&document().await), published(&document().await)), (&set(&META) | &initial, initial.clone()));

    let (_, found) = service.post(&format!("{at}/v1/tools/search"), &json!({"queries": ["search emails"], "limit": 3})).await;
    assert_eq!((&found["tools"][0]["name"], &found["tools"][0]["already_loaded"]), (&json!("mail__search_emails"), &json!(false)));
    assert_eq!(found["toolsets"][0]["name"], "letters", "the toolset, and not the server: {found}");
    assert!(texts(&found["toolsets"][0]["has"]).contains(&"mail__search_emails"), "{found}");
    assert!(found["next"].as_str().unwrap().contains("load_toolset"), "{found}");

    let (status, loaded) = service.post(&format!("{at}/v1/toolsets/load"), &json!({"toolset": "Letters"})).await;
    assert_eq!(status, StatusCode::OK, "{loaded}");
    assert_eq!((texts(&loaded["loaded"]), &loaded["bound"]), (vec!["letters"], &json!(4)));
    assert_eq!(texts(&loaded["tools"]), ["mail__list_emails", "mail__search_emails"]);
    assert_eq!(published(&document().await), &initial | &set(&["mail__list_emails", "mail__search_emails"]));
    let (_, again) = service.post(&format!("{at}/v1/toolsets/load"), &json!({"toolsets": ["letters", "time", "files"]})).await;
    assert_eq!((texts(&again["loaded"]), texts(&again["already_loaded"])), (vec!["files"], vec!["letters", "time"]));
    let (_, found) = service.post(&format!("{at}/v1/tools/search"), &json!({"queries": ["search emails"], "limit": 1})).await;
    assert_eq!((&found["tools"][0]["already_loaded"], &found["toolsets"]), (&json!(true), &Value::Null));

    let (_, available) = service.post(&format!("{at}/v1/toolsets/available"), &json!({})).await;
    let rows = available["toolsets"].as_array().unwrap().iter();
    let rows: Vec<_> = rows.map(|row| (row["name"].as_str().unwrap(), row["kind"].as_str().unwrap(), row["loaded"] == true)).collect();
    assert_eq!(
        rows,
        [
            ("letters", "toolset", true),
            ("files", "server", true),
            ("mail", "server", false),
            ("one", "server", false),
            ("time", "server", true)
        ]
    );

    // The same over MCP, and it survives a restart.
    let listed_names = listed(&service, &format!("{at}/mcp"), &[]).await;
    assert_eq!(listed_names[..6], META);
    assert_eq!(listed_names[6..10], ["time__convert_time", "time__get_current_time", "mail__list_emails", "mail__search_emails"]);
    let folder = service.stop().await;
    let environment = vec![("TOOLSIEVE_ADMIN_KEY", ADMIN)];
    let service = Start { servers: four(), key: Some(KEY), environment, folder: Some(folder), ..Start::default() }.start().await;
    service.settled().await;
    assert_eq!(listed(&service, &format!("{at}/mcp"), &[]).await, listed_names);

    let unload = async |name: &str| service.post(&format!("{at}/v1/toolsets/unload"), &json!({"toolset": name})).await;
    let (_, unloaded) = unload("letters").await;
    assert_eq!(texts(&unloaded["tools"]), ["mail__list_emails", "mail__search_emails"], "{unloaded}");
    assert!(!listed(&service, &format!("{at}/mcp"), &[]).await.iter().any(|name| name.starts_with("mail")));
    for (name, status, code, part) in [
        ("time", 409, "initial_toolset", "`time` belongs to the session"),
        ("letters", 409, "not_loaded", "loaded are `files`"),
        ("fils", 404, "not_found", "did you mean `files`?"),
    ] {
        let (answered, problem) = unload(name).await;
        assert_eq!((answered.as_u16(), problem["code"].as_str().unwrap()), (status, code), "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(part), "{problem}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mcp_clients_of_a_session_load_and_call_directly() {
    let service = start(&[("TOOLSIEVE_SELECTION__PINNED", "time__get_current_time")]).await;
    let path = format!("{}/mcp", session(&service, json!({"mode": "dynamic"})).await);
    assert_eq!(listed(&service, &path, &[]).await[..], [&META[..], &["time__get_current_time"]].concat(), "pinned tools stay visible");
    let loaded = call(&service, &path, "load_toolset", json!({"toolset": "one"})).await["structuredContent"].clone();
    assert!(texts(&loaded["tools"]).contains(&"one__echo"), "{loaded}");
    assert!(listed(&service, &path, &[]).await.contains(&"one__echo".to_owned()));
    let echoed = call(&service, &path, "one__echo", json!({"a": 1})).await;
    assert_eq!(echoed["structuredContent"], json!({"a": 1}), "{echoed}");
    let ran = call(&service, &path, "run_tool", json!({"name": "one__echo", "arguments": {"a": 2}})).await;
    assert_eq!(ran["structuredContent"], json!({"a": 2}), "for clients that do not list again");
    let found = call(&service, &path, "find_tools", json!({"queries": ["echo the arguments"], "limit": 1})).await;
    assert_eq!(found["structuredContent"]["tools"][0]["already_loaded"], true, "{found}");
    let gone = call(&service, &path, "unload_toolset", json!({"toolset": "one"})).await;
    assert_eq!(gone["structuredContent"]["bound"], 1, "{gone}");
    assert!(!listed(&service, &path, &[]).await.contains(&"one__echo".to_owned()));
    for (name, arguments, part) in [
        ("load_toolset", json!({"toolset": "ones"}), "did you mean `one`?"),
        ("load_toolset", json!({"toolset": "mail__send_email"}), "it is a tool of `mail`"),
        ("load_toolset", json!({}), "Give 1 to 20 names"),
        ("unload_toolset", json!({"toolset": "one"}), "not loaded"),
    ] {
        let refused = call(&service, &path, name, arguments).await;
        let text = refused["content"][0]["text"].as_str().unwrap();
        assert!(refused["isError"] == true && text.contains(part), "{refused}");
    }
}

/// Regression test: the chat kept on offer what its session had unloaded.
#[tokio::test(flavor = "multi_thread")]
async fn an_unload_in_a_session_reaches_its_chat() {
    let service = start(&[]).await;
    let at = session(&service, json!({"mode": "dynamic"})).await;
    let post = async |path: &str| {
        let request = service.request(Method::POST, &format!("{at}/v1/toolsets/{path}")).header("x-openwebui-chat-id", "chat-1");
        request.json(&json!({"toolset": "mail"})).send().await.unwrap().json::<Value>().await.unwrap()
    };
    let loaded = post("load").await;
    // A client that offers what it has listed, and what it has loaded since.
    let offered: Vec<&str> = META.into_iter().chain(texts(&loaded["tools"])).collect();
    let kept = async |message: &str| {
        let ask = json!({"messages": [{"role": "user", "content": message}], "chat_id": "chat-1", "tools": offered});
        texts_of(&service.post("/v1/filter", &ask).await.1["tools"]).into_iter().filter(|name| name.contains("__")).collect::<BTreeSet<_>>()
    };
    assert!(kept("send an email to Zoe").await.contains("mail__send_email"));
    assert!(kept("thanks!").await.contains("mail__send_email"));
    let unloaded = post("unload").await;
    assert_eq!(unloaded["tools"].as_array().unwrap().len(), 3, "{unloaded}");
    assert_eq!(kept("thanks!").await, BTreeSet::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_keeps_what_is_loaded() {
    let service = start(&[("TOOLSIEVE_SELECTION__CHAT_BUDGET", "10")]).await;
    let chat = [("x-openwebui-chat-id", "chat-1")];
    let post = async |path: &str, body: Value| {
        let request = service.request(Method::POST, path).header("x-openwebui-chat-id", "chat-1").json(&body);
        request.send().await.unwrap().json::<Value>().await.unwrap()
    };
    let loaded = post("/v1/toolsets/load", json!({"toolset": "mail"})).await;
    assert_eq!(loaded["tools"].as_array().unwrap().len(), 3, "{loaded}");
    assert_eq!(listed(&service, "/mcp?mode=dynamic", &chat).await.len(), META.len() + 3);
    assert_eq!(listed(&service, "/mcp?mode=dynamic", &[]).await, META, "of another chat");
    // The filter keeps them on offer in that chat, whatever the message says.
    let ask = json!({"messages": [{"role": "user", "content": "thanks!"}], "chat_id": "chat-1"});
    let kept: BTreeSet<String> =
        texts_of(&service.post("/v1/filter", &ask).await.1["tools"]).into_iter().filter(|name| name.contains("__")).collect();
    assert_eq!(kept, set(&["mail__list_emails", "mail__search_emails", "mail__send_email"]));
    let available = post("/v1/toolsets/available", json!({})).await;
    let mail = available["toolsets"].as_array().unwrap().iter().find(|row| row["name"] == "mail").unwrap();
    assert_eq!((&mail["loaded"], &available["bound"]), (&json!(true), &json!(3)));
    let unloaded = post("/v1/toolsets/unload", json!({"toolset": "mail"})).await;
    assert_eq!((unloaded["tools"].as_array().unwrap().len(), &unloaded["bound"]), (3, &json!(0)), "{unloaded}");
    assert_eq!(listed(&service, "/mcp?mode=dynamic", &chat).await, META);
    let kept = texts_of(&service.post("/v1/filter", &ask).await.1["tools"]);
    assert!(!kept.iter().any(|name| name.contains("__")), "at once: {kept:?}");
    // The chat may stand in the body.
    let (_, loaded) = service.post("/v1/toolsets/load", &json!({"toolset": "time", "chat_id": "chat-2"})).await;
    assert_eq!(loaded["bound"], 2, "{loaded}");
    assert_eq!(listed(&service, "/mcp?mode=dynamic", &[("x-openwebui-chat-id", "chat-2")]).await.len(), META.len() + 2);
}

fn texts_of(tools: &Value) -> Vec<String> {
    tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_session_or_a_chat_it_says_what_to_do() {
    let service = start(&[]).await;
    for (path, body) in [("load", json!({"toolset": "mail"})), ("enable", json!({"group": "mail"})), ("unload", json!({"toolset": "mail"}))]
    {
        let (status, problem) = service.post(&format!("/v1/toolsets/{path}"), &body).await;
        assert_eq!((status.as_u16(), &problem["code"]), (409, &json!("nothing_to_load_into")), "{problem}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("run_tool") && detail.contains("POST /v1/sessions"), "{detail}");
    }
    let refused = call(&service, "/mcp?mode=dynamic", "load_toolset", json!({"toolset": "mail"})).await;
    assert!(refused["isError"] == true && refused["content"][0]["text"].as_str().unwrap().contains("run_tool"), "{refused}");
    let (status, _) = service.post("/v1/toolsets/load", &json!({})).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(operations(&service.get("/openapi.json?mode=dynamic").await.1), set(&META));
    // Whatever the document lists is answered below its address, that of a server too.
    let (_, document) = service.get("/mail/openapi.json?mode=dynamic").await;
    for path in document["paths"].as_object().unwrap().keys() {
        let (status, body) = service.post(&format!("/mail{path}"), &json!([])).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{path} {body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_a_toolset_a_server_or_a_tag_and_what_is_denied_is_none() {
    let service = start(&[]).await;
    let facts = json!({"tags": ["office"]});
    for tool in ["mail/send_email", "files/read_file"] {
        let (status, answer) = administer(&service, Method::PUT, &format!("/v1/admin/tools/{tool}"), &facts).await;
        assert!(status.is_success(), "{answer}");
    }
    let at = session(&service, json!({"mode": "dynamic"})).await;
    let (_, enabled) = service.post(&format!("{at}/v1/toolsets/enable"), &json!({"group": "Office"})).await;
    assert_eq!(texts(&enabled["tools"]), ["files__read_file", "mail__send_email"], "{enabled}");
    let (status, refused) = service.post(&format!("{at}/v1/toolsets/load"), &json!({"toolset": "office"})).await;
    assert!(status == StatusCode::NOT_FOUND && refused["detail"].as_str().unwrap().contains("it is a tag"), "{refused}");
    // Who may not see a server is told what is told of one that does not exist.
    let (_, narrow) = create(&service, json!({"name": "narrow", "servers": ["time"]})).await;
    let ask = async |path: &str, body: Value| {
        let answer = with_key(&service, Method::POST, path, &narrow).header("x-session-id", "mine").json(&body).send().await.unwrap();
        answer.json::<Value>().await.unwrap()
    };
    let detail_of =
        async |name: &str| ask("/v1/toolsets/enable", json!({"group": name})).await["detail"].as_str().unwrap().replace(name, "X");
    assert_eq!(detail_of("mail").await, detail_of("nothere").await);
    assert_eq!(detail_of("office").await, detail_of("nothere").await);
    let available = ask("/v1/toolsets/available", json!({})).await;
    assert_eq!(texts_of(&available["toolsets"]), ["time"]);
    // A rule that comes later takes loaded tools away.
    let rules = json!({"rules": [{"effect": "block", "servers": ["mail"]}]});
    administer(&service, Method::PUT, "/v1/admin/policy", &rules).await;
    assert_eq!(published(&service.get(&format!("{at}/openapi.json")).await.1), set(&["files__read_file"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_takes_hints_caps_and_folds_what_repeats() {
    let mut all = four();
    all["post"] = stdio(&["list=mail"]);
    let service = Running::on(all).await;
    let find = async |body: Value| service.post("/v1/tools/search", &body).await.1;
    let folded = find(json!({"queries": ["send an email"], "limit": 3, "detail": "compact"})).await;
    let first = &folded["tools"][0];
    assert!(first["name"] == "mail__send_email" || first["name"] == "post__send_email", "{folded}");
    assert_eq!(first["same_as"].as_array().unwrap().len(), 1, "{folded}");
    assert!(first.get("summary").is_none() && first.get("already_loaded").is_none(), "{folded}");
    let tools: BTreeSet<&str> = folded["tools"].as_array().unwrap().iter().map(|tool| tool["tool"].as_str().unwrap()).collect();
    assert_eq!(tools.len(), 3, "each once: {folded}");
    let everything = service.get("/openapi.json").await.1;
    let count = published(&everything).len();
    let all = find(json!({"queries": ["send an email"], "limit": 100})).await;
    assert_eq!(all["tools"].as_array().unwrap().len(), count, "nothing is left out where there is room");

    let capped = find(json!({"queries": ["time", "mail"], "limit": 4, "per_server": 1})).await;
    let servers: BTreeSet<&str> = capped["tools"].as_array().unwrap().iter().map(|tool| tool["server"].as_str().unwrap()).collect();
    assert!(servers.len() >= 3, "{capped}");
    let meant = find(json!({"queries": ["what is there"], "intent": "files", "limit": 2})).await;
    assert!(meant["tools"].as_array().unwrap().iter().all(|tool| tool["server"] == "files"), "{meant}");
    let odd = find(json!({"queries": ["send an email"], "intent": "gardening", "limit": 1})).await;
    assert!(odd["warnings"][0].as_str().unwrap().contains("matches the intent"), "{odd}");
    assert_eq!(odd["tools"][0]["tool"], "send_email");
    for (body, part) in [
        (json!({"queries": ["x"], "per_server": 0}), "per_server is 1 to 100"),
        (json!({"queries": ["x"], "detail": "all"}), "detail is `names` (or `compact`)"),
        (json!({"queries": []}), "queries"),
    ] {
        let (status, problem) = service.post("/v1/tools/search", &body).await;
        assert!(status == StatusCode::UNPROCESSABLE_ENTITY && problem["detail"].as_str().unwrap().contains(part), "{problem}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_can_be_limited_to_servers() {
    // Each list of the index holds a single tool, which is never one of the server's unless the index filters.
    let environment = [("TOOLSIEVE_SELECTION__CANDIDATES", "1"), ("TOOLSIEVE_SELECTION__LIMIT", "1")];
    let service = start(&environment).await;
    let find = async |body: Value| service.post("/v1/tools/search", &body).await.1;
    let servers = |found: &Value| -> BTreeSet<String> {
        found["tools"].as_array().unwrap().iter().map(|tool| tool["server"].as_str().unwrap().to_owned()).collect()
    };
    let query = "send an email about the time";
    let first = find(json!({"queries": [query], "limit": 1})).await;
    assert_eq!(first["tools"][0]["name"], "mail__send_email", "{first}");
    let found = find(json!({"queries": [query], "servers": ["time"], "limit": 1})).await;
    assert_eq!(servers(&found), set(&["time"]));
    assert!(found["tools"][0]["score"].as_f64().unwrap() > 0.0, "it comes from the index: {found}");
    assert!(found.get("unknown_servers").is_none(), "{found}");
    let all = find(json!({"queries": [query], "servers": ["mail"], "limit": 3})).await;
    assert_eq!((servers(&all), all["tools"].as_array().unwrap().len()), (set(&["mail"]), 3), "the limit is filled: {all}");

    let both = find(json!({"queries": ["write an email to a file"], "servers": [" MAIL", "files", "mail", ""], "limit": 100})).await;
    assert_eq!((servers(&both), both["tools"].as_array().unwrap().len()), (set(&["files", "mail"]), 7), "{both}");
    let one = find(json!({"queries": ["write an email"], "server": "mail", "limit": 1})).await;
    assert_eq!(one["tools"][0]["name"], "mail__send_email", "{one}");
    let everywhere = find(json!({"queries": ["write an email"], "servers": [], "limit": 100})).await;
    assert_eq!(servers(&everywhere), set(&["files", "mail", "one", "time"]), "an empty list names no server");

    let odd = find(json!({"queries": ["write an email"], "servers": ["mial", "mail", "nobody", "nobody"], "limit": 1})).await;
    assert_eq!(odd["tools"][0]["name"], "mail__send_email", "{odd}");
    assert_eq!(odd["unknown_servers"], json!([{"name": "mial", "did_you_mean": "mail"}, {"name": "nobody"}]));
    let nothing = find(json!({"queries": ["write an email"], "servers": ["nobody"]})).await;
    assert_eq!((&nothing["tools"], &nothing["unknown_servers"]), (&json!([]), &json!([{"name": "nobody"}])));
    assert!(nothing["next"].as_str().unwrap().contains("None of these servers"), "{nothing}");

    let arguments = json!({"queries": [query], "servers": ["time"], "limit": 2});
    let over_mcp = call(&service, "/mcp", "find_tools", arguments.clone()).await;
    let names = |found: &Value| found["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect::<Vec<_>>();
    assert_eq!(names(&over_mcp["structuredContent"]), names(&find(arguments).await), "{over_mcp}");
    // A search below a server's address finds all tools, so it can also be limited to other servers.
    let (_, below) = service.post("/time/v1/tools/search", &json!({"queries": [query], "servers": ["mail"], "limit": 1})).await;
    assert_eq!(servers(&below), set(&["mail"]), "{below}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_hardly_matches_is_weak_and_what_does_not_match_is_nothing() {
    let service = start(&[]).await;
    let find = async |query: &str| service.post("/v1/tools/search", &json!({"queries": [query], "limit": 9})).await.1;
    let clock = find("what time is it in Tokyo").await;
    let tools = clock["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 9, "the limit is filled: {clock}");
    let weak = |tool: &Value| tool.get("weak").is_some_and(|weak| *weak == true);
    assert!(tools[..2].iter().all(|tool| tool["server"] == "time" && !weak(tool)), "{clock}");
    assert!(tools[2..].iter().all(weak), "{clock}");
    assert!(!clock["next"].as_str().unwrap().contains("only weakly"), "{clock}");

    // Only a word in common.
    let words = find("file a complaint about the neighbours").await;
    let tools = words["tools"].as_array().unwrap();
    assert!(tools.len() == 9 && tools.iter().all(weak), "{words}");
    assert!(words["next"].as_str().unwrap().starts_with("These tools match only weakly."), "{words}");
    // No word in common, and nothing alike.
    for query in ["zxqv blorp", "name a flower"] {
        let nothing = find(query).await;
        assert_eq!(nothing["tools"], json!([]), "{query}");
        assert!(nothing["next"].as_str().unwrap().starts_with("Nothing was found."), "{nothing}");
    }
    // One good query is enough, and an intent counts as a word.
    let (_, either) = service.post("/v1/tools/search", &json!({"queries": ["zxqv blorp", "send an email"], "limit": 1})).await;
    assert_eq!((&either["tools"][0]["tool"], weak(&either["tools"][0])), (&json!("send_email"), false), "{either}");
    let (_, meant) = service.post("/v1/tools/search", &json!({"queries": ["zxqv blorp"], "intent": "files", "limit": 2})).await;
    assert!(meant["tools"].as_array().unwrap().iter().all(|tool| tool["server"] == "files" && weak(tool)), "{meant}");
    assert_eq!(meant["tools"].as_array().unwrap().len(), 2, "{meant}");
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_the_older_era_are_notified_and_have_lists_of_their_own() {
    let service = start(&[]).await;
    let one = Client::new(&service, "/mcp?mode=dynamic", None).greeted().await;
    let other = Client::new(&service, "/mcp?mode=dynamic", None).greeted().await;
    let mut stream = one.listen().await;
    assert_eq!(one.tools().await, META);
    let ask = async |client: &Client<'_>, name: &str, arguments: Value| {
        client.ask("tools/call", json!({"name": name, "arguments": arguments})).await.1["result"].clone()
    };
    let loaded = ask(&one, "load_toolset", json!({"toolset": "mail"})).await;
    assert_eq!(loaded["structuredContent"]["bound"], 3, "{loaded}");
    assert_eq!(stream.next().await.unwrap()["method"], "notifications/tools/list_changed");
    assert_eq!(one.tools().await[META.len()..], ["mail__list_emails", "mail__search_emails", "mail__send_email"]);
    assert_eq!(other.tools().await, META, "another session");
    assert_eq!(ask(&one, "unload_toolset", json!({"toolset": "mail"})).await["structuredContent"]["bound"], 0);
    assert_eq!(stream.next().await.unwrap()["method"], "notifications/tools/list_changed");
    assert_eq!(one.tools().await, META);
    let refused = ask(&one, "unload_toolset", json!({"toolset": "mail"})).await;
    assert_eq!(refused["isError"], true, "{refused}");
    // Whoever has no stream is told of it by the next one.
    drop(stream);
    ask(&one, "load_toolset", json!({"toolset": "mail"})).await;
    assert_eq!(one.listen().await.next().await.unwrap()["method"], "notifications/tools/list_changed");
}

/// A catalog of so many tools on so many servers.
fn catalog(tools: usize, servers: usize) -> Catalog {
    let server = |number: usize| {
        let name = ServerName::from(format!("server-of-department-{number}").as_str());
        let raw = |tool: usize| json!({"name": format!("tool_{tool}"), "description": "Does something", "inputSchema": {"type": "object"}});
        let tools = (0..tools / servers).map(|tool| Arc::new(catalog::tool(&name, &raw(tool)).unwrap())).collect();
        CatalogServer::untitled(name.clone(), tools)
    };
    Catalog::new((0..servers).map(server).collect())
}

#[test]
fn what_a_model_begins_with_does_not_grow_with_the_tools() {
    let counter = TokenCounter::default();
    let begin = |mode: Mode, tools: usize, servers: usize| {
        let tools = Publish::meta_tools(&catalog(tools, servers), &Visibility::default(), mode);
        let definitions: Vec<String> = tools.iter().map(|tool| tool.function().to_string()).collect();
        counter.count(&definitions).into_iter().sum::<u32>()
    };
    for (mode, most) in [(Mode::Meta, 1_700), (Mode::Smart, 1_700), (Mode::Dynamic, 1_700)] {
        let few = begin(mode, 4, 2);
        let sizes = [40, 100, 200, 400, 2_000].map(|tools| begin(mode, tools, 20));
        println!("{mode:?}: {few} with two servers, {sizes:?} with twenty");
        let (least, largest) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
        assert!(few < *least && *largest <= most, "{mode:?}: {few}, {sizes:?}");
        assert!(largest - least <= 4, "only a number grows: {mode:?}: {sizes:?}");
        assert!(begin(mode, 2_000, 500) <= largest + 10, "{mode:?}: and not with the servers");
    }
}

#[test]
fn every_meta_tool_is_found_by_its_name_and_its_path() {
    for &tool in MetaTool::ALL {
        assert_eq!(MetaTool::of_name(tool.name()), Some(tool));
        assert_eq!(tool.path().strip_prefix('/').and_then(MetaTool::of_path), Some(tool));
    }
    assert_eq!((MetaTool::of_name("find"), MetaTool::of_path("v1/tools/searc"), MetaTool::of_path("")), (None, None, None));
    let of_purpose = [Purpose::Search, Purpose::Load, Purpose::Run].map(|purpose| MetaTool::of_purpose(purpose).count());
    assert_eq!((of_purpose, MetaTool::ALL.len()), ([2, 4, 2], 8));
}

#[test]
fn meta_tools_come_in_one_order() {
    let names = |mode: Mode| -> Vec<&str> {
        let tools = Publish::meta_tools(&Catalog::default(), &Visibility::default(), mode);
        tools.iter().map(|definition| definition.tool.name()).collect()
    };
    assert_eq!(names(Mode::Full), ["find_tools", "run_tool"]);
    assert_eq!(names(Mode::Meta), ["find_tools", "describe_tools", "run_tool"]);
    assert_eq!(names(Mode::Smart), ["find_tools", "describe_tools", "run_tool", "smart_select_tools"]);
    let dynamic = ["find_tools", "load_toolset", "unload_toolset", "list_available_toolsets", "enable_tool_group", "run_tool"];
    assert_eq!(names(Mode::Dynamic), dynamic);
}

#[test]
fn meta_tools_say_what_is_behind_them() {
    let describe = |mode: Mode, name: &str, catalog: &Catalog| {
        let tools = Publish::meta_tools(catalog, &Visibility::default(), mode);
        tools.into_iter().find(|definition| definition.tool.name() == name).unwrap().description
    };
    let (few, many) = (catalog(4, 2), catalog(200, 100));
    let found = describe(Mode::Meta, "find_tools", &few);
    assert!(found.contains("4 tools of server-of-department-0 and server-of-department-1."), "{found}");
    let found = describe(Mode::Dynamic, "find_tools", &many);
    assert!(found.contains("200 tools of ") && found.contains(" and 85 other servers."), "{found}");
    let load = describe(Mode::Dynamic, "load_toolset", &few);
    assert!(load.contains("directly: server-of-department-0 and server-of-department-1."), "{load}");
    assert!(describe(Mode::Dynamic, "load_toolset", &many).contains(" and 85 other toolsets."));
    let nothing = describe(Mode::Dynamic, "load_toolset", &Catalog::default());
    assert!(nothing.contains("none is there yet"), "{nothing}");
    let one = Visibility { servers: Scope::Only([ServerName::from("server-of-department-1")].into()), ..Visibility::default() };
    let seen = Publish::meta_tools(&few, &one, Mode::Dynamic);
    assert!(seen.iter().all(|tool| !tool.description.contains("department-0")), "only what the caller sees");
}
