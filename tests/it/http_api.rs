//! Documents, execution and errors over HTTP, with a real MCP server behind.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::harness::wait::eventually;
use crate::harness::{LONG, Running, Start, stdio};

fn operations(document: &Value) -> Vec<(String, String)> {
    let paths = document["paths"].as_object().unwrap();
    paths.iter().map(|(path, item)| (path.clone(), item["post"]["operationId"].as_str().unwrap().to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_that_is_published_routes() {
    let service = Running::on(json!({"one": stdio(&[]), "odd name": stdio(&["odd-names"])})).await;
    let mut called = 0;
    for (address, base) in [("/openapi.json", ""), ("/one/openapi.json", "/one"), ("/odd%20name/openapi.json", "/odd%20name")] {
        let (status, document) = service.get(address).await;
        assert_eq!((status, &document["openapi"]), (StatusCode::OK, &json!("3.1.0")));
        assert_eq!(document["servers"][0]["url"].as_str().unwrap_or_default(), base);
        for (path, id) in operations(&document) {
            // An unknown tool is 404 before its body is read, so 422 shows that the path led to a tool; none is called.
            let (status, body) = service.post(&format!("{base}{path}"), &json!([])).await;
            assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{id} at {base}{path}: {body}");
            called += 1;
        }
    }
    assert_eq!(called, (23 + 28 + 2) + (23 + 2) + (28 + 2));
    let (_, document) = service.get("/openapi.json").await;
    let operations = operations(&document);
    assert!(operations.iter().any(|(path, id)| path == "/one/echo" && id == "one__echo"));
    assert_eq!(service.post("/one/nothing", &json!([])).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_viewer_shows_the_document_that_was_asked_for() {
    let service = Running::on(json!({"one": stdio(&[])})).await;
    for (page, document) in [("/docs", "/openapi.json"), ("/one/docs", "/one/openapi.json")] {
        let start = service.request(Method::GET, page).send().await.unwrap();
        // Relative addresses also lead there if a proxy publishes the service below a path.
        assert_eq!(start.url().path(), format!("{page}/"));
        assert_eq!(start.url().join("../openapi.json").unwrap().path(), document);
        assert!(start.text().await.unwrap().contains("swagger-ui"));
        let script = service.request(Method::GET, &format!("{page}/swagger-initializer.js")).send().await.unwrap().text().await.unwrap();
        assert!(script.contains("\"../openapi.json\""), "{script}");
    }
    assert_eq!(service.get("/two/docs").await.0, StatusCode::NOT_FOUND);
    assert_eq!(service.get("/docs/no-such-file").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_have_an_etag_and_both_modes() {
    let service = Running::on(json!({"one": stdio(&[])})).await;
    let response = service.request(Method::GET, "/openapi.json").send().await.unwrap();
    let etag = response.headers()["etag"].to_str().unwrap().to_owned();
    let again = service.request(Method::GET, "/openapi.json").header("if-none-match", &etag).send().await.unwrap();
    assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
    assert_eq!(again.headers()["etag"].to_str().unwrap(), etag);

    let (_, meta) = service.get("/openapi.json?mode=meta").await;
    let names: Vec<String> = operations(&meta).into_iter().map(|(_, id)| id).collect();
    assert_eq!(names, ["find_tools", "describe_tools", "run_tool"]);
    assert_eq!(service.get("/openapi.json?mode=x").await.0, StatusCode::UNPROCESSABLE_ENTITY);

    let (_, server) = service.get("/one/openapi.json").await;
    assert_eq!(server["info"]["title"], "Test server");
    assert!(server["paths"]["/echo"]["post"].is_object());
    assert_eq!(service.get("/two/openapi.json").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_with_too_many_tools_is_refused_with_what_to_do() {
    let servers = json!({"one": stdio(&[]), "odd name": stdio(&["odd-names"])});
    let service = Start { servers, environment: vec![("TOOLSIEVE_DOCUMENTS__MAX_TOOLS", "30")], ..Start::default() }.start().await;
    service.until(|body| body["tools"] == 51).await;
    let (status, refused) = service.get("/openapi.json").await;
    assert_eq!((status, &refused["parameter"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!("mode")), "{refused}");
    let detail = refused["detail"].as_str().unwrap();
    assert!(detail.contains("51 tools") && detail.contains("documents.max_tools") && detail.contains("?mode=meta"), "{detail}");
    for smaller in ["/openapi.json?mode=meta", "/one/openapi.json", "/odd%20name/openapi.json"] {
        assert_eq!(service.get(smaller).await.0, StatusCode::OK, "{smaller}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_brings_the_tools_result() {
    let service = Running::on(json!({"one": stdio(&[])})).await;
    let arguments = json!({"text": "grüße", "n": 1.5, "list": [1, null]});
    assert_eq!(service.post("/one/echo", &arguments).await, (StatusCode::OK, arguments.clone()));
    let run = json!({"name": "one__echo", "arguments": arguments});
    assert_eq!(service.post("/v1/tools/call", &run).await, (StatusCode::OK, arguments.clone()));
    assert_eq!(service.post("/one/v1/tools/call", &run).await, (StatusCode::OK, arguments));
    let empty = service.request(Method::POST, "/one/echo").send().await.unwrap();
    assert_eq!(empty.text().await.unwrap(), "{}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_error_is_a_problem_with_its_code() {
    let service = Start {
        servers: json!({"one": stdio(&["typed"])}),
        environment: vec![("TOOLSIEVE_CALLS__TIMEOUT_SECONDS", "1")],
        ..Start::default()
    };
    let service = service.start().await;
    service.settled().await;
    let cases = [
        ("/one/nothing", "{}", 404, "not_found"),
        ("/two/echo", "{}", 404, "not_found"),
        ("/one/echo", "{", 400, "not_json"),
        ("/one/echo", "[]", 422, "invalid_arguments"),
        ("/one/nothing", "[]", 404, "not_found"),
        ("/one/typed", "{\"count\": \"x\"}", 422, "invalid_arguments"),
        ("/one/fail", "{}", 502, "tool_error"),
        ("/one/error", "{}", 502, "server_error"),
        ("/one/sleep", "{}", 504, "timeout"),
        ("/v1/filter", "{\"messages\": []}", 422, "invalid_request"),
        ("/v1/filter", "{\"messages\": 1}", 422, "invalid_request"),
        ("/v1/filter", "nonsense", 400, "not_json"),
        ("/v1/tools/search", "{}", 422, "invalid_request"),
        ("/v1/tools/search", "{\"queries\": [\"a\"], \"limit\": 0}", 422, "invalid_request"),
        ("/v1/tools/call", "{\"name\": \"one__nothing\"}", 404, "not_found"),
        ("/v1/nothing", "{}", 404, "not_found"),
    ];
    for (path, body, status, code) in cases {
        let response = service.request(Method::POST, path).body(body).send().await.unwrap();
        assert_eq!(response.status().as_u16(), status, "{path} {body}");
        assert_eq!(response.headers()["content-type"], "application/problem+json", "{path}");
        let id = response.headers()["x-request-id"].to_str().unwrap().to_owned();
        let problem: Value = response.json().await.unwrap();
        assert_eq!((problem["code"].as_str(), problem["request_id"].as_str()), (Some(code), Some(id.as_str())), "{path}");
        assert!(!problem["detail"].as_str().unwrap().is_empty());
    }
    let (_, typed) = service.post("/one/typed", &json!({"count": "x", "mode": "z"})).await;
    let pointers: Vec<&str> = typed["errors"].as_array().unwrap().iter().map(|error| error["pointer"].as_str().unwrap()).collect();
    assert_eq!(pointers, ["/count", "/mode"]);
    let (_, failed) = service.post("/one/fail", &json!({})).await;
    assert_eq!(failed["detail"], "disk full");
    let wrong_method = service.get("/v1/filter").await;
    assert!(matches!(wrong_method.0.as_u16(), 404 | 405) && wrong_method.1["code"].is_string(), "{wrong_method:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_body_is_refused() {
    let service = Running::on(json!({"one": stdio(&[])})).await;
    let body = format!("{{\"x\": \"{}\"}}", "a".repeat(5 << 20));
    let response = service.request(Method::POST, "/one/echo").body(body).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
    let (status, _) = service.post("/one/echo", &json!({"x": "a".repeat(3 << 20)})).await;
    assert_eq!(status, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_key_everything_but_health_needs_it() {
    let service = Start { servers: json!({"one": stdio(&[])}), key: Some("k-123"), ..Start::default() }.start().await;
    service.settled().await;
    let open = reqwest::Client::new();
    for path in ["/healthz", "/readyz"] {
        assert_eq!(open.get(format!("{}{path}", service.url)).send().await.unwrap().status(), StatusCode::OK);
    }
    for path in ["/openapi.json", "/one/openapi.json", "/docs/", "/nothing", "/one/docs"] {
        let response = open.get(format!("{}{path}", service.url)).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{path}");
        assert!(response.headers().get_all("www-authenticate").iter().count() >= 1);
    }
    for path in ["/one/echo", "/v1/filter", "/v1/tools/search", "/two/echo"] {
        let response = open.post(format!("{}{path}", service.url)).bearer_auth("wrong").body("{}").send().await.unwrap();
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{path}");
    }
    assert_eq!(service.get("/openapi.json").await.0, StatusCode::OK);
    let basic = open.get(format!("{}/docs/", service.url)).basic_auth("anybody", Some("k-123")).send().await.unwrap();
    assert_eq!(basic.status(), StatusCode::OK);
    assert!(basic.text().await.unwrap().contains("swagger"));
    let document = service.get("/openapi.json").await.1;
    assert_eq!(document["security"], json!([{"bearer": []}]));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_key_other_sites_are_refused() {
    let service = Running::on(json!({"one": stdio(&[])})).await;
    for (header, value) in [("host", "evil.example"), ("origin", "https://evil.example")] {
        let response = service.request(Method::POST, "/one/echo").header(header, value).body("{}").send().await.unwrap();
        assert_eq!(response.status(), StatusCode::FORBIDDEN, "{header}");
        assert!(response.headers().get("access-control-allow-origin").is_none());
    }
    let own = service.request(Method::POST, "/one/echo").header("origin", &service.url).body("{}").send().await.unwrap();
    assert_eq!(own.status(), StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_goes_away_cancels_the_call() {
    let service = Running::on(json!({"one": stdio(&[])})).await;
    let call = service.request(Method::POST, "/one/sleep").body("{}").send();
    let call = tokio::spawn(call);
    let (status, _) = tokio::time::timeout(LONG, service.post("/one/wait_sleeping", &json!({}))).await.unwrap();
    assert_eq!(status, StatusCode::OK);
    call.abort();
    let (status, cancelled) = tokio::time::timeout(LONG, service.post("/one/wait_cancelled", &json!({}))).await.unwrap();
    assert_eq!(status, StatusCode::OK);
    assert!(cancelled.is_number() || cancelled.is_string(), "{cancelled}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_server_keeps_its_tools_and_is_back_for_the_next_call() {
    let service = Running::on(json!({"good": stdio(&[]), "dying": stdio(&[])})).await;
    let (status, _) = service.post("/dying/die", &json!({})).await;
    assert!(status.is_server_error());
    assert_eq!(service.post("/good/echo", &json!({"a": 1})).await.0, StatusCode::OK);
    let (_, document) = service.get("/openapi.json").await;
    assert!(document["paths"]["/dying/echo"].is_object());
    service.until(|body| body["servers"].as_array().unwrap().iter().all(|server| server["phase"] == "connected")).await;
    assert_eq!(service.post("/dying/echo", &json!({"a": 1})).await.0, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stays_away_is_503_and_says_when_to_come_back() {
    let folder = Running::on(json!({"one": stdio(&[])})).await.stop().await;
    // The same server, of which only the last good list is left.
    let servers = json!({"one": {"command": "no-such-command-here"}});
    let service = Start { servers, folder: Some(folder), key: Some("k"), ..Start::default() }.start().await;
    let body = service.until(|body| body["servers"][0]["phase"] == "retrying").await;
    assert!(body["servers"][0]["error"].as_str().unwrap().contains("no-such-command-here"));
    let public: Value = reqwest::get(format!("{}/readyz", service.url)).await.unwrap().json().await.unwrap();
    assert!(public["servers"][0]["error"].is_null(), "without the key it says nothing of how: {public}");
    // Until the first retries are over, a call may wait for one that is due at once.
    let response = eventually("an answer with `Retry-After`", async || {
        let response = service.request(Method::POST, "/one/echo").body("{}").send().await.unwrap();
        response.headers().contains_key("retry-after").then_some(response)
    })
    .await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(response.headers()["retry-after"].to_str().unwrap().parse::<u64>().unwrap() >= 1);
    assert_eq!(response.json::<Value>().await.unwrap()["code"], "server_unavailable");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_can_not_start_hides_nobody() {
    let service =
        Start { servers: json!({"good": stdio(&[]), "broken": {"command": "no-such-command-here"}}), ..Start::default() }.start().await;
    let body = service.until(|body| body["ready"] == true).await;
    let broken = body["servers"].as_array().unwrap().iter().find(|server| server["server"] == "broken").unwrap();
    assert!(broken["error"].as_str().unwrap().contains("no-such-command-here"), "{broken}");
    assert_eq!(service.post("/good/echo", &json!({})).await.0, StatusCode::OK);
    assert_eq!(service.post("/broken/echo", &json!({})).await.0, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_start_is_ready_from_the_last_good_catalog() {
    let first = Running::on(json!({"slow": stdio(&[])})).await;
    let folder = first.stop().await;
    let slow = json!({"slow": stdio(&["slow-start=20000"])});
    let second = Start { servers: slow, folder: Some(folder), ..Start::default() }.start().await;
    let (status, ready) = second.get("/readyz").await;
    assert_eq!(status, StatusCode::OK, "{ready}");
    assert_eq!(ready["servers"][0]["phase"], "starting", "it waited for the server: {ready}");
    assert_eq!(ready["index"]["embedded"], ready["tools"], "the index was not taken over: {ready}");
    let (_, document) = second.get("/openapi.json").await;
    assert!(document["paths"]["/slow/echo"].is_object());
    let (_, found) = second.post("/v1/tools/search", &json!({"queries": ["echo"], "limit": 1})).await;
    assert_eq!(found["tools"][0]["name"], "slow__echo");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_can_not_share_a_folder() {
    let first = Running::on(json!({"one": stdio(&[])})).await;
    let sources = toolsieve::settings::Sources {
        overrides: toolsieve::settings::Overrides { port: Some(0), data_dir: Some(first.folder.path().join("data")), ..Default::default() },
        ..Default::default()
    };
    let (settings, _) = toolsieve::settings::Settings::load(&sources).unwrap_or_else(|problems| panic!("{problems}"));
    let error = toolsieve::app::Application::start(settings).await.err().expect("the folder is locked");
    assert!(error.to_string().contains("data"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_tool_is_published_and_found() {
    let service = Running::on(json!({"one": stdio(&[])})).await;
    service.post("/one/add_tool", &json!({})).await;
    service.until(|body| body["tools"] == 24 && body["index"]["documents"] == 24).await;
    assert_eq!(service.get("/openapi.json").await.1["paths"]["/one/extra_1"]["post"]["operationId"], "one__extra_1");
    let (_, found) = service.post("/v1/tools/search", &json!({"queries": ["extra 1"], "limit": 3})).await;
    assert_eq!(found["tools"][0]["name"], "one__extra_1");
}
