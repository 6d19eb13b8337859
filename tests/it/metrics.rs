//! `/metrics`: what is counted, for whom it is there, and that callers can't make series.

use std::collections::BTreeMap;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::harness::keys::{ADMIN, KEY, administer, create, start_on, with_key};
use crate::harness::{Running, stdio};

async fn start(environment: &[(&'static str, &'static str)]) -> Running {
    start_on(json!({"one": stdio(&[]), "time": stdio(&["list=time"]), "mail": stdio(&["list=mail"])}), environment).await
}

async fn text(service: &Running, key: &str, accept: &str) -> String {
    let request = with_key(service, Method::GET, "/metrics", key).header("Accept", accept);
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    response.text().await.unwrap()
}

/// The samples by name and labels.
async fn samples(service: &Running, key: &str) -> BTreeMap<String, f64> {
    let text = text(service, key, "text/plain").await;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let samples = lines.map(|line| line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}")));
    samples.map(|(name, value)| (name.to_owned(), value.parse().unwrap_or_else(|_| panic!("{name} {value}")))).collect()
}

async fn filter(service: &Running, message: &str) -> Value {
    let (status, answer) = service.post("/v1/filter", &json!({"messages": [{"role": "user", "content": message}]})).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_that_happens_is_counted() {
    let service = start(&[("TOOLSIEVE_METRICS__PER_TOOL", "true")]).await;
    let before = samples(&service, ADMIN).await;
    service.post("/one/echo", &json!({"text": "a"})).await;
    service.post("/one/fail", &json!({})).await;
    service.post("/v1/tools/call", &json!({"name": "one__echo", "arguments": 3})).await;
    service.post("/v1/tools/search", &json!({"queries": ["what time is it"]})).await;
    let chosen = filter(&service, "what time is it in Lima?").await;
    filter(&service, "thanks!").await;
    filter(&service, "what time is it in Lima?").await;
    let after = samples(&service, ADMIN).await;
    let grown = |name: &str| after[name] - before.get(name).copied().unwrap_or(0.0);
    for (name, by) in [
        ("toolsieve_calls_total{server=\"one\",outcome=\"success\"}", 1.0),
        ("toolsieve_calls_total{server=\"one\",outcome=\"tool_error\"}", 1.0),
        ("toolsieve_calls_total{server=\"one\",outcome=\"rejected\"}", 1.0),
        ("toolsieve_tool_calls_total{server=\"one\",tool=\"echo\",outcome=\"success\"}", 1.0),
        ("toolsieve_call_duration_seconds_count{server=\"one\"}", 3.0),
        ("toolsieve_selections_total{kind=\"chosen\"}", 2.0),
        ("toolsieve_selections_total{kind=\"none_needed\"}", 1.0),
        ("toolsieve_selections_total{kind=\"degraded\"}", 0.0),
        ("toolsieve_selection_duration_seconds_count", 3.0),
        ("toolsieve_stage_duration_seconds_count{stage=\"index\"}", 4.0),
        ("toolsieve_stage_duration_seconds_count{stage=\"embed\"}", 4.0),
        ("toolsieve_searches_total{kind=\"find_tools\"}", 1.0),
        ("toolsieve_http_requests_total{route=\"/v1/filter\",method=\"POST\",status=\"2xx\"}", 3.0),
        ("toolsieve_http_requests_total{route=\"/{server}/{tool:.+}\",method=\"POST\",status=\"2xx\"}", 1.0),
        ("toolsieve_http_requests_total{route=\"/{server}/{tool:.+}\",method=\"POST\",status=\"5xx\"}", 1.0),
        ("toolsieve_http_requests_total{route=\"/metrics\",method=\"GET\",status=\"2xx\"}", 1.0),
    ] {
        assert!((grown(name) - by).abs() < 0.01, "{name} grew by {}, not by {by}", grown(name));
    }
    for file in ["prometheus.yml", "monitoring/alerts.yaml", "monitoring/dashboard.json"] {
        let text = std::fs::read_to_string(format!("{}/deploy/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        let named = text.split(|other: char| !other.is_ascii_lowercase() && other != '_').filter(|word| word.starts_with("toolsieve_"));
        // Only a service with a Qdrant cluster has these.
        for name in named.filter(|name| !name.starts_with("toolsieve_qdrant_")) {
            assert!(after.keys().any(|known| known.split('{').next() == Some(name)), "{name} in {file}");
        }
    }
    let tokens = |when: &str| chosen["tokens"][when].as_f64().unwrap();
    let (was, is, saved) =
        ("toolsieve_selection_tokens_before_total", "toolsieve_selection_tokens_after_total", "toolsieve_selection_tokens_saved_total");
    assert!((grown(was) - 3.0 * tokens("before")).abs() < 0.01, "every message offers everything");
    assert!(grown(is) > 0.0 && (grown(saved) - (grown(was) - grown(is))).abs() < 0.01);
    assert!(grown("toolsieve_cache_requests_total{cache=\"vectors\",result=\"hit\"}") >= 1.0, "the same message twice");
    for (name, value) in [
        ("toolsieve_connections{phase=\"connected\"}", 3.0),
        ("toolsieve_connections{phase=\"retrying\"}", 0.0),
        ("toolsieve_server_up{server=\"mail\"}", 1.0),
        ("toolsieve_catalog_servers", 3.0),
        ("toolsieve_embedder_up", 1.0),
        ("toolsieve_index_up", 1.0),
        ("toolsieve_store_failures_total{operation=\"read\"}", 0.0),
        ("toolsieve_store_failures_total{operation=\"write\"}", 0.0),
        ("toolsieve_events_lost_total", 0.0),
        ("toolsieve_audit_entries_lost_total", 0.0),
    ] {
        assert!((after[name] - value).abs() < 0.01, "{name} is {}", after[name]);
    }
    assert!(after["toolsieve_catalog_tools"] > 10.0);
    assert!((after["toolsieve_catalog_tools"] - after["toolsieve_index_embedded_documents"]).abs() < 0.01);
    assert!(after["process_resident_memory_bytes"] > 1e6 && after["process_cpu_seconds_total"] > 0.0 && after["process_open_fds"] > 3.0);
    assert!(after["toolsieve_data_dir_available_bytes"] > 1e6);
    assert!(after["toolsieve_data_dir_available_bytes"] <= after["toolsieve_data_dir_size_bytes"]);
    let version = format!("toolsieve_build_info{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"));
    assert!((after[&version] - 1.0).abs() < 0.01);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_to_a_lost_database_is_counted() {
    const FAILED: &str = "toolsieve_store_failures_total{operation=\"write\"}";
    let service = start(&[]).await;
    let before = samples(&service, ADMIN).await[FAILED];
    let database = service.folder.path().join("data/toolsieve.db");
    std::fs::rename(&database, service.folder.path().join("away.db")).unwrap();
    let (status, body) = administer(&service, Method::POST, "/v1/admin/keys", &json!({"name": "a"})).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{body}");
    // Others, such as the audit log, may have failed too.
    assert!(samples(&service, ADMIN).await[FAILED] >= before + 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_cannot_make_series() {
    let service = start(&[("TOOLSIEVE_METRICS__PER_TOOL", "true")]).await;
    let odd = async |round: usize| {
        for path in [format!("/no-server-{round}/no-tool-{round}"), format!("/one/no-tool-{round}"), format!("/a{round}/b/c?d={round}")] {
            service.post(&path, &json!({})).await;
            service.get(&path).await;
        }
        let method = Method::from_bytes(format!("ODD{round}").as_bytes()).unwrap();
        service.request(method, "/openapi.json").send().await.unwrap();
        service.post("/v1/tools/call", &json!({"name": format!("one__no_{round}"), "arguments": {}})).await;
        let message = json!([{"role": "user", "content": "what time is it"}]);
        let body =
            json!({"messages": message, "chat_id": format!("c{round}"), "model": format!("m{round}"), "user": {"id": format!("u{round}")}});
        service.post("/v1/filter", &body).await;
        with_key(&service, Method::GET, "/openapi.json", &format!("wrong-{round}")).send().await.unwrap();
    };
    odd(0).await;
    let before = samples(&service, ADMIN).await;
    for round in 1..30 {
        odd(round).await;
    }
    let after = samples(&service, ADMIN).await;
    let new: Vec<&String> = after.keys().filter(|name| !before.contains_key(*name)).collect();
    // The first look had not been counted when it was taken.
    assert_eq!(new, ["toolsieve_http_requests_total{route=\"/metrics\",method=\"GET\",status=\"2xx\"}"]);
    assert!(after["toolsieve_http_requests_total{route=\"none\",method=\"GET\",status=\"4xx\"}"] >= 29.0, "wrong keys");
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_need_a_key_and_show_of_servers_what_it_may_see() {
    let service = start(&[]).await;
    let (_, key) = create(&service, json!({"name": "scraper", "servers": ["time"]})).await;
    service.post("/one/echo", &json!({})).await;
    let without = async || service.client.get(format!("{}/metrics", service.url)).send().await.unwrap().status();
    assert_eq!(without().await, StatusCode::UNAUTHORIZED);
    let (all, own) = (samples(&service, ADMIN).await, samples(&service, &key).await);
    let about = |samples: &BTreeMap<String, f64>, server: &str| {
        samples.keys().filter(|name| name.contains(&format!("server=\"{server}\""))).count()
    };
    assert!(about(&all, "one") > 2 && about(&all, "mail") == 2, "{all:?}");
    assert_eq!((about(&own, "one"), about(&own, "mail"), about(&own, "time")), (0, 0, 2));
    assert!(own.contains_key("toolsieve_catalog_tools"));
    administer(
        &service,
        Method::PUT,
        "/v1/admin/policy",
        &json!({"rules": [{"effect": "block", "servers": ["mail"], "principals": ["service-key"]}]}),
    )
    .await;
    let service_key = samples(&service, KEY).await;
    assert_eq!((about(&service_key, "mail"), about(&service_key, "time")), (0, 2));

    let public = start(&[("TOOLSIEVE_METRICS__PUBLIC", "true")]).await;
    let response = public.client.get(format!("{}/metrics", public.url)).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert!(response.text().await.unwrap().contains("toolsieve_server_up{server=\"mail\"} 1"));
    let (_, problem) = (public.get("/v1/nothing").await, public.get("/metrics").await);
    assert_eq!(problem.0, StatusCode::OK);
    let unlocked = public.client.get(format!("{}/openapi.json", public.url)).send().await.unwrap();
    assert_eq!(unlocked.status(), StatusCode::UNAUTHORIZED, "nothing else is public");

    let off = start(&[("TOOLSIEVE_METRICS__ENABLED", "false")]).await;
    assert_eq!(with_key(&off, Method::GET, "/metrics", ADMIN).send().await.unwrap().status(), StatusCode::NOT_FOUND);
}

/// Regression test: a key saw the names of tools that it may not use.
#[tokio::test(flavor = "multi_thread")]
async fn metrics_per_tool_show_only_tools_that_a_caller_may_use() {
    let service = start(&[("TOOLSIEVE_METRICS__PER_TOOL", "true")]).await;
    let rules = json!({"rules": [{"effect": "block", "tools": ["send_email"], "principals": ["service-key"]}]});
    for tool in ["send_email", "list_emails"] {
        assert_ne!(service.post(&format!("/mail/{tool}"), &json!({})).await.0, StatusCode::NOT_FOUND, "{tool}");
    }
    let (status, body) = administer(&service, Method::PUT, "/v1/admin/policy", &rules).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let shows = async |key: &str, tool: &str| samples(&service, key).await.keys().any(|name| name.contains(&format!("tool=\"{tool}\"")));
    assert!(shows(ADMIN, "send_email").await && shows(ADMIN, "list_emails").await);
    assert!(!shows(KEY, "send_email").await && shows(KEY, "list_emails").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_form_is_the_one_that_was_asked_for() {
    let service = start(&[]).await;
    service.post("/one/echo", &json!({})).await;
    let response =
        with_key(&service, Method::GET, "/metrics", ADMIN).header("Accept", "application/openmetrics-text;version=1.0.0,text/plain;q=0.5");
    let response = response.send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "application/openmetrics-text; version=1.0.0; charset=utf-8");
    let open = response.text().await.unwrap();
    assert!(
        open.ends_with("# EOF\n")
            && open.contains("# TYPE toolsieve_calls counter\n")
            && open.contains("# UNIT toolsieve_call_duration_seconds seconds\n")
    );
    let response = with_key(&service, Method::GET, "/metrics", ADMIN).header("Accept", "*/*").send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    let plain = response.text().await.unwrap();
    assert!(!plain.contains("# EOF") && !plain.contains("# UNIT") && plain.contains("# TYPE toolsieve_calls_total counter\n"), "{plain}");
    well_formed(&plain);
}

/// What promtool's linter asks for, and what the format wants: each family once, told before its samples.
fn well_formed(plain: &str) {
    let mut kinds: BTreeMap<&str, &str> = BTreeMap::new();
    let mut helps: Vec<&str> = Vec::new();
    let mut last = "";
    for line in plain.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, text) = help.split_once(' ').unwrap();
            assert!(text.len() > 5 && !helps.contains(&name), "{line}");
            helps.push(name);
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert!(kinds.insert(name, kind).is_none() && helps.last() == Some(&name), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(!["_milliseconds", "_ms", "_kb", "_mb", "_count", "_sum", "_bucket"].iter().any(|end| name.ends_with(end)), "{line}");
            last = name;
        } else {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            let name = sample.split('{').next().unwrap();
            let suffix = name.strip_prefix(last).unwrap_or_else(|| panic!("{line} stands behind {last}"));
            assert!(suffix.is_empty() || (kinds[last] == "histogram" && ["_bucket", "_sum", "_count"].contains(&suffix)), "{line}");
            assert!(value.parse::<f64>().unwrap() >= 0.0, "{line}");
        }
    }
    assert!(kinds.len() > 20, "{kinds:?}");
}
