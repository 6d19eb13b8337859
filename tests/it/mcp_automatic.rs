//! The list of an MCP client that names no mode: full while it is short, dynamic when it is long, and never another one without a
//! notification.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use toolsieve::service::catalog::reload::Trigger;

use crate::harness::answers::operations;
use crate::harness::keys::{KEY, administer, create, start_on, with_key};
use crate::harness::mcp::client::Client;
use crate::harness::mcp::rpc;
use crate::harness::servers::four;
use crate::harness::{Running, Start, stdio};

const FULL: [&str; 2] = ["find_tools", "run_tool"];
const DYNAMIC: [&str; 6] = ["find_tools", "load_toolset", "unload_toolset", "list_available_toolsets", "enable_tool_group", "run_tool"];
/// The tools of the four servers.
const TOOLS: usize = 13;

async fn start(environment: &[(&'static str, &'static str)]) -> Running {
    start_on(four(), environment).await
}

async fn listed(service: &Running, path: &str) -> Vec<String> {
    let answer = rpc(service, path, &[], "tools/list", json!({})).await;
    let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}"));
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

async fn session(service: &Running, body: Value) -> String {
    let (status, made) = service.post("/v1/sessions", &body).await;
    assert_eq!(status, StatusCode::CREATED, "{made}");
    assert_eq!(made["mode"], body.get("mode").cloned().unwrap_or(json!("auto")));
    format!("/s/{}", made["id"].as_str().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_list_is_full_and_a_long_one_is_dynamic() {
    for (limits, is_full) in [
        (vec![], true),
        (vec![("TOOLSIEVE_MCP__FULL_LIST_TOOLS", "13")], true),
        (vec![("TOOLSIEVE_MCP__FULL_LIST_TOOLS", "12")], false),
        (vec![("TOOLSIEVE_MCP__FULL_LIST_TOKENS", "100")], false),
        (vec![("TOOLSIEVE_MCP__FULL_LIST_TOOLS", "0"), ("TOOLSIEVE_MCP__FULL_LIST_TOKENS", "0")], true),
    ] {
        let service = start(&limits).await;
        let list = listed(&service, "/mcp").await;
        if is_full {
            assert_eq!((&list[..2], list.len()), (&FULL.map(str::to_owned)[..], 2 + TOOLS), "{limits:?}");
        } else {
            assert_eq!(list, DYNAMIC, "{limits:?}");
        }
        assert_eq!(listed(&service, "/mcp?mode=auto").await, list, "{limits:?}");
        let hello = Client::new(&service, "/mcp", None).greeted().await;
        assert_eq!(hello.tools().await, list, "the older era: {limits:?}");
        // Whatever is named stays as it was.
        assert_eq!(listed(&service, "/mcp?mode=full").await.len(), 2 + TOOLS, "{limits:?}");
        assert_eq!(listed(&service, "/mcp?mode=dynamic").await, DYNAMIC, "{limits:?}");
        assert_eq!(listed(&service, "/mcp?mode=meta").await.len(), 3, "{limits:?}");
        assert_eq!(listed(&service, "/mcp?mode=message").await.len(), 2 + TOOLS, "{limits:?}");
        assert_eq!(listed(&service, "/mail/mcp").await, ["list_emails", "search_emails", "send_email"], "{limits:?}");
        assert_eq!(operations(&service.get("/openapi.json").await.1).len(), 2 + TOOLS, "documents have no limit: {limits:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_caller_sees_at_the_address_counts() {
    let service = start(&[("TOOLSIEVE_MCP__FULL_LIST_TOOLS", "3")]).await;
    for (name, servers) in [("letters", json!(["mail"])), ("more", json!(["mail", "files"]))] {
        administer(
            &service,
            Method::PUT,
            &format!("/v1/admin/toolsets/{name}"),
            &json!({"servers": servers, "always": ["mail__send_email"]}),
        )
        .await;
    }
    assert_eq!(listed(&service, "/toolsets/letters/mcp").await.len(), 2 + 3);
    let mut always = DYNAMIC.to_vec();
    always.push("mail__send_email");
    assert_eq!(listed(&service, "/toolsets/more/mcp").await, always, "always-on tools stay");
    // For another caller, the whole list is short.
    let (_, key) = create(&service, json!({"name": "clock", "toolsets": ["letters"]})).await;
    let few = Client::new(&service, "/mcp", Some(&key)).greeted().await.tools().await;
    assert_eq!((few.len(), listed(&service, "/mcp").await.len()), (2 + 3, DYNAMIC.len()), "{few:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_without_a_mode_lists_its_single_tools_and_loads_the_others() {
    let service = start(&[("TOOLSIEVE_MCP__FULL_LIST_TOOLS", "4")]).await;
    let short = session(&service, json!({"servers": ["mail"]})).await;
    assert_eq!(listed(&service, &format!("{short}/mcp")).await.len(), 2 + 3);
    let contents = json!({"servers": ["mail", "files"], "tools": ["time__convert_time"]});
    let at = session(&service, contents.clone()).await;
    let path = format!("{at}/mcp");
    let before: Vec<String> = [&DYNAMIC[..], &["time__convert_time"]].concat().into_iter().map(str::to_owned).collect();
    assert_eq!(listed(&service, &path).await, before);
    assert_eq!(operations(&service.get(&format!("{at}/openapi.json")).await.1).len(), 2 + 8, "its document is whole");
    let call = async |name: &str, arguments: Value| {
        rpc(&service, &path, &[], "tools/call", json!({"name": name, "arguments": arguments})).await["result"]["structuredContent"].clone()
    };
    let found = call("find_tools", json!({"queries": ["send an email"], "limit": 1})).await;
    assert_eq!((&found["tools"][0]["already_loaded"], &found["toolsets"][0]["name"]), (&json!(false), &json!("mail")), "{found}");
    let loaded = call("load_toolset", json!({"toolset": "mail"})).await;
    assert_eq!((&loaded["loaded"], &loaded["bound"]), (&json!(["mail"]), &json!(4)), "{loaded}");
    let after = listed(&service, &path).await;
    assert_eq!((&after[..7], after.len()), (&before[..], 7 + 3), "the beginning of the list stays");
    call("unload_toolset", json!({"toolset": "mail"})).await;
    assert_eq!(listed(&service, &path).await, before);

    // Sessions with a mode have it over MCP too.
    let mut full = contents.clone();
    full["mode"] = json!("full");
    let full = session(&service, full).await;
    assert_eq!(listed(&service, &format!("{full}/mcp")).await.len(), 2 + 8);
    assert_eq!(listed(&service, &format!("{full}/mcp?mode=auto")).await, before);
    let mut dynamic = contents;
    dynamic["mode"] = json!("dynamic");
    let dynamic = session(&service, dynamic).await;
    assert_eq!(listed(&service, &format!("{dynamic}/mcp")).await.len(), DYNAMIC.len() + 8);
    let (status, problem) = service.post("/v1/sessions", &json!({"servers": ["mail"], "mode": "lazy"})).await;
    assert_eq!((status, &problem["parameter"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!("mode")), "{problem}");
}

/// A client keeps the mode of its list until it is notified.
#[tokio::test(flavor = "multi_thread")]
async fn no_list_changes_its_mode_silently() {
    let environment = vec![("TOOLSIEVE_MCP__FULL_LIST_TOOLS", "24")];
    let service = Start { servers: json!({"one": stdio(&[])}), environment, from_files: true, ..Start::default() }.start().await;
    service.settled().await;
    let (listening, silent) = (Client::new(&service, "/mcp", None).greeted().await, Client::new(&service, "/mcp", None).greeted().await);
    let (before, mut stream) = (listening.tools().await, listening.listen().await);
    assert_eq!((before.len(), silent.tools().await), (2 + 23, before));
    service.configure(&json!({"one": stdio(&[]), "time": stdio(&["list=time"])}));
    service.reload.reload(Trigger::Request).await;
    service.settled().await;
    assert_eq!(stream.next().await.unwrap()["method"], "notifications/tools/list_changed");
    assert_eq!(listening.tools().await, DYNAMIC);
    let full = silent.tools().await;
    assert_eq!((&full[..2], full.len()), (&FULL.map(str::to_owned)[..], 2 + 25), "it has the new tools, and no other mode");
    assert_eq!(listed(&service, "/mcp").await, DYNAMIC, "a new client begins with the short list");
    // Calls work as before, whatever the list says.
    for client in [&listening, &silent] {
        for (name, arguments) in [("one__echo", json!({})), ("load_toolset", json!({"toolset": "time"}))] {
            let (_, answer) = client.ask("tools/call", json!({"name": name, "arguments": arguments})).await;
            assert!(answer["result"]["isError"] != true && answer.get("error").is_none(), "{name}: {answer}");
        }
    }
    assert_eq!(stream.next().await.unwrap()["method"], "notifications/tools/list_changed", "of its load");
    assert_eq!(listening.tools().await.len(), DYNAMIC.len() + 2);
    // The silent one is notified as soon as it listens.
    assert_eq!(silent.listen().await.next().await.unwrap()["method"], "notifications/tools/list_changed");
    assert_eq!(silent.tools().await.len(), DYNAMIC.len() + 2);
    // And back.
    service.configure(&json!({"one": stdio(&[])}));
    service.reload.reload(Trigger::Request).await;
    service.settled().await;
    assert_eq!(stream.next().await.unwrap()["method"], "notifications/tools/list_changed");
    assert_eq!(listening.tools().await.len(), 2 + 23);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_instructions_are_those_of_the_list() {
    for (tools, words) in [("13", "finds the right ones"), ("12", "load_toolset")] {
        let service = start(&[("TOOLSIEVE_MCP__FULL_LIST_TOOLS", tools)]).await;
        let discovered = rpc(&service, "/mcp", &[], "server/discover", json!({})).await;
        assert!(discovered["result"]["instructions"].as_str().unwrap().contains(words), "{discovered}");
        let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
        let request = with_key(&service, Method::POST, "/mcp", KEY).header("accept", "application/json, text/event-stream");
        let request = request.json(&json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}));
        let greeted: Value = request.send().await.unwrap().json().await.unwrap();
        assert!(greeted["result"]["instructions"].as_str().unwrap().contains(words), "{greeted}");
    }
}

/// A search names only meta-tools that the client's list contains.
#[tokio::test(flavor = "multi_thread")]
async fn a_search_suggests_loading_only_where_the_list_can_load() {
    for (tools, path, loads) in [
        ("13", "/mcp", false),
        ("12", "/mcp", true),
        ("12", "/mcp?mode=full", false),
        ("12", "/mcp?mode=meta", false),
        ("12", "/mcp?mode=dynamic", true),
    ] {
        let service = start(&[("TOOLSIEVE_MCP__FULL_LIST_TOOLS", tools)]).await;
        let client = Client::new(&service, path, None).greeted().await;
        assert_eq!(client.tools().await.iter().any(|name| name == "load_toolset"), loads, "{tools} {path}");
        let (_, answer) = client.ask("tools/call", json!({"name": "find_tools", "arguments": {"queries": ["send an email"]}})).await;
        let found = &answer["result"]["structuredContent"];
        assert_eq!(found["tools"][0]["name"], "mail__send_email", "{tools} {path}: {answer}");
        assert_eq!(found["tools"][0].get("already_loaded"), loads.then_some(&json!(false)), "{tools} {path}: {found}");
        assert_eq!(found["toolsets"][0]["name"] == "mail", loads, "{tools} {path}: {found}");
        let next = found["next"].as_str().unwrap();
        assert_eq!((next.contains("load_toolset"), next.contains("run_tool")), (loads, !loads), "{tools} {path}: {next}");
    }
}
