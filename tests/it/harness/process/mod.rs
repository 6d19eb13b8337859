//! The built binary in a process of its own.

pub(crate) mod built;
pub(crate) mod database;
#[cfg(target_os = "linux")]
pub(crate) mod disk;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use self::built::toolsieve;
use crate::harness::wait::{eventually_blocking, looked, when};

/// `toolsieve serve` on `mcp.json` in a folder. Killed with this value.
pub(crate) struct Service {
    pub(crate) process: Child,
    pub(crate) url: String,
    folder: PathBuf,
    log: Arc<Mutex<String>>,
}

pub(crate) fn write_config(folder: &Path, servers: &Value) {
    fs::write(folder.join("mcp.json"), json!({"mcpServers": servers}).to_string()).unwrap();
}

/// The command, without anything of the test's own environment.
pub(crate) fn command(folder: &Path) -> Command {
    let mut command = toolsieve();
    command.arg("serve").arg("--config").arg(folder.join("mcp.json")).arg("--data-dir").arg(folder.join("data"));
    command
}

impl Service {
    /// Waits until it listens.
    pub(crate) fn start(folder: &Path, servers: &Value, change: impl FnOnce(&mut Command)) -> Self {
        write_config(folder, servers);
        let mut command = command(folder);
        command.args(["--port", "0"]);
        change(&mut command);
        Self::run(folder, command)
    }

    /// Runs this command, which starts a service, and waits until it listens.
    pub(crate) fn run(folder: &Path, mut command: Command) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut process = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let log = Arc::new(Mutex::new(String::new()));
        let written = Arc::clone(&log);
        // Reads on to the end, so that the service never waits for somebody to take its log.
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                written.lock().unwrap().extend([line.as_str(), "\n"]);
            }
        });
        let mut service = Self { process, url: String::new(), folder: folder.to_owned(), log };
        // In both formats of the log.
        let marks = ["address=", "\"address\":\""];
        let marked = |log: &str| marks.iter().find_map(|mark| log.split_once(mark).map(|(_, rest)| rest.to_owned()));
        let address = eventually_blocking("the address in the log", || marked(&service.log()));
        service.url = format!("http://{}", address.split([' ', '"', '\n']).next().unwrap());
        service
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Waits for these words in the log and returns all of it.
    pub(crate) fn until_logged(&self, words: &str) -> String {
        let what = format!("`{words}` in the log");
        eventually_blocking(&what, || when(self.log(), |log| log.contains(words)))
    }

    pub(crate) fn configure(&self, servers: &Value) {
        write_config(&self.folder, servers);
    }

    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(i32::try_from(self.process.id()).unwrap()), signal).unwrap();
    }

    /// Tells it to stop and waits for the end.
    pub(crate) fn stop(&mut self) -> ExitStatus {
        self.signal(nix::sys::signal::Signal::SIGTERM);
        ended(&mut self.process)
    }
}

/// Waits for the end of a process that was told to stop.
pub(crate) fn ended(process: &mut Child) -> ExitStatus {
    looked(|| process.try_wait().unwrap()).unwrap_or_else(|_| {
        let _ = process.kill();
        panic!("the process does not end");
    })
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
