//! A server's process: argv only, an environment of its own, leader of a process group that is ended as a whole.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use indexmap::IndexMap;
use nix::sys::signal::Signal;
use process_wrap::tokio::{ChildWrapper, CommandWrap, ProcessGroup};
use secrecy::{ExposeSecret, SecretString};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::adapters::mcp::text::{Secrets, cut, plain};
use crate::domain::tool::ServerName;

/// What a child inherits; besides these, `LC_*` and `XDG_*`.
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
/// Bytes of a line of standard error that are kept.
const LINE_LIMIT: usize = 2000;
/// Lines of standard error that are kept for the reason of a failure, and their bytes there.
const LAST_LINES: usize = 5;
const LAST_LINE_LIMIT: usize = 300;

/// How much time a child has to end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manners {
    /// After its standard input was closed.
    grace: Duration,
    /// After `SIGTERM`.
    termination: Duration,
}

impl Manners {
    pub(super) const GENTLE: Self = Self { grace: Duration::from_millis(500), termination: Duration::from_millis(1500) };
    /// A server that was taken out of the configuration is gone within a second.
    pub(super) const PROMPT: Self = Self { grace: Duration::from_millis(400), termination: Duration::from_millis(300) };
}

/// How a child is started.
#[derive(Clone, Copy)]
pub(super) struct Program<'a> {
    pub(super) command: &'a str,
    pub(super) args: &'a [String],
    pub(super) env: &'a IndexMap<String, SecretString>,
    pub(super) directory: Option<&'a Path>,
    /// Pass on the whole environment instead of the allow-list.
    pub(super) inherit_environment: bool,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum SpawnError {
    #[error("command `{0}` not found in PATH")]
    NotInPath(String),
    #[error("command `{0}` not found")]
    NotFound(String),
    #[error("command `{0}` can't be executed")]
    NotExecutable(String),
    #[error("the working directory does not exist")]
    NoDirectory,
    #[error("command `{command}` did not start")]
    Failed {
        command: String,
        #[source]
        source: io::Error,
    },
}

/// A running child. Dropping it kills its process group.
pub(super) struct Child {
    process: Box<dyn ChildWrapper>,
    command: String,
    last_lines: Arc<Mutex<VecDeque<String>>>,
    stderr: JoinHandle<()>,
}

impl Child {
    /// Starts the program; standard error goes to the log, without secrets.
    pub(super) fn spawn(
        server: &ServerName,
        program: Program<'_>,
        secrets: Arc<Secrets>,
    ) -> Result<(Self, ChildStdin, ChildStdout), SpawnError> {
        let Program { command, args, env, directory, inherit_environment } = program;
        if directory.is_some_and(|directory| !directory.is_dir()) {
            return Err(SpawnError::NoDirectory);
        }
        let mut wrapped = CommandWrap::with_new(command, |process| {
            process.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            if !inherit_environment {
                process.env_clear().envs(inherited());
            }
            process.envs(env.iter().map(|(name, value)| (name, value.expose_secret())));
            if let Some(directory) = directory {
                process.current_dir(directory);
            }
        });
        let mut process = wrapped.wrap(ProcessGroup::leader()).spawn().map_err(|source| match source.kind() {
            io::ErrorKind::NotFound if command.contains('/') => SpawnError::NotFound(command.to_owned()),
            io::ErrorKind::NotFound => SpawnError::NotInPath(command.to_owned()),
            io::ErrorKind::PermissionDenied => SpawnError::NotExecutable(command.to_owned()),
            _ => SpawnError::Failed { command: command.to_owned(), source },
        })?;
        let (stdin, stdout, stderr) = (process.stdin().take(), process.stdout().take(), process.stderr().take());
        let (Some(stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
            let source = io::ErrorKind::BrokenPipe.into();
            return Err(SpawnError::Failed { command: command.to_owned(), source });
        };
        let last_lines = Arc::<Mutex<VecDeque<String>>>::default();
        let stderr = tokio::spawn(follow_stderr(server.clone(), stderr, secrets, Arc::clone(&last_lines)));
        Ok((Self { process, command: command.to_owned(), last_lines, stderr }, stdin, stdout))
    }

    /// Waits for the end of the process and tells how it ended. May be dropped and called again.
    pub(super) async fn exited(&mut self) -> String {
        match self.process.wait().await {
            Ok(status) => self.ended(status),
            Err(_) => format!("`{}` is gone", self.command),
        }
    }

    /// The last lines of standard error, where it wrote any.
    pub(super) async fn last_words(&mut self) -> Option<String> {
        if let Ok(Some(_)) = self.process.try_wait() {
            // A dead process writes nothing more, but a grandchild may hold the pipe open.
            let _ = timeout(Duration::from_millis(200), &mut self.stderr).await;
        }
        let lines = self.last_lines.lock().unwrap_or_else(PoisonError::into_inner);
        (!lines.is_empty()).then(|| lines.iter().map(String::as_str).collect::<Vec<_>>().join(" | "))
    }

    /// Ends the process group. Standard input has to be closed before, which is the request to end.
    pub(super) async fn stop(&mut self, manners: Manners) {
        if timeout(manners.grace, self.process.wait()).await.is_err() {
            let _ = self.process.signal(Signal::SIGTERM as i32);
            if timeout(manners.termination, self.process.wait()).await.is_err() {
                let _ = self.process.start_kill();
                let _ = timeout(manners.termination, self.process.wait()).await;
            }
        }
        // Whatever the leader left behind.
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

fn inherited() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter(|(name, _)| {
        name.to_str().is_some_and(|name| INHERITED.contains(&name) || name.starts_with("LC_") || name.starts_with("XDG_"))
    })
}

async fn follow_stderr(
    server: ServerName,
    stderr: impl AsyncRead + Unpin,
    secrets: Arc<Secrets>,
    last_lines: Arc<Mutex<VecDeque<String>>>,
) {
    let mut reader = BufReader::new(stderr);
    let mut line = Vec::new();
    // What a secret that begins within the limit may need.
    let room = LINE_LIMIT + secrets.longest();
    loop {
        let Ok(available) = reader.fill_buf().await else { return };
        let ended = available.is_empty();
        let end = available.iter().position(|byte| *byte == b'\n');
        let part = &available[..end.unwrap_or(available.len())];
        line.extend_from_slice(&part[..part.len().min(room - line.len())]);
        let used = end.map_or(part.len(), |end| end + 1);
        reader.consume(used);
        if end.is_none() && !ended {
            continue;
        }
        let text = plain(&String::from_utf8_lossy(&line));
        // At the end of a line that was cut may stand a part of a secret, which nothing would mask.
        let whole = if line.len() == room { text.len().saturating_sub(secrets.longest()) } else { text.len() };
        let text = secrets.mask(&text, whole.min(LINE_LIMIT));
        line.clear();
        if !text.is_empty() {
            tracing::debug!(target: "mcp_server", server = %server, "{text}");
            let mut last_lines = last_lines.lock().unwrap_or_else(PoisonError::into_inner);
            if last_lines.len() == LAST_LINES {
                last_lines.pop_front();
            }
            last_lines.push_back(cut(&text, LAST_LINE_LIMIT).to_owned());
        }
        if ended {
            return;
        }
    }
}
