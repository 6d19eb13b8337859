//! The chat's set over a long conversation, and over two processes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use toolsieve::adapters::store::{PostgresStore, SqliteStore};
use toolsieve::domain::catalog::tool::ToolId;
use toolsieve::service::ports::ChatStore;
use toolsieve::service::selection::chats::Chats;

use crate::harness::contracts::store::chat;
use crate::harness::servers::postgres::{schema, shared};
use crate::harness::wait::{eventually, when};
use crate::harness::{Running, Start, example};

/// Servers with tools that their words tell apart.
const TOOLS: [(&str, &[(&str, &str)]); 9] = [
    (
        "weather",
        &[
            ("current_weather", "Current weather conditions in a city"),
            ("weather_forecast", "Weather forecast for the next days in a city"),
            ("rain_radar", "Radar image of rain around a place"),
            ("air_quality", "Air quality and pollen in a city"),
        ],
    ),
    (
        "calendar",
        &[
            ("create_event", "Create a calendar event with a date and guests"),
            ("list_events", "List calendar events of a day"),
            ("move_event", "Move a meeting to another time"),
            ("cancel_event", "Cancel a meeting in the calendar"),
        ],
    ),
    (
        "git",
        &[
            ("commit_changes", "Commit staged changes to the repository"),
            ("list_branches", "List the branches of a git repository"),
            ("show_diff", "Show the diff of changed files"),
            ("merge_branch", "Merge a branch into another"),
            ("open_pull_request", "Open a pull request for a branch"),
        ],
    ),
    (
        "music",
        &[
            ("play_song", "Play a song or an album"),
            ("create_playlist", "Create a music playlist"),
            ("skip_track", "Skip to the next music track"),
            ("recommend_music", "Recommend songs similar to an artist"),
        ],
    ),
    (
        "travel",
        &[
            ("search_flights", "Search flights between two airports"),
            ("book_hotel", "Book a hotel room in a city"),
            ("train_timetable", "Train timetable between two stations"),
            ("rent_car", "Rent a car at an airport"),
        ],
    ),
    (
        "database",
        &[
            ("run_sql_query", "Run an SQL query against the database"),
            ("list_tables", "List the tables of the database"),
            ("describe_table", "Describe the columns of a database table"),
            ("export_rows", "Export rows of a table as CSV"),
        ],
    ),
    (
        "images",
        &[
            ("resize_image", "Resize an image to a width and height"),
            ("remove_background", "Remove the background of a photo"),
            ("generate_image", "Generate a picture from a description"),
            ("read_text_in_image", "Read the text in a scanned image"),
        ],
    ),
    (
        "finance",
        &[
            ("stock_price", "Current price of a stock"),
            ("convert_currency", "Convert an amount between currencies"),
            ("list_transactions", "List the transactions of a bank account"),
            ("pay_invoice", "Pay an invoice from the bank account"),
        ],
    ),
    (
        "home",
        &[
            ("set_thermostat", "Set the temperature of the heating at home"),
            ("switch_lights", "Switch the lights in a room on or off"),
            ("lock_door", "Lock the front door"),
            ("start_vacuum", "Start the robot vacuum cleaner"),
        ],
    ),
];

/// What a person says, and the tool that the model calls then, if any; `find_tools` where it searches.
const CHAT: [(&str, Option<&str>); 30] = [
    ("What is the weather in Oslo?", Some("weather__current_weather")),
    ("And the forecast for the next days there?", Some("weather__weather_forecast")),
    ("thanks!", None),
    ("Create a calendar event for Friday with Anna", Some("calendar__create_event")),
    ("List my calendar events of Friday", None),
    ("Show me the diff of the changed files in the repository", Some("git__show_diff")),
    ("Commit the staged changes", Some("git__commit_changes")),
    ("Open a pull request for the branch", None),
    ("Play a song by Nina Simone", None),
    ("Make a playlist with similar songs", Some("find_tools")),
    ("Recommend songs similar to Miles Davis", None),
    ("Search flights from Berlin to Oslo", Some("travel__search_flights")),
    ("Book a hotel room in Oslo", None),
    ("write a poem about trains", None),
    ("Train timetable between Bergen and Oslo", None),
    ("Run an SQL query that counts the orders", Some("database__run_sql_query")),
    ("Describe the columns of the table orders", None),
    ("Export the rows of the table as CSV", None),
    ("Resize the image to 200 by 100", None),
    ("Remove the background of the photo", Some("images__remove_background")),
    ("Generate a picture of a fox", Some("find_tools")),
    ("ok, great", None),
    ("What is the price of the stock of Equinor?", None),
    ("Convert 100 euros to Norwegian crowns", Some("finance__convert_currency")),
    ("Pay the invoice from my bank account", None),
    ("Set the heating at home to 20 degrees", None),
    ("Switch the lights in the kitchen off", Some("home__switch_lights")),
    ("Lock the front door", None),
    ("Is it raining in Oslo now, and what about the air quality?", None),
    ("Move the meeting of Friday to Monday and cancel the other meeting", None),
];

const BUDGET: usize = 16;
/// As configured by default.
const KEPT: usize = 24;

async fn service() -> Running {
    let folder = tempfile::tempdir().unwrap();
    let servers: BTreeMap<&str, Value> = TOOLS
        .iter()
        .map(|(server, tools)| {
            let file = folder.path().join(format!("{server}.json"));
            let schema = json!({"type": "object", "properties": {"what": {"type": "string"}}});
            let tool = |(name, description): &(&str, &str)| json!({"name": name, "description": description, "inputSchema": schema});
            std::fs::write(&file, json!(tools.iter().map(tool).collect::<Vec<Value>>()).to_string()).unwrap();
            (*server, json!({"command": example("test-replay-server"), "args": [file]}))
        })
        .collect();
    let environment = vec![("TOOLSIEVE_SELECTION__CHAT_BUDGET", "16"), ("TOOLSIEVE_SELECTION__LIMIT", "5")];
    let running = Start { servers: json!(servers), environment, folder: Some(folder), ..Start::default() }.start().await;
    running.settled().await;
    running
}

fn names(answer: &Value) -> Vec<String> {
    answer["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn thirty_turns_stay_within_the_budget_and_keep_the_prefix() {
    let service = service().await;
    let mut messages: Vec<Value> = Vec::new();
    let (mut called, mut before): (BTreeSet<String>, Vec<String>) = (BTreeSet::new(), Vec::new());
    let (mut dropped_once, mut kept) = (false, 0);
    let ask = async |messages: &[Value]| {
        // The filter sends the last turns alone.
        let body = json!({"messages": messages[messages.len().saturating_sub(12)..], "chat_id": "long"});
        let (status, answer) = service.post("/v1/filter", &body).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        answer
    };
    for (number, (text, call)) in CHAT.iter().enumerate() {
        messages.push(json!({"role": "user", "content": text}));
        // Before the answer, and again after the tool was called.
        let rounds = if call.is_some() { 2 } else { 1 };
        for round in 0..rounds {
            let answer = ask(&messages).await;
            let now = names(&answer);
            let ours: Vec<&String> = now.iter().filter(|name| name.contains("__")).collect();
            assert!(ours.len() <= BUDGET, "turn {number}: {now:?}");
            assert!(called.iter().all(|name| now.contains(name)), "turn {number}: {called:?} of {now:?}");
            let gone: Vec<&String> = before.iter().filter(|name| !now.contains(name)).collect();
            if gone.is_empty() {
                assert_eq!(now[..before.len()], before[..], "turn {number}: the array keeps its prefix");
            } else {
                dropped_once = true;
                let warnings = answer["warnings"].to_string();
                for name in gone {
                    assert!(warnings.contains("budget") && warnings.contains(name.as_str()), "{name}: {warnings}");
                    assert!(!called.contains(name), "{name} was called");
                }
                let rest: Vec<&String> = before.iter().filter(|name| now.contains(name)).collect();
                assert_eq!(now.iter().take(rest.len()).collect::<Vec<_>>(), rest, "turn {number}: what stays keeps its order");
            }
            kept += usize::from(now.starts_with(&before) && !before.is_empty());
            before = now;
            if let (Some(call), 0) = (call, round) {
                assert!(*call == "find_tools" || before.iter().any(|name| name == call), "turn {number}: {call} of {before:?}");
                messages.push(json!({"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": call, "arguments": "{}"}}]}));
                messages.push(json!({"role": "tool", "tool_call_id": "1", "content": "{}"}));
                if *call != "find_tools" {
                    called.insert((*call).to_owned());
                }
            }
        }
        messages.push(json!({"role": "assistant", "content": "Done."}));
    }
    println!(
        "{kept} of {} tools arrays begin with the one before",
        CHAT.len() + CHAT.iter().filter(|(_, call)| call.is_some()).count() - 1
    );
    assert!(dropped_once, "the chat is long enough to go over its budget");
    assert!(before.contains(&"run_tool".to_owned()), "after a search it stays: {before:?}");
}

/// The first requests of chats, with the tools that the model calls for them.
const FIRST: [(&str, &str); 4] = [
    ("What is the weather in Oslo?", "weather__current_weather"),
    ("Show me the diff of the changed files", "git__show_diff"),
    ("List my calendar events of Friday", "calendar__list_events"),
    ("Run an SQL query that counts the orders", "database__run_sql_query"),
];

/// Requests of a few words on other topics, in four languages, with the tool that each needs.
const SHORT: [(&str, &str); 10] = [
    ("lock the front door", "home__lock_door"),
    ("play a song by Nina Simone", "music__play_song"),
    ("rent a car at the airport", "travel__rent_car"),
    ("resize the image to 200 by 100", "images__resize_image"),
    ("convert 100 euros to crowns", "finance__convert_currency"),
    ("pay the invoice of the plumber", "finance__pay_invoice"),
    ("Buche ein Hotel in Bergen", "travel__book_hotel"),
    ("mets le chauffage à 20 degrés", "home__set_thermostat"),
    ("crea una playlist de jazz", "music__create_playlist"),
    ("start the robot vacuum", "home__start_vacuum"),
];

/// What an assistant offers or asks after the first request, the reply, and the tool that the reply needs.
const REPLIES: [(&str, &str, &str); 6] = [
    ("It rains. Shall I cancel the meeting in your calendar?", "yes please", "calendar__cancel_event"),
    ("Done. Do you want me to play a song?", "sure", "music__play_song"),
    ("Fertig. Soll ich ein Hotelzimmer in Oslo buchen?", "ja, mach", "travel__book_hotel"),
    ("Listo. ¿Quieres que pague la factura?", "sí", "finance__pay_invoice"),
    ("There are two pictures. Which image should I resize?", "the second one", "images__resize_image"),
    ("終わりました。玄関のドアに鍵をかけましょうか？", "はい", "home__lock_door"),
];

/// What is offered for the second message of a new chat, after a first one with a call and what the assistant said then.
async fn second_turn(service: &Running, (first, called): (&str, &str), said: &str, second: &str) -> Vec<String> {
    let chat = format!("{first} {said} {second}");
    let ask = async |messages: &[Value]| {
        let (status, answer) = service.post("/v1/filter", &json!({"messages": messages, "chat_id": chat})).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        names(&answer)
    };
    let mut messages = vec![json!({"role": "user", "content": first})];
    ask(&messages).await;
    messages.extend([
        json!({"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": called, "arguments": "{}"}}]}),
        json!({"role": "tool", "tool_call_id": "1", "content": "{}"}),
        json!({"role": "assistant", "content": said}),
        json!({"role": "user", "content": second}),
    ]);
    ask(&messages).await
}

/// Regression test: a request of a few words was ranked together with the turn before it, whose tools then served it well enough.
#[tokio::test(flavor = "multi_thread")]
async fn a_short_request_on_a_new_topic_gets_its_tool() {
    let service = service().await;
    let mut missed = Vec::new();
    for (first, called) in FIRST {
        for (short, wanted) in SHORT {
            let offered = second_turn(&service, (first, called), "Here is what I found.", short).await;
            if !offered.iter().any(|name| name == wanted) {
                missed.push((first, short, offered));
            }
        }
    }
    assert!(missed.len() <= 2, "{} of {}: {missed:#?}", missed.len(), FIRST.len() * SHORT.len());
}

/// Regression test: after "Shall I cancel the meeting?", "yes" got the tools of the request before.
#[tokio::test(flavor = "multi_thread")]
async fn a_reply_gets_the_tool_for_what_was_offered_or_asked() {
    let service = service().await;
    let mut missed = Vec::new();
    for &(first, called) in &FIRST[..2] {
        for (said, reply, wanted) in REPLIES {
            let offered = second_turn(&service, (first, called), said, reply).await;
            if !offered.iter().any(|name| name == wanted) {
                missed.push((first, said, reply, offered));
            }
        }
    }
    assert!(missed.len() <= 1, "{} of {}: {missed:#?}", missed.len(), 2 * REPLIES.len());
}

fn ids(names: &[&str]) -> Vec<ToolId> {
    names.iter().map(|name| ToolId::new("s", *name)).collect()
}

/// Two processes that have the same chat before them.
struct Two {
    one: Chats,
    other: Chats,
    stores: [Arc<dyn ChatStore>; 2],
    stop: CancellationToken,
    writers: Vec<tokio::task::JoinHandle<()>>,
    _folder: tempfile::TempDir,
}

impl Two {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("toolsieve.db");
        let open = async || Arc::new(SqliteStore::open(&path).await.unwrap()) as Arc<dyn ChatStore>;
        Self::on([open().await, open().await], folder)
    }

    /// The same on a PostgreSQL database.
    async fn replicas() -> Self {
        let settings = shared().settings(&schema());
        let open = async || Arc::new(PostgresStore::open(&settings).await.unwrap()) as Arc<dyn ChatStore>;
        Self::on([open().await, open().await], tempfile::tempdir().unwrap())
    }

    fn on(stores: [Arc<dyn ChatStore>; 2], folder: tempfile::TempDir) -> Self {
        let stop = CancellationToken::new();
        let (one, first) = Chats::start(Arc::clone(&stores[0]), stop.clone());
        let (other, second) = Chats::start(Arc::clone(&stores[1]), stop.clone());
        Self { one, other, stores, stop, writers: vec![first, second], _folder: folder }
    }

    /// Waits until a store has the chat so.
    async fn until(&self, condition: impl Fn(&[String]) -> bool) {
        eventually("the chat is stored as the test wants it", async || {
            let stored = self.stores[0].chat(&chat("me", "chat")).await.unwrap().unwrap_or_default();
            let tools: Vec<String> = stored.set.tools().iter().map(|entry| entry.tool.name.to_string()).collect();
            when(tools, |tools| condition(tools)).map_err(|tools| format!("{tools:?}"))
        })
        .await;
    }
}

fn tools(updated: &toolsieve::service::selection::chats::Updated) -> Vec<String> {
    updated.set.tools().iter().map(|entry| entry.tool.name.to_string()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_on_one_store_agree() {
    let two = Two::start().await;
    let key = chat("me", "chat");
    two.one.update(&key, &ids(&["a", "b"]), &[], KEPT).await;
    two.until(|tools| tools == ["a", "b"]).await;
    // The other one has held the chat before, and still learns what came since.
    assert_eq!(tools(&two.other.update(&key, &ids(&["c"]), &ids(&["a"]), KEPT).await), ["a", "b", "c"]);
    two.until(|tools| tools == ["a", "b", "c"]).await;
    let updated = two.one.update(&key, &ids(&["d"]), &[], KEPT).await;
    assert_eq!(tools(&updated), ["a", "b", "c", "d"]);
    assert!(updated.set.tools()[0].called, "that the other one called it is known here");
    two.until(|tools| tools.len() == 4).await;
    assert_eq!(tools(&two.other.update(&key, &[], &[], KEPT).await), ["a", "b", "c", "d"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_processes_at_the_same_time_neither_loses_the_others_tools() {
    neither_loses_the_others_tools(Two::start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_replicas_at_the_same_time_neither_loses_the_others_tools() {
    neither_loses_the_others_tools(Two::replicas().await).await;
}

async fn neither_loses_the_others_tools(two: Two) {
    let key = chat("me", "chat");
    for number in 0..20 {
        let (one, other) = (format!("one{number}"), format!("other{number}"));
        let (one, other) = (ids(&[&one]), ids(&[&other]));
        futures::join!(two.one.update(&key, &[], &one, KEPT), two.other.update(&key, &[], &other, KEPT));
    }
    two.until(|tools| tools.len() == 40).await;
    two.stop.cancel();
    for writer in two.writers {
        writer.await.unwrap();
    }
    let stored = two.stores[1].chat(&key).await.unwrap().unwrap();
    assert_eq!(stored.set.tools().len(), 40);
}

/// L6. A user saw: after the store was busy for a while, a chat whose tools were forgotten at the next start.
#[tokio::test(flavor = "multi_thread")]
async fn a_set_that_the_store_did_not_take_is_tried_again_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let (path, away) = (folder.path().join("toolsieve.db"), folder.path().join("away.db"));
    let store: Arc<dyn ChatStore> = Arc::new(SqliteStore::open(&path).await.unwrap());
    let stop = CancellationToken::new();
    let (chats, writing) = Chats::start(Arc::clone(&store), stop.clone());
    let (tool, key, other) = (ToolId::new("server", "tool"), chat("me", "0"), chat("me", "1"));
    // All connections that read are open from here on, so that reading goes on while nothing can be written.
    let (one, two) = futures::join!(store.chat(&key), store.chat(&other));
    assert!(one.unwrap().is_none() && two.unwrap().is_none());
    std::fs::rename(&path, &away).unwrap();
    for number in 0..10 {
        let updated = chats.update(&chat("me", &number.to_string()), std::slice::from_ref(&tool), &[], KEPT).await;
        assert_eq!(updated.warning, None);
    }
    // Long enough for the first attempts to fail, which nothing shows. Where they come later, they are the ones that succeed.
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    std::fs::rename(&away, &path).unwrap();
    for number in 0..10 {
        let what = format!("the set of chat {number} is stored");
        eventually(&what, async || store.chat(&chat("me", &number.to_string())).await.unwrap()).await;
    }
    // And what another process writes is read again.
    let stored = store.chat(&key).await.unwrap().unwrap();
    let mut changed = stored.set.clone();
    changed.update(&[ToolId::new("server", "other")], &[], 24);
    store.save_chat(&key, &changed, stored.version).await.unwrap().unwrap();
    eventually("the store is read again", async || chats.read(&key).await.unwrap() == changed).await;
    stop.cancel();
    writing.await.unwrap();
}
