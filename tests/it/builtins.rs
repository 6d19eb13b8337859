//! Open WebUI's own tools: messages that need them keep them, other messages cost few tokens, searches bring them back.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::harness::wait::eventually;
use crate::harness::{Running, stdio};

/// Share of the messages in English that must keep the tool that they need, in each half. The aim is 0.98.
const ENGLISH: f64 = 0.95;
/// The same over all other languages.
const OTHERS: f64 = 0.95;
/// The same in each language with at least [`ENOUGH`] messages in a half.
const LANGUAGE: f64 = 0.7;
const ENOUGH: usize = 5;
/// Share of the messages of `tests/cases/languages`, which need none of these tools, that may keep more than [`FEW`] of the 28.
const NEEDLESS: f64 = 0.25;
const FEW: usize = 12;

/// The names of Open WebUI's own tools.
static FUNCTIONS: LazyLock<Vec<String>> = LazyLock::new(|| serde_json::from_str(&case("builtins/functions.json")).unwrap());
static DEFINITIONS: LazyLock<Vec<Value>> =
    LazyLock::new(|| FUNCTIONS.iter().map(|name| json!({"name": name, "description": "One of Open WebUI's own tools."})).collect());

fn case(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(path)).unwrap()
}

fn lines(path: &str) -> Vec<Value> {
    case(path).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

async fn service() -> Running {
    let service = Running::on(json!({"time": stdio(&["list=time"]), "mail": stdio(&["list=mail"])})).await;
    // The examples are embedded soon after the first request that offers these tools.
    eventually("messages are judged by examples", async || {
        let kept = kept(&service, json!([turn("i scribbled the door code on something, where is it")])).await;
        kept.contains("search_notes")
    })
    .await;
    service
}

fn turn(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

async fn ask(service: &Running, messages: Value, more: &Value) -> Value {
    let tools: Vec<Value> = DEFINITIONS.iter().cloned().chain([json!("find_tools"), json!("mail__send_email")]).collect();
    let mut body = json!({"messages": messages, "tools": tools, "narrow_foreign": true});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let (_, answer) = service.post("/v1/filter", &body).await;
    answer
}

/// The kept ones of Open WebUI's own tools.
fn of_answer(answer: &Value) -> BTreeSet<String> {
    let names = answer["tools"].as_array().unwrap_or_else(|| panic!("{answer}")).iter();
    let names: BTreeSet<String> = names.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect();
    names.into_iter().filter(|name| FUNCTIONS.contains(name)).collect()
}

async fn kept(service: &Running, messages: Value) -> BTreeSet<String> {
    of_answer(&ask(service, messages, &json!({})).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_keep_the_tools_that_they_need() {
    let service = service().await;
    let mut hits: BTreeMap<(String, String), (usize, usize)> = BTreeMap::new();
    let mut missed = Vec::new();
    for case in lines("builtins/messages.jsonl") {
        let text = |key: &str| case[key].as_str().unwrap().to_owned();
        let kept = kept(&service, json!([turn(&text("message"))])).await;
        let (hit, all) = hits.entry((text("half"), text("lang"))).or_default();
        *all += 1;
        if kept.contains(&text("tool")) {
            *hit += 1;
        } else {
            missed.push(format!("{} {}: {}", text("id"), text("tool"), text("message")));
        }
    }
    for half in ["held", "tuning"] {
        let of_half = hits.iter().filter(|((of, _), _)| of == half);
        let mut others = (0, 0);
        for ((_, language), (hit, all)) in of_half {
            println!("{half}, {language}: {hit} of {all} messages keep their tool");
            if language != "en" {
                others = (others.0 + hit, others.1 + all);
            }
            let floor = if language == "en" { ENGLISH } else { LANGUAGE };
            assert!(*all < ENOUGH || *hit as f64 / *all as f64 >= floor, "{half}, {language}: {hit} of {all}: {missed:#?}");
        }
        assert!(others.1 >= 100, "{others:?}");
        assert!(others.0 as f64 / others.1 as f64 >= OTHERS, "{half}, other languages: {others:?}: {missed:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_messages_keep_few_of_them() {
    let service = service().await;
    let mut by_language: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for case in lines("languages/messages.jsonl") {
        let language = case["lang"].as_str().unwrap();
        let kept = kept(&service, json!([turn(case["query"].as_str().unwrap())])).await;
        let (many, all) = by_language.entry(language.to_owned()).or_default();
        *all += 1;
        *many += usize::from(kept.len() > FEW);
    }
    assert!(by_language.len() >= 20, "{by_language:?}");
    for (language, (many, all)) in &by_language {
        assert!(*all >= 160, "{language}: {all}");
        println!("{language}: {many} of {all} messages keep more than {FEW}");
        assert!(*many as f64 / *all as f64 <= NEEDLESS, "{language}: {many} of {all}");
    }
    for text in ["thanks!", "write a poem about the sea", "danke schön", "谢谢", "why is the sea salty"] {
        let answer = ask(&service, json!([turn(text)]), &json!({})).await;
        assert_eq!((of_answer(&answer).len(), &answer["needs_tool"]), (0, &json!(false)), "{text}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_family_stays_together_and_brings_what_it_needs() {
    let service = service().await;
    let answer = ask(&service, json!([turn("take a note: the meeting room is B12")]), &json!({})).await;
    let notes = of_answer(&answer);
    for name in ["search_notes", "view_note", "write_note", "replace_note_content"] {
        assert!(notes.contains(name), "{notes:?}");
    }
    assert!(!notes.contains("create_skill") && !notes.contains("create_automation"), "{notes:?}");
    assert_eq!(answer["needs_tool"], json!(true));
    let calendar = kept(&service, json!([turn("remind me tomorrow at 9 to call mum")])).await;
    assert!(calendar.contains("delete_calendar_event") && calendar.contains("get_current_timestamp"), "{calendar:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_chat_used_or_the_caller_keeps_brings_its_family() {
    let service = service().await;
    let called = json!({"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "search_notes", "arguments": "{}"}}]});
    let after = kept(&service, json!([turn("good morning"), called, turn("thanks!")])).await;
    assert!(after.contains("write_note"), "{after:?}");
    // Sent as a name, so it is not judged.
    let more = json!({"tools": ["view_chat", {"name": "search_chats", "description": ""}, {"name": "search_notes", "description": ""}]});
    let answer = ask(&service, json!([turn("why is the sea salty")]), &more).await;
    assert_eq!(of_answer(&answer), BTreeSet::from(["search_chats".to_owned(), "view_chat".to_owned()]), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_earlier_message_keeps_its_families() {
    let service = service().await;
    let before = [turn("save this as a note: milk, eggs"), json!({"role": "assistant", "content": "Done."})];
    let answer = ask(&service, json!([before[0], before[1], turn("what were the main causes of the French revolution")]), &json!({})).await;
    assert!(of_answer(&answer).contains("search_notes"), "{answer}");
    assert_eq!(answer["needs_tool"], json!(false), "the last message needs none");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_brings_them_back() {
    let service = service().await;
    let text = "why is the sea salty";
    let without = kept(&service, json!([turn(text)])).await;
    assert!(!without.contains("search_notes"), "{without:?}");
    for (query, tool) in [
        ("search the user's notes", "search_notes"),
        ("create a calendar event", "create_calendar_event"),
        ("scheduled task", "list_automations"),
        ("find an earlier conversation", "search_chats"),
        ("search internal documents", "query_knowledge_files"),
        ("current date", "get_current_timestamp"),
    ] {
        let answer = ask(&service, json!([turn(text)]), &json!({"searched": ["weather in Rome", query]})).await;
        let found = answer["tools"].as_array().unwrap().iter().find(|kept| kept["name"] == tool);
        assert_eq!(found.unwrap_or_else(|| panic!("{query}: {answer}"))["reason"], "found by the model");
    }
    let strange = json!({"searched": ["", "\u{202e}\u{0301}\u{0301}", "x".repeat(200_000)]});
    let answer = ask(&service, json!([turn(text)]), &strange).await;
    assert!(answer["tools"].as_array().unwrap().iter().any(|kept| kept["name"] == "find_tools"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn names_alone_are_not_judged() {
    let service = service().await;
    let answer = ask(&service, json!([turn("thanks!")]), &json!({"tools": *FUNCTIONS})).await;
    assert_eq!(of_answer(&answer).len(), FUNCTIONS.len());
    let more = json!({"tools": *DEFINITIONS, "narrow_foreign": false});
    assert_eq!(of_answer(&ask(&service, json!([turn("thanks!")]), &more).await).len(), FUNCTIONS.len());
}

/// A long list of names counted as definitions.
#[tokio::test(flavor = "multi_thread")]
async fn definitions_are_judged_beside_thousands_of_names() {
    let service = service().await;
    let mut tools: Vec<Value> = (0..2_000).map(|number| json!(format!("their__{number}"))).collect();
    tools.extend(DEFINITIONS.iter().cloned());
    let answer = ask(&service, json!([turn("remind me tomorrow at 9")]), &json!({"tools": tools})).await;
    assert!(of_answer(&answer).contains("create_calendar_event"), "{}", answer["tools"].as_array().map_or(0, Vec::len));
}
