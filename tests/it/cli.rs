//! The built binary: exit codes, what it prints, and that `kill -9` hurts nothing.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::harness::process::built::toolsieve;
use crate::harness::process::ended;
use crate::harness::wait::{eventually, when};
use crate::harness::{LONG, stdio};

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn a_sound_configuration_is_code_0() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("mcp.json");
    fs::write(&config, json!({"mcpServers": {"one": stdio(&[]), "two": {"url": "https://user:secret@example.org/mcp?key=secret", "type": "streamable-http"}}}).to_string()).unwrap();
    let output = toolsieve().args(["check", "--config"]).arg(&config).output().unwrap();
    let text = text(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("2 servers") && !text.contains("secret"), "{text}");
}

#[test]
fn check_says_which_tool_is_published_with_less() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("mcp.json");
    let tools = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/tools/odd.json");
    let server = json!({"command": crate::harness::example("test-replay-server"), "args": [tools]});
    fs::write(&config, json!({"mcpServers": {"odd": server}}).to_string()).unwrap();
    let check = |arguments: &[&str]| {
        let folder = folder.path().join("data");
        let output =
            toolsieve().args(["check", "--tools"]).args(arguments).arg("--data-dir").arg(folder).arg("--config").arg(&config).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let printed = check(&[]);
    assert!(printed.contains("odd/deep: published with a simpler schema") && printed.contains("nested too deeply"), "{printed}");
    assert!(!printed.contains("odd/all_keywords"), "{printed}");
    let printed: Value = serde_json::from_str(&check(&["--json"])).unwrap();
    assert_eq!(printed["not_published"], json!([]));
    let tree = printed["simplified"].as_array().unwrap().iter().find(|tool| tool["tool"] == "tree").unwrap();
    assert_eq!(tree["losses"][0]["reason"], "recursive");
    assert_eq!(tree["losses"][0]["pointer"], "/properties/tree/properties/children/items");
    assert!(printed["simplified"].as_array().unwrap().iter().all(|tool| tool["tool"] != "long_list"));

    // Shortening is an option.
    let settings = folder.path().join("toolsieve.toml");
    fs::write(&settings, "[documents]\ntool_tokens = 300\n").unwrap();
    let printed: Value = serde_json::from_str(&check(&["--json", "--settings", settings.to_str().unwrap()])).unwrap();
    let list = printed["simplified"].as_array().unwrap().iter().find(|tool| tool["tool"] == "long_list").unwrap();
    assert_eq!(list["losses"], json!([{"pointer": "/properties/code", "keyword": "enum", "reason": "shortened", "described": true}]));
}

#[test]
fn problems_are_all_named_and_are_code_2() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("mcp.json");
    fs::write(
        &config,
        json!({"mcpServers": {"docs": stdio(&[]), "empty": {}, "var": {"command": "x", "env": {"K": "${NO_SUCH_VARIABLE}"}}}}).to_string(),
    )
    .unwrap();
    let settings = folder.path().join("toolsieve.toml");
    fs::write(&settings, "[http]\nprot = 1\nport = 99999\n").unwrap();
    let output = toolsieve().args(["check", "--config"]).arg(&config).arg("--settings").arg(&settings).output().unwrap();
    let text = text(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    for word in ["docs", "empty", "NO_SUCH_VARIABLE", "prot", "http.port", "mcp.json", "toolsieve.toml"] {
        assert!(text.contains(word), "{word} is not in {text}");
    }
}

#[test]
fn wrong_use_is_code_2() {
    for arguments in [&["serve"][..], &["nonsense"], &["serve", "--port", "x"], &["serve", "--config", "no/such/file.json"]] {
        let output = toolsieve().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output));
    }
}

#[test]
fn the_description_of_our_routes_is_the_committed_one() {
    let committed = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi/service.json");
    let output = toolsieve().args(["openapi", "--check", committed]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("service.json");
    fs::write(&other, fs::read_to_string(committed).unwrap().replace("/v1/filter", "/v1/fliter")).unwrap();
    let output = toolsieve().args(["openapi", "--check"]).arg(&other).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
}

/// A service in a process of its own.
struct Served {
    process: std::process::Child,
    /// Its address, once it listens.
    address: std::sync::mpsc::Receiver<String>,
}

impl Served {
    fn start(folder: &std::path::Path) -> Self {
        let config = folder.join("mcp.json");
        fs::write(&config, json!({"mcpServers": {"one": stdio(&[])}}).to_string()).unwrap();
        let mut command = toolsieve();
        command.args(["serve", "--port", "0", "--config"]).arg(&config).arg("--data-dir").arg(folder.join("data"));
        let mut process = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let (found, address) = std::sync::mpsc::channel();
        // Reads on to the end, so that the service never waits for somebody to take its log.
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Some((_, rest)) = line.split_once("address=") {
                    let _ = found.send(rest.split_whitespace().next().unwrap().to_owned());
                }
            }
        });
        Self { process, address }
    }

    /// Waits until it listens.
    fn url(&self) -> String {
        format!("http://{}", self.address.recv_timeout(LONG).expect("it listens"))
    }

    async fn until(&self, url: &str, condition: impl Fn(&Value) -> bool) -> Value {
        eventually("`/readyz` as the test wants it", async || {
            let body: Value = reqwest::get(format!("{url}/readyz")).await.unwrap().json().await.unwrap();
            when(body, &condition)
        })
        .await
    }

    fn signal(&self, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.process.id().to_string()]).status().unwrap().success());
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test]
async fn killed_at_any_moment_the_next_start_is_clean() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let folder = tempfile::tempdir().unwrap();
    for milliseconds in [0, 20, 60, 120, 250, 400] {
        let mut served = Served::start(folder.path());
        // Whatever it is doing after this time: opening, listing, embedding, building the index.
        tokio::time::sleep(std::time::Duration::from_millis(milliseconds)).await;
        served.signal("-9");
        served.process.wait().unwrap();
    }
    let served = Served::start(folder.path());
    let url = served.url();
    let body = served.until(&url, |body| body["index"]["embedded"] == body["tools"] && body["tools"] == 23).await;
    assert_eq!(body["index"]["documents"], 23);
}

#[tokio::test]
async fn on_a_stop_signal_it_ends_its_servers_and_is_code_0() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let folder = tempfile::tempdir().unwrap();
    let mut served = Served::start(folder.path());
    let url = served.url();
    served.until(&url, |body| body["servers"][0]["phase"] == "connected" && body["tools"] == 23).await;
    let answer: Value = reqwest::Client::new().post(format!("{url}/one/process")).body("{}").send().await.unwrap().json().await.unwrap();
    let child = answer["pid"].as_u64().unwrap();
    served.signal("-TERM");
    assert_eq!(ended(&mut served.process).code(), Some(0));
    assert!(!std::path::Path::new(&format!("/proc/{child}")).exists(), "the server's process is still there");
}

#[test]
fn without_a_subcommand_the_flags_are_mcpo_s() {
    for arguments in [&["--port", "8000"][..], &["--nonsense", "--", "x"], &["-c", "no/such/file.json"], &["mcpo", "-e", "BAD", "--", "x"]]
    {
        let output = toolsieve().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output));
    }
    let help = toolsieve().args(["mcpo", "--help"]).output().unwrap();
    assert!(help.status.success() && text(&help).contains("--strict-auth"), "{}", text(&help));
    let version = toolsieve().arg("--version").output().unwrap();
    assert_eq!(text(&version).trim_end(), concat!("toolsieve ", env!("BUILD_VERSION")));
    assert!(env!("BUILD_VERSION").starts_with(env!("CARGO_PKG_VERSION")));
}

#[test]
fn tools_and_documents_are_shown_without_the_service() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("mcp.json");
    fs::write(&config, json!({"mcpServers": {"one": stdio(&[]), "gone": {"command": "no-such-command-here"}}}).to_string()).unwrap();
    let run = |words: &[&str]| {
        toolsieve().args(words).arg("--config").arg(&config).arg("--data-dir").arg(folder.path().join("data")).output().unwrap()
    };

    let output = run(&["tools", "--server", "one", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(listed["tools"].as_array().unwrap().len(), 23);
    assert!(
        listed["tools"].as_array().unwrap().iter().any(|tool| tool["operation_id"] == "one__echo" && tool["tokens"].as_u64() > Some(10))
    );
    let table = run(&["tools", "--server", "one"]);
    assert!(text(&table).contains("one__echo") && text(&table).contains("23 tools from 1 servers"), "{}", text(&table));

    let all = run(&["tools"]);
    assert_eq!(all.status.code(), Some(1), "a server does not answer");
    assert!(text(&all).contains("no-such-command-here") && text(&all).contains("one__echo"), "{}", text(&all));
    assert_eq!(run(&["tools", "--server", "two"]).status.code(), Some(2));
    assert_eq!(run(&["tools", "--offline"]).status.code(), Some(1), "there was no service yet");

    let document = |words: &[&str]| -> Value {
        let output = run(&[&["openapi", "--server", "one"], words].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output)))
    };
    assert_eq!(document(&[])["paths"]["/echo"]["post"]["operationId"], "one__echo");
    assert_eq!(document(&["--as-mcpo"])["paths"]["/echo"]["post"]["operationId"], "tool_echo_post");
    assert_eq!(document(&["--mode", "meta"])["paths"].as_object().unwrap().len(), 3);
}

#[test]
fn the_doctor_names_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("mcp.json");
    let examine_with = |servers: Value, flag: &str, more: &[&str]| {
        fs::write(&config, json!({"mcpServers": servers}).to_string()).unwrap();
        let (mut command, data) = (toolsieve(), folder.path().join("data"));
        command.args(["doctor", "--json", "--port", "0", flag]).arg(&config).arg("--data-dir").arg(data).args(more);
        let output = command.output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output)));
        (output.status.code(), report)
    };
    let examine = |servers: Value, flag: &str| examine_with(servers, flag, &[]);
    let (code, report) = examine(json!({"one": stdio(&[])}), "--config");
    assert_eq!((code, &report["fine"], report.get("mcpo")), (Some(0), &json!(true), None), "{report}");
    let (code, report) = examine(json!({"one": stdio(&[]), "gone": {"command": "no-such-command-here"}}), "--from-mcpo");
    assert_eq!((code, &report["fine"]), (Some(1), &json!(false)), "{report}");
    let problems: Vec<&Value> = report["checks"].as_array().unwrap().iter().filter(|check| check["level"] == "problem").collect();
    assert!(!problems.is_empty() && problems.iter().all(|check| check["subject"] == "gone"), "{report}");
    assert_eq!((&report["mcpo"][0]["common"], &report["mcpo"][0]["only_mcpo"]), (&json!(23), &json!([])), "{report}");
    // An mcpo that can't be reached is a problem, and not one without tools.
    let (code, report) = examine_with(json!({"one": stdio(&[])}), "--from-mcpo", &["--mcpo-url", "http://127.0.0.1:1"]);
    let compared = &report["mcpo"][0];
    assert_eq!((code, &report["fine"], &compared["only_toolsieve"]), (Some(1), &json!(false), &json!([])), "{report}");
    assert!(compared["error"].as_str().unwrap().contains("--mcpo-url"), "{report}");
    // What keeps the service from starting is in the report, and the other checks too.
    let data = folder.path().join("data");
    fs::create_dir_all(&data).unwrap();
    for (file, contents) in [("installation", "odd"), ("toolsieve.db", "no database at all")] {
        fs::write(data.join(file), contents.repeat(99)).unwrap();
        let (code, report) = examine(json!({"one": stdio(&[])}), "--config");
        let checks = report["checks"].as_array().unwrap();
        let problems: Vec<&Value> = checks.iter().filter(|check| check["level"] == "problem").collect();
        assert!(code == Some(1) && problems.len() == 1 && problems[0]["finding"].as_str().unwrap().contains(file), "{report}");
        assert!(checks.iter().any(|check| check["subject"] == "one" && check["level"] == "fine"), "{report}");
        fs::remove_file(data.join(file)).unwrap();
    }
}
