//! A data folder on a disk that is full: at the start, and while tools change. The real thing is a small `tmpfs` in a mount namespace of
//! the test's own; where that is not permitted, a disk that says that it has no room.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use reqwest::header::RETRY_AFTER;
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::keys::{ADMIN, KEY};
use crate::harness::process::disk::{Disk, FailingDisk};
use crate::harness::process::{Service, command, ended, write_config};
use crate::harness::stdio;
use crate::harness::wait::{eventually, when};

/// Set in the process that has the namespace.
const INSIDE: &str = "FULL_DISK_TEST_INSIDE";
const NAME: &str = "full_disk::a_full_disk_costs_a_warning_and_not_the_service";

/// A user saw: `Bus error` as soon as a server changed its tools, and at each start after that.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_costs_a_warning_and_not_the_service() {
    if std::env::var_os(INSIDE).is_some() {
        return passes(&Room::mounted()).await;
    }
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--map-root-user"]);
        command
    };
    let is_permitted = |mut command: Command| {
        let mount = "mount -t tmpfs -o size=1m tmpfs /tmp";
        command.args(["sh", "-c", mount]).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    if is_permitted(unshare()) {
        let mut command = unshare();
        command.arg(std::env::current_exe().unwrap()).args(["--exact", NAME, "--nocapture", "--test-threads=1"]).env(INSIDE, "1");
        assert!(command.status().unwrap().success(), "on a tmpfs of its own");
    } else {
        println!("no tmpfs may be mounted here: the disk is one that says that it is full");
        passes(&Room::pretended()).await;
    }
}

/// A data folder that can be filled.
struct Room {
    folder: TempDir,
    /// `None`: it is filled by a file.
    disk: Option<FailingDisk>,
}

impl Room {
    fn data() -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        fs::create_dir(&data).unwrap();
        (folder, data)
    }

    fn mounted() -> Self {
        let (folder, data) = Self::data();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=80m", "tmpfs"]).arg(&data).status().unwrap();
        assert!(mounted.success());
        Self { folder, disk: None }
    }

    fn pretended() -> Self {
        let (folder, data) = Self::data();
        let disk = FailingDisk::new(&data);
        Self { folder, disk: Some(disk) }
    }

    fn filler(&self) -> PathBuf {
        self.folder.path().join("data/filler")
    }

    /// To the last byte.
    fn fill(&self) {
        if let Some(disk) = &self.disk {
            return disk.is(Disk::Full);
        }
        let mut file = fs::File::options().create(true).append(true).open(self.filler()).unwrap();
        for size in [1 << 20, 4096, 1] {
            let bytes = vec![b'x'; size];
            while file.write_all(&bytes).is_ok() {}
        }
    }

    fn free(&self) {
        match &self.disk {
            Some(disk) => disk.is(Disk::Works),
            None => fs::remove_file(self.filler()).unwrap(),
        }
    }

    fn start(&self) -> Service {
        self.start_with(|_| ())
    }

    fn start_with(&self, set: impl FnOnce(&mut Command)) -> Service {
        Service::start(self.folder.path(), &json!({"box": stdio(&[])}), |command| {
            set(command);
            if let Some(disk) = &self.disk {
                disk.under(command, None);
            }
        })
    }
}

async fn get(service: &Service, path: &str) -> Value {
    Client::new().get(format!("{}{path}", service.url)).send().await.unwrap().json().await.unwrap()
}

/// Whether the metrics say that searches use the index.
async fn is_index_up(service: &Service) -> bool {
    let text = Client::new().get(format!("{}/metrics", service.url)).send().await.unwrap().text().await.unwrap();
    let value = text.lines().find_map(|line| line.strip_prefix("toolsieve_index_up "));
    value.unwrap_or_else(|| panic!("{text}")) == "1"
}

async fn post(service: &Service, path: &str, body: &Value) -> (StatusCode, Value) {
    let response = Client::new().post(format!("{}{path}", service.url)).json(body).send().await.unwrap();
    (response.status(), response.json().await.unwrap_or_default())
}

async fn until(service: &mut Service, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    eventually(what, async || {
        assert_eq!(service.process.try_wait().unwrap(), None, "it died: {}", service.log());
        when(get(service, "/readyz").await, &is_so).map_err(|ready| format!("{ready}\n{}", service.log()))
    })
    .await
}

fn is_complete(ready: &Value) -> bool {
    let index = &ready["index"];
    ready["tools"].as_u64() > Some(0)
        && index["embedded"] == ready["tools"]
        && index["documents"] == ready["tools"]
        && index["error"].is_null()
}

/// The message finds what it names, by its words, and the answer says why it is not better.
async fn finds_by_words(service: &Service, tool: &str) {
    let (status, found) = post(service, "/v1/tools/search", &json!({"queries": [tool], "limit": 5})).await;
    assert_eq!(status, StatusCode::OK, "{found}");
    let names: Vec<&str> = found["tools"].as_array().unwrap().iter().filter_map(|tool| tool["tool"].as_str()).collect();
    assert!(names.contains(&tool), "{found}");
    let message = json!({"messages": [{"role": "user", "content": format!("use the tool {tool}")}], "chat_id": "chat"});
    let (status, answer) = post(service, "/v1/filter", &message).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert!(answer["warnings"].to_string().contains("not enough disk space"), "{answer}");
}

async fn passes(room: &Room) {
    let mut service = room.start();
    let tools = until(&mut service, "complete", is_complete).await["tools"].as_u64().unwrap();

    room.fill();
    for more in 1..=3 {
        assert_eq!(post(&service, "/box/add_tool", &json!({})).await.0, StatusCode::OK);
        let is_known = |ready: &Value| ready["index"]["error"].is_string() && ready["index"]["documents"] == tools + more;
        until(&mut service, "without room", is_known).await;
        finds_by_words(&service, &format!("extra_{more}")).await;
    }
    assert!(!is_index_up(&service).await);
    room.free();
    until(&mut service, "complete again", is_complete).await;
    assert!(is_index_up(&service).await);

    // From the start on.
    room.fill();
    service.process.kill().unwrap();
    service.process.wait().unwrap();
    let mut service = room.start();
    until(&mut service, "known by their words", |ready| {
        ready["index"]["error"].is_string() && ready["index"]["documents"] == ready["tools"]
    })
    .await;
    finds_by_words(&service, "echo").await;
    assert_eq!(post(&service, "/box/echo", &json!({"text": "a"})).await.0, StatusCode::OK);
    room.free();
    until(&mut service, "complete at last", is_complete).await;
    // A generation is removed after its successor answers.
    let index = room.folder.path().join("data/index");
    eventually("nothing stays of those that were not loaded", async || when(generations(&index), |left| *left == 1)).await;
    // A user saw: `panic (a bug, please report it)` at a stop on a full disk.
    room.fill();
    service.stop();
    assert!(!service.log().contains("panic (a bug"), "{}", service.log());
    room.free();
    let mut service = room.start();
    until(&mut service, "complete after that", is_complete).await;
    assert!(service.stop().success());
}

fn generations(index: &Path) -> usize {
    fs::read_dir(index).unwrap().filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("gen-")).count()
}

/// A user saw: after such a start, `doctor` took the database for one of an earlier version.
#[test]
fn a_first_start_on_a_disk_that_fills_up_leaves_no_database_behind() {
    for step in [20, 60, 120] {
        let room = Room::pretended();
        let (folder, disk) = (room.folder.path(), room.disk.as_ref().unwrap());
        write_config(folder, &json!({"box": stdio(&[])}));
        disk.is(Disk::Fills(step));
        let mut start = command(folder);
        start.args(["--port", "0"]).stdout(Stdio::null()).stderr(Stdio::piped());
        disk.under(&mut start, None);
        let mut process = start.spawn().unwrap();
        assert_eq!(ended(&mut process).code(), Some(1), "{step}");
        let error = String::from_utf8(process.wait_with_output().unwrap().stderr).unwrap();
        assert!(error.contains("the disk is full"), "{step}: {error}");
        let left: Vec<_> = fs::read_dir(folder.join("data")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.iter().all(|name| !name.to_string_lossy().starts_with("toolsieve.db")), "{step}: {left:?}");
        disk.is(Disk::Works);
        assert!(room.start().stop().success());
    }
}

/// A service with keys, and a client of it.
struct Office {
    service: Service,
    client: Client,
}

impl Office {
    fn open(room: &Room) -> Self {
        let service = room.start_with(|command| {
            command.env("TOOLSIEVE_API_KEY", KEY).env("TOOLSIEVE_ADMIN_KEY", ADMIN);
        });
        Self { service, client: Client::new() }
    }

    async fn administer(&self, method: Method, path: &str, body: &Value) -> reqwest::Response {
        self.client.request(method, format!("{}{path}", self.service.url)).bearer_auth(ADMIN).json(body).send().await.unwrap()
    }

    async fn get(&self, path: &str) -> Value {
        self.administer(Method::GET, path, &Value::Null).await.json().await.unwrap()
    }

    async fn echo(&self) -> StatusCode {
        let request = self.client.post(format!("{}/box/echo", self.service.url)).bearer_auth(KEY);
        request.json(&json!({"text": "a"})).send().await.unwrap().status()
    }

    async fn save_toolset(&self, name: &str) -> reqwest::Response {
        self.administer(Method::PUT, &format!("/v1/admin/toolsets/{name}"), &json!({"servers": ["box"]})).await
    }

    async fn has_toolset(&self, name: &str) -> bool {
        self.administer(Method::GET, &format!("/v1/admin/toolsets/{name}"), &Value::Null).await.status() == StatusCode::OK
    }

    /// Waits until the audit log has this number of calls, and the sums too.
    async fn has_calls(&self, number: usize) {
        eventually("all calls are in the audit log and in the sums", async || {
            let audit = self.get("/v1/admin/audit?action=call&limit=1000").await;
            let usage = self.get("/v1/admin/usage").await;
            let found = (audit["entries"].as_array().map_or(0, Vec::len), usage["totals"]["called"].as_u64().unwrap_or_default());
            when(found, |found| *found == (number, number as u64)).map_err(|found| format!("{found:?}\n{}", self.service.log()))
        })
        .await;
    }
}

/// Changes are refused with what to do. Calls go on, and what is recorded of them waits in memory.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_loses_nothing_that_was_acknowledged() {
    const CALLS: usize = 20;
    let room = Room::pretended();
    let mut office = Office::open(&room);
    eventually("the server is connected", async || when(office.echo().await, |status| *status == StatusCode::OK)).await;
    assert!(office.save_toolset("kept").await.status().is_success());
    let before = eventually("the first call is in the audit log", async || {
        let audit = office.get("/v1/admin/audit?action=call&limit=1000").await;
        when(audit["entries"].as_array().map_or(0, Vec::len), |calls| *calls > 0)
    })
    .await;
    office.has_calls(before).await;

    room.fill();
    for _ in 0..CALLS {
        assert_eq!(office.echo().await, StatusCode::OK);
    }
    let refused = office.save_toolset("lost").await;
    assert_eq!((refused.status(), refused.headers().contains_key(RETRY_AFTER)), (StatusCode::SERVICE_UNAVAILABLE, true));
    let problem: Value = refused.json().await.unwrap();
    assert_eq!(problem["code"], "store_unavailable", "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("nothing was changed"), "{problem}");
    let ready = office.get("/readyz").await;
    assert_eq!((&ready["ready"], &ready["store"]["state"]), (&json!(true), &json!("degraded")), "{ready}");
    let error = ready["store"]["error"].as_str().unwrap();
    assert!(error.contains("changes are refused") && error.contains("Free space"), "{error}");
    let public = office.client.get(format!("{}/readyz", office.service.url)).send().await.unwrap();
    assert_eq!(public.status(), StatusCode::OK);
    let public: Value = public.json().await.unwrap();
    assert_eq!(public["store"], json!({"state": "degraded", "error": "see the log"}));
    eventually("`/readyz` says that records wait in memory", async || {
        when(office.get("/readyz").await, |ready| ready["spool"]["error"].is_string())
    })
    .await;
    // The log is written by a thread of its own.
    eventually("the log says so, and why", async || {
        when(office.service.log(), |log| log.contains("records wait in memory") && log.contains("full"))
    })
    .await;

    room.free();
    office.has_calls(before + CALLS).await;
    eventually("`/readyz` says that nothing waits", async || {
        when(office.get("/readyz").await, |ready| ready["spool"] == json!({"bytes": 0}))
    })
    .await;
    assert_eq!(office.get("/readyz").await["store"], json!({"state": "ready"}));
    assert!(office.save_toolset("later").await.status().is_success());
    let metrics = office.client.get(format!("{}/metrics", office.service.url)).bearer_auth(ADMIN).send().await.unwrap();
    let metrics = metrics.text().await.unwrap();
    assert!(metrics.lines().any(|line| line == "toolsieve_audit_entries_lost_total 0"), "{metrics}");
    assert!(office.service.stop().success());

    let mut office = Office::open(&room);
    office.has_calls(before + CALLS).await;
    assert_eq!(
        (office.has_toolset("kept").await, office.has_toolset("lost").await, office.has_toolset("later").await),
        (true, false, true)
    );
    assert!(office.service.stop().success());
}
