//! The processes of servers, of the built binary: what they can see of the service and of its files, and that they end with it.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::Signal;
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use toolsieve::settings::McpoSettings;

use crate::harness::process::built::TOOLSIEVE;
use crate::harness::process::{Service, write_config};
use crate::harness::wait::eventually;
use crate::harness::{Start, example, stdio};

const ADMIN: &str = "the-admin-key-of-this-test";
/// The user that owns nothing.
const NOBODY: &str = "65534";

/// Calls a tool, again until the server is there.
async fn call(service: &Service, path: &str, arguments: &Value) -> Value {
    eventually(&format!("{path} is answered"), async || {
        let request = Client::new().post(format!("{}{path}", service.url)).bearer_auth(ADMIN).json(arguments);
        let response = request.send().await.unwrap();
        let status = response.status();
        let body: Value = response.json().await.unwrap_or_default();
        if status == StatusCode::OK { Ok(body) } else { Err(format!("{status} {body}\n{}", service.log())) }
    })
    .await
}

async fn read(service: &Service, server: &str, path: &Path) -> Value {
    call(service, &format!("/{server}/try_read"), &json!({ "path": path })).await
}

fn spy() -> Value {
    stdio(&["spy"])
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

fn own(service: &Service, file: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{}/{file}", service.process.id()))
}

/// A program that any user can run.
fn copied(from: &Path, folder: &Path) -> PathBuf {
    let to = folder.join(from.file_name().unwrap());
    fs::copy(from, &to).unwrap();
    to
}

/// This program as a user from whom something can be hidden, which nothing is from root. These folders are open to that user.
fn unprivileged(program: &Path, folders: &[&Path]) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    for path in folders {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--"]).arg(program);
    command
}

/// Seen before: each server reads the keys of the service and of all users' secrets in `/proc`.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_the_same_user_sees_neither_environment_nor_memory_of_the_service() {
    let folder = tempfile::Builder::new().prefix("toolsieve").tempdir_in("/tmp").unwrap();
    let bin = folder.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let (service, server) = (copied(Path::new(TOOLSIEVE), &bin), copied(&example("test-stdio-server"), &bin));
    let mut servers = json!({"spy": {"command": server, "args": ["spy"]}});
    servers["spy"]["env"] = json!({"OWN": "own"});
    let mut service = Service::start(folder.path(), &servers, |command| {
        let words: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        command.env("TOOLSIEVE_ADMIN_KEY", ADMIN);
        let variables: Vec<_> = command.get_envs().map(|(name, value)| (name.to_owned(), value.unwrap().to_owned())).collect();
        let mut as_nobody = unprivileged(&service, &[folder.path(), &bin]);
        as_nobody.args(words).env_clear().envs(variables).stdin(std::process::Stdio::null());
        *command = as_nobody;
    });
    let itself = read(&service, "spy", Path::new("/proc/self/environ")).await;
    assert!(itself["text"].as_str().unwrap().contains("OWN=own"), "its own it sees: {itself}");
    assert!(!itself.to_string().contains(ADMIN));
    for file in ["environ", "mem", "maps", "fd/0", "auxv"] {
        let seen = read(&service, "spy", &own(&service, file)).await;
        assert!(seen["error"].as_str().is_some_and(|error| error.contains("denied")), "{file}: {seen}");
    }
    let metrics = Client::new().get(format!("{}/metrics", service.url)).bearer_auth(ADMIN).send().await.unwrap().text().await.unwrap();
    for name in
        ["process_open_fds ", "process_resident_memory_bytes ", "process_cpu_seconds_total ", "process_threads ", "process_max_fds "]
    {
        let value = metrics.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name}: {metrics}"));
        assert!(value.parse::<f64>().unwrap() > 0.0, "{name}{value}");
    }
    assert_eq!(service.stop().code(), Some(0));
}

/// Seen before: `toolsieve tools` starts every server, and the keys of its environment stand open to them.
#[test]
fn a_server_that_a_command_starts_sees_no_more() {
    let folder = tempfile::Builder::new().prefix("toolsieve").tempdir_in("/tmp").unwrap();
    let bin = folder.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let (toolsieve, server) = (copied(Path::new(TOOLSIEVE), &bin), copied(&example("test-stdio-server"), &bin));
    let (seen, refused) = (folder.path().join("seen"), folder.path().join("refused"));
    let script = format!("cat /proc/$PPID/environ > {} 2> {}; exec {}", seen.display(), refused.display(), server.display());
    write_config(folder.path(), &json!({"spy": {"command": "sh", "args": ["-c", script]}}));
    let mut command = unprivileged(&toolsieve, &[folder.path(), &bin]);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("TOOLSIEVE_ADMIN_KEY", ADMIN);
    command.args(["tools", "--config"]).arg(folder.path().join("mcp.json")).arg("--data-dir").arg(folder.path().join("data"));
    let output = command.stdin(std::process::Stdio::null()).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{printed}");
    let (seen, refused) = (fs::read(seen).unwrap(), fs::read_to_string(refused).unwrap());
    assert!(seen.is_empty() && refused.contains("denied"), "{} {refused}", String::from_utf8_lossy(&seen));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_in_a_sandbox_reaches_its_own_files_and_none_of_ours() {
    let folder = tempfile::tempdir().unwrap();
    let (work, docs) = (folder.path().join("work"), folder.path().join("docs"));
    for path in [&work, &docs] {
        fs::create_dir(path).unwrap();
    }
    fs::write(docs.join("page"), "a page").unwrap();
    let mut boxed = spy();
    boxed["sandbox"] = json!({"read": [example("test-stdio-server").parent().unwrap(), docs]});
    boxed["cwd"] = json!(work);
    let mut plain = boxed.clone();
    plain["sandbox"] = json!(true);
    plain.as_object_mut().unwrap().remove("cwd");
    let servers = json!({"boxed": boxed, "plain": plain, "free": spy()});
    let mut service = Service::start(folder.path(), &servers, |command| {
        command.env("TOOLSIEVE_ADMIN_KEY", ADMIN);
    });
    // Root with all of its capabilities (`CAP_PERFMON`) reads any process's environment; the memory it does not.
    let ours = [
        folder.path().join("data/toolsieve.db"),
        folder.path().join("mcp.json"),
        folder.path().join("data/sandboxes/plain"),
        own(&service, if is_root() { "mem" } else { "environ" }),
    ];
    for file in &ours[..2] {
        assert!(read(&service, "free", file).await["error"].is_null(), "without a sandbox it is open");
    }
    for server in ["boxed", "plain"] {
        for file in &ours {
            let seen = read(&service, server, file).await;
            assert!(seen["text"].is_null() && !seen.to_string().contains("No such"), "{server} {}: {seen}", file.display());
            if !file.is_dir() {
                let written = call(&service, &format!("/{server}/try_write"), &json!({ "path": file })).await;
                assert!(written["error"].as_str().is_some_and(|error| error.contains("denied")), "{server} {}: {written}", file.display());
            }
        }
        let process = call(&service, &format!("/{server}/process"), &json!({})).await;
        let note = Path::new(process["directory"].as_str().unwrap()).join("note");
        let environment = call(&service, &format!("/{server}/environment"), &json!({})).await;
        for file in [note, Path::new(environment["TMPDIR"].as_str().unwrap()).join("note")] {
            let written = call(&service, &format!("/{server}/try_write"), &json!({ "path": file })).await;
            assert!(written["error"].is_null(), "{server} {}: {written}", file.display());
            assert_eq!(read(&service, server, &file).await["text"], "written");
        }
        assert!(read(&service, server, Path::new("/etc/passwd")).await["error"].is_null(), "system folders are open");
        assert!(!call(&service, &format!("/{server}/try_write"), &json!({"path": "/etc/toolsieve-test"})).await["error"].is_null());
    }
    assert_eq!(read(&service, "boxed", &docs.join("page")).await["text"], "a page");
    assert!(!read(&service, "plain", &docs.join("page")).await["error"].is_null());
    assert_eq!(service.stop().code(), Some(0));
}

/// A sandbox that can't be is an error and never no sandbox.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_does_not_start_without_the_sandbox_that_it_was_given() {
    let folder = tempfile::tempdir().unwrap();
    let server = |sandbox: Value, directory: Option<&Path>| {
        let mut server = spy();
        server["sandbox"] = sandbox;
        server["cwd"] = json!(directory);
        server
    };
    let servers = json!({
        "missing": server(json!({"read": ["/no/such/folder"]}), None),
        "ours": server(json!({"write": [folder.path()]}), None),
        "nowhere": server(json!(true), Some(Path::new("/no/such/directory"))),
    });
    let mut service = Service::start(folder.path(), &servers, |_| {});
    for words in ["/no/such/folder", "is or contains files of Toolsieve itself", "working directory /no/such/directory does not exist"] {
        service.until_logged(words);
    }
    assert_eq!(service.stop().code(), Some(0));
}

/// Regression test: "Permission denied" alone didn't say what to do.
#[tokio::test(flavor = "multi_thread")]
async fn an_interpreter_outside_the_sandbox_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let bin = folder.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let script = bin.join("script");
    fs::write(&script, format!("#!{}\n", example("test-stdio-server").display())).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let servers = json!({"scripted": {"command": script, "sandbox": true}});
    let mut service = Service::start(folder.path(), &servers, |_| {});
    service.until_logged("if it needs an interpreter or libraries, add their folders to `read` in `sandbox`");
    assert_eq!(service.stop().code(), Some(0));
}

fn is_running(process: u64) -> bool {
    fs::read_to_string(format!("/proc/{process}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// Seen before: after `kill -9` of the service a server that does not care for the end of its input stayed for good.
#[tokio::test(flavor = "multi_thread")]
async fn servers_end_with_the_service_however_that_ends() {
    let folder = tempfile::tempdir().unwrap();
    let mut servers = json!({"plain": stdio(&["ignore-end"]), "boxed": stdio(&["ignore-end"])});
    servers["boxed"]["sandbox"] = json!({"read": [example("test-stdio-server").parent().unwrap()]});
    let mut service = Service::start(folder.path(), &servers, |command| {
        command.env("TOOLSIEVE_ADMIN_KEY", ADMIN);
    });
    let mut processes = Vec::new();
    for server in ["plain", "boxed"] {
        processes.push(call(&service, &format!("/{server}/process"), &json!({})).await["pid"].as_u64().unwrap());
    }
    assert!(processes.iter().all(|process| is_running(*process)));
    service.signal(Signal::SIGKILL);
    service.process.wait().unwrap();
    eventually("the servers end with the service", async || !processes.iter().any(|process| is_running(*process))).await;
}

/// Seen before: as mcpo, every server gets `TOOLSIEVE_ADMIN_KEY` and the key of all users' secrets.
#[tokio::test(flavor = "multi_thread")]
async fn as_mcpo_servers_get_the_environment_without_what_is_ours() {
    let folder = tempfile::tempdir().unwrap();
    let settings = folder.path().join("toolsieve.toml");
    fs::write(&settings, "[llm]\nbase_url = \"http://127.0.0.1:9/v1\"\nmodel = \"m\"\napi_key = \"${SOME_LLM_KEY}\"\n").unwrap();
    let service = Service::start(folder.path(), &json!({"test": stdio(&[])}), |command| {
        let words: Vec<_> = command.get_args().skip(1).map(ToOwned::to_owned).collect();
        let path = std::env::var_os("PATH").unwrap();
        *command = Command::new(TOOLSIEVE);
        command.env_clear().env("PATH", path).args(words).args(["--host", "127.0.0.1", "--settings"]).arg(&settings);
        command.stdin(std::process::Stdio::null());
        for name in ["TOOLSIEVE_ADMIN_KEY", "DATABASE_URL", "QDRANT_API_KEY", "EMBEDDER_API_KEY", "SOME_LLM_KEY", "OTHER_KEY", "PLAIN"] {
            command.env(name, if name == "TOOLSIEVE_ADMIN_KEY" { ADMIN.to_owned() } else { format!("value-of-{name}") });
        }
    });
    let environment = call(&service, "/test/environment", &json!({})).await.to_string();
    for name in ["OTHER_KEY", "PLAIN", "PATH"] {
        assert!(environment.contains(name), "{name} is handed on: {environment}");
    }
    for name in ["TOOLSIEVE", "DATABASE_URL", "QDRANT_API_KEY", "EMBEDDER_API_KEY", "SOME_LLM_KEY", ADMIN] {
        assert!(!environment.contains(name), "{name}: {environment}");
    }
}

/// What everybody gets who reaches the address, and what they do not.
#[tokio::test(flavor = "multi_thread")]
async fn as_mcpo_documents_are_public_unless_it_is_strict_and_calls_never_are() {
    for (strict_auth, expected) in [(false, StatusCode::OK), (true, StatusCode::UNAUTHORIZED)] {
        let mcpo = McpoSettings { strict_auth, ..McpoSettings::default() };
        let service = Start { servers: json!({"test": stdio(&[])}), key: Some(ADMIN), mcpo: Some(mcpo), ..Start::default() }.start().await;
        service.until(|state| state["tools"].as_u64() > Some(0)).await;
        let client = Client::new();
        for path in ["/openapi.json", "/test/openapi.json"] {
            let response = client.get(format!("{}{path}", service.url)).send().await.unwrap();
            assert_eq!(response.status(), expected, "{path} {strict_auth}");
        }
        let call = client.post(format!("{}/test/echo", service.url)).json(&json!({})).send().await.unwrap();
        assert_eq!(call.status(), StatusCode::UNAUTHORIZED);
    }
}
