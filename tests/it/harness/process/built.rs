//! The programs that tests start. Cargo builds `toolsieve` for every test of `it`. Our MCP servers are examples, and `cargo test --test it`
//! builds none: so they are built here, once, where they are missing or older than their sources.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::SystemTime;

use crate::harness::FOR_TESTS;

const SERVERS: [&str; 4] = ["test-stdio-server", "test-http-server", "test-sse-server", "test-replay-server"];
/// What cargo sets for tests. Build scripts of dependencies would take them for a change and run again.
const OF_THE_TEST: [&str; 5] = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_", "CARGO_PRIMARY_"];

/// The binary of the service.
pub(crate) const TOOLSIEVE: &str = env!("CARGO_BIN_EXE_toolsieve");

/// The service's command line with the settings for tests, without input and without anything of the test's own environment.
pub(crate) fn toolsieve() -> Command {
    let mut command = Command::new(TOOLSIEVE);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).envs(FOR_TESTS).stdin(Stdio::null());
    command
}

/// An example binary of this crate: a test server.
pub(crate) fn example(name: &str) -> PathBuf {
    static FOLDER: LazyLock<Result<PathBuf, String>> = LazyLock::new(|| {
        let test = std::env::current_exe().map_err(|error| error.to_string())?;
        let profile = test.ancestors().nth(2).ok_or("this test lies in no target folder")?;
        build(profile).map(|()| profile.join("examples"))
    });
    assert!(SERVERS.contains(&name), "{name} is not among {SERVERS:?}");
    FOLDER.as_ref().unwrap_or_else(|problem| panic!("{problem}")).join(name)
}

/// Builds the servers of this profile unless they are there and up to date.
fn build(profile: &Path) -> Result<(), String> {
    let examples = profile.join("examples");
    // When they were built here last: cargo does not touch a binary whose sources have another time and the same text.
    let stamp = examples.join(".test-servers");
    if is_current(&examples, &stamp) {
        return Ok(());
    }
    fs::create_dir_all(&examples).map_err(|error| format!("{}: {error}", examples.display()))?;
    let lock = File::options().create(true).append(true).open(&stamp).map_err(|error| format!("{}: {error}", stamp.display()))?;
    lock.lock().map_err(|error| format!("{}: {error}", stamp.display()))?;
    // Another process may have built them meanwhile.
    if is_current(&examples, &stamp) {
        return Ok(());
    }
    let begun = SystemTime::now();
    let mut cargo = cargo(profile);
    // Tests print into a buffer; this is for whoever waits.
    let _ = writeln!(std::io::stderr(), "\nbuilding the MCP servers of the tests: {cargo:?}");
    let by_hand = format!("Build them with `cargo build --examples{}`.", flag(profile));
    match cargo.status() {
        Ok(status) if status.success() => lock.set_modified(begun).map_err(|error| format!("{}: {error}", stamp.display())),
        Ok(status) => Err(format!("the MCP servers of the tests can't be built: cargo ended with {status}. {by_hand}")),
        Err(error) => Err(format!("the MCP servers of the tests are not built, and cargo can't be started: {error}. {by_hand}")),
    }
}

fn cargo(profile: &Path) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| env!("CARGO").into()));
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| OF_THE_TEST.iter().any(|prefix| name.starts_with(prefix))) {
            cargo.env_remove(name);
        }
    }
    cargo.args(["build", "--locked", "--quiet", "--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")]);
    cargo.arg("--target-dir").arg(profile.parent().unwrap_or(profile)).args(flag(profile).split_whitespace());
    cargo.args(SERVERS.iter().flat_map(|server| ["--example", server])).stdin(Stdio::null());
    cargo
}

/// How cargo is asked for the profile with this folder, after a space.
fn flag(profile: &Path) -> String {
    match profile.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => String::new(),
        Some(name) => format!(" --profile {name}"),
    }
}

/// Whether every server is there, and newer than the sources or checked after they were written.
fn is_current(examples: &Path, stamp: &Path) -> bool {
    let modified = |path: &Path| fs::metadata(path).and_then(|found| found.modified()).ok();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let servers = fs::read_dir(root.join("tests/servers")).into_iter().flatten().flatten().map(|entry| entry.path());
    let sources = servers.chain([root.join("Cargo.toml"), root.join("Cargo.lock")]).filter_map(|path| modified(&path));
    let written = sources.max();
    let checked = modified(stamp);
    SERVERS.iter().all(|server| modified(&examples.join(server)).is_some_and(|built| written <= Some(built.max(checked.unwrap_or(built)))))
}
