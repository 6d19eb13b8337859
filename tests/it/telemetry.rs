//! Traces: from the caller's span over every step to the MCP server, and what a bad collector costs.

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::harness::keys::{KEY, start_on};
use crate::harness::mcp::{newer_era, rpc};
use crate::harness::servers::collector::{Collector, Manner, Seen};
use crate::harness::servers::http::HttpServer;
use crate::harness::wait::{eventually, when};
use crate::harness::{Running, Start, stdio};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";
const STATE: &str = "vendor=1,other=2";

/// The header of a caller that records its trace.
fn recorded(trace: &str) -> String {
    format!("00-{trace}-{PARENT}-01")
}

async fn on(servers: Value, environment: Vec<(&'static str, &'static str)>) -> Running {
    let service = Start { servers, environment, ..Start::default() }.start().await;
    service.settled().await;
    service
}

async fn traced(service: &Running, path: &str, parent: &str, body: &Value) -> Value {
    let request = service.request(Method::POST, path).header("traceparent", parent).header("tracestate", STATE);
    let response = request.json(body).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    response.json().await.unwrap()
}

fn message(text: &str) -> Value {
    json!({"messages": [{"role": "user", "content": text}]})
}

/// The value of a metric.
async fn metric(service: &Running, name: &str) -> f64 {
    let text = service.request(Method::GET, "/metrics").send().await.unwrap().text().await.unwrap();
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
}

/// Waits until so many spans ended so.
async fn until_counted(service: &Running, outcome: &str, least: f64) {
    let name = format!("toolsieve_spans_total{{outcome=\"{outcome}\"}}");
    eventually(&name, async || when(metric(service, &name).await, |count| *count >= least)).await;
}

fn attribute<'a>(span: &'a Seen, name: &str) -> &'a str {
    span.attributes.get(name).unwrap_or_else(|| panic!("no {name}: {span:#?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn one_trace_leads_from_the_caller_over_every_step_to_the_server() {
    let collector = Collector::start(Manner::Takes);
    let settings = collector.settings(&[("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20sesame"), ("OTEL_SERVICE_NAME", "tools")]);
    let servers = json!({"one": stdio(&["traces"]), "time": stdio(&["list=time"]), "mail": stdio(&["list=mail"])});
    let service = on(servers, settings).await;
    traced(&service, "/v1/filter", &recorded(TRACE), &message("what time is it in Tokyo")).await;
    let given = traced(&service, "/one/meta", &recorded(TRACE), &json!({})).await;

    let filter = collector.until_named("POST /v1/filter").await;
    let call = collector.until_named("POST /{server}/{tool:.+}").await;
    let embed = collector.until("embeddings", |span| span.name.starts_with("embeddings ")).await;
    let index = collector.until_named("retrieval tools").await;
    let tool = collector.until_named("tools/call meta").await;
    for (span, parent, kind) in [
        (&filter, PARENT, SpanKind::Server),
        (&embed, &*filter.id, SpanKind::Internal),
        (&index, &*filter.id, SpanKind::Internal),
        (&call, PARENT, SpanKind::Server),
        (&tool, &*call.id, SpanKind::Client),
    ] {
        assert_eq!((&*span.trace, &*span.parent, span.kind), (TRACE, parent, kind), "{span:#?}");
        assert_eq!((&*span.state, span.has_failed), (STATE, false), "{span:#?}");
    }
    // The server gets the span of its call, so that its own spans are children of it.
    let parent = format!("00-{TRACE}-{}-01", tool.id);
    assert_eq!((&given["traceparent"], &given["tracestate"]), (&json!(parent), &json!(STATE)), "{given}");

    for (span, name, value) in [
        (&filter, "http.route", "/v1/filter"),
        (&filter, "http.request.method", "POST"),
        (&filter, "http.response.status_code", "200"),
        (&filter, "toolsieve.selection.kind", "chosen"),
        (&embed, "gen_ai.operation.name", "embeddings"),
        (&index, "gen_ai.operation.name", "retrieval"),
        (&tool, "mcp.method.name", "tools/call"),
        (&tool, "gen_ai.operation.name", "execute_tool"),
        (&tool, "gen_ai.tool.name", "meta"),
        (&tool, "toolsieve.server", "one"),
    ] {
        assert_eq!(attribute(span, name), value, "{span:#?}");
    }
    let head = ("/v1/traces".to_owned(), Some("application/x-protobuf".to_owned()), Some("Bearer sesame".to_owned()));
    assert!(collector.heads().iter().all(|seen| *seen == head), "{:?}", collector.heads());
    assert!(collector.words().contains("service.name"), "the resource");
    until_counted(&service, "exported", 5.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_over_http_get_the_header_too() {
    let collector = Collector::start(Manner::Takes);
    let server = HttpServer::start(&["headers", "traces"]);
    let rules = json!({"enabled": true, "whitelist": ["traceparent", "tracestate", "x-other"]});
    let url = format!("http://127.0.0.1:{}/mcp", server.port);
    let servers = json!({"http": {"type": "http", "url": url, "client_header_forwarding": rules}});
    let service = on(servers, collector.settings(&[])).await;
    let headers = traced(&service, "/http/request_headers", &recorded(TRACE), &json!({})).await;
    let tool = collector.until_named("tools/call request_headers").await;
    assert_eq!(headers["traceparent"], json!(format!("00-{TRACE}-{}-01", tool.id)), "the call's span, not the caller's: {headers}");
    assert_eq!(headers["tracestate"], json!(STATE), "{headers}");
    let meta = traced(&service, "/http/meta", &recorded(TRACE), &json!({})).await;
    assert!(meta["traceparent"].as_str().unwrap().starts_with(&format!("00-{TRACE}-")), "{meta}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_over_mcp_belongs_to_the_trace_in_its_message() {
    const OTHER: &str = "11111111111111111111111111111111";
    let collector = Collector::start(Manner::Takes);
    let service = on(json!({"one": stdio(&["traces"])}), collector.settings(&[])).await;
    let mut meta = newer_era();
    meta["traceparent"] = json!(recorded(TRACE));
    let params = json!({"name": "one__meta", "arguments": {}, "_meta": meta});
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let request = service.request(Method::POST, "/mcp").header("accept", "application/json, text/event-stream");
    let request = request.header("mcp-protocol-version", "2026-07-28").header("mcp-method", "tools/call").header("mcp-name", "one__meta");
    let answer: Value = request.header("traceparent", recorded(OTHER)).json(&message).send().await.unwrap().json().await.unwrap();
    let is_call = |kind: SpanKind| move |span: &Seen| span.name == "tools/call meta" && span.kind == kind;
    let server = collector.until("the span of the message", is_call(SpanKind::Server)).await;
    let client = collector.until("the span of the call", is_call(SpanKind::Client)).await;
    let http = collector.until_named("POST /mcp").await;
    assert_eq!((&*server.trace, &*server.parent), (TRACE, PARENT));
    assert_eq!((&*client.trace, &client.parent), (TRACE, &server.id));
    assert_eq!((&*http.trace, &*http.parent), (OTHER, PARENT), "HTTP has a trace of its own");
    assert_eq!(answer["result"]["structuredContent"]["traceparent"], json!(format!("00-{TRACE}-{}-01", client.id)), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_are_in_traces_only_if_they_are_switched_on() {
    for captures in ["false", "true"] {
        let collector = Collector::start(Manner::Takes);
        let settings = collector.settings(&[("TOOLSIEVE_TELEMETRY__CAPTURE_CONTENT", captures)]);
        let service = on(json!({"one": stdio(&[]), "time": stdio(&["list=time"])}), settings).await;
        traced(&service, "/v1/filter", &recorded(TRACE), &message("what time is it in quaggatown")).await;
        traced(&service, "/one/echo", &recorded(TRACE), &json!({"text": "wallaby"})).await;
        let unknown = service.post("/one/numbat", &json!({"text": "wombat"})).await;
        assert_eq!(unknown.0, StatusCode::NOT_FOUND);
        collector.until("the unknown tool", |span| span.attributes.get("toolsieve.problem").is_some_and(|code| code == "not_found")).await;
        let tool = collector.until_named("tools/call echo").await;
        let words = collector.words();
        for (word, may_be_there) in [("quaggatown", true), ("wallaby", true), ("numbat", false), ("wombat", false)] {
            assert_eq!(words.contains(word), may_be_there && captures == "true", "{word} with {captures}");
        }
        if captures == "true" {
            assert_eq!(attribute(&tool, "gen_ai.tool.call.arguments"), r#"{"text":"wallaby"}"#);
            assert!(attribute(&tool, "gen_ai.tool.call.result").contains("wallaby"));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_call_is_marked_with_the_kind_of_its_error() {
    let collector = Collector::start(Manner::Takes);
    let service = on(json!({"one": stdio(&[])}), collector.settings(&[])).await;
    for (path, status) in [("/one/fail", 502), ("/one/error", 502)] {
        assert_eq!(service.post(path, &json!({})).await.0.as_u16(), status);
    }
    let failed = collector.until_named("tools/call fail").await;
    assert!(failed.has_failed);
    assert_eq!(attribute(&failed, "error.type"), "tool_error");
    let refused = collector.until_named("tools/call error").await;
    assert_eq!(attribute(&refused, "error.type"), "-32050");
    let http = collector.until("the request", |span| span.id == failed.parent).await;
    assert_eq!((attribute(&http, "error.type"), http.has_failed), ("tool_error", true));
    assert!(!collector.words().contains("disk full") && !collector.words().contains("bad luck"), "no texts of errors");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_call_over_mcp_is_marked_too() {
    let collector = Collector::start(Manner::Takes);
    let service = on(json!({"one": stdio(&["results"])}), collector.settings(&[])).await;
    for (tool, arguments, error) in [
        ("fail", json!({}), "tool_error"),
        ("error", json!({}), "server_error"),
        ("strict_arguments", json!({"count": "three"}), "invalid_arguments"),
    ] {
        let params = json!({"name": format!("one__{tool}"), "arguments": arguments});
        let answer = rpc(&service, "/mcp", &[], "tools/call", params).await;
        assert_eq!(answer["result"]["isError"], true, "{answer}");
        let name = format!("tools/call {tool}");
        let span = collector.until(&name, |span| span.name == name && span.kind == SpanKind::Server).await;
        assert_eq!((attribute(&span, "error.type"), span.has_failed), (error, true));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_caller_gives_up_is_marked_as_cancelled() {
    let collector = Collector::start(Manner::Takes);
    let service = on(json!({"one": stdio(&[])}), collector.settings(&[])).await;
    let call = tokio::spawn(service.request(Method::POST, "/one/sleep").body("{}").send());
    assert_eq!(service.post("/one/wait_sleeping", &json!({})).await.0, StatusCode::OK);
    call.abort();
    let tool = collector.until_named("tools/call sleep").await;
    let http = collector.until("the request", |span| span.id == tool.parent).await;
    for span in [&tool, &http] {
        assert_eq!((attribute(span, "error.type"), span.has_failed), ("cancelled", true));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_caller_decides_whether_its_trace_is_recorded_and_a_malformed_header_has_no_effect() {
    const LAST: &str = "22222222222222222222222222222222";
    let collector = Collector::start(Manner::Takes);
    let service = on(json!({"one": stdio(&["traces"])}), collector.settings(&[])).await;
    let given = traced(&service, "/one/meta", &format!("00-{TRACE}-{PARENT}-00"), &json!({})).await;
    let parent = given["traceparent"].as_str().unwrap();
    assert!(parent.starts_with(&format!("00-{TRACE}-")) && parent.ends_with("-00"), "the server learns the decision: {given}");
    let given = traced(&service, "/one/meta", "00-xyz-1-01", &json!({})).await;
    let own = given["traceparent"].as_str().unwrap()[3..35].to_owned();
    traced(&service, "/one/meta", &recorded(LAST), &json!({})).await;
    // Spans are sent in the order in which they end.
    collector.until("the last trace", |span| span.trace == LAST && span.kind == SpanKind::Server).await;
    let spans = collector.spans();
    assert!(spans.iter().all(|span| span.trace != TRACE), "{spans:#?}");
    let root = spans.iter().find(|span| span.trace == own && span.kind == SpanKind::Server).unwrap();
    assert_eq!((&*root.parent, &*root.state), ("", ""), "a trace of its own");
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_cause_no_more_traces_than_the_rate_allows() {
    let collector = Collector::start(Manner::Takes);
    let service = on(json!({"one": stdio(&[])}), collector.settings(&[("TOOLSIEVE_TELEMETRY__TRACES_PER_MINUTE", "2")])).await;
    for _ in 0..9 {
        traced(&service, "/one/echo", &recorded(TRACE), &json!({})).await;
    }
    until_counted(&service, "exported", 4.0).await;
    let limited = metric(&service, "toolsieve_traces_limited_total").await;
    assert!((limited - 7.0).abs() < 0.01, "{limited}");
    assert_eq!(collector.spans().len(), 4, "two requests with one call each");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_no_key_causes_no_span() {
    let collector = Collector::start(Manner::Takes);
    let service = start_on(json!({"one": stdio(&[])}), &collector.settings(&[])).await;
    for path in ["/one/echo", "/v1/filter"] {
        let request = service.client.post(format!("{}{path}", service.url)).header("traceparent", recorded(TRACE));
        assert_eq!(request.json(&json!({})).send().await.unwrap().status(), StatusCode::UNAUTHORIZED);
    }
    let probe = service.client.get(format!("{}/healthz", service.url)).bearer_auth(KEY).header("traceparent", recorded(TRACE));
    assert_eq!(probe.send().await.unwrap().status(), StatusCode::OK);
    assert_eq!(service.post("/one/echo", &json!({})).await.0, StatusCode::OK);
    let own = collector.until_named("POST /{server}/{tool:.+}").await;
    assert!(own.trace != TRACE && collector.spans().iter().all(|span| span.trace == own.trace), "{:#?}", collector.spans());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_hangs_or_refuses_costs_spans_and_no_request() {
    for manner in [Manner::Hangs, Manner::Refuses(503)] {
        let collector = Collector::start(manner);
        let settings = collector.settings(&[("TOOLSIEVE_TELEMETRY__QUEUE_SPANS", "2"), ("TOOLSIEVE_TELEMETRY__TIMEOUT_MS", "100")]);
        let service = on(json!({"one": stdio(&[])}), settings).await;
        // The queue fills while a request to the collector runs.
        let dropped = "toolsieve_spans_total{outcome=\"dropped\"}";
        eventually("dropped spans", async || {
            let calls = (0..32).map(|_| async { service.post("/one/echo", &json!({"a": 1})).await.0 });
            assert!(futures::future::join_all(calls).await.iter().all(|status| *status == StatusCode::OK));
            when(metric(&service, dropped).await, |count| *count > 0.0)
        })
        .await;
        until_counted(&service, "failed", 1.0).await;
        assert!(collector.spans().is_empty());
        collector.behaves(Manner::Takes);
        eventually("spans again", async || {
            assert_eq!(service.post("/one/echo", &json!({})).await.0, StatusCode::OK);
            !collector.spans().is_empty()
        })
        .await;
        service.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_collector_is_counted_and_the_service_stops_all_the_same() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let endpoint: &'static str = format!("http://{free}").leak();
    let service = on(json!({"one": stdio(&[])}), vec![("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)]).await;
    assert_eq!(service.post("/one/echo", &json!({})).await.0, StatusCode::OK);
    until_counted(&service, "failed", 2.0).await;
    assert_eq!(service.post("/one/echo", &json!({})).await.0, StatusCode::OK);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_collector_servers_get_no_trace() {
    let service = on(json!({"one": stdio(&["traces"])}), Vec::new()).await;
    let given = traced(&service, "/one/meta", &recorded(TRACE), &json!({})).await;
    assert!(given.get("traceparent").is_none(), "{given}");
    let exported = metric(&service, "toolsieve_spans_total{outcome=\"exported\"}").await;
    assert!(exported.abs() < 0.01, "{exported}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_spans_are_sent_before_the_service_ends() {
    let collector = Collector::start(Manner::Takes);
    let service = on(json!({"one": stdio(&[])}), collector.settings(&[])).await;
    assert_eq!(service.post("/one/echo", &json!({})).await.0, StatusCode::OK);
    service.stop().await;
    let names: Vec<String> = collector.spans().into_iter().map(|span| span.name).collect();
    assert!(names.contains(&"tools/call echo".to_owned()) && names.contains(&"POST /{server}/{tool:.+}".to_owned()), "{names:?}");
}
