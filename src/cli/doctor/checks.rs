//! Checks of the configuration on this machine, each with a suggested fix.

use std::env;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use tokio::net::TcpStream;
use tokio::time::timeout;
use url::Url;

use crate::adapters::data_dir::{self, DataDir, DataDirError};
use crate::adapters::proxies;
use crate::adapters::store::StoreOpenError;
use crate::cli::catalog::{Known, peculiarity};
use crate::cli::embedder::Tried;
use crate::service::ports::DiskSpace;
use crate::settings::{Finding, HttpSettings, KnownServer, ServerSettings, TransportSettings};

/// The outcome of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Level {
    Fine,
    Warning,
    Problem,
}

#[derive(Debug, Serialize)]
pub(super) struct Check {
    pub(super) level: Level,
    /// The part of the installation that was checked.
    pub(super) subject: String,
    pub(super) finding: String,
    /// How to fix the problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remedy: Option<String>,
}

impl Check {
    pub(super) fn new(level: Level, subject: impl Into<String>, finding: impl Into<String>, remedy: Option<String>) -> Self {
        Self { level, subject: subject.into(), finding: finding.into(), remedy }
    }

    pub(super) fn is_problem(&self) -> bool {
        self.level == Level::Problem
    }
}

/// Turns a warning about the configuration into a check result.
pub(super) fn warning(finding: &Finding) -> Check {
    Check::new(Level::Warning, finding.place.to_string(), finding.message.clone(), Some(finding.remedy.clone()))
}

/// Checks that the port is free. `user` is the remedy if a program may use the port now: mcpo during a migration, or the service itself.
pub(super) fn port(http: &HttpSettings, user: Option<&str>) -> Check {
    let subject = format!("{}:{}", http.host, http.port);
    match TcpListener::bind((http.host, http.port)) {
        Ok(_) => Check::new(Level::Fine, subject, "free", None),
        Err(error) => {
            let level = if user.is_some() { Level::Warning } else { Level::Problem };
            let remedy = user.unwrap_or("stop the program that listens there, or choose another port with --port");
            Check::new(level, subject, format!("is not available now: {error}"), Some(remedy.to_owned()))
        }
    }
}

/// Checks that the data folder is usable, without creating it. The second value tells whether another process uses it.
pub(super) fn data_dir(path: &Path) -> (Check, bool) {
    let opened = if path.exists() { Some(DataDir::open(path)) } else { None };
    let is_in_use = matches!(opened, Some(Err(DataDirError::InUse { .. })));
    let subject = path.display().to_string();
    let check = match opened {
        None if is_creatable(path) => Check::new(Level::Fine, subject, "created at the first start", None),
        None => {
            let remedy = "give this user write permission, or choose another folder with --data-dir";
            Check::new(Level::Problem, subject, "the data folder can't be created", Some(remedy.to_owned()))
        }
        Some(Ok(_)) => Check::new(Level::Fine, subject, "can be written", None),
        Some(Err(error)) if is_in_use => {
            Check::new(Level::Warning, subject, error.to_string(), Some("ignore this if the service itself uses the folder".to_owned()))
        }
        Some(Err(error)) => Check::new(Level::Problem, subject, error.to_string(), None),
    };
    (check, is_in_use)
}

/// How long a node of Qdrant may take to accept a connection.
const PATIENCE: Duration = Duration::from_secs(3);
/// Below this space, the service works, but the alert `ToolsieveDiskAlmostFull` fires.
const LITTLE_SPACE: u64 = 256 << 20;
/// Below this space, the index of a few thousand tools can't be built, and soon nothing can be stored.
const NO_SPACE: u64 = 32 << 20;

/// Reports a disk that is full, or almost.
pub(super) fn space(path: &Path) -> Option<Check> {
    little(path, data_dir::space(path)?)
}

fn little(path: &Path, space: DiskSpace) -> Option<Check> {
    let (level, effect) = match space.available_bytes {
        ..NO_SPACE => (Level::Problem, "on a full disk, changes fail, and searches may use words only"),
        NO_SPACE..LITTLE_SPACE => (Level::Warning, "the disk is almost full"),
        _ => return None,
    };
    let finding = format!("{} MiB of space are left: {effect}", space.available_bytes >> 20);
    Some(Check::new(level, path.display().to_string(), finding, Some("free space, or choose another folder with --data-dir".to_owned())))
}

/// Tries to reach each node of the Qdrant cluster. The service starts without them, too.
pub(super) async fn qdrant(nodes: &[Url]) -> Vec<Check> {
    let mut checks = Vec::new();
    for node in nodes {
        let host = node.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let connect = TcpStream::connect((host, node.port_or_known_default().unwrap_or_default()));
        let connected = timeout(PATIENCE, connect).await.unwrap_or_else(|elapsed| Err(elapsed.into()));
        let (subject, remedy) =
            (node.origin().ascii_serialization(), "start the node, or correct index.qdrant_url; without any node, searches use words only");
        checks.push(match connected {
            Ok(_) => Check::new(Level::Fine, subject, "the Qdrant node can be reached", None),
            Err(error) => {
                Check::new(Level::Problem, subject, format!("the Qdrant node can't be reached: {error}"), Some(remedy.to_owned()))
            }
        });
    }
    checks
}

/// Reports a store that keeps the service from starting.
pub(super) fn store(error: String) -> Check {
    Check::new(Level::Problem, "store", error, None)
}

/// Reports a store with which the service can start.
pub(super) fn usable_store(finding: String) -> Check {
    Check::new(Level::Fine, "store", finding, None)
}

fn is_creatable(path: &Path) -> bool {
    let parent = std::path::absolute(path).ok().and_then(|path| path.ancestors().find(|folder| folder.exists()).map(Path::to_owned));
    parent.is_some_and(|folder| tempfile_in(&folder))
}

/// Reports that this version would migrate the store.
pub(super) fn older(error: &StoreOpenError) -> Check {
    let remedy = "back up the data folder or the database before the first start of this version; until then, this command doesn't read it";
    Check::new(Level::Warning, "store", error.to_string(), Some(remedy.to_owned()))
}

/// Whether this user can create files in the folder.
fn tempfile_in(folder: &Path) -> bool {
    let probe = folder.join(format!(".toolsieve-doctor-{}", std::process::id()));
    let made = std::fs::OpenOptions::new().write(true).create_new(true).open(&probe).is_ok();
    made && std::fs::remove_file(probe).is_ok()
}

/// Reports a server that was switched off, or an added one that the service doesn't use.
pub(super) fn not_as_in_the_file(server: &KnownServer) -> Option<Check> {
    let level = if server.enabled { Level::Warning } else { Level::Fine };
    Some(Check::new(level, server.name.as_str(), peculiarity(server)?, None))
}

/// Checks that the server's program exists. Reports only failures, because listing its tools shows success.
pub(super) fn command(server: &ServerSettings) -> Option<Check> {
    let TransportSettings::Stdio { command, directory, .. } = &server.transport else { return None };
    if let Some(directory) = directory.as_ref().filter(|directory| !directory.is_dir()) {
        let finding = format!("its working directory {} does not exist", directory.display());
        return Some(Check::new(Level::Problem, server.name.as_str(), finding, Some("correct `cwd`".to_owned())));
    }
    let is_there = if command.contains('/') {
        let path = directory.as_ref().map_or_else(|| PathBuf::from(command), |directory| directory.join(command));
        path.is_file()
    } else {
        env::split_paths(&env::var_os("PATH").unwrap_or_default()).any(|folder| folder.join(command).is_file())
    };
    if is_there {
        return None;
    }
    let remedy = match command.as_str() {
        "npx" | "node" | "npm" => "install Node.js",
        "uvx" | "uv" => "install uv",
        "docker" => "install Docker, or run the service where it is",
        _ => "install it, or write its full path",
    };
    Some(Check::new(Level::Problem, server.name.as_str(), format!("the command `{command}` is not found"), Some(remedy.to_owned())))
}

/// Reports whether the embedder works, and how many tools have vectors.
pub(super) fn embedder(tried: Result<Tried, String>, embedded: Option<usize>, tools: usize) -> Check {
    const SUBJECT: &str = "embedder";
    match tried {
        Ok(Tried { model, dimension, took }) => {
            let so_far = embedded.map_or_else(String::new, |embedded| format!("; {embedded} of {tools} tools are embedded"));
            let finding = format!("{model}: {dimension} dimensions, a message takes {:.1} ms{so_far}", took.as_secs_f64() * 1e3);
            Check::new(Level::Fine, SUBJECT, finding, None)
        }
        Err(reason) => {
            let remedy = "correct [embedder] in the settings: without its folder the service does not start, without its endpoint tools \
                          are found by their words alone";
            Check::new(Level::Problem, SUBJECT, reason, Some(remedy.to_owned()))
        }
    }
}

/// Warns about options that mcpo reads but ignores.
pub(super) fn takes_effect(server: &ServerSettings) -> Option<Check> {
    let rules = server.remote.forwarding.as_ref()?;
    let which = if rules.whitelist.is_empty() { "all headers except credentials".to_owned() } else { rules.whitelist.join(", ") };
    let finding = format!("mcpo ignores `client_header_forwarding`; Toolsieve forwards these headers from every caller: {which}");
    let remedy = "shorten the whitelist if the server shouldn't receive all of them".to_owned();
    Some(Check::new(Level::Warning, server.name.as_str(), finding, Some(remedy)))
}

/// Reports which servers responded, and how many tools and tokens each has. `unfound` are the findings of [`command`].
pub(super) fn answers(servers: &[ServerSettings], known: &Known, unfound: Vec<Check>) -> Vec<Check> {
    let has_finding: Vec<String> = unfound.iter().map(|check| check.subject.clone()).collect();
    let mut checks = unfound;
    for server in servers.iter().filter(|server| !has_finding.iter().any(|name| *name == server.name.as_str())) {
        let name = server.name.as_str();
        if let Some(answered) = known.catalog.server(name) {
            let tokens: u64 = answered.tools.iter().map(|tool| u64::from(tool.tokens)).sum();
            checks.push(Check::new(Level::Fine, name, format!("answers: {} tools, {tokens} tokens", answered.tools.len()), None));
        } else {
            let reason = known.missing.iter().find(|(missing, _)| missing.as_str() == name);
            let reason = reason.map_or("it does not answer", |(_, reason)| reason.as_str());
            checks.push(Check::new(Level::Problem, name, reason, Some(unanswered(&server.transport, reason))));
        }
    }
    for (server, tool) in &known.skipped {
        let finding = format!("the tool {} can't be published: {}", tool.tool, tool.reason);
        checks.push(Check::new(Level::Problem, server.as_str(), finding, Some("ask the server's author to correct it".to_owned())));
    }
    checks
}

/// What to do about a server that doesn't list its tools, for this reason.
fn unanswered(transport: &TransportSettings, reason: &str) -> String {
    if matches!(transport, TransportSettings::Stdio { .. }) {
        return "start it by hand to see its output".to_owned();
    }
    // Only the text of the reason is known here.
    if reason.contains("certificate: UnknownIssuer") {
        return "if your own authority issued its certificate, add the authority to the system's certificates, or set SSL_CERT_FILE to a \
                PEM file with all authorities that the service trusts"
            .to_owned();
    }
    let remedy = "make sure that it runs, and that its `url` is right";
    match proxies::variables().as_slice() {
        [] => remedy.to_owned(),
        names => format!("{remedy}. Requests to other machines use the proxy in {}: hosts in NO_PROXY are exceptions", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use crate::settings::Settings;

    use super::*;

    #[test]
    fn a_full_disk_is_a_problem() {
        let level = |mib: u64| {
            let space = DiskSpace { available_bytes: mib << 20, size_bytes: 1 << 40 };
            little(Path::new("data"), space).map(|check| check.level)
        };
        assert_eq!(
            [0, 31, 32, 255, 256].map(level),
            [Some(Level::Problem), Some(Level::Problem), Some(Level::Warning), Some(Level::Warning), None]
        );
    }

    #[tokio::test]
    async fn each_qdrant_node_is_tried() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = Url::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let checks = qdrant(&[there, Url::parse(&format!("http://{free}")).unwrap()]).await;
        assert_eq!(checks.iter().map(|check| check.level).collect::<Vec<_>>(), [Level::Fine, Level::Problem]);
    }

    #[test]
    fn an_unknown_authority_has_a_remedy_of_its_own() {
        let url = Url::parse("https://localhost").unwrap();
        let transport = TransportSettings::StreamableHttp { url, headers: indexmap::IndexMap::new() };
        let remedy = |reason: &str| unanswered(&transport, reason).contains("SSL_CERT_FILE");
        assert!(remedy("can't connect: invalid peer certificate: UnknownIssuer"));
        assert!(!remedy("can't connect: Connection refused (os error 111)"));
    }

    #[test]
    fn a_running_service_is_no_problem() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let http = HttpSettings { port: listener.local_addr().unwrap().port(), ..Settings::defaults().unwrap().start.http };
        assert!(port(&http, None).is_problem());
        let check = port(&http, Some("ignore this"));
        assert_eq!((check.level, check.remedy.as_deref()), (Level::Warning, Some("ignore this")));

        let folder = tempfile::tempdir().unwrap();
        assert!(!data_dir(folder.path()).1);
        let _service = DataDir::open(folder.path()).unwrap();
        let (check, is_in_use) = data_dir(folder.path());
        assert!(is_in_use && check.level == Level::Warning, "{check:?}");
    }
}
