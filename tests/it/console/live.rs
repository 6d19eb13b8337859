//! What happens, as a stream of events.

use reqwest::header::{CONTENT_TYPE, COOKIE};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::signed_in;
use crate::harness::keys::{ADMIN, administer, create, start_on, with_key};
use crate::harness::wait::{LONG, eventually};
use crate::harness::{Running, stdio};

const STREAM: &str = "/v1/admin/events/stream";
const TEXT: &str = "what time is it in <b>Tokyo</b>";

/// An open stream.
struct Stream {
    response: Response,
    text: String,
}

/// An event: id, name and data.
type Event = (Option<u64>, String, String);

impl Stream {
    async fn open(request: RequestBuilder) -> Self {
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()[CONTENT_TYPE], "text/event-stream");
        Self { response, text: String::new() }
    }

    async fn of(service: &Running, query: &str) -> Self {
        Self::open(with_key(service, Method::GET, &format!("{STREAM}{query}"), ADMIN)).await
    }

    /// The next event, without comments; `None` at the end.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.text = rest;
                if event.starts_with(':') {
                    continue;
                }
                let field = |name: &str| {
                    let values = event.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
                    values.collect::<Vec<_>>().join("\n")
                };
                return Some((field("id").parse().ok(), field("event"), field("data")));
            }
            let chunk = timeout(LONG, self.response.chunk()).await.expect("nothing came").ok()??;
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    async fn event(&mut self) -> (u64, Value) {
        let (id, name, data) = self.next().await.unwrap();
        assert_eq!(name, "", "{data}");
        (id.unwrap(), serde_json::from_str(&data).unwrap())
    }
}

async fn service() -> Running {
    let environment = [("TOOLSIEVE_LEARNING__MESSAGE_TEXT", "true")];
    start_on(json!({"one": stdio(&[]), "time": stdio(&["list=time"])}), &environment).await
}

async fn ask(service: &Running, chat: &str) {
    let asked = json!({"messages": [{"role": "user", "content": TEXT}], "chat_id": chat});
    assert_eq!(service.post("/v1/filter", &asked).await.0, StatusCode::OK);
}

async fn events(service: &Running) -> Vec<Value> {
    administer(service, Method::GET, "/v1/admin/events", &json!({})).await.1["events"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_contains_each_event_as_the_list_does() {
    let service = service().await;
    ask(&service, "earlier").await;
    eventually("the first event is recorded", async || events(&service).await.len() == 1).await;
    let mut all = Stream::of(&service, "").await;
    let mut of_calls = Stream::of(&service, "?outcome=success&tool=one__echo").await;
    ask(&service, "chat-1").await;
    assert_eq!(service.post("/v1/tools/search", &json!({"queries": ["read a file"]})).await.0, StatusCode::OK);
    assert_eq!(service.post("/one/echo", &json!({"text": "hello"})).await.0, StatusCode::OK);
    let mut seen = Vec::new();
    for _ in 0..3 {
        let (id, event) = all.event().await;
        assert_eq!(event["id"], id);
        seen.push(event);
    }
    let mut listed = events(&service).await;
    listed.reverse();
    assert_eq!(seen, listed[1..], "the first event is older than the stream");
    assert_eq!(of_calls.event().await.1, listed[3], "the filters are those of the list");

    // A client that comes back gets what it missed, and an old number begins there.
    let first = listed[0]["id"].as_u64().unwrap();
    let request = with_key(&service, Method::GET, STREAM, ADMIN).header("last-event-id", seen[1]["id"].to_string());
    assert_eq!(Stream::open(request).await.event().await.1, seen[2]);
    assert_eq!(Stream::of(&service, &format!("?after={first}")).await.event().await.1, seen[0]);
    for query in ["?outcome=odd", "?outcome=limited", "?principal=nobody+knows", "?limit=3"] {
        let (status, problem) = administer(&service, Method::GET, &format!("{STREAM}{query}"), &json!({})).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
    }
    let request = with_key(&service, Method::GET, STREAM, ADMIN).header("last-event-id", "yesterday");
    assert_eq!(request.send().await.unwrap().status(), StatusCode::UNPROCESSABLE_ENTITY);

    // It ends with the service, which doesn't wait for its readers.
    service.stop().await;
    assert_eq!(all.next().await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_learns_how_many_events_it_lost() {
    let service = service().await;
    ask(&service, "first").await;
    eventually("the first event is recorded", async || events(&service).await.len() == 1).await;
    let first = events(&service).await[0]["id"].as_u64().unwrap();
    for _ in 0..520 {
        assert_eq!(service.post("/one/echo", &json!({"text": "hello"})).await.0, StatusCode::OK);
    }
    eventually("all calls are recorded", async || {
        let (_, newest) = administer(&service, Method::GET, "/v1/admin/events?limit=1000&tool=one__echo", &json!({})).await;
        newest["events"].as_array().unwrap().len() == 520
    })
    .await;
    let mut late = Stream::of(&service, &format!("?after={first}&tool=one__echo")).await;
    let (id, name, data) = late.next().await.unwrap();
    assert_eq!((id, name.as_str(), data.as_str()), (None, "lagged", r#"{"lost":20}"#));
    let mut last = 0;
    for _ in 0..500 {
        let (id, _) = late.event().await;
        assert!(id > last, "{id} after {last}");
        last = id;
    }
    ask(&service, "last").await;
    assert_eq!(service.post("/one/echo", &json!({"text": "hello"})).await.0, StatusCode::OK);
    assert!(late.event().await.0 > last, "nothing is repeated, and it goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_are_limited_and_only_for_administrators() {
    let service = service().await;
    let (_, viewer) = create(&service, json!({"name": "looks", "role": "viewer"})).await;
    let (_, caller) = create(&service, json!({"name": "calls"})).await;
    let mut open = vec![Stream::open(with_key(&service, Method::GET, STREAM, &viewer)).await];
    for (key, status) in [(caller.as_str(), StatusCode::METHOD_NOT_ALLOWED), ("wrong", StatusCode::UNAUTHORIZED)] {
        assert_eq!(with_key(&service, Method::GET, STREAM, key).send().await.unwrap().status(), status);
    }
    while open.len() < 32 {
        open.push(Stream::of(&service, "").await);
    }
    let refused = with_key(&service, Method::GET, STREAM, ADMIN).send().await.unwrap();
    assert_eq!((refused.status(), refused.headers()["retry-after"].to_str().unwrap()), (StatusCode::TOO_MANY_REQUESTS, "30"));
    open.clear();
    eventually("closed streams make room", async || {
        with_key(&service, Method::GET, STREAM, ADMIN).send().await.unwrap().status() == StatusCode::OK
    })
    .await;
}

/// Regression test: a stream went on for up to 15 minutes after its key was revoked.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_with_its_key() {
    let service = service().await;
    let (revoked, first) = create(&service, json!({"name": "first", "role": "viewer"})).await;
    let (rotated, second) = create(&service, json!({"name": "second", "role": "viewer"})).await;
    let open = async |key: &str| Stream::open(with_key(&service, Method::GET, STREAM, key)).await;
    let (mut of_first, mut of_second, mut of_admin) = (open(&first).await, open(&second).await, open(ADMIN).await);
    let revoking = administer(&service, Method::DELETE, &format!("/v1/admin/keys/{revoked}"), &json!({})).await;
    let rotating = administer(&service, Method::POST, &format!("/v1/admin/keys/{rotated}/rotate"), &json!({})).await;
    assert_eq!((revoking.0, rotating.0), (StatusCode::OK, StatusCode::OK));
    ask(&service, "later").await;
    assert_eq!(of_admin.event().await.1["chat"], "later");
    assert_eq!((of_first.next().await, of_second.next().await), (None, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_gets_rows_while_its_session_lasts() {
    let service = service().await;
    let mut browser = signed_in(&service).await;
    let page = browser.see("/ui/activity").await;
    let script = page.text.split("<script src=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    assert_eq!(page.text.matches("<script").count(), 1);
    let code = browser.see(&script).await.text;
    assert!(code.contains("EventSource") && !code.contains("eval"), "{code}");
    assert!(page.text.contains("<p class=\"buttons\" hidden data-stream=\"/ui/activity/stream\""), "{}", page.text);

    let cookie = browser.cookie.clone().unwrap();
    let get = |path: &str| service.client.get(format!("{}{path}", service.url)).header(COOKIE, &cookie);
    let mut rows = Stream::open(get("/ui/activity/stream?after=0")).await;
    let mut of_chat = Stream::open(get("/ui/activity/stream?after=0&chat=chat-2")).await;
    ask(&service, "chat-1").await;
    ask(&service, "chat-2").await;
    let (id, _, row) = rows.next().await.unwrap();
    assert!(id.is_some() && row.starts_with("<tr>") && row.contains("&lt;b&gt;Tokyo") && row.contains("chat-1"), "{row}");
    let page = browser.see("/ui/activity").await;
    assert!(page.text.contains(row.split("<form").next().unwrap()), "a row of the stream is a row of the page: {row}");
    assert!(of_chat.next().await.unwrap().2.contains("chat-2"));

    let token = browser.token().await;
    browser.submit("/ui/logout", &[("token", &token)]).await;
    while rows.next().await.is_some() {}
    assert_eq!(get("/ui/activity/stream").send().await.unwrap().status(), StatusCode::NO_CONTENT, "a browser doesn't try again");
}
