//! Every tool of many real servers and of an odd one: published, within what Open WebUI takes, and executable.
//!
//! The odd tools are `tests/cases/tools/odd.json`, and the lists of our own `tests/data/scenario_servers.json`. The real lists are no part
//! of the project: they are taken in where `TOOLSIEVE_SHARED` names the folder that holds `toollists`, as in `.ci/run`.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use futures::StreamExt as _;
use reqwest::StatusCode;
use serde_json::{Map, Value, json};
use toolsieve::domain::catalog::catalog;
use toolsieve::domain::catalog::tool::{ServerName, Tool};
use toolsieve::domain::publishing::document;

use super::instances::Instances;
use crate::harness::{Start, data, example};

/// Seeds that are tried for valid arguments.
const SEEDS: u64 = 60;

/// The tools of each list.
fn lists() -> BTreeMap<String, Vec<Value>> {
    let mut lists = BTreeMap::from([("odd".to_owned(), odd())]);
    let own: BTreeMap<String, Value> = serde_json::from_value(read(&in_tests("data/scenario_servers.json"))).unwrap();
    lists.extend(own.into_iter().map(|(name, listed)| (format!("own_{name}"), tools(&listed))));
    assert!(lists.len() > 20, "{} lists", lists.len());
    let Some(shared) = data::shared("the laws of published tools on real lists") else { return lists };
    let before = lists.len();
    for entry in std::fs::read_dir(shared.join("toollists")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "json") {
            lists.insert(path.file_stem().unwrap().to_str().unwrap().to_owned(), tools(&read(&path)));
        }
    }
    assert!(lists.len() - before > 50, "{} lists", lists.len());
    lists
}

fn odd() -> Vec<Value> {
    tools(&read(&in_tests("cases/tools/odd.json")))
}

fn in_tests(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(path)
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn tools(listed: &Value) -> Vec<Value> {
    listed.get("tools").unwrap_or(listed).as_array().unwrap().clone()
}

fn tool(server: &str, raw: &Value) -> Tool {
    catalog::tool(&ServerName::from(server), raw).unwrap_or_else(|skipped| panic!("{server}: {skipped:?}"))
}

/// Arguments that the server's own schema allows, or where that is no valid schema, the published one.
fn arguments(tool: &Tool) -> Option<Map<String, Value>> {
    let source = &tool.input.source.value();
    let own = jsonschema::validator_for(source);
    let validator = own.or_else(|_| jsonschema::validator_for(&tool.input.published.value())).ok()?;
    let mut made = (0..SEEDS).map(|seed| Instances::of(source, seed).arguments());
    made.find(|arguments| validator.is_valid(&Value::Object(arguments.clone())))
}

/// What Open WebUI's converter needs of a schema that it walks through: one that breaks a rule takes all tool servers
/// of the installation with it, or reaches the model as something else.
fn assert_open_webui_takes(schema: &Value, place: &str) {
    let object = schema.as_object().unwrap_or_else(|| panic!("{place}: {schema}"));
    assert!(["type", "anyOf", "properties"].iter().any(|keyword| object.contains_key(*keyword)), "{place}: would become a string");
    assert!(!object.contains_key("$ref"), "{place}: a reference");
    for (name, inner) in object.get("properties").and_then(Value::as_object).into_iter().flatten() {
        assert_open_webui_takes(inner, &format!("{place}.{name}"));
    }
    if let Some(items) = object.get("items") {
        assert_open_webui_takes(items, &format!("{place}[]"));
    }
    let variants = object.get("anyOf").map(|variants| variants.as_array().unwrap());
    assert!(variants.is_none_or(|variants| variants.len() > 1), "{place}: one alternative replaces what is beside it");
    for variant in variants.into_iter().flatten() {
        assert!(variant["type"] != "null", "{place}: this alternative is taken out");
        assert_open_webui_takes(variant, place);
    }
}

#[test]
fn every_real_tool_is_published_and_open_webui_takes_it() {
    let mut seen = HashSet::new();
    let mut published = 0;
    for (server, tools) in lists() {
        for raw in &tools {
            let tool = tool(&server, raw);
            let name = tool.operation_id.to_string();
            assert!(name.len() <= 64 && name.starts_with(|first: char| first.is_ascii_alphabetic()), "{name}");
            assert!(name.chars().all(|letter| letter.is_ascii_alphanumeric() || "_-".contains(letter)), "{name}");
            assert!(seen.insert(name.clone()), "{name} twice");
            let operation = document::tool_operation(&tool);
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            assert!(!operation["description"].as_str().unwrap().is_empty());
            assert_eq!(schema["type"], "object", "{name}");
            assert!(jsonschema::draft202012::meta::is_valid(schema), "{name}: {schema}");
            assert_open_webui_takes(schema, &name);
            published += 1;
        }
    }
    println!("{published} tools published");
}

/// What a real server allows is allowed by what is published for it.
#[test]
fn real_tools_are_never_tightened() {
    let (mut checked, mut none) = (0, Vec::new());
    for (server, tools) in lists() {
        for raw in &tools {
            let tool = tool(&server, raw);
            let source = &tool.input.source.value();
            let Ok(original) = jsonschema::validator_for(source) else { continue };
            let validator = jsonschema::validator_for(&tool.input.published.value()).unwrap();
            let mut valid = 0;
            for seed in 0..SEEDS {
                let arguments = Value::Object(Instances::of(source, seed).arguments());
                if original.is_valid(&arguments) {
                    let sent = if tool.input.wrapped { json!({"arguments": arguments}) } else { arguments };
                    let problem = validator.validate(&sent).map_err(|error| format!("{error} at {}", error.instance_path()));
                    assert_eq!(problem, Ok(()), "{}: {sent}\n{source}\n{}", tool.id, tool.input.published);
                    valid += 1;
                }
            }
            checked += valid;
            if valid == 0 {
                none.push(tool.id.to_string());
            }
        }
    }
    println!("{checked} sets of arguments checked");
    assert!(none.is_empty(), "no arguments could be made for {none:?}");
}

/// What becomes of each odd tool, to be read by people.
#[test]
fn odd_tools_are_published_as_reviewed() {
    let mut printed = String::new();
    for raw in &odd() {
        let tool = tool("odd", raw);
        writeln!(printed, "{} → {}", tool.id.name, tool.operation_id).unwrap();
        writeln!(printed, "    path: POST {}", document::tool_path(&tool)).unwrap();
        let published = tool.input.published.to_string();
        writeln!(printed, "    schema: {}", shortened(&published)).unwrap();
        if let Some(hint) = &tool.input.hint {
            writeln!(printed, "    hint: {hint}").unwrap();
        }
        for loss in &tool.input.losses {
            writeln!(printed, "    loss: {loss}").unwrap();
        }
    }
    insta::with_settings!({snapshot_path => "../../cases/tools", prepend_module_to_snapshot => false, omit_expression => true}, {
        insta::assert_snapshot!("odd", printed);
    });
}

/// The ends of a long text.
fn shortened(text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    if letters.len() < 3_000 {
        return text.to_owned();
    }
    let (first, last) = (&letters[..300], &letters[letters.len() - 300..]);
    format!("{} … {} characters … {}", String::from_iter(first), letters.len() - 600, String::from_iter(last))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_published_operation_executes() {
    let lists = lists();
    let (command, folder) = (example("test-replay-server"), tempfile::tempdir().unwrap());
    let serve = |(name, tools): (&String, &Vec<Value>)| {
        // Without the results that a list may have: a call is answered with its arguments.
        let file = folder.path().join(format!("{name}.json"));
        std::fs::write(&file, json!(tools).to_string()).unwrap();
        (name.clone(), json!({"command": command, "args": [file]}))
    };
    let servers: Map<String, Value> = lists.iter().map(serve).collect();
    let service = Start { servers: Value::Object(servers), ..Start::default() }.start().await;
    service.until(|body| body["servers"].as_array().unwrap().iter().all(|server| server["phase"] == "connected")).await;
    let expected: usize = lists.values().map(Vec::len).sum();
    service.until(|body| body["tools"] == expected).await;
    let (_, document) = service.get("/openapi.json").await;
    let paths: HashSet<String> = document["paths"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(paths.len(), expected + 2, "the meta-tools come on top");

    let tools: Vec<Tool> = lists.iter().flat_map(|(server, tools)| tools.iter().map(move |raw| tool(server, raw))).collect();
    let service = &service;
    let calls = tools.iter().filter_map(|tool| {
        let path = document::tool_path(tool);
        assert!(paths.contains(&path), "{path} is not published");
        let arguments = Value::Object(arguments(tool)?);
        Some(async move {
            let sent = if tool.input.wrapped { json!({"arguments": arguments.clone()}) } else { arguments.clone() };
            let (status, answer) = service.post(&path, &sent).await;
            assert_eq!((status, &answer), (StatusCode::OK, &arguments), "{path}");
        })
    });
    let executed = futures::stream::iter(calls).buffer_unordered(16).count().await;
    println!("{executed} of {expected} tools executed");
    assert_eq!(executed, expected, "the others had no valid arguments");
}
