//! Logs a process's standard error line by line, without secrets and with a rate limit, and keeps the last lines.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::time::{Instant, sleep};

use crate::adapters::mcp::process::cutoff::Cutoff;
use crate::adapters::mcp::text::{Secrets, cut, plain};
use crate::domain::access::rate::{Pace, Pacer};
use crate::domain::catalog::tool::ServerName;
use crate::service::ports::LogLine;

/// Maximum length of a line, in bytes.
const LINE_LIMIT: usize = 2000;
/// Number of last lines that are kept to explain a failure.
const LAST_LINES: usize = 5;
const LAST_LINE_LIMIT: usize = 300;
/// Number of last lines that are kept of each server, for administrators.
const LOG_LINES: usize = 100;
/// Maximum number of lines logged per minute, and in one burst.
const LINES_PER_MINUTE: u32 = 6000;
const LINES_AT_ONCE: u32 = 200;
/// Maximum read rate, and the maximum burst. A faster process has to wait.
const BYTES_PER_SECOND: f64 = 4.0 * 1024.0 * 1024.0;
const BYTES_AT_ONCE: f64 = 16.0 * 1024.0 * 1024.0;
/// Time after which a process that keeps exceeding the rate is killed.
const FLOOD: Duration = Duration::from_secs(10);

/// The last output of a process.
#[derive(Clone)]
pub(in crate::adapters::mcp) struct LastWords {
    secrets: Arc<Secrets>,
    lines: Arc<Mutex<VecDeque<Vec<u8>>>>,
}

impl LastWords {
    pub(in crate::adapters::mcp) fn new(secrets: Arc<Secrets>) -> Self {
        Self { secrets, lines: Arc::default() }
    }

    /// The last lines with secrets masked; `None` if there are none.
    pub(in crate::adapters::mcp) fn text(&self) -> Option<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let lines: Vec<String> = lines.iter().map(|line| cut(&self.shown(line), LAST_LINE_LIMIT).to_owned()).collect();
        (!lines.is_empty()).then(|| lines.join(" | "))
    }

    fn shown(&self, line: &[u8]) -> String {
        shown(line, &self.secrets)
    }

    fn push(&self, line: &[u8]) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == LAST_LINES {
            lines.pop_front();
        }
        lines.push_back(line.to_owned());
    }
}

/// Maximum number of bytes read per line: the limit plus the length of the longest secret, which may start within the limit.
fn room(secrets: &Secrets) -> usize {
    LINE_LIMIT + secrets.longest()
}

/// A line with secrets masked.
fn shown(line: &[u8], secrets: &Secrets) -> String {
    let text = plain(&String::from_utf8_lossy(line));
    // A cut line may end in the middle of a secret, which masking would miss.
    let whole = if line.len() == room(secrets) { text.len().saturating_sub(secrets.longest()) } else { text.len() };
    secrets.mask(&text, whole.min(LINE_LIMIT))
}

/// The last lines that the processes of every server wrote, over their restarts.
#[derive(Default)]
pub struct ProcessLogs(Mutex<HashMap<ServerName, Arc<ServerLog>>>);

/// Prints no lines, because they are not masked yet.
impl fmt::Debug for ProcessLogs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ProcessLogs")
    }
}

impl ProcessLogs {
    fn logs(&self) -> MutexGuard<'_, HashMap<ServerName, Arc<ServerLog>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The log to which a process of this server writes.
    pub(in crate::adapters::mcp) fn of(&self, server: &ServerName) -> Arc<ServerLog> {
        Arc::clone(self.logs().entry(server.clone()).or_default())
    }

    /// The last lines of a server with secrets masked, oldest first.
    pub(in crate::adapters::mcp) fn lines(&self, server: &ServerName) -> Vec<LogLine> {
        let log = self.logs().get(server).map(Arc::clone);
        log.map(|log| log.lines()).unwrap_or_default()
    }

    /// Drops the lines of a server that was removed.
    pub(in crate::adapters::mcp) fn forget(&self, server: &ServerName) {
        self.logs().remove(server);
    }
}

/// The last lines of one server. They are masked only when they are read, because most never are.
#[derive(Default)]
pub(in crate::adapters::mcp) struct ServerLog(Mutex<VecDeque<Written>>);

struct Written {
    at: SystemTime,
    line: Box<[u8]>,
    /// The secrets of the process that wrote the line.
    secrets: Arc<Secrets>,
}

impl ServerLog {
    fn push(&self, line: &[u8], secrets: &Arc<Secrets>) {
        let written = Written { at: SystemTime::now(), line: line.into(), secrets: Arc::clone(secrets) };
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == LOG_LINES {
            lines.pop_front();
        }
        lines.push_back(written);
    }

    fn lines(&self) -> Vec<LogLine> {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().map(|Written { at, line, secrets }| LogLine { at: *at, text: shown(line, secrets) }).collect()
    }
}

/// Logs the stream until it ends or the process floods it.
pub(in crate::adapters::mcp) async fn follow(
    server: ServerName,
    stderr: impl AsyncRead + Unpin,
    last: LastWords,
    kept: Arc<ServerLog>,
    cutoff: Cutoff,
) {
    let mut reader = BufReader::new(stderr);
    let (mut line, room) = (Vec::new(), room(&last.secrets));
    let (mut budget, mut log) = (Budget::new(), Log::new(server));
    loop {
        let Ok(available) = reader.fill_buf().await else { return };
        let ended = available.is_empty();
        let end = available.iter().position(|byte| *byte == b'\n');
        let part = &available[..end.unwrap_or(available.len())];
        line.extend_from_slice(&part[..part.len().min(room - line.len())]);
        let used = end.map_or(part.len(), |end| end + 1);
        reader.consume(used);
        if end.is_some() || ended {
            if !line.trim_ascii().is_empty() {
                last.push(&line);
                kept.push(&line, &last.secrets);
                log.line(|| last.shown(&line));
            }
            line.clear();
        }
        if ended {
            return;
        }
        if let Some(pause) = budget.spend(used, Instant::now()) {
            if budget.is_flooded() {
                return cutoff.because(format!("it floods its standard error: more than 4 MiB a second for {} s", FLOOD.as_secs()));
            }
            sleep(pause).await;
        }
    }
}

/// Logs lines with a rate limit.
struct Log {
    server: ServerName,
    begun: Instant,
    pacer: Option<Pacer>,
    dropped: u64,
}

impl Log {
    fn new(server: ServerName) -> Self {
        Self { server, begun: Instant::now(), pacer: Pace::new(LINES_PER_MINUTE, LINES_AT_ONCE).map(Pacer::new), dropped: 0 }
    }

    fn line(&mut self, text: impl FnOnce() -> String) {
        if !tracing::enabled!(target: "mcp_server", tracing::Level::DEBUG) {
            return;
        }
        if self.pacer.as_ref().is_some_and(|pacer| pacer.take(self.begun.elapsed()).is_err()) {
            self.dropped += 1;
            return;
        }
        if self.dropped > 0 {
            tracing::debug!(target: "mcp_server", server = %self.server, lines = self.dropped, "dropped lines: there are too many");
            self.dropped = 0;
        }
        let text = text();
        if !text.is_empty() {
            tracing::debug!(target: "mcp_server", server = %self.server, "{text}");
        }
    }
}

/// A byte rate limit.
struct Budget {
    left: f64,
    at: Instant,
    /// When the process last began to exceed the rate. Reset once the budget is more than half full.
    short_since: Option<Instant>,
}

impl Budget {
    fn new() -> Self {
        Self { left: BYTES_AT_ONCE, at: Instant::now(), short_since: None }
    }

    /// Subtracts `bytes` from the budget. Returns how long to wait before reading more.
    fn spend(&mut self, bytes: usize, now: Instant) -> Option<Duration> {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = now;
        self.left = (self.left + passed * BYTES_PER_SECOND).min(BYTES_AT_ONCE) - bytes as f64;
        if self.left > BYTES_AT_ONCE / 2.0 {
            self.short_since = None;
        }
        if self.left >= 0.0 {
            return None;
        }
        self.short_since.get_or_insert(now);
        Some(Duration::from_secs_f64(-self.left / BYTES_PER_SECOND))
    }

    fn is_flooded(&self) -> bool {
        self.short_since.is_some_and(|since| self.at.saturating_duration_since(since) >= FLOOD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_lines_are_kept_without_secrets_and_without_end() {
        let secrets = Arc::new(Secrets::of_value("hidden-value"));
        let (logs, name) = (ProcessLogs::default(), ServerName::from("one"));
        let follow = async |written: String| {
            follow(name.clone(), written.as_bytes(), LastWords::new(Arc::clone(&secrets)), logs.of(&name), Cutoff::default()).await;
        };
        follow("started\n\nwith hidden-value\n".to_owned()).await;
        let texts = || logs.lines(&name).into_iter().map(|line| line.text).collect::<Vec<_>>();
        assert_eq!(texts(), ["started", "with ***"]);
        follow("again\n".repeat(LOG_LINES - 1)).await;
        assert_eq!((texts().len(), &*texts()[0], &*texts()[LOG_LINES - 1]), (LOG_LINES, "with ***", "again"));
        assert_eq!(format!("{logs:?}"), "ProcessLogs");
        logs.forget(&name);
        assert!(logs.lines(&name).is_empty());
    }

    #[test]
    fn a_burst_is_read_at_once_and_a_flood_ends() {
        let begun = Instant::now();
        let mut budget = Budget::new();
        for _ in 0..15 {
            assert_eq!(budget.spend(1 << 20, begun), None);
        }
        let (mut now, mut read) = (begun, 15_u64);
        while !budget.is_flooded() {
            now += budget.spend(1 << 20, now).unwrap_or_default();
            read += 1;
        }
        let seconds = (now - begun).as_secs_f64();
        assert!((10.0..10.5).contains(&seconds) && (56..=59).contains(&read), "{read} MiB in {seconds} s");
        now += Duration::from_secs(3);
        assert_eq!(budget.spend(1, now), None);
        assert!(!budget.is_flooded(), "who was quiet for a while begins anew");
    }
}
