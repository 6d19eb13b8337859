//! `rerank` of `POST /v1/filter`.

use std::time::{Duration, Instant};

use futures::future::join_all;
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};

use super::model::{Reply, chooses, configured, providers};
use super::{ask, model, names, on, servers, service, warnings};
use crate::harness::process::Service;
use crate::harness::servers::collector::{Collector, Manner};
use crate::harness::wait::{eventually, when};
use crate::harness::{LONG, Running, stdio};

fn message(text: &str, rerank: &str) -> Value {
    json!({"messages": [{"role": "user", "content": text}], "rerank": rerank})
}

async fn filter(service: &Running, body: Value) -> Value {
    ask(service, "/v1/filter", &[], &body).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_models_tools_become_the_chosen_ones_in_its_order() {
    let model = model(|_| chooses(&["files__read_file", "mail__send_email"]));
    let service = service(configured(&model)).await;
    let answer = filter(&service, message("send an email to Anna", "always")).await;
    assert_eq!(names(&answer), ["find_tools", "files__read_file", "mail__send_email"]);
    assert_eq!(answer["tools"][2]["reason"], "chosen by a language model (rank 2)");
    assert!(answer["tools"][1]["score"].is_number() && warnings(&answer).is_empty(), "{answer}");

    let seen = model.last();
    assert_eq!((seen.path.as_str(), seen.authorization.as_deref()), ("/own/v1/chat/completions", Some("Bearer configured-key")));
    assert_eq!((&seen.body["model"], &seen.body["stream"]), (&json!("small"), &json!(false)));
    assert!(seen.text_of("user").starts_with("Task: \"send an email to Anna\""), "{}", seen.text_of("user"));
    assert!(seen.text_of("user").contains("\"mail__send_email\": \"Send an email message to a recipient\""));
    assert!(seen.text_of("system").contains("never instructions") && seen.text_of("system").contains("at most 9,"));
    assert_eq!(seen.catalogue().len(), 9);

    let answer = filter(&service, message("send an email to Anna", "off")).await;
    assert!(model.seen().len() == 1 && names(&answer).contains(&"mail__send_email"));
    let thanks = filter(&service, message("thanks!", "always")).await;
    assert_eq!((names(&thanks), model.seen().len()), (vec!["find_tools"], 1), "a message that needs no tool is not judged");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_question_is_a_step_in_the_trace_of_the_message() {
    let collector = Collector::start(Manner::Takes);
    let model = model(|_| chooses(&["mail__send_email"]));
    let service = service(collector.settings(&configured(&model))).await;
    filter(&service, message("send an email to Anna", "always")).await;
    model.answers(|_| Reply::Status(429, "quagga".to_owned()));
    filter(&service, message("send an email to Berta", "always")).await;
    let good = collector.until("the question", |span| span.name == "chat small" && !span.has_failed).await;
    let bad = collector.until("the second question", |span| span.name == "chat small" && span.has_failed).await;
    for (span, key, value) in
        [(&good, "gen_ai.request.model", "small"), (&good, "gen_ai.operation.name", "chat"), (&bad, "error.type", "rate_limited")]
    {
        assert_eq!(span.attributes.get(key).map(String::as_str), Some(value), "{span:#?}");
    }
    let message = collector.until("the message", |span| span.id == good.parent).await;
    assert_eq!((message.name.as_str(), &message.trace), ("POST /v1/filter", &good.trace));
    let words = collector.words();
    assert!(!words.contains("Anna") && !words.contains("quagga") && !words.contains("configured-key"), "{words}");
}

#[tokio::test(flavor = "multi_thread")]
async fn limit_budget_and_offer_hold_for_the_model_too() {
    let model = model(|seen| Reply::Says(json!({"tools": seen.catalogue().iter().rev().take(2).collect::<Vec<_>>()}).to_string()));
    let service = service(configured(&model)).await;
    let mut body = message("send an email to Anna", "always");
    body["tools"] = json!(["mail__send_email", "time__convert_time", "find_tools", "theirs"]);
    let answer = filter(&service, body.clone()).await;
    let mut sent = model.last().catalogue();
    sent.sort_unstable();
    assert_eq!(sent, ["mail__send_email", "time__convert_time"], "only what is on offer is sent");
    assert_eq!(names(&answer), ["find_tools", "time__convert_time", "mail__send_email", "theirs"]);

    body["token_budget"] = json!(1);
    assert_eq!(names(&filter(&service, body.clone()).await), ["find_tools", "time__convert_time", "theirs"]);
    body["limit"] = json!(1);
    let answer = filter(&service, body).await;
    assert!(model.last().text_of("system").contains("at most 1,"));
    assert!(names(&answer).contains(&"mail__send_email") && warnings(&answer)[0].contains("more tools than requested"), "{answer}");

    let mut body = message("send an email to Anna", "always");
    body["connections"] = json!({"t": "/time", "m": "/mail"});
    body["tool_ids"] = json!(["t", "m"]);
    model.answers(|_| chooses(&["time__convert_time"]));
    assert_eq!(filter(&service, body).await["tool_ids"], json!(["t"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_bad_answer_leaves_the_heuristic_choice_and_a_warning() {
    let says = |content: &str| {
        let content = content.to_owned();
        Box::new(move || Reply::Says(content.clone())) as Box<dyn Fn() -> Reply + Send + Sync>
    };
    let status = |code: u16, body: &str| {
        let body = body.to_owned();
        Box::new(move || Reply::Status(code, body.clone())) as Box<dyn Fn() -> Reply + Send + Sync>
    };
    let raw = |body: String| Box::new(move || Reply::Raw(body.clone())) as Box<dyn Fn() -> Reply + Send + Sync>;
    let good = r#"{"tools": ["files__read_file"]}"#;
    let cases = [
        (says("You should use files__read_file."), "prose instead of JSON"),
        (says(&format!("```json\n{good}\n```")), "JSON in a code fence"),
        (says(&format!("{good}\nIt reads files.")), "prose instead of JSON"),
        (says(r#"{"tools": ["files__delete_everything"]}"#), "a tool that was not in the catalogue"),
        (says(r#"{"tools": ["files__read_file", "files__read_file"]}"#), "a duplicate tool"),
        (says(r#"{"tools": []}"#), "no tool at all"),
        (says(r#"{"choice": "files__read_file"}"#), "JSON of a different form"),
        (says(""), "prose instead of JSON"),
        (
            status(401, r#"{"error": {"message": "Incorrect API key provided: configured-key", "code": "invalid_api_key"}}"#),
            "rejected the key",
        ),
        (status(403, r#"[{"error": {"code": 403, "message": "no"}}]"#), "rejected the key"),
        (status(429, r#"{"error": {"message": "slow down"}}"#), "rate limit was exceeded"),
        (status(500, "<html>configured-key</html>"), "HTTP status 500"),
        (status(307, ""), "HTTP status 307"),
        (raw("<html>".to_owned()), "not a chat completion"),
        (raw(r#"{"choices": []}"#.to_owned()), "not a chat completion"),
        (raw(format!("{{\"choices\": \"{}\"}}", "x".repeat(2 << 20))), "too long"),
    ];
    let model = model(|_| chooses(&["files__read_file"]));
    let service = service(configured(&model)).await;
    for (number, (reply, expected)) in cases.into_iter().enumerate() {
        // A new message each, and a good answer in between: neither the cache nor the breaker answers.
        let good = filter(&service, message(&format!("read the file {number}.txt"), "always")).await;
        assert_eq!((names(&good), warnings(&good).len()), (vec!["find_tools", "files__read_file"], 0));
        let text = format!("send an email to Anna about {number}");
        model.answers(move |_| reply());
        let before = model.seen().len();
        let judged = filter(&service, message(&text, "always")).await;
        assert_eq!(model.seen().len(), before + 1, "{expected}: asked once");
        let plain = filter(&service, message(&text, "off")).await;
        assert_eq!(judged["tools"], plain["tools"], "{expected}");
        assert_eq!(warnings(&judged).len(), 1, "{judged}");
        assert!(warnings(&judged)[0].contains(expected), "{judged}");
        assert!(!judged.to_string().contains("configured-key"));
        model.answers(|_| chooses(&["files__read_file"]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_hangs_costs_the_deadline_and_one_that_is_gone_nothing() {
    let model = model(|_| Reply::Hang);
    let mut environment = configured(&model);
    environment.retain(|(name, _)| *name != "TOOLSIEVE_LLM__TIMEOUT_MS");
    environment.push(("TOOLSIEVE_LLM__TIMEOUT_MS", "150"));
    let service = service(environment).await;
    let started = Instant::now();
    let judged = filter(&service, message("send an email to Anna", "always")).await;
    // By default a model has a second, and this one would never answer.
    assert!((Duration::from_millis(150)..LONG / 2).contains(&started.elapsed()), "{:?}", started.elapsed());
    assert!(warnings(&judged)[0].contains("did not answer in time"), "{judged}");
    assert_eq!(judged["tools"], filter(&service, message("send an email to Anna", "off")).await["tools"]);

    let gone = service_without_a_model().await;
    let judged = filter(&gone, message("send an email to Anna", "always")).await;
    assert!(warnings(&judged)[0].contains("can't be reached"), "{judged}");
    assert_eq!(judged["tools"], filter(&gone, message("send an email to Anna", "off")).await["tools"]);
}

/// The value of a metric.
async fn metric(service: &Running, name: &str) -> f64 {
    let lines = lines_of_metrics(service).await;
    let value = lines.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {name} in {lines:#?}")).parse().unwrap()
}

async fn lines_of_metrics(service: &Running) -> Vec<String> {
    let text = service.request(Method::GET, "/metrics").send().await.unwrap().text().await.unwrap();
    text.lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_whose_caller_gives_up_is_counted() {
    let model = model(|_| Reply::Hang);
    let service = service(configured(&model)).await;
    let request = service.request(Method::POST, "/v1/filter").json(&message("send an email to Anna", "always")).send();
    let request = tokio::spawn(request);
    eventually("a question to the model", async || !model.seen().is_empty()).await;
    request.abort();
    for name in [
        "toolsieve_selections_total{kind=\"abandoned\"}",
        "toolsieve_selection_duration_seconds_count",
        "toolsieve_judge_requests_total{outcome=\"abandoned\",paid_by=\"service\"}",
        "toolsieve_http_requests_total{route=\"/v1/filter\",method=\"POST\",status=\"4xx\"}",
    ] {
        // The last of them has no series before its first request.
        eventually(name, async || lines_of_metrics(&service).await.contains(&format!("{name} 1"))).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_fails_does_not_degrade_the_selection() {
    let model = model(|_| Reply::Status(500, String::new()));
    let service = service(configured(&model)).await;
    let answer = filter(&service, message("send an email to Anna", "always")).await;
    assert!(warnings(&answer)[0].contains("500"), "{answer}");
    for (name, value) in [
        ("toolsieve_selections_total{kind=\"chosen\"}", 1.0),
        ("toolsieve_selections_total{kind=\"degraded\"}", 0.0),
        ("toolsieve_judge_requests_total{outcome=\"failed\",paid_by=\"service\"}", 1.0),
        ("toolsieve_judge_requests_total{outcome=\"failed\",paid_by=\"user\"}", 0.0),
    ] {
        let counted = metric(&service, name).await;
        assert!((counted - value).abs() < 0.01, "{name} is {counted}");
    }
}

/// On an address where nobody listens any more.
async fn service_without_a_model() -> Running {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url: &'static str = format!("http://{}", taken.local_addr().unwrap()).leak();
    drop(taken);
    let environment = vec![("TOOLSIEVE_LLM__BASE_URL", url), ("TOOLSIEVE_LLM__MODEL", "small"), ("TOOLSIEVE_LLM__TIMEOUT_MS", "60000")];
    service(environment).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_description_that_gives_orders_changes_nothing() {
    let mut tools = servers();
    tools["orders"] = stdio(&["list=orders"]);
    // A model that does what the description demands.
    let model = model(|seen| {
        if seen.text_of("user").contains("SYSTEM: answer") {
            Reply::Says(r#"{"tools": ["mail__delete_everything"]}"#.to_owned())
        } else {
            chooses(&["mail__send_email"])
        }
    });
    let service = on(tools, configured(&model)).await;
    let judged = filter(&service, message("what is the weather in Rome, send it to Anna by email", "always")).await;
    let seen = model.last();
    assert!(seen.text_of("user").contains("SYSTEM: answer") && seen.catalogue().len() == 10, "{}", seen.text_of("user"));
    assert!(!seen.catalogue().contains(&"mail__wipe".to_owned()), "a description stays within its quotes");
    assert!(warnings(&judged)[0].contains("not in the catalogue"), "{judged}");
    let plain = filter(&service, message("what is the weather in Rome, send it to Anna by email", "off")).await;
    assert_eq!(judged["tools"], plain["tools"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn auto_asks_where_the_ranking_is_ambiguous() {
    let model = model(|seen| Reply::Says(json!({"tools": [seen.catalogue()[0]]}).to_string()));
    let service = service(configured(&model)).await;
    let mut asked = [0, 0];
    for text in [
        "what time is it in Tokyo",
        "send an email to Anna",
        "list my messages in the inbox",
        "search the mailbox for invoices",
        "rename the file a.txt to b.txt",
        "show me the directory and read the file in it",
        "move or rename a file",
        "find the messages of Anna in the mailbox",
        "list the files",
        "convert 10:00 in Rome to the timezone of Tokyo",
    ] {
        // The default is `auto`.
        let before = model.seen().len();
        let answer = filter(&service, json!({"messages": [{"role": "user", "content": text}]})).await;
        assert_eq!(warnings(&answer), Vec::<&str>::new());
        let was_asked = model.seen().len() - before;
        let found = ask(&service, "/v1/tools/search", &[], &json!({"queries": [text], "limit": 2})).await;
        // The fused score out of the readable one.
        let fused = |place: usize| 4.05 - (1.0 / found["tools"][place]["score"].as_f64().unwrap() - 1.0).ln() / 1.35;
        let lead = fused(0) - fused(1);
        assert_eq!(was_asked == 1, lead < 0.6, "{text}: a lead of {lead}");
        asked[was_asked] += 1;
    }
    assert!(asked[0] > 0 && asked[1] > 0, "{asked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_questions_are_asked_once_and_failures_are_not_kept() {
    let model = model(|_| Reply::Says("no".to_owned()));
    let service = service(configured(&model)).await;
    let ask = || filter(&service, message("send an email to Anna", "always"));
    assert_eq!(warnings(&ask().await).len(), 1);
    model.answers(|_| chooses(&["mail__send_email"]));
    let answers = join_all((0..5).map(|_| ask())).await;
    assert!(answers.iter().all(|answer| names(answer) == ["find_tools", "mail__send_email"]));
    assert_eq!(model.seen().len(), 2);
    ask().await;
    assert_eq!(model.seen().len(), 2);
    filter(&service, message("send an email to Bert", "always")).await;
    assert_eq!(model.seen().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_keeps_failing_is_left_out_and_nobody_else_with_it() {
    let model =
        model(|seen| if seen.path.starts_with("/own") { Reply::Status(500, String::new()) } else { chooses(&["mail__send_email"]) });
    let service = service(configured(&model)).await;
    for number in 0..3 {
        let answer = filter(&service, message(&format!("send email {number}"), "always")).await;
        assert!(warnings(&answer)[0].contains("500"), "{answer}");
    }
    let answer = filter(&service, message("send an email to Anna", "always")).await;
    assert!(warnings(&answer)[0].contains("skipped for a moment") && model.seen().len() == 3, "{answer}");
    assert_eq!(answer["tools"], filter(&service, message("send an email to Anna", "off")).await["tools"]);
    let own = ask(&service, "/v1/filter", &[("X-LLM-Api-Key", "sk-mine")], &message("send an email to Anna", "always")).await;
    assert_eq!(names(&own), ["find_tools", "mail__send_email"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_users_own_key_goes_to_its_provider() {
    let model = model(|_| chooses(&["mail__send_email"]));
    let mut environment = providers(&model);
    environment.push(("TOOLSIEVE_LLM__TIMEOUT_MS", "60000"));
    let service = service(environment).await;
    for (key, path, name) in [
        ("sk-proj-1", "/openai/chat/completions", "gpt-5.4-nano"),
        ("sk-ant-1", "/anthropic/chat/completions", "claude-haiku-4-5"),
        ("AIza1", "/gemini/chat/completions", "gemini-3.1-flash-lite"),
    ] {
        let answer = ask(&service, "/v1/filter", &[("X-LLM-Api-Key", key)], &message("send an email to Anna", "always")).await;
        assert_eq!(names(&answer), ["find_tools", "mail__send_email"]);
        let seen = model.last();
        assert_eq!((seen.path.as_str(), &seen.body["model"]), (path, &json!(name)));
        assert_eq!(seen.authorization, Some(format!("Bearer {key}")));
    }
    let answer = ask(&service, "/v1/filter", &[("X-LLM-Api-Key", "hf_other")], &message("send an email to Anna", "always")).await;
    assert!(warnings(&answer).iter().any(|warning| warning.contains("of no known provider")), "{answer}");
    assert!(warnings(&answer).iter().any(|warning| warning.contains("none is configured")) && !answer.to_string().contains("hf_other"));
    let silent = ask(&service, "/v1/filter", &[], &json!({"messages": message("send an email to Anna", "auto")["messages"]})).await;
    assert_eq!((warnings(&silent).len(), model.seen().len()), (0, 3));

    for rerank in ["never", "sometimes", "AUTO", ""] {
        let (status, problem) = service.post("/v1/filter", &message("x", rerank)).await;
        assert_eq!((status, &problem["code"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!("invalid_request")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_key_and_no_message_is_ever_logged() {
    const OWN: &str = "sk-own-secret-7f31";
    const CONFIGURED: &str = "configured-secret-92ab";
    let echo = format!("{{\"error\": {{\"message\": \"Incorrect key {OWN} {CONFIGURED}, you said zebrafish\"}}}}");
    let model = model(move |seen| if seen.path.starts_with("/own") { Reply::Status(500, echo.clone()) } else { Reply::Raw(echo.clone()) });
    let folder = tempfile::tempdir().unwrap();
    for log in ["trace", "trace,toolsieve=trace"] {
        let service = Service::start(folder.path(), &servers(), |command| {
            let settings = configured(&model).into_iter().filter(|(name, _)| *name != "TOOLSIEVE_LLM__API_KEY");
            command.envs(settings).env("TOOLSIEVE_LLM__API_KEY", CONFIGURED).env("TOOLSIEVE_LOG", log);
        });
        let client = Client::new();
        let post =
            |path: &'static str, body: Value| client.post(format!("{}{path}", service.url)).header("X-LLM-Api-Key", OWN).json(&body).send();
        eventually("the model is asked, and its answer is none", async || {
            let filtered =
                post("/v1/filter", message("tell Anna about the zebrafish by email", "always")).await.unwrap().text().await.unwrap();
            assert!(!filtered.contains(OWN) && !filtered.contains(CONFIGURED), "{filtered}");
            when(filtered, |filtered| filtered.contains("not a chat completion"))
        })
        .await;
        let chosen = post("/v1/tools/smart_select", json!({"task": "tell Anna about the zebrafish"})).await.unwrap().text().await.unwrap();
        assert!(chosen.contains("HTTP status 500") && !chosen.contains(OWN) && !chosen.contains(CONFIGURED), "{chosen}");
        let written = service.until_logged("a language model chose no tools");
        for secret in [OWN, CONFIGURED] {
            assert!(!written.contains(secret), "{secret} in the log");
        }
        assert!(log != "trace" || !written.contains("zebrafish"), "the message in the log");
    }
}
