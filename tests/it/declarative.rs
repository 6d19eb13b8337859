//! What stands in files: keys, metadata of tools, approvals and secrets. The service follows the files, and the API leaves alone
//! what they define.

use std::fs;
use std::path::{Path, PathBuf};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use toolsieve::domain::text::canonical::Fingerprint;
use toolsieve::service::catalog::reload::Trigger;
use toolsieve::settings::{Environment, ServersSource, Settings, Sources};

use crate::harness::answers::published;
use crate::harness::keys::{ADMIN, KEY, administer, command, create, with_key};
use crate::harness::mcp::client::Client;
use crate::harness::mcp::request;
use crate::harness::process::Service;
use crate::harness::servers::listed::{Listed, other, read};
use crate::harness::wait::{eventually, when};
use crate::harness::{Running, Start, example, stdio};

/// Keys as people generate them, without our own format.
const FIRST: &str = "4f2a9c1be07d58364f2a9c1be07d5836";
const SECOND: &str = "9b1de07d58364f2a9c1be07d58364f2a";
const THIRD: &str = "c07d58364f2a9c1be07d58364f2a9b1d";

fn hash(key: &str) -> String {
    Fingerprint::of_text(key).to_string()
}

/// Writes a file that only its owner can read.
fn write_secret(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// Two servers, a service key and an admin key, with settings in a file.
async fn start(settings: String, environment: &[(&'static str, &'static str)]) -> Running {
    let servers = json!({"one": stdio(&[]), "time": stdio(&["list=time"])});
    let environment = [&[("TOOLSIEVE_ADMIN_KEY", ADMIN)], environment].concat();
    let running = Start { servers, key: Some(KEY), environment, from_files: true, settings, ..Start::default() }.start().await;
    running.settled().await;
    running
}

/// Replaces the settings, and returns the result of the reload.
async fn reload(service: &Running, settings: &str) -> Value {
    fs::write(service.folder.path().join("toolsieve.toml"), settings).unwrap();
    service.reload.reload(Trigger::Request).await;
    let body: Value = with_key(service, Method::GET, "/readyz", ADMIN).send().await.unwrap().json().await.unwrap();
    body["reload"].clone()
}

async fn status(service: &Running, path: &str, key: &str) -> StatusCode {
    with_key(service, Method::GET, path, key).send().await.unwrap().status()
}

async fn call(service: &Running, path: &str, key: &str) -> StatusCode {
    with_key(service, Method::POST, path, key).json(&json!({})).send().await.unwrap().status()
}

fn assert_managed((status, problem): (StatusCode, Value), part: &str) {
    assert_eq!((status, &problem["code"]), (StatusCode::CONFLICT, &json!("managed_by_file")), "{problem}");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains(part) && detail.contains("toolsieve.toml: change it there"), "{detail}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_in_a_file_works_everywhere_and_ends_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ci.key");
    write_secret(&file, &format!("{FIRST}\n"));
    let settings = format!(
        "[[key]]\nname = \"ci\"\nfile = \"{}\"\nservers = [\"one\"]\ngroups = [\"builders\"]\n\
         [[policy]]\neffect = \"block\"\ntools = [\"process\"]\ngroups = [\"builders\"]\n\
         [[key]]\nname = \"hashed\"\nsha256 = \"{}\"\n",
        file.display(),
        hash(SECOND)
    );
    let service = start(settings.clone(), &[]).await;

    // Documents, calls and MCP, each with the key's servers and groups.
    let document: Value = with_key(&service, Method::GET, "/openapi.json", FIRST).send().await.unwrap().json().await.unwrap();
    let names = published(&document);
    assert!(names.contains("one__echo") && !names.contains("one__process") && !names.contains("time__convert_time"), "{names:?}");
    assert_eq!(call(&service, "/one/echo", FIRST).await, StatusCode::OK);
    assert_eq!(call(&service, "/one/process", FIRST).await, StatusCode::NOT_FOUND);
    assert_eq!(call(&service, "/time/get_current_time", FIRST).await, StatusCode::NOT_FOUND);
    let client = Client::new(&service, "/mcp?mode=full", Some(FIRST)).greeted().await;
    let listed = client.tools().await;
    assert!(listed.contains(&"one__echo".to_owned()) && !listed.contains(&"one__process".to_owned()), "{listed:?}");
    assert_eq!(status(&service, "/time/openapi.json", SECOND).await, StatusCode::OK);
    assert_eq!(call(&service, "/one/echo", "0000000000000000000000000000beef").await, StatusCode::UNAUTHORIZED);
    let nothing = status(&service, "/v1/admin/nothing", FIRST).await;
    assert_eq!(status(&service, "/v1/admin/keys", FIRST).await, nothing, "it is no admin key");

    // Another key in the file: only that one works, and the session of the former one has ended.
    write_secret(&file, THIRD);
    service.reload.reload(Trigger::Request).await;
    assert_eq!(call(&service, "/one/echo", FIRST).await, StatusCode::UNAUTHORIZED);
    assert_eq!(call(&service, "/one/echo", THIRD).await, StatusCode::OK);
    let list = request(1, "tools/list", &json!({}));
    assert_eq!(client.send(Method::POST, Some(&list)).await.status(), StatusCode::UNAUTHORIZED);

    // Without the tables, neither key works, and everything else does.
    let state = reload(&service, "").await;
    assert_eq!((&state["state"], &state["needs_restart"]), (&json!("applied"), &json!([])), "{state}");
    for key in [THIRD, SECOND] {
        assert_eq!(status(&service, "/openapi.json", key).await, StatusCode::UNAUTHORIZED);
    }
    assert_eq!(status(&service, "/openapi.json", KEY).await, StatusCode::OK);
    let (_, keys) = administer(&service, Method::GET, "/v1/admin/keys", &json!({})).await;
    assert_eq!(keys["keys"], json!([]));
    reload(&service, &settings).await;
    assert_eq!(status(&service, "/openapi.json", SECOND).await, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_shows_keys_in_files_and_leaves_them_alone() {
    let service = start(String::new(), &[]).await;
    let (id, stored) = create(&service, json!({"name": "ci"})).await;
    let (other, twin) = create(&service, json!({"name": "twin"})).await;
    let settings = format!(
        "[[key]]\nname = \"ci\"\nsha256 = \"{}\"\ntrusted = true\nexpires_at = 2999-01-31T00:00:00Z\n\
         [[key]]\nname = \"adopted\"\nsha256 = \"{}\"\n",
        hash(FIRST),
        hash(&twin)
    );
    let state = reload(&service, &settings).await;
    assert_eq!((&state["state"], &state["needs_restart"]), (&json!("applied"), &json!([])), "{state}");

    let (_, answer) = administer(&service, Method::GET, "/v1/admin/keys", &json!({})).await;
    let text = answer.to_string();
    assert!(!text.contains(FIRST) && !text.contains(&hash(FIRST)), "{text}");
    let keys: Vec<[&str; 4]> = answer["keys"]
        .as_array()
        .unwrap()
        .iter()
        .map(|key| ["id", "name", "managed_by", "state"].map(|member| key[member].as_str().unwrap()))
        .collect();
    let expected = [
        ["file-adopted", "adopted", "file", "active"],
        ["file-ci", "ci", "file", "active"],
        [id.as_str(), "ci", "api", "overridden"],
        [other.as_str(), "twin", "api", "overridden"],
    ];
    assert_eq!(keys, expected);
    let ci = &answer["keys"][1];
    assert_eq!(
        (&ci["trusted"], &ci["expires_at"], &ci["created_at"]),
        (&json!(true), &json!("2999-01-31T00:00:00Z"), &Value::Null),
        "{ci}"
    );

    // The file takes precedence: by name, and by secret.
    assert_eq!(status(&service, "/openapi.json", &stored).await, StatusCode::UNAUTHORIZED);
    assert_eq!(status(&service, "/openapi.json", FIRST).await, StatusCode::OK);
    assert_eq!(status(&service, "/openapi.json", &twin).await, StatusCode::OK);
    let check = json!({"principal": "key:ci", "tool": "one__echo"});
    let (status_of_check, decided) = administer(&service, Method::POST, "/v1/admin/policy/check", &check).await;
    assert_eq!((status_of_check, &decided["decisions"][0]["effect"]), (StatusCode::OK, &json!("allow")), "{decided}");

    // The API doesn't change them.
    assert_managed(administer(&service, Method::POST, "/v1/admin/keys", &json!({"name": "adopted"})).await, "The key `adopted`");
    let rotate = administer(&service, Method::POST, "/v1/admin/keys/file-ci/rotate", &json!({})).await;
    assert_managed(rotate, "The key `ci` is managed in");
    assert_managed(administer(&service, Method::DELETE, "/v1/admin/keys/file-ci", &json!({})).await, "The key `ci`");
    let (code, _, error) = command(&service, &["keys", "revoke", "ci"]);
    assert!(code == Some(1) && error.contains("toolsieve.toml"), "{error}");
    let (_, table, _) = command(&service, &["keys", "list"]);
    let row = table.lines().find(|line| line.contains("file-ci")).unwrap();
    assert!(row.contains("file") && row.contains("active"), "{table}");

    // What callers of a name have stored stays when the overridden key of that name is revoked.
    let session = with_key(&service, Method::POST, "/v1/sessions", FIRST).json(&json!({"servers": ["time"]})).send().await.unwrap();
    assert!(session.status().is_success());
    let (revoked, answer) = administer(&service, Method::DELETE, &format!("/v1/admin/keys/{id}"), &json!({})).await;
    assert_eq!((revoked, &answer["state"]), (StatusCode::OK, &json!("revoked")), "{answer}");
    let sessions: Value = with_key(&service, Method::GET, "/v1/sessions", FIRST).send().await.unwrap().json().await.unwrap();
    assert_eq!(sessions["sessions"].as_array().unwrap().len(), 1, "{sessions}");

    // Without the file's key, the stored one works again.
    reload(&service, "").await;
    assert_eq!(status(&service, "/openapi.json", &twin).await, StatusCode::OK);
    assert_eq!(status(&service, "/openapi.json", FIRST).await, StatusCode::UNAUTHORIZED);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_keys_in_a_file_all_callers_need_one() {
    let servers = json!({"one": stdio(&[])});
    let service = Start { servers, from_files: true, ..Start::default() }.start().await;
    service.settled().await;
    assert_eq!(service.get("/openapi.json").await.0, StatusCode::OK);
    let table = format!("[[key]]\nname = \"ci\"\nsha256 = \"{}\"\n", hash(FIRST));
    let write = async |text: &str| {
        fs::write(service.folder.path().join("toolsieve.toml"), text).unwrap();
        service.reload.reload(Trigger::Request).await;
    };
    write(&table).await;
    assert_eq!(service.get("/openapi.json").await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(status(&service, "/openapi.json", FIRST).await, StatusCode::OK);
    assert_eq!(status(&service, "/v1/admin/keys", FIRST).await, status(&service, "/v1/admin/nothing", FIRST).await);
    // A file that was emptied by mistake opens nothing.
    write("").await;
    assert_eq!(service.get("/openapi.json").await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(status(&service, "/openapi.json", FIRST).await, StatusCode::UNAUTHORIZED);
}

/// Regression: the API could replace `deny` in the file by `allow`, for good.
#[tokio::test(flavor = "multi_thread")]
async fn the_default_decision_of_a_file_takes_precedence_over_the_api() {
    const POLICY: &str = "/v1/admin/policy";
    let service = start(String::new(), &[]).await;
    let put = async |default: Value| administer(&service, Method::PUT, POLICY, &json!({"default": default, "rules": []})).await;
    let shown = async || {
        let view = administer(&service, Method::GET, POLICY, &json!({})).await.1;
        (view["default"].clone(), view["effective_default"].clone())
    };
    let called = async || call(&service, "/one/echo", KEY).await;
    // Nothing but the compiled-in default stands against it.
    assert_eq!(put(json!("deny")).await.0, StatusCode::OK);
    assert_eq!((shown().await, called().await), ((json!("block"), json!("block")), StatusCode::NOT_FOUND));
    assert_eq!(put(json!("allow")).await.0, StatusCode::OK);
    assert_eq!((shown().await, called().await), ((json!("allow"), json!("allow")), StatusCode::OK));

    // The stored one has no effect any more.
    reload(&service, "[access]\ndefault = \"deny\"\n").await;
    assert_eq!((shown().await, called().await), ((json!("allow"), json!("block")), StatusCode::NOT_FOUND));
    let (status, problem) = put(json!("allow")).await;
    assert_eq!(problem["parameter"], "default", "{problem}");
    assert_managed((status, problem), "The default decision (`access.default`)");
    let check = json!({"principal": "anyone", "policy": {"default": "allow", "rules": []}});
    assert_managed(administer(&service, Method::POST, "/v1/admin/policy/check", &check).await, "The default decision (`access.default`)");
    assert_eq!(called().await, StatusCode::NOT_FOUND);
    for same in [Value::Null, json!("deny"), json!("block")] {
        assert_eq!(put(same.clone()).await.0, StatusCode::OK, "{same}");
    }
    assert_eq!(shown().await, (json!("block"), json!("block")));

    // The stricter one applies, until the stored one is gone.
    reload(&service, "[access]\ndefault = \"allow\"\n").await;
    assert_eq!((shown().await, called().await), ((json!("block"), json!("block")), StatusCode::NOT_FOUND));
    assert_managed(put(json!("block")).await, "The default decision (`access.default`)");
    assert_eq!(put(Value::Null).await.0, StatusCode::OK);
    assert_eq!((shown().await, called().await), ((Value::Null, json!("allow")), StatusCode::OK));
}

/// Regression: such a tool was shown as not pinned, and unpinning it seemed to succeed.
#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_the_settings_pin_is_shown_as_pinned_and_stays_so() {
    const CLOCK: &str = "/v1/admin/tools/time/get_current_time";
    let service = start("[selection]\npinned = [\"time__get_current_time\"]\n".to_owned(), &[]).await;
    let shown = async || {
        let page = administer(&service, Method::GET, "/v1/admin/tools?pinned=true", &json!({})).await.1;
        let view = administer(&service, Method::GET, CLOCK, &json!({})).await.1;
        (page["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect::<Vec<_>>(), view["pinned"].clone())
    };
    let pinned = (vec![json!("time__get_current_time")], json!(true));
    assert_eq!(shown().await, pinned);
    let unpin = json!({"tags": ["clock"], "pinned": false});
    let (status, problem) = administer(&service, Method::PUT, CLOCK, &unpin).await;
    assert_eq!(problem["parameter"], "pinned", "{problem}");
    assert_managed((status, problem), "`selection.pinned`, which pins time/get_current_time,");
    let (code, _, error) = command(&service, &["tools", "set", "time/get_current_time", "--pinned", "false"]);
    assert!(code == Some(1) && error.contains("`selection.pinned`, which pins time/get_current_time"), "{error}");
    // Other metadata can be written, twice too.
    for tag in ["clock", "watch"] {
        let (code, text, error) = command(&service, &["tools", "set", "time/get_current_time", "--tag", tag]);
        assert!(code == Some(0) && text.contains("pinned       true"), "{text}{error}");
    }
    assert_eq!(shown().await, pinned);

    reload(&service, "").await;
    assert_eq!(shown().await, (Vec::new(), json!(false)));
    assert_eq!(administer(&service, Method::PUT, CLOCK, &unpin).await.0, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_of_tools_in_a_file_takes_precedence_over_the_api() {
    const CLOCK: &str = "/v1/admin/tools/time/get_current_time";
    const TEXTS: &str = "/v1/admin/enrichment/time/get_current_time";
    let service = start(String::new(), &[]).await;
    let written = json!({"tags": ["by-admin"], "description": "By an admin."});
    assert_eq!(administer(&service, Method::PUT, CLOCK, &written).await.0, StatusCode::OK);
    let get = async |path: &str| administer(&service, Method::GET, path, &json!({})).await.1;
    assert_eq!(get(CLOCK).await["managed_by"], "api");
    assert_eq!(get("/v1/admin/tools/one/echo").await["managed_by"], Value::Null);

    let settings = "[[tool]]\nserver = \"time\"\ntool = \"get_current_time\"\ntags = [\"by-file\"]\nsynonyms = [\"how late\"]\n\
        description = \"By a file.\"\npinned = true\nenrichment = { function = \"says how late it is\", queries = [\"a hedgehog plays\"] }\n\
        [[policy]]\neffect = \"block\"\ntags = [\"by-file\"]\nprincipals = [\"service-key\"]\n";
    let state = reload(&service, settings).await;
    assert_eq!((&state["state"], &state["needs_restart"]), (&json!("applied"), &json!([])), "{state}");
    let view =
        eventually("the catalog has the description", async || when(get(CLOCK).await, |view| view["description"] == "By a file.")).await;
    assert_eq!((&view["managed_by"], &view["pinned"], &view["synonyms"]), (&json!("file"), &json!(true), &json!(["how late"])), "{view}");
    assert_eq!(view["tags"], json!([{"tag": "by-file", "source": "settings"}]));
    eventually("the rule matches the tag", async || call(&service, "/time/get_current_time", KEY).await == StatusCode::NOT_FOUND).await;
    let entry = get(TEXTS).await;
    assert_eq!(
        (&entry["managed_by"], &entry["source"], &entry["function"]),
        (&json!("file"), &json!("file"), &json!("says how late it is"))
    );
    eventually("search uses the text", async || {
        let query = json!({"queries": ["a hedgehog plays"], "limit": 1});
        let found = with_key(&service, Method::POST, "/v1/tools/search", ADMIN).json(&query).send().await.unwrap();
        when(found.json::<Value>().await.unwrap(), |found| found["tools"][0]["name"] == "time__get_current_time")
    })
    .await;

    for method in [Method::PUT, Method::DELETE] {
        assert_managed(administer(&service, method.clone(), CLOCK, &written).await, "The metadata of time/get_current_time");
        let texts = json!({"function": "else"});
        assert_managed(administer(&service, method, TEXTS, &texts).await, "The text for searches of time/get_current_time");
    }
    let policy = get("/v1/admin/policy").await;
    assert_eq!(
        policy["settings_rules"],
        json!([{"effect": "block", "tags": ["by-file"], "principals": ["service-key"], "managed_by": "file"}]),
        "{policy}"
    );
    assert_eq!(get("/v1/admin/servers").await["servers"][0]["managed_by"], "file");

    // Without the table, the admin's words are in force again.
    reload(&service, "").await;
    eventually("the admin's description", async || when(get(CLOCK).await, |view| view["description"] == "By an admin.")).await;
    assert_eq!(get(CLOCK).await["managed_by"], "api");
    assert_eq!(administer(&service, Method::GET, TEXTS, &json!({})).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_in_a_file_replaces_the_baseline() {
    let listed = Listed::new(&[read("Reads a file."), other("stays")]);
    let environment = vec![("TOOLSIEVE_ADMIN_KEY", ADMIN), ("TOOLSIEVE_DEFINITIONS__CHANGES", "quarantine")];
    let servers = json!({"files": listed.server()});
    let service = Start { servers, key: Some(KEY), environment, from_files: true, ..Start::default() }.start().await;
    service.until(|state| state["ready"] == true && state["servers"][0]["phase"] == "connected").await;
    let tool = async || administer(&service, Method::GET, "/v1/admin/tools/files/read", &json!({})).await.1;
    listed.change(&service, &[read("Reads everything."), other("stays")]).await;
    let view = tool().await;
    assert_eq!((&view["definition"]["state"], &view["published"]), (&json!("withheld"), &json!(false)), "{view}");

    let fingerprint = view["definition"]["fingerprint"].as_str().unwrap();
    let approval = |fingerprint: &str| format!("[[approval]]\nserver = \"files\"\ntool = \"read\"\nfingerprint = \"{fingerprint}\"\n");
    reload(&service, &approval(fingerprint)).await;
    eventually("the approved tool is published", async || when(tool().await, |view| view["published"] == true)).await;
    assert_eq!(tool().await["definition"]["state"], "same");
    let body = json!({"fingerprint": fingerprint});
    let approve = administer(&service, Method::POST, "/v1/admin/tools/files/read/approve", &body).await;
    assert_managed(approve, "The approval of files/read");

    // Another one than the server's: not even the first definition is published then.
    reload(&service, &approval(&"0".repeat(64))).await;
    eventually("the tool is withheld", async || when(tool().await, |view| view["published"] == false)).await;
    listed.change(&service, &[read("Reads a file."), other("stays")]).await;
    assert_eq!(tool().await["definition"]["state"], "withheld");
    reload(&service, "").await;
    eventually("the baseline counts again", async || when(tool().await, |view| view["published"] == true)).await;
}

/// Regression: the tool was withheld without a line in the log, and `check` said that its definition had changed.
#[tokio::test]
async fn an_approval_of_another_definition_is_logged() {
    let folder = tempfile::tempdir().unwrap();
    let settings = folder.path().join("toolsieve.toml");
    let zeros = "0".repeat(64);
    let approval = format!("[[approval]]\nserver = \"one\"\ntool = \"echo\"\nfingerprint = \"{zeros}\"\n");
    fs::write(&settings, format!("[definitions]\nchanges = \"quarantine\"\n{approval}")).unwrap();
    let mut service = Service::start(folder.path(), &json!({"one": stdio(&[])}), |command| {
        command.arg("--settings").arg(&settings);
    });
    let words = "is not the approved one of the file; it is withheld";
    let log = service.until_logged(words);
    let lines: Vec<&str> = log.lines().filter(|line| line.contains(words)).collect();
    assert!(matches!(lines[..], [line] if line.contains("one/echo") && line.contains(&zeros)), "{log}");
    assert_eq!(service.stop().code(), Some(0));
}

#[tokio::test]
async fn a_changed_secret_reconnects_only_its_server_and_no_secret_is_printed() {
    let folder = tempfile::tempdir().unwrap();
    let (token, settings, later) = (folder.path().join("token"), folder.path().join("toolsieve.toml"), folder.path().join("later/key"));
    write_secret(&token, "hunter22-first");
    let with_token = json!({"command": example("test-stdio-server"), "env": {"TOKEN": format!("${{file:{}}}", token.display())}});
    fs::write(&settings, "[reload]\nwatch = true\n").unwrap();
    let mut service = Service::start(folder.path(), &json!({"stays": stdio(&[]), "turns": with_token}), |command| {
        command.arg("--settings").arg(&settings);
    });
    service.until_logged("watching the configuration");
    write_secret(&token, "hunter22-second");
    let log = service.until_logged("configuration reloaded");
    assert!(log.contains("server=turns keys=\"env\"") && log.contains("changed=\"turns\" unchanged=\"stays\""), "{log}");

    // A value that names another file, which is not there yet: the reload fails, and succeeds once the file has appeared.
    let key = format!("[[key]]\nname = \"ci\"\nfile = \"{}\"\n", later.display());
    fs::write(&settings, format!("[reload]\nwatch = true\n{key}")).unwrap();
    service.until_logged("the configuration was not reloaded");
    service.until_logged("later/key can't be read");
    fs::create_dir(later.parent().unwrap()).unwrap();
    write_secret(&later, "hunter22-c07d58364f2a9c1be07d5836");
    let client = reqwest::Client::new();
    let document = format!("{}/openapi.json", service.url);
    eventually("the new key works", async || {
        let response = client.get(&document).bearer_auth("hunter22-c07d58364f2a9c1be07d5836").send().await.unwrap();
        let anonymous = client.get(&document).send().await.unwrap().status();
        when((response.status(), anonymous), |found| *found == (StatusCode::OK, StatusCode::UNAUTHORIZED))
            .map_err(|found| format!("{found:?}"))
    })
    .await;
    // A secret that needs a restart.
    fs::write(&settings, format!("[reload]\nwatch = true\n[access]\nadmin_key = \"${{file:{}}}\"\n{key}", token.display())).unwrap();
    let log = service.until_logged("changed settings need a restart");
    let line = log.lines().find(|line| line.contains("changed settings need a restart")).unwrap();
    assert!(line.contains("access.admin_key"), "{line}");
    assert!(!service.log().contains("hunter22"), "{}", service.log());
    assert_eq!(service.stop().code(), Some(0));
}

fn sources(folder: &Path, settings: &str, servers: &str) -> Sources {
    let file = folder.join("toolsieve.toml");
    fs::write(&file, settings).unwrap();
    let servers = ServersSource::Text { name: "mcp.json".into(), text: servers.to_owned() };
    Sources { servers, settings: Some(file), ..Sources::default() }
}

#[test]
fn all_missing_files_are_reported_together_and_watched() {
    let folder = tempfile::tempdir().unwrap();
    let settings = "[http]\npublic_url = \"${file:/nowhere/url}\"\n\
        [groups]\nstaff = [\"${file:/nowhere/member}\"]\n\
        [[policy]]\neffect = \"block\"\ngroups = [\"${file:/nowhere/group}\"]\n\
        [[key]]\nname = \"ci\"\nfile = \"/nowhere/ci\"\n\
        [[key]]\nname = \"bot\"\nsha256 = \"${file:/nowhere/bot}\"\n\
        [[tool]]\nserver = \"one\"\ntool = \"echo\"\ndescription = \"${file:/nowhere/text}\"\n\
        [calls]\ntimeout_seconds = 0\n";
    let servers = "{\"mcpServers\": {\"one\": {\"command\": \"one\", \"env\": {\"T\": \"${file:/nowhere/token}\"}, \"timeout\": \"${file:/nowhere/time}\"}}}";
    let errors = Settings::load(&sources(folder.path(), settings, servers)).unwrap_err();
    let text = errors.to_string();
    let names = ["url", "member", "group", "ci", "bot", "text", "token", "time"];
    for name in names {
        assert_eq!(text.matches(&format!("/nowhere/{name} can't be read")).count(), 1, "{name}: {text}");
        assert!(errors.files.contains(&PathBuf::from(format!("/nowhere/{name}"))), "{name}");
    }
    assert!(text.contains("calls.timeout_seconds: out of range"), "{text}");
    assert!(errors.files.contains(&folder.path().join("toolsieve.toml")));
}

const SERVERS: &str = "{\"mcpServers\": {\"one\": {\"command\": \"one\"}}}";

#[test]
fn mistakes_in_keys_tools_and_approvals_are_reported_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let weak = folder.path().join("weak");
    write_secret(&weak, "secret");
    let admin = "7d58364f2a9c1be07d58364f2a9c1be0";
    let key = |lines: &str| format!("[[key]]\n{lines}\n");
    let sha = |text: &str| format!("sha256 = \"{}\"", hash(text));
    let problems = |tables: String| {
        let text = format!("[access]\nadmin_key = \"{admin}\"\n[toolsets.code]\nservers = [\"one\"]\n{tables}");
        match Settings::load(&sources(folder.path(), &text, SERVERS)) {
            Ok((_, warnings)) => warnings.iter().map(|warning| format!("warning: {warning}")).collect::<Vec<_>>().join("\n"),
            Err(errors) => errors.to_string(),
        }
    };
    let good = sha(FIRST);
    for (tables, part) in [
        (key("name = \"a\""), "key 1: neither `sha256` nor `file`"),
        (key(&good), "key 1: `name` is missing"),
        (key(&format!("name = \"a b\"\n{good}")), "key 1: name is 1 to 64 letters"),
        (key(&format!("name = \"a\"\n{good}\nfile = \"/dev/null\"")), "key 1: both `sha256` and `file`"),
        (key("name = \"a\"\nkey = \"plain-text-key\""), "the key itself must not be in this file"),
        (key("name = \"a\"\nsha256 = \"abc\""), "printf %s"),
        (key(&format!("name = \"a\"\n{}", sha(""))), "the hash of an empty text"),
        (key(&format!("name = \"a\"\n{good}\nservers = []")), "servers is empty"),
        (key(&format!("name = \"a\"\n{good}\ntrusted = \"perhaps\"")), "`trusted` is neither true nor false"),
        (key(&format!("name = \"a\"\n{good}\nexpires_at = \"tomorrow\"")), "such as 2027-01-31T00:00:00Z"),
        (key(&format!("name = \"a\"\n{good}\ngroup = [\"x\"]")), "did you mean `groups`?"),
        (key(&format!("name = \"a\"\n{good}\ngroups = \"x\"")), "`groups` is not a list of texts"),
        (key(&format!("name = \"a\"\n{}", sha(admin))), "the same key as access.admin_key"),
        (format!("{0}{0}", key(&format!("name = \"a\"\n{good}"))), "key 2: another key has the name `a`"),
        (format!("{}{}", key(&format!("name = \"a\"\n{good}")), key(&format!("name = \"b\"\n{good}"))), "`a` and `b` are the same key"),
        (key(&format!("name = \"a\"\nfile = \"{}\"", weak.display())), "warning: "),
        (key(&format!("name = \"a\"\n{good}\nservers = [\"onn\"]")), "the server `onn` is not configured, or disabled"),
        (key(&format!("name = \"a\"\n{good}\ntoolsets = [\"cod\"]")), "the settings define no toolset `cod`"),
        (key(&format!("name = \"a\"\n{good}\nexpires_at = 2001-01-01T00:00:00Z")), "warning: "),
        ("[key]\nname = \"a\"\n".to_owned(), "begin each table with a line [[key]]"),
        ("[[tool]]\nserver = \"one\"\ntool = \"echo\"\n".to_owned(), "tool 1: sets nothing"),
        ("[[tool]]\nserver = \"one\"\npinned = true\n".to_owned(), "tool 1: `tool` is missing"),
        ("[[tool]]\nserver = \"one\"\ntool = \"echo\"\ntags = [\"a\\nb\"]\n".to_owned(), "tool 1: tags: it contains a line break"),
        (
            "[[tool]]\nserver = \"one\"\ntool = \"echo\"\nenrichment = { queries = [\"\"] }\n".to_owned(),
            "enrichment: it has an empty query",
        ),
        ("[[tool]]\nserver = \"one\"\ntool = \"a\"\npinned = true\n".repeat(2), "tool 2: another table describes one/a"),
        ("[[approval]]\nserver = \"one\"\nfingerprint = \"abc\"\n".to_owned(), "`toolsieve tools show` prints"),
        ("[[approval]]\nserver = \"one\"\ntool = \"a\"\nprompt = \"b\"\n".to_owned(), "both `tool` and `prompt`"),
    ] {
        let text = problems(tables.clone());
        assert!(text.contains(part), "{part} is not in:\n{text}\nfor:\n{tables}");
        assert!(!text.contains(&hash(FIRST)) && !text.contains("plain-text-key") && !text.contains("key 1: secret"), "{text}");
    }
    let sound = key(&format!("name = \"a\"\n{good}\nservers = [\"one\"]\ntoolsets = [\"code\"]\nexpires_at = \"2999-01-31T00:00:00Z\""));
    assert_eq!(problems(sound), "");
    let table = key(&format!("name = \"a\"\n{good}"));
    let (settings, _) = Settings::load(&sources(folder.path(), &table, SERVERS)).unwrap();
    assert!(!format!("{settings:?}").contains(&hash(FIRST)[..8]), "the hash is not printed");
    assert!(settings.start.access.has_keys_in_file);
}

/// The example in `deploy/gitops`, with every file that it names.
#[test]
fn the_example_with_everything_in_files_is_sound() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/gitops");
    let folder = tempfile::tempdir().unwrap();
    // The example names the folder in which Kubernetes and Docker mount secrets.
    let secrets = folder.path().to_str().unwrap();
    let text = |name: &str| fs::read_to_string(root.join(name)).unwrap().replace("/run/secrets", secrets);
    for (name, value) in [("admin_key", THIRD), ("open_webui_key", FIRST), ("issues_token", SECOND)] {
        write_secret(&folder.path().join(name), &format!("{value}\n"));
    }
    let environment: Environment = [("HOME".to_owned(), "/home/me".to_owned())].into_iter().collect();
    // The fingerprint is another one on each machine, so the table with it is a comment.
    let (before, approval) =
        text("toolsieve.toml").split_once("# [[approval]]").map(|(one, two)| (one.to_owned(), two.to_owned())).unwrap();
    let settings = format!("{before}[[approval]]{}", approval.replace("\n# ", "\n"));
    let sources = Sources { environment, ..sources(folder.path(), &settings, &text("mcp.json")) };
    let (settings, warnings) = Settings::load(&sources).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(warnings, []);
    let live = &settings.live;
    let names: Vec<&str> = live.api_keys.iter().map(|key| key.properties.name.as_str()).collect();
    assert_eq!(names, ["open-webui", "ci"]);
    assert!(!live.policy.rules.is_empty() && !live.toolsets.defined.is_empty() && !live.tags.is_empty());
    assert!(!live.tools.overrides.is_empty() && !live.tools.enrichments.is_empty() && !live.tools.approvals.is_empty());
    for name in ["admin_key", "open_webui_key", "issues_token"] {
        assert!(settings.files.contains(&folder.path().join(name)), "{name} is watched");
    }

    // Without the secrets, all of them are reported.
    for name in ["admin_key", "open_webui_key", "issues_token"] {
        fs::remove_file(folder.path().join(name)).unwrap();
    }
    let errors = Settings::load(&sources).unwrap_err();
    assert_eq!(errors.problems.len(), 3, "{errors}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_in_a_file_may_be_a_viewers() {
    let table = |role: &str, more: &str| format!("[[key]]\nname = \"watcher\"\nsha256 = \"{}\"\nrole = \"{role}\"\n{more}", hash(FIRST));
    let service = start(table("viewer", ""), &[]).await;
    assert_eq!(status(&service, "/v1/admin/keys", FIRST).await, StatusCode::OK);
    assert_eq!(call(&service, "/v1/admin/keys", FIRST).await, StatusCode::FORBIDDEN);
    assert_eq!(call(&service, "/one/echo", FIRST).await, StatusCode::NOT_FOUND);
    for (role, more, part) in [
        ("viewer", "servers = [\"one\"]\n", "calls no tools"),
        ("viewer", "trusted = true\n", "calls no tools"),
        ("viewr", "", "did you mean `viewer`?"),
    ] {
        let state = reload(&service, &table(role, more)).await;
        assert!(state["state"] == "failed" && state.to_string().contains(part), "{state}");
    }
}
