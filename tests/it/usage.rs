//! What is written down of selections, calls, searches and judgements, and the sums of it.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::harness::keys::{ADMIN, KEY, administer, command, create, with_key};
use crate::harness::wait::{eventually, when};
use crate::harness::{Running, Start, stdio};

fn servers() -> Value {
    json!({"one": stdio(&[]), "time": stdio(&["list=time"]), "mail": stdio(&["list=mail"])})
}

async fn start(environment: &[(&'static str, &'static str)], folder: Option<tempfile::TempDir>) -> Running {
    let environment = environment.iter().copied().chain([("TOOLSIEVE_ADMIN_KEY", ADMIN)]).collect();
    let running = Start { servers: servers(), key: Some(KEY), environment, folder, ..Start::default() }.start().await;
    running.settled().await;
    running
}

async fn select(service: &Running, key: &str, chat: &str, message: &str) -> Value {
    let body = json!({"messages": [{"role": "user", "content": message}], "chat_id": chat, "limit": 1});
    let response = with_key(service, Method::POST, "/v1/filter", key).json(&body).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    response.json().await.unwrap()
}

async fn call_in(service: &Running, chat: &str, path: &str, body: Value) -> StatusCode {
    let request = service.request(Method::POST, path).header("X-OpenWebUI-Chat-Id", chat).json(&body);
    request.send().await.unwrap().status()
}

/// The usage, as soon as it fulfils the condition: events are written behind the requests.
async fn usage_when(service: &Running, query: &str, condition: impl Fn(&Value) -> bool) -> Value {
    eventually(&format!("the usage of `{query}` as the test wants it"), async || {
        let (status, usage) = administer(service, Method::GET, &format!("/v1/admin/usage?{query}"), &json!({})).await;
        assert_eq!(status, StatusCode::OK, "{usage}");
        when(usage, &condition)
    })
    .await
}

fn tool<'a>(usage: &'a Value, name: &str) -> &'a Value {
    usage["tools"].as_array().unwrap().iter().find(|tool| tool["tool"] == name).unwrap_or_else(|| panic!("{name}: {usage}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_says_what_was_offered_called_and_recovered() {
    let service = start(&[], None).await;
    let chosen = select(&service, KEY, "c", "what time is it in Lima?").await;
    let names: Vec<&str> = chosen["tools"].as_array().unwrap().iter().filter_map(|tool| tool["tool"].as_str()).collect();
    let [offered] = names[..] else { panic!("{chosen}") };
    assert!(["get_current_time", "convert_time"].contains(&offered), "{chosen}");
    // Offered, and called; not offered, and called all the same; found instead.
    call_in(&service, "c", &format!("/time/{offered}"), json!({})).await;
    assert_eq!(call_in(&service, "c", "/one/echo", json!({"text": "a"})).await, StatusCode::OK);
    assert_eq!(call_in(&service, "c", "/one/fail", json!({})).await, StatusCode::BAD_GATEWAY);
    assert_eq!(call_in(&service, "c", "/v1/tools/search", json!({"queries": ["send an email"]})).await, StatusCode::OK);
    assert_eq!(call_in(&service, "c", "/v1/tools/search", json!({"queries": ["what time is it in Lima?"]})).await, StatusCode::OK);
    // No selection came before these.
    assert_eq!(call_in(&service, "another", "/one/echo", json!({"text": "b"})).await, StatusCode::OK);
    service.post("/one/echo", &json!({"text": "c"})).await;

    let usage = usage_when(&service, "", |usage| usage["totals"]["called"] == 5 && usage["totals"]["searches"] == 2).await;
    let totals = &usage["totals"];
    assert_eq!((&totals["selections"], &totals["recovered"], &totals["recovered_searches"]), (&json!(1), &json!(2), &json!(1)), "{usage}");
    assert_eq!((&totals["tokens_before"], &totals["tokens_after"]), (&chosen["tokens"]["before"], &chosen["tokens"]["after"]));
    let (echo, fail, time) = (tool(&usage, "echo"), tool(&usage, "fail"), tool(&usage, offered));
    assert_eq!((&echo["called"], &echo["succeeded"], &echo["recovered"], &echo["offered"]), (&json!(3), &json!(3), &json!(1), &json!(0)));
    assert_eq!((&fail["tool_errors"], &fail["success_rate"], &fail["recovered"]), (&json!(1), &json!(0.0), &json!(1)));
    assert_eq!((&time["offered"], &time["called"], &time["recovered"]), (&json!(1), &json!(1), &json!(0)));
    assert!(echo["p50_ms"].as_f64().unwrap() > 0.0 && echo["p95_ms"].as_f64() >= echo["p50_ms"].as_f64(), "{echo}");
    assert!(echo["last_called_at"].as_str().unwrap().ends_with('Z'));
    let servers: Vec<&Value> = usage["servers"].as_array().unwrap().iter().map(|server| &server["server"]).collect();
    assert_eq!((servers[0], usage["servers"][0]["called"].clone(), usage["days"].as_array().unwrap().len()), (&json!("one"), json!(4), 1));

    let one = usage_when(&service, "server=one&limit=1&order=recovered", |_| true).await;
    assert_eq!((one["tools"].as_array().unwrap().len(), &one["tool_count"], &one["totals"]["called"]), (1, &json!(2), &json!(4)));
    let past = usage_when(&service, "until=2026-01-01T00:00:00Z", |_| true).await;
    assert_eq!((&past["tools"], &past["days"]), (&json!([]), &json!([])));
    for wrong in ["since=yesterday", "limit=0", "order=name", "who=me", "since=2027-01-02T00:00:00Z&until=2027-01-01T00:00:00Z"] {
        let (status, problem) = administer(&service, Method::GET, &format!("/v1/admin/usage?{wrong}"), &json!({})).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{wrong}: {problem}");
    }
    let (for_others, nowhere) = (service.get("/v1/admin/usage").await.0, service.get("/v1/admin/no-such").await.0);
    assert!(for_others.is_client_error() && for_others == nowhere, "not for the service key: {for_others}, {nowhere}");

    let (code, table, errors) = command(&service, &["usage", "--limit", "2"]);
    assert_eq!(code, Some(0), "{errors}");
    assert!(table.contains("echo") && table.contains("5 calls, 2 of what was not offered. 2 of 3 tools are shown."), "{table}");
}

#[tokio::test(flavor = "multi_thread")]
async fn feedback_is_for_ones_own_selections() {
    let service = start(&[], None).await;
    let (_, other) = create(&service, json!({"name": "other"})).await;
    let chosen = select(&service, KEY, "c", "what time is it in Lima?").await;
    let id = chosen["selection_id"].as_str().unwrap().to_owned();
    let give = async |service: &Running, key: &str, body: Value| {
        let response = with_key(service, Method::POST, "/v1/feedback", key).json(&body).send().await.unwrap();
        (response.status().as_u16(), response.json::<Value>().await.unwrap())
    };
    let verdict = |selection: Value, verdict: &str| {
        let mut body = json!({"tool": "mail__send_email", "verdict": verdict});
        body.as_object_mut().unwrap().extend(selection.as_object().unwrap().clone());
        body
    };
    let by_id = || json!({"selection_id": id});
    let (status, answer) = give(&service, KEY, verdict(by_id(), "helpful")).await;
    assert_eq!((status, &answer), (200, &json!({"selection_id": id, "tool": "mail__send_email", "verdict": "helpful"})));
    assert_eq!(give(&service, KEY, verdict(json!({"chat_id": "c"}), "missing")).await.1["selection_id"], json!(id), "the last one counts");

    let unknown = give(&service, KEY, verdict(json!({"selection_id": "no-such"}), "wrong")).await;
    for foreign in [by_id(), json!({"chat_id": "c"})] {
        let (status, mut problem) = give(&service, &other, verdict(foreign, "wrong")).await;
        problem["request_id"] = unknown.1["request_id"].clone();
        assert_eq!((status, problem), unknown, "what is another's is as if it were not there");
    }
    assert_eq!(unknown.0, 404);
    let (status, problem) = give(&service, KEY, json!({"selection_id": id, "tool": "mail__send_emial", "verdict": "wrong"})).await;
    assert_eq!((status, problem["detail"].as_str().unwrap().contains("mail__send_email")), (404, true), "{problem}");
    for (body, status, part) in [
        (verdict(json!({}), "wrong"), 422, "either selection_id or chat_id"),
        (verdict(json!({"selection_id": id, "chat_id": "c"}), "wrong"), 422, "either selection_id or chat_id"),
        (verdict(by_id(), "great"), 422, "`helpful`, `wrong` or `missing`"),
        (json!({"selection_id": id, "tool": "a", "verdict": "wrong", "why": "b"}), 422, "unknown field `why`"),
        (json!({"selection_id": id, "verdict": "wrong"}), 422, "missing field `tool`"),
        (verdict(json!({"chat_id": "c".repeat(300)}), "wrong"), 422, "at most 256 bytes"),
        (verdict(json!({"chat_id": "c".repeat(5_000)}), "wrong"), 413, "4096 bytes"),
    ] {
        let (found, problem) = give(&service, KEY, body).await;
        assert!(found == status && problem["detail"].as_str().unwrap().contains(part), "{found}: {problem}");
    }
    let usage = usage_when(&service, "", |usage| usage["totals"]["selections"] == 1).await;
    let mail = tool(&usage, "send_email");
    assert_eq!((&mail["helpful"], &mail["wrong"], &mail["missing"]), (&json!(0), &json!(0), &json!(1)), "{usage}");

    // After a restart the selection is found in the store.
    let service = start(&[], Some(service.stop().await)).await;
    assert_eq!(give(&service, KEY, verdict(by_id(), "wrong")).await.0, 200);
    assert_eq!(give(&service, KEY, verdict(json!({"chat_id": "c"}), "wrong")).await.0, 200);
    assert_eq!(give(&service, ADMIN, verdict(by_id(), "wrong")).await.0, 404, "nobody speaks for another");
}

/// An event: kind, selection, whether it was recovered, text of the message.
type Row = (String, Option<String>, Option<bool>, Option<String>);

/// The record as another program reads it.
async fn recorded(service: &Running) -> Vec<Row> {
    let file = service.folder.path().join("data/toolsieve.db");
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(file).read_only(true);
    let mut connection = sqlx::ConnectOptions::connect(&options).await.unwrap();
    let query = "SELECT kind, selection, recovered, message FROM selection_event ORDER BY id";
    sqlx::query_as(query).fetch_all(&mut connection).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_message_its_text_is_kept_only_where_that_is_wanted() {
    for keeps_text in [false, true] {
        let environment: &[_] = if keeps_text { &[("TOOLSIEVE_LEARNING__MESSAGE_TEXT", "true")] } else { &[] };
        let service = start(environment, None).await;
        let id = select(&service, KEY, "c", "what time is it in Lima?").await["selection_id"].as_str().unwrap().to_owned();
        call_in(&service, "c", "/v1/tools/search", json!({"queries": ["send an email to Zoe"]})).await;
        call_in(&service, "c", "/one/echo", json!({"text": "an argument of mine"})).await;
        usage_when(&service, "", |usage| usage["totals"]["called"] == 1 && usage["totals"]["searches"] == 1).await;
        let text = |text: &str| keeps_text.then(|| text.to_owned());
        let row = |kind: &str, recovered, message| (kind.to_owned(), Some(id.clone()), recovered, message);
        assert_eq!(
            recorded(&service).await,
            [
                row("offered", None, text("what time is it in Lima?")),
                row("searched", Some(true), text("send an email to Zoe")),
                row("called", Some(true), None),
            ]
        );
        // Stopped, it has moved everything into the one file.
        let folder = service.stop().await;
        let bytes = std::fs::read(folder.path().join("data/toolsieve.db")).unwrap();
        let holds = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
        assert_eq!((holds("in Lima?"), holds("email to Zoe"), holds("an argument of mine")), (keeps_text, keeps_text, false));
    }
}
