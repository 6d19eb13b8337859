//! One attempt to connect, and what to try next if it fails.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

use crate::adapters::mcp::Options;
use crate::adapters::mcp::child::Processes;
use crate::adapters::mcp::connection::{ConnectError, Connection, Connector, Era, Questions, Wire};
use crate::adapters::mcp::text::Secrets;
use crate::settings::servers::ServerSettings;

/// How long to wait for the process of a failed connection to end: its exit says more than the closed pipe.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// The shared parts of all connections.
#[derive(Clone)]
pub(super) struct Surroundings {
    client: reqwest::Client,
    processes: Arc<Processes>,
    oauth: Option<PathBuf>,
    questions: Questions,
}

impl Surroundings {
    pub(super) fn of(options: &Options) -> Self {
        let Options { client, processes, oauth, questions, .. } = options.clone();
        Self { client, processes, oauth, questions }
    }
}

/// A failed attempt.
pub(super) struct Failure {
    pub(super) reason: String,
    /// The handshake to try next.
    pub(super) era: Era,
    /// Whether to try that handshake immediately.
    pub(super) at_once: bool,
}

pub(super) struct Attempt<'a> {
    pub(super) settings: &'a ServerSettings,
    pub(super) secrets: &'a Arc<Secrets>,
    pub(super) surroundings: &'a Surroundings,
}

impl Attempt<'_> {
    pub(super) async fn connect(&self, era: Era, wire: Wire, deadline: Instant) -> Result<Connection, Failure> {
        let Surroundings { client, processes, oauth, questions } = self.surroundings;
        let connector = Connector {
            settings: self.settings,
            secrets: self.secrets,
            client,
            processes,
            wire,
            oauth: oauth.as_deref(),
            questions: *questions,
        };
        let mut child = None;
        let result = match timeout_at(deadline, connector.connect(era, &mut child)).await {
            Ok(Ok(connection)) => return Ok(connection),
            result => result,
        };
        let (mut next, mut at_once) = (Era::usual(&self.settings.transport), false);
        let mut reason = if let Ok(Err(error)) = result {
            if era == Era::Initialize && matches!(error, ConnectError::Refused(_)) {
                (next, at_once) = (Era::Discover, true);
            }
            error.to_string()
        } else {
            // The server may have hung on the newer handshake.
            if era == Era::Either {
                next = Era::Initialize;
            }
            format!("no answer within {} s", self.settings.start_timeout.as_secs_f64())
        };
        if let Some(child) = &mut child {
            if let Ok(how) = timeout(LAST_WORDS, child.exited()).await {
                reason = how;
                at_once = false;
            }
            if let Some(words) = child.last_words().await {
                reason = format!("{reason}: {words}");
            }
        }
        Err(Failure { reason, era: next, at_once })
    }
}
