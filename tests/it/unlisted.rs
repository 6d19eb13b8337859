//! Servers that have not listed their tools yet, and tools that are called as what is published below a server beside them.

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use crate::harness::answers::shape;
use crate::harness::keys::{administer, create, start_on, with_key};
use crate::harness::mcp::request;
use crate::harness::{Running, Start, example, stdio};

fn mcp(service: &Running, path: &str, name: &str) -> RequestBuilder {
    let call = request(1, "tools/call", &json!({"name": name, "arguments": {"a": 1}}));
    service.request(Method::POST, path).header("accept", "application/json, text/event-stream").json(&call)
}

async fn answer(request: RequestBuilder) -> (StatusCode, Value) {
    let response = request.send().await.unwrap();
    (response.status(), response.json().await.unwrap())
}

/// Where an `npx` server was still being fetched, a call was told that there is no such thing.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_waits_for_the_first_list_of_a_server() {
    let service = Start { servers: json!({"slow": stdio(&["slow-start=1500"])}), ..Start::default() }.start().await;
    let arguments = json!({"a": 1});
    let run = json!({"name": "slow__echo", "arguments": arguments});
    let (by_path, by_name, over_mcp, unknown) = tokio::join!(
        service.post("/slow/echo", &arguments),
        service.post("/v1/tools/call", &run),
        answer(mcp(&service, "/mcp", "slow__echo")),
        service.post("/slow/nothing", &arguments),
    );
    assert_eq!(by_path, (StatusCode::OK, arguments.clone()));
    assert_eq!(by_name, (StatusCode::OK, arguments.clone()));
    assert_eq!(over_mcp.1["result"]["structuredContent"], arguments, "{over_mcp:?}");
    assert_eq!(unknown.0, StatusCode::NOT_FOUND, "once it has listed, what it does not have is unknown");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_never_listed_is_down_and_not_unknown() {
    let servers = json!({"gone": {"command": "no-such-command-here"}, "one": stdio(&[])});
    let service = Start {
        servers,
        environment: vec![("TOOLSIEVE_ADMIN_KEY", crate::harness::keys::ADMIN)],
        key: Some(crate::harness::keys::KEY),
        ..Start::default()
    };
    let service = service.start().await;
    service.until(|body| body["servers"][0]["phase"] == "retrying" && body["servers"][1]["phase"] == "connected").await;
    for (method, path, body) in [
        (Method::GET, "/gone/openapi.json", json!({})),
        (Method::POST, "/gone/echo", json!({})),
        (Method::POST, "/gone/v1/tools/search", json!({"queries": ["echo"]})),
        (Method::POST, "/v1/tools/call", json!({"name": "gone__echo"})),
    ] {
        let response = service.request(method, path).json(&body).send().await.unwrap();
        let again = response.headers().get("retry-after").map(|value| value.to_str().unwrap().to_owned());
        assert_eq!((response.status(), again.as_deref()), (StatusCode::SERVICE_UNAVAILABLE, Some("2")), "{path}");
        assert_eq!(response.json::<Value>().await.unwrap()["code"], "server_unavailable");
    }
    assert_eq!(answer(mcp(&service, "/gone/mcp", "echo")).await.0, StatusCode::SERVICE_UNAVAILABLE);
    let (_, called) = answer(mcp(&service, "/mcp", "gone__echo")).await;
    assert!(called["result"]["isError"] == true && called.to_string().contains("has not listed its tools yet"), "{called}");

    // Who may not know of it is told what is told of a server that is not there.
    let (_, elsewhere) = create(&service, json!({"name": "elsewhere", "servers": ["one"]})).await;
    let paths = |server: &str| [format!("/{server}/echo"), format!("/{server}/v1/tools/search"), format!("/{server}/v1/tools/call")];
    for (gone, nowhere) in paths("gone").iter().zip(paths("nowhere")) {
        let of =
            |path: &str| shape(with_key(&service, Method::POST, path, &elsewhere).json(&json!({"queries": ["x"], "name": "one__echo"})));
        let (refused, unknown) = (of(gone).await, of(&nowhere).await);
        assert_eq!((refused.0, &refused), (StatusCode::NOT_FOUND, &unknown), "{gone}");
    }
    let toolset = json!({"servers": ["one", "gone"]});
    assert_eq!(administer(&service, Method::PUT, "/v1/admin/toolsets/all", &toolset).await.0, StatusCode::CREATED);
    assert_eq!(service.post("/toolsets/all/gone/echo", &json!({})).await.0, StatusCode::NOT_FOUND, "a toolset holds tools");
    let rules = json!({"rules": [{"effect": "block", "servers": ["gone"]}]});
    assert_eq!(administer(&service, Method::PUT, "/v1/admin/policy", &rules).await.0, StatusCode::OK);
    for path in paths("gone") {
        assert_eq!(service.post(&path, &json!({"queries": ["x"]})).await.0, StatusCode::NOT_FOUND, "{path}");
    }
    assert_eq!(service.post("/v1/tools/call", &json!({"name": "gone__echo"})).await.0, StatusCode::NOT_FOUND);
}

/// A server's own `v1/tools/call` ran the service's tool of that name, and any server's name led to those.
#[tokio::test(flavor = "multi_thread")]
async fn a_tool_is_reached_whatever_it_is_called() {
    let names = [
        "v1/tools/search",
        "v1/tools/describe",
        "v1/tools/call",
        "v1/tools/smart_select",
        "v1/toolsets/load",
        "v1/toolsets/unload",
        "v1/toolsets/enable",
        "v1/toolsets/available",
    ];
    let tools: Vec<Value> = names.iter().map(|name| json!({"name": name, "inputSchema": {"type": "object"}})).collect();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tools.json");
    std::fs::write(&file, json!(tools).to_string()).unwrap();
    let service = start_on(json!({"odd": {"command": example("test-replay-server"), "args": [file]}}), &[]).await;
    let (_, document) = service.get("/odd/openapi.json").await;
    for name in names {
        let path = format!("/{}", name.replace('/', "%2F"));
        assert!(document["paths"][&path]["post"].is_object(), "{path}: {document}");
        let own = json!({"own": name});
        assert_eq!(service.post(&format!("/odd{path}"), &own).await, (StatusCode::OK, own.clone()), "{path}");
        assert_eq!(service.post(&format!("/nowhere/{name}"), &json!({})).await.0, StatusCode::NOT_FOUND, "{name}");
    }
    // Beside them the service's own are where the document says.
    assert!(document["paths"]["/v1/tools/search"]["post"]["operationId"] == "find_tools", "{document}");
    let (status, found) = service.post("/odd/v1/tools/search", &json!({"queries": ["search"]})).await;
    assert!(status == StatusCode::OK && found["tools"].is_array(), "{found}");
    let run = json!({"name": document["paths"]["/v1%2Ftools%2Fcall"]["post"]["operationId"], "arguments": {"a": 1}});
    assert_eq!(service.post("/odd/v1/tools/call", &run).await, (StatusCode::OK, json!({"a": 1})));
    // Denied, they are as absent as any other.
    let rules = json!({"rules": [{"effect": "block", "tools": ["v1/tools/call"]}]});
    assert_eq!(administer(&service, Method::PUT, "/v1/admin/policy", &rules).await.0, StatusCode::OK);
    assert_eq!(service.post("/odd/v1%2Ftools%2Fcall", &json!({})).await.0, StatusCode::NOT_FOUND);
    assert_eq!(service.post("/odd/v1/tools/search", &json!({"queries": ["search"]})).await.0, StatusCode::OK);
}
