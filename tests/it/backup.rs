//! A backup that was made while the service runs is enough to start anew with what people gave it.

use std::fs;
use std::path::Path;
use std::process::Output;

use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::keys::{ADMIN, KEY};
use crate::harness::process::built::toolsieve;
use crate::harness::process::database::change;
use crate::harness::process::{Service, ended};
use crate::harness::stdio;
use crate::harness::wait::{eventually, when};

/// `toolsieve backup` or `restore` on the data folder in a folder.
fn run(command: &str, file: &Path, folder: &Path, flags: &[&str]) -> Output {
    toolsieve().arg(command).arg(file).args(flags).arg("--data-dir").arg(folder.join("data")).output().unwrap()
}

/// The same, which must end with this exit code and these words.
fn ends(command: &str, file: &Path, folder: &Path, flags: &[&str], code: i32, words: &str) {
    let output = run(command, file, folder, flags);
    let printed = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{command} {flags:?}: {printed}");
    assert!(printed.contains(words), "{words}: {printed}");
}

fn start(folder: &Path) -> Service {
    Service::start(folder, &json!({"one": stdio(&[])}), |command| {
        command.env("TOOLSIEVE_API_KEY", KEY).env("TOOLSIEVE_ADMIN_KEY", ADMIN);
        // For links to files.
        command.env("TOOLSIEVE_HTTP__PUBLIC_URL", "http://example.org");
    })
}

async fn administer(service: &Service, method: Method, path: &str, body: &Value) -> (StatusCode, Value) {
    let request = Client::new().request(method, format!("{}{path}", service.url)).bearer_auth(ADMIN).json(body);
    let response = request.send().await.unwrap();
    (response.status(), response.json().await.unwrap_or_default())
}

async fn create(service: &Service, name: &str) -> String {
    let (status, key) = administer(service, Method::POST, "/v1/admin/keys", &json!({"name": name})).await;
    assert_eq!(status, StatusCode::CREATED, "{key}");
    key["key"].as_str().unwrap().to_owned()
}

async fn keys(service: &Service) -> Vec<String> {
    let (_, keys) = administer(service, Method::GET, "/v1/admin/keys", &json!(null)).await;
    keys["keys"].as_array().unwrap().iter().map(|key| key["name"].as_str().unwrap().to_owned()).collect()
}

/// The status of a call, once its server has listed its tools.
async fn called(service: &Service, key: &str, tool: &str) -> StatusCode {
    eventually("the server has listed its tools", async || {
        let request = Client::new().get(format!("{}/readyz", service.url)).bearer_auth(ADMIN);
        let state: Value = request.send().await.unwrap().json().await.unwrap();
        when(state, |state| state["servers"][0]["phase"] == "connected" && state["tools"] != 0)
    })
    .await;
    let request = Client::new().post(format!("{}/one/{tool}", service.url)).bearer_auth(key).json(&json!({}));
    request.send().await.unwrap().status()
}

fn installation(folder: &Path) -> Value {
    serde_json::from_slice(&fs::read(folder.join("data/installation")).unwrap()).unwrap()
}

/// The names in the data folder that belong to a restore.
fn restores(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder.join("data")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains("restore")).collect()
}

/// A stopped service's folder with the key `first`, and a backup that was made before the key `later` was created.
async fn used() -> (TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let mut service = start(folder.path());
    create(&service, "first").await;
    let backup = folder.path().join("backup.tar.gz");
    ends("backup", &backup, folder.path(), &[], 0, "verified");
    create(&service, "later").await;
    assert!(service.stop().success());
    (folder, backup)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_backed_up_under_way_is_there_in_a_new_folder() {
    let folder = tempfile::tempdir().unwrap();
    let mut service = start(folder.path());
    let key = create(&service, "ci").await;
    let rules = json!({"rules": [{"effect": "block", "tools": ["process"]}]});
    assert_eq!(administer(&service, Method::PUT, "/v1/admin/policy", &rules).await.0, StatusCode::OK);
    let toolset = json!({"tools": ["echo"], "description": "says it again"});
    assert_eq!(administer(&service, Method::PUT, "/v1/admin/toolsets/words", &toolset).await.0, StatusCode::CREATED);
    assert_eq!((called(&service, &key, "echo").await, called(&service, &key, "process").await), (StatusCode::OK, StatusCode::NOT_FOUND));
    // Tokens for servers, as after a sign-in.
    fs::create_dir(folder.path().join("data/oauth")).unwrap();
    fs::write(folder.path().join("data/oauth/a.json"), "{}").unwrap();

    let backup = folder.path().join("backup.tar.gz");
    ends("backup", &backup, folder.path(), &[], 0, "verified");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(&backup).unwrap().permissions().mode() & 0o777, 0o600);
    }
    // A former backup is replaced only on request, and a folder without a database is a mistake.
    ends("backup", &backup, folder.path(), &[], 2, "--force");
    ends("backup", &backup, folder.path(), &["--force"], 0, "verified");
    ends("backup", &folder.path().join("other"), &folder.path().join("nothing"), &[], 2, "--data-dir");
    let beside: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(beside.len(), 3, "mcp.json, data and the backup: {beside:?}");
    // What came after the backup is not in it.
    create(&service, "later").await;
    assert_eq!(service.stop().code(), Some(0));

    let restored = tempfile::tempdir().unwrap();
    ends("restore", &backup, restored.path(), &[], 0, "restored the backup of");
    let read = |folder: &Path, name: &str| fs::read(folder.join("data").join(name)).unwrap();
    for name in ["files/key", "oauth/a.json"] {
        assert_eq!(read(folder.path(), name), read(restored.path(), name), "{name}");
    }
    let service = start(restored.path());
    assert_eq!((called(&service, &key, "echo").await, called(&service, &key, "process").await), (StatusCode::OK, StatusCode::NOT_FOUND));
    assert_eq!(keys(&service).await, ["ci"]);
    let (_, toolset) = administer(&service, Method::GET, "/v1/admin/toolsets/words", &json!(null)).await;
    assert_eq!(toolset["members"], json!(["one__echo"]));
    assert_eq!(installation(folder.path()), installation(restored.path()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_needs_a_stopped_service_and_moves_the_former_data_aside() {
    let (folder, backup) = used().await;
    let mut service = start(folder.path());
    ends("restore", &backup, folder.path(), &["--force"], 1, "in use");
    assert_eq!(keys(&service).await, ["first", "later"]);
    assert!(service.stop().success());

    ends("restore", &backup, folder.path(), &[], 2, "--force");
    ends("restore", &backup, folder.path(), &["--force"], 0, "before-restore-");
    let [aside] = restores(folder.path()).try_into().unwrap();
    let mut service = start(folder.path());
    assert_eq!(keys(&service).await, ["first"]);
    assert!(service.stop().success());

    // The former data is a data folder of its own.
    let former = tempfile::tempdir().unwrap();
    fs::rename(folder.path().join("data").join(aside), former.path().join("data")).unwrap();
    assert_eq!(keys(&start(former.path())).await, ["first", "later"]);
}

/// The service would not start with a lost database. A backup of such a folder would replace a better one.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_database_is_not_backed_up_and_comes_back_with_a_restore() {
    let (folder, backup) = used().await;
    let data = folder.path().join("data");
    let (stranger, _) = used().await;
    for name in ["toolsieve.db-wal", "toolsieve.db-shm"] {
        let _ = fs::remove_file(data.join(name));
    }
    fs::copy(stranger.path().join("data/toolsieve.db"), data.join("toolsieve.db")).unwrap();
    ends("backup", &folder.path().join("worthless"), folder.path(), &[], 2, "toolsieve restore");
    assert!(!folder.path().join("worthless").exists());
    fs::remove_file(data.join("toolsieve.db")).unwrap();
    ends("restore", &backup, folder.path(), &["--force"], 0, "before-restore-");
    assert_eq!(keys(&start(folder.path())).await, ["first"]);
    // Data of another installation is not lost, but it may be a mistake.
    ends("restore", &backup, stranger.path(), &["--force"], 0, "another installation");
}

/// Regression test: to an account without access to the data folder, `backup` said that there was no database.
#[test]
fn a_folder_without_access_is_not_taken_for_an_empty_one() {
    let folder = tempfile::tempdir().unwrap();
    // Unlike missing rights, this stops root too.
    std::os::unix::fs::symlink("data", folder.path().join("data")).unwrap();
    ends("backup", &folder.path().join("b.tar.gz"), folder.path(), &[], 1, "as root or as the service's account");
}

/// What `toolsieve backup` made at first, and what `sqlite3 toolsieve.db '.backup copy.db'` makes.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_the_database_alone_can_be_restored() {
    let (folder, _) = used().await;
    let copy = folder.path().join("copy.db");
    toolsieve::adapters::store::back_up(&folder.path().join("data/toolsieve.db"), &copy).await.unwrap();
    let restored = tempfile::tempdir().unwrap();
    ends("restore", &copy, restored.path(), &[], 0, "restored the database");
    let mut service = start(restored.path());
    assert_eq!(keys(&service).await, ["first", "later"]);
    assert!(service.stop().success());
    assert_eq!(installation(folder.path())["id"], installation(restored.path())["id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_sound_backup_changes_nothing() {
    let (folder, backup) = used().await;
    let whole = fs::read(&backup).unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let mut changed = whole.clone();
    let middle = changed.len() / 2;
    // A single byte may only change which of many zeros is repeated.
    changed[middle..middle + 64].iter_mut().for_each(|byte| *byte ^= 0xff);
    let newer = folder.path().join("newer.db");
    toolsieve::adapters::store::back_up(&folder.path().join("data/toolsieve.db"), &newer).await.unwrap();
    change(&newer, "INSERT INTO _sqlx_migrations SELECT 9999, 'later', installed_on, TRUE, checksum, 0 FROM _sqlx_migrations LIMIT 1")
        .await;
    change(&newer, "UPDATE installation SET compatible_from = 9999").await;
    let foreign = folder.path().join("foreign.db");
    fs::write(&foreign, "").unwrap();
    change(&foreign, "CREATE TABLE theirs (x)").await;
    let mut torn = fs::read(folder.path().join("data/toolsieve.db")).unwrap();
    // Past the pages of the schema.
    let end = torn.len() - 4096;
    torn[16 * 4096..end].fill(0xa5);
    for (path, code, words) in [
        (folder.path().join("no such file"), 2, "can't be read"),
        (folder.path().to_owned(), 2, "can't be read"),
        (file("empty", b""), 2, "not a backup"),
        (file("text", b"no backup at all, but longer than its head"), 2, "not a backup"),
        (file("truncated", &whole[..whole.len() - 9]), 1, "damaged"),
        (file("half", &whole[..whole.len() / 2]), 1, "damaged"),
        (file("changed", &changed), 1, "damaged"),
        (file("torn.db", &torn), 1, "damaged"),
        (newer, 2, "newer version"),
        (foreign, 2, "not a backup"),
    ] {
        ends("restore", &path, folder.path(), &["--force"], code, words);
        assert_eq!(restores(folder.path()), Vec::<String>::new(), "{}", path.display());
    }
    assert_eq!(keys(&start(folder.path())).await, ["first", "later"]);
}

/// The names of the keys in a database, without a service.
#[cfg(target_os = "linux")]
async fn stored_keys(database: &Path) -> Vec<String> {
    let mut connection = crate::harness::process::database::connect(database).await;
    let names = sqlx::query_scalar("SELECT name FROM api_key ORDER BY name").fetch_all(&mut connection).await.unwrap();
    sqlx::Connection::close(connection).await.unwrap();
    names
}

/// The process ends at each of its writes and flushes in turn. Whoever opens the folder next finds the old data or the new.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_restore_that_is_cut_off_leaves_the_old_data_or_the_new() {
    use toolsieve::adapters::data_dir::DataDir;

    use crate::harness::process::disk::{Disk, ENDED, FailingDisk};

    const NAMES: [&str; 3] = ["toolsieve.db", "installation", "files/key"];
    let (folder, backup) = used().await;
    let mut seen = std::collections::BTreeSet::new();
    for step in 1.. {
        let copy = tempfile::tempdir().unwrap();
        let data = copy.path().join("data");
        fs::create_dir_all(data.join("files")).unwrap();
        for name in NAMES {
            fs::copy(folder.path().join("data").join(name), data.join(name)).unwrap();
        }
        let disk = FailingDisk::new(&data);
        disk.is(Disk::Ends(step));
        let mut command = toolsieve();
        command.arg("restore").arg(&backup).args(["--force", "--data-dir"]).arg(&data);
        disk.under(&mut command, None);
        let output = command.output().unwrap();
        let is_over = output.status.success();
        assert!(is_over || output.status.code() == Some(ENDED), "{step}: {}", String::from_utf8_lossy(&output.stderr));
        drop(DataDir::open(&data).unwrap());
        let found = stored_keys(&data.join("toolsieve.db")).await;
        assert!(found == ["first"] || found == ["first", "later"], "{step}: {found:?}");
        assert!(NAMES.iter().all(|name| data.join(name).is_file()), "{step}");
        if let Some(aside) = restores(copy.path()).iter().find(|name| name.starts_with("before-restore-")) {
            assert_eq!(found, ["first"], "{step}");
            assert_eq!(stored_keys(&data.join(aside).join("toolsieve.db")).await, ["first", "later"], "{step}");
        }
        seen.insert(found);
        if is_over {
            break;
        }
    }
    assert_eq!(seen.len(), 2, "some steps come before the new data, and some after it");
}

#[tokio::test]
async fn a_backup_that_is_stopped_leaves_nothing_behind() {
    let (folder, _) = used().await;
    // Reading this file waits for a writer.
    let pipe = folder.path().join("data/files/pipe");
    fs::create_dir_all(pipe.parent().unwrap()).unwrap();
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let to = tempfile::tempdir().unwrap();
    let names =
        || -> Vec<String> { fs::read_dir(to.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect() };
    for signal in [nix::sys::signal::Signal::SIGTERM, nix::sys::signal::Signal::SIGINT] {
        let mut command = toolsieve();
        command.arg("backup").arg(to.path().join("backup.tar.gz")).arg("--data-dir").arg(folder.path().join("data"));
        let mut process = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
        eventually("the archive is being written", async || when(names().join(" "), |names| names.contains(".part"))).await;
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(i32::try_from(process.id()).unwrap()), signal).unwrap();
        assert_eq!(ended(&mut process).code(), Some(1));
        let error = String::from_utf8(process.wait_with_output().unwrap().stderr).unwrap();
        assert!(error.contains("stopped by a signal"), "{error}");
        assert_eq!(names(), [""; 0]);
    }
}
