//! Pages of other sites, with and without a key. Browsers send `Origin` and `Sec-Fetch-Site`; programs send neither.

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use crate::harness::{Running, Start, stdio};

const KEY: &str = "the-key-of-the-service";
const ADMIN: &str = "the-key-of-administration";
const EVIL: &str = "https://evil.example";
/// One route of each kind, with a method that it answers.
const ROUTES: [(&str, &str); 12] = [
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/openapi.json"),
    ("GET", "/one/openapi.json"),
    ("GET", "/docs/"),
    ("GET", "/metrics"),
    ("POST", "/one/echo"),
    ("POST", "/v1/filter"),
    ("POST", "/mcp"),
    ("POST", "/v1/admin/keys"),
    ("GET", "/v1/files/x"),
    ("POST", "/nothing/at/all"),
];

async fn start(keyed: bool, environment: &[(&'static str, &'static str)]) -> Running {
    let mut environment = environment.to_vec();
    if keyed {
        environment.push(("TOOLSIEVE_ADMIN_KEY", ADMIN));
    }
    let key = keyed.then_some(KEY);
    let running = Start { servers: json!({"one": stdio(&[])}), key, environment, ..Start::default() }.start().await;
    running.settled().await;
    running
}

async fn code(request: RequestBuilder) -> (StatusCode, String) {
    let response = request.send().await.unwrap();
    let status = response.status();
    let body: Value = response.json().await.unwrap_or_default();
    (status, body["code"].as_str().unwrap_or_default().to_owned())
}

/// Before, a form of any page made an administrator's browser create keys, and without a key any port of the machine administered.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_another_site_is_refused_everywhere() {
    for keyed in [true, false] {
        let service = start(keyed, &[]).await;
        for (method, path) in ROUTES {
            for (name, value) in [
                ("origin", EVIL),
                ("origin", "null"),
                ("origin", "http://localhost:3000"),
                ("origin", "https://127.0.0.1"),
                ("sec-fetch-site", "cross-site"),
            ] {
                if (name, path) == ("sec-fetch-site", "/v1/files/x") {
                    continue;
                }
                let request = service.request(method.parse().unwrap(), path).header(name, value).body("{}");
                let (status, code) = code(request).await;
                assert_eq!((status, code.as_str()), (StatusCode::FORBIDDEN, "foreign_origin"), "{method} {path} {name}: {value}");
            }
            let preflight = service.request(Method::OPTIONS, path).header("origin", EVIL).header("access-control-request-method", "POST");
            assert_eq!(code(preflight).await.0, StatusCode::FORBIDDEN, "{path}");
        }
        let own = service.request(Method::POST, "/one/echo").header("origin", &service.url).header("sec-fetch-site", "same-origin");
        assert_eq!(own.body("{}").send().await.unwrap().status(), StatusCode::OK);
        let picture = service.request(Method::GET, "/v1/files/x").header("sec-fetch-site", "cross-site");
        assert_eq!(code(picture).await.0, StatusCode::NOT_FOUND, "a chat of another site may show a file");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_of_another_site_for_this_machine_is_no_way_in() {
    let service = start(false, &[]).await;
    for path in ["/one/echo", "/v1/admin/keys", "/mcp"] {
        let request = service.request(Method::POST, path).header("host", "evil.example:8000").header("origin", "http://evil.example:8000");
        assert_eq!(code(request.body("{}")).await, (StatusCode::FORBIDDEN, "foreign_origin".to_owned()), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_that_are_named_call_with_a_key_and_administer_nothing_without_one() {
    let named =
        [("TOOLSIEVE_HTTP__CORS_ORIGINS", "https://chat.example.org"), ("TOOLSIEVE_HTTP__PUBLIC_URL", "https://tools.example.org/below")];
    let service = start(true, &named).await;
    for origin in ["https://chat.example.org", "https://tools.example.org"] {
        let request = service.request(Method::POST, "/one/echo").header("origin", origin).header("sec-fetch-site", "cross-site");
        assert_eq!(request.body("{}").send().await.unwrap().status(), StatusCode::OK, "{origin}");
    }
    let open = start(false, &named).await;
    let (path, origin) = ("/v1/admin/keys", "https://chat.example.org");
    let called = open.request(Method::POST, "/one/echo").header("origin", origin).body("{}").send().await.unwrap();
    assert_eq!(called.status(), StatusCode::OK);
    let created = open.request(Method::POST, path).header("origin", origin).body("{\"name\":\"x\"}").send().await.unwrap();
    assert_eq!(created.status(), StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn basic_reads_and_does_nothing_else() {
    for (origins, foreign_read) in [("", StatusCode::FORBIDDEN), ("*", StatusCode::UNAUTHORIZED)] {
        let service = start(true, &[("TOOLSIEVE_HTTP__CORS_ORIGINS", origins)]).await;
        let basic = |method: Method, path: &str| {
            service.client.request(method, format!("{}{path}", service.url)).basic_auth("anybody", Some(ADMIN))
        };
        for method in [Method::GET, Method::HEAD] {
            assert_eq!(basic(method, "/docs/").send().await.unwrap().status(), StatusCode::OK);
        }
        for (method, path) in [(Method::POST, "/one/echo"), (Method::POST, "/v1/admin/keys"), (Method::PUT, "/v1/admin/policy")] {
            let response = basic(method, path).body("{}").send().await.unwrap();
            assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{path}");
            let asked: Vec<_> = response.headers().get_all("www-authenticate").iter().collect();
            assert_eq!(asked, ["Bearer realm=\"toolsieve\""], "{path}");
        }
        for (name, value) in [("origin", EVIL), ("sec-fetch-site", "cross-site")] {
            let response = basic(Method::GET, "/openapi.json").header(name, value).send().await.unwrap();
            assert_eq!(response.status(), foreign_read, "{name} with cors_origins {origins}");
        }
        if origins == "*" {
            let request = service.request(Method::POST, "/one/echo").header("origin", EVIL).body("{}").send().await.unwrap();
            assert_eq!(request.status(), StatusCode::OK, "with the key itself");
            assert_eq!(request.headers()["access-control-allow-origin"], "*");
        }
    }
}

/// Before, a page that was let in could neither keep a secret nor read when to try again.
#[tokio::test(flavor = "multi_thread")]
async fn pages_that_are_named_use_every_method_and_read_our_headers() {
    let origin = "https://chat.example.org";
    let service = start(true, &[("TOOLSIEVE_HTTP__CORS_ORIGINS", origin)]).await;
    let preflight = async |method: &str| {
        let path = format!("{}/v1/secrets/one/token", service.url);
        let request =
            service.client.request(Method::OPTIONS, path).header("origin", origin).header("access-control-request-method", method);
        request.header("access-control-request-headers", "authorization,content-type,if-match").send().await.unwrap()
    };
    for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] {
        let response = preflight(method).await;
        assert_eq!(response.status(), StatusCode::OK, "{method}");
        assert!(response.headers()["access-control-allow-methods"].to_str().unwrap().contains(method));
    }
    assert_ne!(preflight("TRACE").await.status(), StatusCode::OK, "no route answers it");
    // Regression: these errors were plain texts.
    for (wanted, value) in [("access-control-request-method", "TRACE"), ("access-control-request-headers", "x-other")] {
        let request = service.client.request(Method::OPTIONS, format!("{}/v1/filter", service.url)).header("origin", origin);
        let request = if value == "TRACE" { request } else { request.header("access-control-request-method", "POST") };
        let response = request.header(wanted, value).send().await.unwrap();
        assert_eq!(
            (response.status(), response.headers()["content-type"].to_str().unwrap()),
            (StatusCode::UNPROCESSABLE_ENTITY, "application/problem+json")
        );
        let id = response.headers()["x-request-id"].clone();
        let problem: Value = response.json().await.unwrap();
        assert_eq!(
            (&problem["code"], &problem["parameter"], &problem["request_id"]),
            (&json!("invalid_request"), &json!(wanted), &json!(id.to_str().unwrap()))
        );
    }
    let response = service.request(Method::GET, "/openapi.json").header("origin", origin).send().await.unwrap();
    assert_eq!(response.headers()["access-control-allow-origin"], origin);
    let exposed = response.headers()["access-control-expose-headers"].to_str().unwrap().to_lowercase();
    for name in ["etag", "retry-after", "x-toolsieve-repairs", "x-request-id", "mcp-session-id"] {
        assert!(exposed.contains(name), "{name}: {exposed}");
    }
    let refused = service.client.get(format!("{}/openapi.json", service.url)).header("origin", origin).send().await.unwrap();
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(refused.headers()["access-control-allow-origin"], origin, "a page sees why it was refused");
}
