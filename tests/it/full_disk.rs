//! A data folder on a disk that is full: at the start, and while tools change. The real thing is a small `tmpfs` in a mount namespace of
//! the test's own; where that is not permitted, a disk that says that it has no room.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::process::Service;
use crate::harness::process::disk::{Disk, FailingDisk};
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
        Service::start(self.folder.path(), &json!({"box": stdio(&[])}), |command| {
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
    assert!(service.stop().success());
}

fn generations(index: &Path) -> usize {
    fs::read_dir(index).unwrap().filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("gen-")).count()
}
