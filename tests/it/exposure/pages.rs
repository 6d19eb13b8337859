//! Pages: what they may load, and who may frame them.

use reqwest::Method;
use serde_json::json;

use crate::harness::{Running, stdio};

/// Before, a picture that a tool's description names was fetched from an administrator's browser, and any site could frame the viewer.
#[tokio::test(flavor = "multi_thread")]
async fn every_page_keeps_to_itself() {
    let service = Running::on(json!({"one": stdio(&[])})).await;
    let mut pages = 0;
    for path in ["/docs", "/docs/", "/docs/index.html", "/docs/oauth2-redirect.html", "/one/docs/", "/v1/admin/report"] {
        let response = service.request(Method::GET, path).header("accept", "text/html").send().await.unwrap();
        let status = response.status();
        assert!(status.is_success(), "{path}: {status}");
        let header = |name: &str| response.headers().get(name).map(|value| value.to_str().unwrap()).unwrap_or_default();
        assert!(header("content-type").starts_with("text/html"), "{path}");
        let policy = header("content-security-policy");
        assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{path}: {policy}");
        let script = policy.split(';').find(|part| part.trim().starts_with("script-src")).unwrap_or_default();
        assert!(!script.contains("unsafe") && !policy.contains('*') && !policy.contains("http"), "{path}: {policy}");
        assert_eq!((header("x-content-type-options"), header("referrer-policy")), ("nosniff", "no-referrer"), "{path}");
        assert_eq!(header("x-frame-options"), "DENY", "{path}");
        pages += 1;
    }
    assert_eq!(pages, 6);
    for path in ["/openapi.json", "/docs/swagger-ui.css", "/nothing", "/healthz", "/metrics"] {
        let response = service.request(Method::GET, path).send().await.unwrap();
        assert_eq!(response.headers()["x-content-type-options"], "nosniff", "{path}");
    }
}

/// It leaves in many small parts.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_file_arrives_whole() {
    let service = Running::on(json!({"one": stdio(&[])})).await;
    let script = service.request(Method::GET, "/docs/swagger-ui-bundle.js").send().await.unwrap();
    let announced: usize = script.headers()["content-length"].to_str().unwrap().parse().unwrap();
    assert!(announced > 1 << 20, "{announced}");
    assert_eq!(script.bytes().await.unwrap().len(), announced);
}
