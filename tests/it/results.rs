//! Results over HTTP: every kind of content, files behind links, and that nothing is changed on the way.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use toolsieve::settings::McpoSettings;

use crate::harness::{Running, Start, data, stdio};

const WAV: &str = "UklGRiQAAABXQVZF";

/// What the service answers when the tool returns this.
async fn body(service: &Running, tool: &str, result: &str) -> String {
    let response = service.request(Method::POST, &format!("/one/{tool}")).json(&json!({"result": result})).send().await.unwrap();
    assert_eq!((response.status(), &response.headers()["content-type"]), (StatusCode::OK, &"application/json".parse().unwrap()));
    response.text().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_changed_on_the_way() {
    let service = Running::on(json!({"one": stdio(&["results"])})).await;
    let odd = r#"{"b": 12345678901234567890123, "a": [1.0, 1e999, -0, 0.10, 9007199254740993], "é": "\u00e9\/"}"#;
    let structured = format!(r#"{{"content": [], "structuredContent": {odd}}}"#);
    assert_eq!(body(&service, "raw_result", &structured).await, odd);
    for text in ["NaN", "007", "1e999", "12345678901234567890123", r#"{"id": 12345678901234567890123}"#] {
        let result = json!({"content": [{"type": "text", "text": text}]}).to_string();
        assert_eq!(body(&service, "raw_result", &result).await, Value::from(text).to_string());
    }
    let python = r#"{"content": [], "structuredContent": {"x": NaN, "y": [-Infinity, "NaN"]}}"#;
    assert_eq!(body(&service, "raw_result", python).await, r#"{"x": "NaN", "y": ["-Infinity", "NaN"]}"#);
}

/// A result of two hundred levels was no JSON to the service, and a definition of that depth took its server away.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_deep_costs_nobody_else() {
    let service = Running::on(json!({"one": stdio(&["results"]), "odd": stdio(&["deep=62"])})).await;
    let deep = format!(r#"{{"a": {}"x"{}}}"#, "[".repeat(200), "]".repeat(200));
    let result = format!(r#"{{"content": [{{"type": "resource_link", "name": "x", "uri": "test://x"}}], "structuredContent": {deep}}}"#);
    let arguments = json!({"name": "one__raw_result", "arguments": {"result": result}});
    assert!(body(&service, "raw_result", &result).await.contains(&deep));
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": arguments});
    let request = service.request(Method::POST, "/mcp").header("accept", "application/json, text/event-stream").json(&call);
    let over_mcp = request.send().await.unwrap().text().await.unwrap();
    assert!(over_mcp.contains(&format!(r#""structuredContent": {deep}"#)) && over_mcp.contains("toolsieve://one/test://x"), "{over_mcp}");

    assert_eq!(service.post("/odd/echo", &json!({"a": 1})).await, (StatusCode::OK, json!({"a": 1})));
    let (_, document) = service.get("/odd/openapi.json").await;
    assert!(document["paths"]["/echo"].is_object() && document["paths"].get("/deep").is_none(), "{document}");
    let (_, ready) = service.get("/readyz").await;
    assert_eq!((&ready["servers"][1]["left_out"], ready["servers"][0].get("left_out")), (&json!(1), None), "{ready}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_describes_what_a_tool_answers() {
    let service = Running::on(json!({"one": stdio(&["results"])})).await;
    let (_, document) = service.get("/openapi.json").await;
    let operation = &document["paths"]["/one/declared"]["post"];
    let schema = &operation["responses"]["200"]["content"]["application/json"]["schema"];
    assert_eq!(schema["anyOf"][0]["properties"]["n"]["type"], "integer", "{schema}");
    assert!(!schema["anyOf"][0].to_string().contains("$ref"), "{schema}");
    assert_eq!(schema["anyOf"][1], json!({"$ref": "#/components/schemas/Content"}));
    let plain = &document["paths"]["/one/raw_result"]["post"]["responses"]["200"]["content"]["application/json"]["schema"];
    assert_eq!(*plain, json!({"$ref": "#/components/schemas/Content"}));

    // Every reference leads somewhere, and every answer, good or bad, is as described.
    let resolve = |value: &Value| match value["$ref"].as_str() {
        Some(reference) => document.pointer(reference.trim_start_matches('#')).unwrap_or_else(|| panic!("{reference}")).clone(),
        None => value.clone(),
    };
    let schema_of = |status: &str| {
        let response = resolve(&operation["responses"][status]);
        let (_, content) = response["content"].as_object().unwrap().iter().next().unwrap();
        let mut schema = content["schema"].clone();
        schema["components"] = document["components"].clone();
        jsonschema::validator_for(&schema).unwrap()
    };
    let structured = r#"{"content": [{"type": "text", "text": "{\"n\": 1}"}], "structuredContent": {"n": 1}}"#;
    let answer = body(&service, "declared", structured).await;
    assert_eq!(answer, r#"{"n": 1}"#);
    for result in [structured, r#"{"content": [{"type": "text", "text": "n is 1"}]}"#, r#"{"content": []}"#] {
        let answer: Value = serde_json::from_str(&body(&service, "declared", result).await).unwrap();
        assert!(schema_of("200").is_valid(&answer), "{answer}");
    }
    let (_, problem) = service.post("/one/declared", &json!({"result": 5})).await;
    assert_eq!(problem["code"], "invalid_arguments");
    assert!(schema_of("422").is_valid(&problem), "{problem}");
    let (_, problem) = service.post("/one/declared", &json!({"result": r#"{"isError": true, "content": []}"#})).await;
    assert_eq!(problem["code"], "tool_error");
    assert!(schema_of("502").is_valid(&problem) && schema_of("default").is_valid(&problem), "{problem}");
    assert!(!schema_of("502").is_valid(&json!({"detail": 1})));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tools_error_begins_with_its_own_words() {
    let service = Running::on(json!({"one": stdio(&[])})).await;
    let response = service.request(Method::POST, "/one/fail").body("{}").send().await.unwrap();
    assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
    let text = response.text().await.unwrap();
    assert!(text.starts_with(r#"{"detail":"disk full","#), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_behind_a_link_that_needs_no_key() {
    let service = Start {
        servers: json!({"one": stdio(&["results"])}),
        key: Some("k-1"),
        environment: vec![("TOOLSIEVE_HTTP__PUBLIC_URL", "https://tools.example.org/base")],
        ..Start::default()
    };
    let service = service.start().await;
    service.settled().await;
    let sound = json!({"content": [{"type": "audio", "data": WAV, "mimeType": "audio/wav"}]}).to_string();
    let described: Value = serde_json::from_str(&body(&service, "raw_result", &sound).await).unwrap();
    assert_eq!((&described["type"], &described["mimeType"], &described["size"]), (&json!("audio"), &json!("audio/wav"), &json!(12)));
    assert!(described["note"].as_str().unwrap().contains("1 hour"), "{described}");
    let link = described["url"].as_str().unwrap().strip_prefix("https://tools.example.org/base").unwrap().to_owned();

    let anybody = reqwest::Client::new();
    let get = async |path: &str| anybody.get(format!("{}{path}", service.url)).send().await.unwrap();
    let file = get(&link).await;
    assert_eq!(file.status(), StatusCode::OK);
    for (name, value) in [("content-type", "audio/wav"), ("content-disposition", "inline"), ("x-content-type-options", "nosniff")] {
        assert_eq!(file.headers()[name], value);
    }
    assert_eq!(&file.bytes().await.unwrap()[..], b"RIFF$\0\0\0WAVE");

    let page = json!({"content": [{"type": "resource", "resource": {
        "uri": "demo://x/größe.html?x=1", "mimeType": "text/html", "blob": "PHNjcmlwdD4=",
    }}]});
    let described: Value = serde_json::from_str(&body(&service, "raw_result", &page.to_string()).await).unwrap();
    let page = get(described["url"].as_str().unwrap().strip_prefix("https://tools.example.org/base").unwrap()).await;
    let disposition = page.headers()["content-disposition"].to_str().unwrap();
    assert_eq!(disposition, "attachment; filename=\"gr__e.html\"; filename*=UTF-8''gr%C3%B6%C3%9Fe%2Ehtml");
    assert!(page.headers()["content-security-policy"].to_str().unwrap().contains("sandbox"));

    for wrong in [link.replace("expires=", "expires=1"), link.replace("signature=", "signature=A"), link.split('?').next().unwrap().into()]
    {
        let refused = get(&wrong).await;
        assert!(refused.status().is_client_error(), "{wrong}");
        assert!(refused.json::<Value>().await.unwrap()["code"].is_string(), "{wrong}");
    }
    // The files are no way around the key.
    assert_eq!(get("/v1/files/../tools/search").await.status(), StatusCode::UNAUTHORIZED);

    let folder = service.stop().await;
    let again = Start {
        servers: json!({"one": stdio(&[])}),
        key: Some("k-1"),
        folder: Some(folder),
        environment: vec![("TOOLSIEVE_HTTP__PUBLIC_URL", "https://x")],
        ..Start::default()
    };
    let again = again.start().await;
    assert_eq!(anybody.get(format!("{}{link}", again.url)).send().await.unwrap().status(), StatusCode::OK, "after a restart");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_address_for_links_a_file_is_described() {
    let service = Running::on(json!({"one": stdio(&["results"])})).await;
    let sound = json!({"content": [{"type": "audio", "data": WAV, "mimeType": "audio/wav"}]}).to_string();
    let described: Value = serde_json::from_str(&body(&service, "raw_result", &sound).await).unwrap();
    assert_eq!(described["size"], 12);
    assert!(described["note"].as_str().unwrap().contains("http.public_url") && described.get("url").is_none(), "{described}");
    let (status, _) = service.get("/v1/files/0123?expires=1&signature=x").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_text_is_cut_where_the_administrator_says_so() {
    let mut short = stdio(&["results"]);
    short["maxTextBytes"] = json!(1000);
    let service = Running::on(json!({"one": short, "two": stdio(&[])})).await;
    let whole: String =
        service.request(Method::POST, "/two/huge").body(r#"{"bytes": 3000000}"#).send().await.unwrap().json().await.unwrap();
    assert_eq!(whole.len(), 3_000_000);
    let cut: String = service.request(Method::POST, "/one/huge").body(r#"{"bytes": 3000000}"#).send().await.unwrap().json().await.unwrap();
    let notice = cut.strip_prefix(&"x".repeat(1000)).unwrap();
    assert!(notice.contains("2999000 of 3000000 bytes are left out") && notice.contains("calls.max_text_bytes"), "{notice}");
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_become_short_texts_where_the_administrator_says_so() {
    let mut compact = stdio(&["results"]);
    compact["compactResults"] = json!(true);
    let service = Running::on(json!({"one": compact, "two": stdio(&["results"])})).await;
    let result = r#"{"content": [{"type": "text", "text": "{ \"total\": 1.50,\n \"names\": [ \"a b\" ] }"}]}"#;
    let short: String = serde_json::from_str(&body(&service, "raw_result", result).await).unwrap();
    assert_eq!(short, r#"{"total":1.50,"names":["a b"]}"#);
    let text = json!({"content": [{"type": "text", "text": "two  words"}]}).to_string();
    assert_eq!(body(&service, "raw_result", &text).await, r#""two  words""#);
    let request = service.request(Method::POST, "/two/raw_result").json(&json!({"result": result}));
    let as_sent = request.send().await.unwrap().text().await.unwrap();
    assert!(as_sent.starts_with("{ ") || as_sent.contains("\"names\""), "{as_sent}");
    assert!(!as_sent.starts_with('"'), "{as_sent}");
}

/// Users of `serve` get short texts, and mcpo's callers get what mcpo returns.
#[tokio::test(flavor = "multi_thread")]
async fn objects_are_short_texts_by_default_but_not_for_mcpo() {
    let result = r#"{"content": [{"type": "text", "text": "{ \"total\": 1.50,\n \"names\": [ \"a b\" ] }"}]}"#;
    let servers =
        || json!({"one": stdio(&["results"]), "plain": {"command": stdio(&[])["command"], "args": ["results"], "compactResults": false}});
    let service = Start { servers: servers(), as_users_get_it: true, ..Start::default() }.start().await;
    service.settled().await;
    let short: String = serde_json::from_str(&body(&service, "raw_result", result).await).unwrap();
    assert_eq!(short, r#"{"total":1.50,"names":["a b"]}"#);
    let (_, plain) = service.post("/plain/raw_result", &json!({"result": result})).await;
    assert_eq!(plain, json!({"total": 1.5, "names": ["a b"]}), "a server's own setting overrides it");
    let (_, ran) = service.post("/v1/tools/call", &json!({"name": "one__raw_result", "arguments": {"result": result}})).await;
    assert_eq!(ran, json!(short), "the same through `run_tool`");

    let mcpo = Some(McpoSettings::default());
    let service = Start { servers: servers(), mcpo, as_users_get_it: true, ..Start::default() }.start().await;
    service.settled().await;
    let (_, as_mcpo) = service.post("/one/raw_result", &json!({"result": result})).await;
    assert_eq!(as_mcpo, json!({"total": 1.5, "names": ["a b"]}));
}

/// Real results of a real server, where the quickstart's servers are installed, as in `tests/run`.
#[tokio::test(flavor = "multi_thread")]
async fn a_real_servers_results() {
    let Some(configuration) = data::quickstart("results of a real server") else { return };
    let configuration: Value = serde_json::from_str(&std::fs::read_to_string(configuration).unwrap()).unwrap();
    let service = Start {
        servers: json!({"everything": configuration["mcpServers"]["everything"]}),
        environment: vec![("TOOLSIEVE_HTTP__PUBLIC_URL", "http://tools.example.org")],
        ..Start::default()
    };
    let service = service.start().await;
    service.settled().await;
    let call = async |tool: &str, arguments: Value| {
        let (status, body) = service.post(&format!("/everything/{tool}"), &arguments).await;
        assert_eq!(status, StatusCode::OK, "{tool}: {body}");
        body
    };
    let is_image = |value: &Value| value.as_str().is_some_and(|uri| uri.starts_with("data:image/png;base64,iVBORw0KGgo"));

    let weather = call("get-structured-content", json!({"location": "Chicago"})).await;
    assert_eq!((&weather["humidity"], weather.as_object().unwrap().len()), (&json!(82), 3));
    let image = call("get-tiny-image", json!({})).await;
    assert!(image[0].is_string() && is_image(&image[1]) && image[2].is_string(), "{image}");
    let annotated = call("get-annotated-message", json!({"messageType": "success", "includeImage": "true"})).await;
    assert!(annotated[0] == "Operation completed successfully" && is_image(&annotated[1]), "{annotated}");
    let links = call("get-resource-links", json!({"count": 2})).await;
    assert!(links[1]["type"] == "resource_link" && links[1]["uri"].is_string() && links.as_array().unwrap().len() == 3, "{links}");
    let text = call("get-resource-reference", json!({"resourceType": "Text", "resourceId": "1"})).await;
    assert!(text[1]["text"].as_str().unwrap().contains("Resource 1") && text[1]["uri"].is_string(), "{text}");
    let file = call("gzip-file-as-resource", json!({"name": "a.gz", "data": "data:text/plain,hello", "outputType": "resource"})).await;
    let link = file["url"].as_str().unwrap().strip_prefix("http://tools.example.org").unwrap();
    let bytes = reqwest::get(format!("{}{link}", service.url)).await.unwrap().bytes().await.unwrap();
    assert_eq!((&bytes[..2], bytes.len() as u64), (&[0x1f, 0x8b][..], file["size"].as_u64().unwrap()));

    let (status, wrong) = service.post("/everything/get-structured-content", &json!({"location": "chicago"})).await;
    assert_eq!((status, &wrong["errors"][0]["did_you_mean"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!("Chicago")), "{wrong}");
}
