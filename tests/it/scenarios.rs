//! 28 scenarios of work with many toolsets, run by a model that is a script: it searches with the user's words, loads what the search
//! proposes, and calls what it then has. It knows no names but those that an answer gave it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use reqwest::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::harness::mcp::rpc;
use crate::harness::wait::{eventually_within, when};
use crate::harness::{LONG, Running, Start, example};

/// What each session begins with.
const INITIAL: [&str; 5] = ["security", "verification", "recon", "methodology", "session_memory"];
/// Tools of all servers.
const TOOLS: usize = 87;
/// Tools that the model reads of each search.
const READ: usize = 5;
/// Toolset expectations: 17 scenarios name toolsets, and one says that nothing fits.
const EXPECTATIONS: usize = 18;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Scenario {
    name: String,
    category: String,
    /// What the searches of the scenario have to lead to.
    expected_toolsets: BTreeSet<String>,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum Step {
    /// The user says something, and the model needs this tool (`server/tool`) for it, out of a toolset that is to be loaded.
    Use {
        say: String,
        tool: String,
        toolset: Option<String>,
        arguments: Value,
    },
    /// The search has to lead to all of these toolsets.
    Find {
        say: String,
        toolsets: Vec<String>,
    },
    /// It may be meant in several ways: the search has to lead to one of these, loaded or not.
    AnyOf {
        say: String,
        any_of: Vec<String>,
    },
    /// There is no tool for it: the search answers all the same.
    Nothing {
        say: String,
        nothing: bool,
    },
    /// A tool that is bound is called again, so many times at once.
    Again {
        again: String,
        times: usize,
        arguments: Value,
    },
    Unload {
        unload: String,
    },
    /// What was there from the beginning can't be unloaded.
    Refused {
        refused: String,
    },
    /// What is loaded now, beside what was there from the beginning.
    Loaded {
        loaded: BTreeSet<String>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Interface {
    Rest,
    Mcp,
}

/// The script, in a session of its own.
struct Model<'a> {
    service: &'a Running,
    interface: Interface,
    /// The session's address.
    at: String,
    /// What answers have named so far.
    named: BTreeSet<String>,
}

fn data(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(path)
}

fn scenarios() -> Vec<Scenario> {
    let mut paths: Vec<PathBuf> = fs::read_dir(data("cases/scenarios")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
        .iter()
        .map(|path| serde_json::from_slice(&fs::read(path).unwrap()).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
        .collect()
}

fn servers() -> Value {
    let file = data("data/scenario_servers.json");
    let listed: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let server = |name: &String| (name.clone(), json!({"command": example("test-replay-server"), "args": [file, name]}));
    Value::Object(listed.as_object().unwrap().keys().map(server).collect())
}

/// What the data says that a tool answers.
fn result_of(tool: &str) -> Value {
    let (server, name) = tool.split_once('/').unwrap();
    let listed: Value = serde_json::from_slice(&fs::read(data("data/scenario_servers.json")).unwrap()).unwrap();
    serde_json::from_str(listed[server]["results"][name]["content"][0]["text"].as_str().unwrap()).unwrap()
}

impl Model<'_> {
    /// Asks a meta-tool, under the name or the address that the session's own list gave.
    async fn meta(&self, name: &str, arguments: &Value) -> Value {
        match self.interface {
            Interface::Rest => {
                let path = self.path(name).await;
                let (status, answer) = self.service.post(&path, arguments).await;
                if status == StatusCode::OK { answer } else { json!({"refused": answer["detail"]}) }
            }
            Interface::Mcp => {
                let answer =
                    rpc(self.service, &format!("{}/mcp", self.at), &[], "tools/call", json!({"name": name, "arguments": arguments})).await;
                let result = &answer["result"];
                if result["isError"] == true {
                    json!({"refused": result["content"][0]["text"]})
                } else {
                    result["structuredContent"].clone()
                }
            }
        }
    }

    /// The names that are bound now.
    async fn bound(&self) -> BTreeSet<String> {
        match self.interface {
            Interface::Rest => {
                let (_, document) = self.service.get(&format!("{}/openapi.json", self.at)).await;
                let paths = document["paths"].as_object().unwrap();
                paths.values().map(|item| item["post"]["operationId"].as_str().unwrap().to_owned()).collect()
            }
            Interface::Mcp => {
                let answer = rpc(self.service, &format!("{}/mcp", self.at), &[], "tools/list", json!({})).await;
                answer["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
            }
        }
    }

    /// The address of an operation, as the document of the moment has it.
    async fn path(&self, operation: &str) -> String {
        let (_, document) = self.service.get(&format!("{}/openapi.json", self.at)).await;
        let paths = document["paths"].as_object().unwrap();
        let found = paths.iter().find(|(_, item)| item["post"]["operationId"] == operation);
        format!("{}{}", self.at, found.unwrap_or_else(|| panic!("{operation} is not bound")).0)
    }

    /// Searches for what the servers offer: the answer fills its limit.
    async fn search(&mut self, say: &str) -> Value {
        let found = self.find(say).await;
        assert_eq!(count(&found), READ, "{say}");
        found
    }

    /// Searches for what no server offers: the answer fills its limit or is empty.
    async fn search_in_vain(&mut self, say: &str) -> Value {
        let found = self.find(say).await;
        assert!([0, READ].contains(&count(&found)), "{say}: {found}");
        found
    }

    async fn find(&mut self, say: &str) -> Value {
        let found = self.meta("find_tools", &json!({"queries": [say], "limit": READ})).await;
        assert!(found["next"].as_str().unwrap().len() > 20, "{found}");
        for list in [&found["tools"], &found["toolsets"]] {
            self.named.extend(list.as_array().into_iter().flatten().map(|row| row["name"].as_str().unwrap().to_owned()));
        }
        found
    }

    /// Calls a tool that is bound, by itself.
    async fn call(&self, name: &str, arguments: &Value) -> Value {
        assert!(self.named.contains(name), "no answer named {name}");
        match self.interface {
            Interface::Rest => {
                let (status, answer) = self.service.post(&self.path(name).await, arguments).await;
                assert_eq!(status, StatusCode::OK, "{name}: {answer}");
                answer
            }
            Interface::Mcp => {
                assert!(self.bound().await.contains(name), "{name} is not bound");
                let answer =
                    rpc(self.service, &format!("{}/mcp", self.at), &[], "tools/call", json!({"name": name, "arguments": arguments})).await;
                let result = &answer["result"];
                assert_ne!(result["isError"], true, "{answer}");
                serde_json::from_str(result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"))).unwrap()
            }
        }
    }

    /// Does a step; returns the toolsets that the searches led to.
    async fn step(&mut self, step: &Step) -> BTreeSet<String> {
        match step {
            Step::Use { say, tool, toolset, arguments } => {
                let found = self.search(say).await;
                let (server, name) = tool.split_once('/').unwrap();
                let read = found["tools"].as_array().unwrap();
                let chosen = read.iter().find(|row| row["server"] == server && row["tool"] == name);
                let chosen =
                    chosen.unwrap_or_else(|| panic!("{say}: {tool} is not among what was found: {}", names(&found["tools"]).join(", ")));
                if chosen["already_loaded"] == false {
                    let proposed = names(&found["toolsets"]);
                    let wanted = toolset.as_ref().unwrap_or_else(|| panic!("{say}: {tool} is there from the beginning: {found}"));
                    assert!(proposed.contains(&wanted.as_str()), "{say}: {wanted} is not proposed, but {proposed:?}");
                    let loaded = self.meta("load_toolset", &json!({"toolset": wanted})).await;
                    assert!(loaded["tools"].as_array().is_some_and(|tools| tools.contains(&chosen["name"])), "{say}: {loaded}");
                }
                let answer = self.call(chosen["name"].as_str().unwrap(), arguments).await;
                assert_eq!(answer, result_of(tool), "{say}");
                toolset.clone().or_else(|| Some(server.to_owned())).into_iter().collect()
            }
            Step::Find { say, toolsets } => {
                let led = led_to(&self.search(say).await);
                for toolset in toolsets {
                    assert!(led.contains(toolset), "{say}: {toolset} is not among {led:?}");
                }
                toolsets.iter().cloned().collect()
            }
            Step::AnyOf { say, any_of } => {
                let led = led_to(&self.search(say).await);
                assert!(any_of.iter().any(|toolset| led.contains(toolset)), "{say}: none of {any_of:?} is among {led:?}");
                BTreeSet::new()
            }
            Step::Nothing { say, nothing } => {
                assert!(nothing);
                let found = self.search_in_vain(say).await;
                let is_empty = |list: &str| found[list].as_array().is_some_and(Vec::is_empty) || found[list].is_null();
                assert_eq!(is_empty("tools"), is_empty("toolsets"), "toolsets are proposed for what is found: {found}");
                assert!(!is_empty("tools") || found["next"].as_str().unwrap().starts_with("Nothing was found."), "{found}");
                BTreeSet::new()
            }
            Step::Again { again, times, arguments } => {
                let name = again.replacen('/', "__", 1);
                let calls = (0..*times).map(|_| self.call(&name, arguments));
                let wanted = result_of(again);
                assert!(futures::future::join_all(calls).await.iter().all(|answer| *answer == wanted));
                BTreeSet::new()
            }
            Step::Unload { unload } => {
                let before = self.bound().await;
                let unloaded = self.meta("unload_toolset", &json!({"toolset": unload})).await;
                assert_eq!(unloaded["unloaded"], json!(unload), "{unloaded}");
                let after = self.bound().await;
                assert_eq!(before.len() - after.len(), unloaded["tools"].as_array().unwrap().len(), "{unloaded}");
                BTreeSet::new()
            }
            Step::Refused { refused } => {
                let answer = self.meta("unload_toolset", &json!({"toolset": refused})).await;
                assert!(answer["refused"].as_str().is_some_and(|words| words.contains("belongs to the session")), "{answer}");
                BTreeSet::new()
            }
            Step::Loaded { loaded } => {
                let available = self.meta("list_available_toolsets", &json!({})).await;
                let rows = available["toolsets"].as_array().unwrap();
                let now = rows.iter().filter(|row| row["loaded"] == true && row["initial"] != true);
                let now: BTreeSet<String> = now.map(|row| row["name"].as_str().unwrap().to_owned()).collect();
                assert_eq!(now, *loaded);
                BTreeSet::new()
            }
        }
    }
}

fn count(found: &Value) -> usize {
    found["tools"].as_array().unwrap_or_else(|| panic!("{found}")).len()
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().map(|row| row["name"].as_str().unwrap()).collect()
}

/// The toolsets that an answer leads to: those to load, and those of tools that are there.
fn led_to(found: &Value) -> BTreeSet<String> {
    let there = found["tools"].as_array().unwrap().iter().filter(|row| row["already_loaded"] == true);
    let there = there.map(|row| row["server"].as_str().unwrap());
    names(&found["toolsets"]).into_iter().chain(there).map(str::to_owned).collect()
}

/// The service on all the servers, with a vector for every tool: 87 of them take their time where nothing is optimised.
async fn searchable() -> Running {
    let service = Start { servers: servers(), ..Start::default() }.start().await;
    eventually_within(10 * LONG, "all tools are searchable", async || {
        when(service.get("/readyz").await.1, |state| {
            state["tools"] == TOOLS && state["index"]["embedded"] == state["tools"] && state["index"]["documents"] == state["tools"]
        })
    })
    .await;
    service
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scripted_model_gets_through_all_28_scenarios() {
    let scenarios = scenarios();
    let unique: BTreeSet<&str> = scenarios.iter().map(|scenario| scenario.name.as_str()).collect();
    assert_eq!((scenarios.len(), unique.len()), (28, 28));
    assert!(scenarios.iter().all(|scenario| !scenario.category.is_empty()));
    let is_empty = |scenario: &&Scenario| scenario.steps.iter().all(|step| matches!(step, Step::Nothing { .. }));
    let expecting = scenarios.iter().filter(|scenario| !scenario.expected_toolsets.is_empty() || is_empty(scenario)).count();
    assert_eq!(expecting, EXPECTATIONS);

    let service = searchable().await;
    let mut problems = Vec::new();
    for interface in [Interface::Rest, Interface::Mcp] {
        for scenario in &scenarios {
            let (status, session) = service.post("/v1/sessions", &json!({"servers": INITIAL, "mode": "dynamic"})).await;
            assert_eq!(status, StatusCode::CREATED, "{session}");
            let at = format!("/s/{}", session["id"].as_str().unwrap());
            let mut model = Model { service: &service, interface, at: at.clone(), named: BTreeSet::new() };
            let run = async {
                let mut reached = BTreeSet::new();
                for step in &scenario.steps {
                    reached.extend(model.step(step).await);
                }
                let missed: Vec<&String> = scenario.expected_toolsets.difference(&reached).collect();
                assert!(missed.is_empty(), "never led to {missed:?}");
            };
            // All that fails is told at once.
            if let Err(panic) = futures::FutureExt::catch_unwind(std::panic::AssertUnwindSafe(run)).await {
                let words = panic.downcast_ref::<String>().cloned().unwrap_or_default();
                problems.push(format!("{interface:?} {}: {words}", scenario.name));
            }
            let end = service.request(Method::DELETE, &format!("/v1/sessions/{}", session["id"].as_str().unwrap())).send().await.unwrap();
            assert_eq!(end.status(), StatusCode::NO_CONTENT);
        }
    }
    assert!(problems.is_empty(), "{} of 56 failed:\n{}", problems.len(), problems.join("\n"));
}
