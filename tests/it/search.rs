//! `toolsieve search`: the last catalog of a data folder, with reasons, beside a running service too.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};
use toolsieve::adapters::data_dir::DataDir;
use toolsieve::adapters::store::SqliteStore;
use toolsieve::domain::catalog::catalog::ServerListing;
use toolsieve::domain::catalog::tool::ServerName;
use toolsieve::domain::text::json_text::JsonText;
use toolsieve::service::ports::ListingStore;

use crate::harness::process::built::toolsieve;
use crate::harness::stdio;

fn search(folder: &Path, arguments: &[&str]) -> Output {
    toolsieve().current_dir(folder).arg("search").args(arguments).output().unwrap()
}

fn printed(output: &Output) -> (String, String) {
    (String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn listing(server: &str, tools: &[(&str, &str)]) -> ServerListing {
    let raw = |(name, description): &(&str, &str)| {
        let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
        JsonText::of(&json!({"name": name, "description": description, "inputSchema": schema}))
    };
    ServerListing {
        server: ServerName::from(server),
        title: None,
        program: None,
        version: None,
        instructions: None,
        tools: tools.iter().map(raw).collect(),
        skipped: Vec::new(),
    }
}

/// A data folder as a service leaves it.
async fn data_folder(folder: &Path) -> DataDir {
    let data = DataDir::open(folder).unwrap();
    let store = SqliteStore::open(&data.database()).await.unwrap();
    let weather = [("get_forecast", "Get the weather forecast for a city: rain and wind."), ("get_tides", "Times of high and low water.")];
    store.save_listing(&listing("weather", &weather)).await.unwrap();
    let mail = [("send_email", "Send an email."), ("search_inbox", "Search emails by sender or subject.\u{1b}[31m")];
    store.save_listing(&listing("mail", &mail)).await.unwrap();
    store.close().await;
    data
}

#[tokio::test]
async fn the_last_catalog_is_searched_with_reasons_while_a_service_runs_and_after() {
    let folder = tempfile::tempdir().unwrap();
    let lock = data_folder(&folder.path().join("toolsieve-data")).await;
    let files = || {
        let mut files: Vec<_> =
            fs::read_dir(folder.path().join("toolsieve-data")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        files.retain(|file| file.to_string_lossy().ends_with("index"));
        files
    };
    let arguments = ["what rain does the forecast say for Oslo?", "--json"];
    let beside = search(folder.path(), &arguments);
    let (answer, notes) = printed(&beside);
    assert!(beside.status.success() && notes.contains("a service is using"), "{notes}");
    let found: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!((found["needs_tool"].as_bool(), found["searched"].as_u64()), (Some(true), Some(4)), "{found}");
    let first = &found["tools"][0];
    assert_eq!((&first["name"], &first["rank"], &first["sent"]), (&"weather__get_forecast".into(), &1.into(), &true.into()));
    assert_eq!(first["words"], json!(["rain", "forecast"]));
    assert!(first["cosine"].as_f64().unwrap() > 0.3 && first["lexical"].as_f64().unwrap() > 0.0);
    assert!(first["reasons"][0].as_str().unwrap().contains("by meaning (1st) and words (1st)"), "{first}");
    assert!(found["sent"]["names"].as_array().unwrap().contains(&"find_tools".into()), "{found}");
    let tokens = &found["sent"]["tokens"];
    assert!(tokens["after"].as_u64() <= tokens["before"].as_u64() && tokens["after"].as_u64() > Some(0));

    drop(lock);
    let (again, notes) = printed(&search(folder.path(), &arguments));
    assert!(notes.is_empty(), "{notes}");
    assert_eq!(found, serde_json::from_str::<Value>(&again).unwrap(), "with and without a service the same");
    assert!(files().is_empty(), "the service's index is its own");

    let (table, _) = printed(&search(folder.path(), &["find the mail from Ada", "--server", "mail", "--limit", "1"]));
    assert!(table.contains("mail/search_inbox") && !table.contains("weather") && !table.contains('\u{1b}'), "{table}");
    assert!(table.contains("needs a tool") && table.contains("of 2 tools are sent"), "{table}");
    let (table, _) = printed(&search(folder.path(), &["thank you so much, have a nice day!"]));
    assert!(table.contains("needs no tool") && !table.contains("are sent:"), "{table}");

    let output = search(folder.path(), &["x", "--server", "nobody"]);
    assert!(output.status.code() == Some(2) && printed(&output).1.contains("mail, weather"), "{:?}", printed(&output));
}

#[test]
fn servers_are_asked_where_there_is_no_catalog() {
    let folder = tempfile::tempdir().unwrap();
    let output = search(folder.path(), &["anything"]);
    assert!(output.status.code() == Some(2) && printed(&output).1.contains("--config"), "{:?}", printed(&output));
    fs::write(folder.path().join("mcp.json"), json!({"mcpServers": {"one": stdio(&[])}}).to_string()).unwrap();
    let output = search(folder.path(), &["echo this text", "--config", "mcp.json", "--json"]);
    let (answer, notes) = printed(&output);
    assert!(output.status.success(), "{notes}");
    let found: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(found["tools"][0]["server"], "one", "{found}");
    assert!(!folder.path().join("toolsieve-data").exists(), "nothing is left behind");
}
