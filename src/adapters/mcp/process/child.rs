//! The process of a server: started without a shell, with its own environment, and ended as a whole process group.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use nix::sys::signal::Signal;
use process_wrap::tokio::{ChildWrapper, CommandWrap, ProcessGroup};
use secrecy::{ExposeSecret, SecretString};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::adapters::data_dir;
use crate::adapters::launch::Launch;
use crate::adapters::mcp::process::cutoff::Cutoff;
use crate::adapters::mcp::process::sandbox::{Sandbox, SandboxError, SandboxPlaces};
use crate::adapters::mcp::process::spawner;
use crate::adapters::mcp::process::stderr::{self, LastWords, ProcessLogs};
use crate::adapters::mcp::text::Secrets;
use crate::domain::catalog::tool::ServerName;
use crate::settings::{ProcessSettings, SandboxSettings, StartSettings};

/// Variables that server processes inherit, in addition to `LC_*` and `XDG_*`.
const INHERITED: [&str; 15] = [
    "PATH",
    "HOME",
    "USER",
    "LANG",
    "TMPDIR",
    "SHELL",
    "TERM",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
];
/// Variables of the service that are never inherited, in addition to `TOOLSIEVE_*`.
const OURS: [&str; 4] = ["CREDENTIALS_DIRECTORY", "DATABASE_URL", "EMBEDDER_API_KEY", "QDRANT_API_KEY"];
/// The search path if `PATH` is unset.
const USUAL_PATH: &str = "/bin:/usr/bin";

/// Time limits for ending a child process.
#[derive(Clone, Copy, Debug)]
pub(in crate::adapters::mcp) struct Manners {
    /// Time after closing its standard input.
    grace: Duration,
    /// Time after `SIGTERM`.
    termination: Duration,
}

impl Manners {
    pub(in crate::adapters::mcp) const GENTLE: Self = Self { grace: Duration::from_millis(500), termination: Duration::from_millis(1500) };
    /// For a server removed from the configuration: ends it within a second.
    pub(in crate::adapters::mcp) const PROMPT: Self = Self { grace: Duration::from_millis(400), termination: Duration::from_millis(300) };
}

/// Shared options of all server processes.
#[derive(Clone, Debug, Default)]
pub struct Processes {
    /// Whether processes inherit the whole environment except the service's variables, instead of only the allow-list.
    pub inherit_environment: bool,
    /// This binary, which starts servers by executing their programs (`Launch`). If `None`, servers are started directly and
    /// can't be sandboxed.
    pub launcher: Option<PathBuf>,
    /// Secrets of the service. Variables with these values are not inherited.
    pub secrets: Vec<SecretString>,
    pub sandboxes: SandboxPlaces,
    /// What the processes wrote to standard error.
    pub logs: Arc<ProcessLogs>,
}

impl Processes {
    /// Derives the options from the settings and the data folder.
    pub fn of(settings: &StartSettings, data_dir: &Path) -> Self {
        let ProcessSettings { launcher, secrets, files, .. } = settings.processes.clone();
        let data_dir = std::path::absolute(data_dir).unwrap_or_else(|_| data_dir.to_owned());
        let sandboxes = SandboxPlaces { folder: data_dir::sandboxes(&data_dir), private: files.into_iter().chain([data_dir]).collect() };
        Self { inherit_environment: settings.mcpo.is_some(), launcher, secrets, sandboxes, logs: Arc::default() }
    }

    /// The variables that server processes inherit.
    fn inherited(&self) -> impl Iterator<Item = (OsString, OsString)> {
        std::env::vars_os().filter(|(name, value)| {
            let Some(name) = name.to_str() else { return self.inherit_environment };
            if self.inherit_environment {
                !self.is_ours(name, value)
            } else {
                INHERITED.contains(&name) || name.starts_with("LC_") || name.starts_with("XDG_")
            }
        })
    }

    fn is_ours(&self, name: &str, value: &OsStr) -> bool {
        let is_secret = || self.secrets.iter().any(|secret| OsStr::new(secret.expose_secret()) == value);
        name.starts_with("TOOLSIEVE_") || OURS.contains(&name) || is_secret()
    }
}

/// A program to start.
#[derive(Clone)]
pub(in crate::adapters::mcp) struct Program {
    pub(in crate::adapters::mcp) command: String,
    pub(in crate::adapters::mcp) args: Vec<String>,
    pub(in crate::adapters::mcp) env: IndexMap<String, SecretString>,
    pub(in crate::adapters::mcp) directory: Option<PathBuf>,
    pub(in crate::adapters::mcp) sandbox: Option<SandboxSettings>,
    pub(in crate::adapters::mcp) processes: Arc<Processes>,
}

#[derive(Debug, thiserror::Error)]
pub(in crate::adapters::mcp) enum SpawnError {
    #[error("command `{0}` not found in PATH")]
    NotInPath(String),
    #[error("command `{0}` not found")]
    NotFound(String),
    #[error("command `{0}` can't be executed")]
    NotExecutable(String),
    #[error("the working directory {} does not exist", .0.display())]
    NoDirectory(PathBuf),
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error("sandboxes require the program `toolsieve` on Linux")]
    NoLauncher,
    #[error("processes can't be started now")]
    NoThread,
    #[error("command `{command}` did not start: {source}")]
    Failed {
        command: String,
        #[source]
        source: io::Error,
    },
}

/// A running child process. Dropping it kills its process group.
pub(in crate::adapters::mcp) struct Child {
    process: Box<dyn ChildWrapper>,
    command: String,
    last_words: LastWords,
    cutoff: Cutoff,
    stderr: JoinHandle<()>,
}

/// The standard input and output of a child process, and a handle with which their readers can end it.
pub(in crate::adapters::mcp) struct Streams {
    pub(in crate::adapters::mcp) stdin: ChildStdin,
    pub(in crate::adapters::mcp) stdout: ChildStdout,
    pub(in crate::adapters::mcp) cutoff: Cutoff,
}

impl Child {
    /// Starts the program. Its standard error is logged, with secrets masked.
    pub(in crate::adapters::mcp) async fn spawn(
        server: ServerName,
        program: Program,
        secrets: Arc<Secrets>,
    ) -> Result<(Self, Streams), SpawnError> {
        spawner::run(move || Self::start(server, &program, secrets)).await.ok_or(SpawnError::NoThread)?
    }

    fn start(server: ServerName, program: &Program, secrets: Arc<Secrets>) -> Result<(Self, Streams), SpawnError> {
        let command = &program.command;
        let mut wrapped = CommandWrap::from(program.prepare(&server)?);
        let mut process = wrapped.wrap(ProcessGroup::leader()).spawn().map_err(|source| spawn_error(command, source))?;
        let (stdin, stdout, stderr) = (process.stdin().take(), process.stdout().take(), process.stderr().take());
        let (Some(stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
            let source = io::ErrorKind::BrokenPipe.into();
            return Err(SpawnError::Failed { command: command.clone(), source });
        };
        let (last_words, cutoff) = (LastWords::new(secrets), Cutoff::default());
        let log = program.processes.logs.of(&server);
        let stderr = tokio::spawn(stderr::follow(server, stderr, last_words.clone(), log, cutoff.clone()));
        let streams = Streams { stdin, stdout, cutoff: cutoff.clone() };
        Ok((Self { process, command: command.clone(), last_words, cutoff, stderr }, streams))
    }

    /// Waits for the process to end and returns a description of its exit. Cancel-safe.
    pub(in crate::adapters::mcp) async fn exited(&mut self) -> String {
        let ended = tokio::select! {
            biased;
            () = self.cutoff.reached() => None,
            ended = self.process.wait() => Some(ended),
        };
        match ended {
            None => self.cutoff.reason().unwrap_or("it was ended").to_owned(),
            Some(Ok(status)) => self.ended(status),
            Some(Err(_)) => format!("`{}` is gone", self.command),
        }
    }

    /// The last lines of standard error, if any.
    pub(in crate::adapters::mcp) async fn last_words(&mut self) -> Option<String> {
        if self.cutoff.reason().is_some() {
            return None;
        }
        if let Ok(Some(_)) = self.process.try_wait() {
            // A dead process writes no more, but a grandchild may keep the pipe open.
            let _ = timeout(Duration::from_millis(200), &mut self.stderr).await;
        }
        self.last_words.text()
    }

    /// Ends the process group. First closes standard input, which asks the process to end.
    pub(in crate::adapters::mcp) async fn stop(&mut self, manners: Manners) {
        if timeout(manners.grace, self.process.wait()).await.is_err() {
            let _ = self.process.signal(Signal::SIGTERM as i32);
            if timeout(manners.termination, self.process.wait()).await.is_err() {
                let _ = self.process.start_kill();
                let _ = timeout(manners.termination, self.process.wait()).await;
            }
        }
        // Kill the rest of the group.
        let _ = self.process.start_kill();
    }

    fn ended(&self, status: ExitStatus) -> String {
        let command = &self.command;
        match (status.code(), status.signal()) {
            (Some(code), _) => format!("`{command}` exited with status {code}"),
            (None, Some(signal)) => format!("`{command}` was ended by signal {signal}"),
            (None, None) => format!("`{command}` ended"),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.start_kill();
        self.stderr.abort();
    }
}

impl Program {
    /// Builds the command, which is the program or, to apply the sandbox, this binary.
    fn prepare(&self, server: &ServerName) -> Result<Command, SpawnError> {
        let Self { command, args, env, directory, sandbox, processes } = self;
        if let Some(directory) = directory.as_ref().filter(|directory| !directory.is_dir()) {
            return Err(SpawnError::NoDirectory(directory.clone()));
        }
        let mut variables: IndexMap<OsString, OsString> = processes.inherited().collect();
        let own: Vec<(OsString, OsString)> = env.iter().map(|(name, value)| (name.into(), value.expose_secret().into())).collect();
        let mut directory = directory.clone();
        let mut process = if let Some(launcher) = &processes.launcher {
            let path = own.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path).or_else(|| variables.get(OsStr::new("PATH")));
            let program = find(command, path.map_or(OsStr::new(USUAL_PATH), OsString::as_os_str), directory.as_deref())?;
            let sandbox = match sandbox {
                Some(settings) => Some(Sandbox::of(server, settings, directory.as_deref(), &program, &processes.sandboxes)?),
                None => None,
            };
            let grants = sandbox.map(|Sandbox { home, temporary, grants }| {
                variables.retain(|name, _| !name.to_string_lossy().starts_with("XDG_"));
                variables.extend([("HOME".into(), home.clone().into()), ("TMPDIR".into(), temporary.into())]);
                directory.get_or_insert(home);
                grants
            });
            let (name, args) = (command.into(), args.iter().map(OsString::from).collect());
            let launch = Launch { parent: std::process::id(), sandbox: grants, program, name, args };
            let mut process = Command::new(launcher);
            process.arg0("toolsieve").args(launch.words());
            process
        } else {
            if sandbox.is_some() {
                return Err(SpawnError::NoLauncher);
            }
            let mut process = Command::new(command);
            process.args(args);
            process
        };
        process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        process.env_clear().envs(variables).envs(own);
        if let Some(directory) = directory {
            process.current_dir(directory);
        }
        Ok(process)
    }
}

/// Finds a command's file like `execvp(3)`, relative to the process's working directory.
fn find(command: &str, path: &OsStr, directory: Option<&Path>) -> Result<PathBuf, SpawnError> {
    let at = |program: &Path| directory.map_or_else(|| program.to_owned(), |directory| directory.join(program));
    let is_executable = |program: &Path| program.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0);
    let candidates: Vec<PathBuf> = if command.contains('/') {
        vec![at(Path::new(command))]
    } else {
        std::env::split_paths(path).map(|folder| at(&folder).join(command)).collect()
    };
    if let Some(found) = candidates.iter().find(|candidate| is_executable(candidate)) {
        // The process changes its working directory before it executes the program.
        return std::path::absolute(found).map_err(|source| spawn_error(command, source));
    }
    let kind =
        if candidates.iter().any(|candidate| candidate.exists()) { io::ErrorKind::PermissionDenied } else { io::ErrorKind::NotFound };
    Err(spawn_error(command, kind.into()))
}

fn spawn_error(command: &str, source: io::Error) -> SpawnError {
    match source.kind() {
        io::ErrorKind::NotFound if command.contains('/') => SpawnError::NotFound(command.to_owned()),
        io::ErrorKind::NotFound => SpawnError::NotInPath(command.to_owned()),
        io::ErrorKind::PermissionDenied => SpawnError::NotExecutable(command.to_owned()),
        _ => SpawnError::Failed { command: command.to_owned(), source },
    }
}
