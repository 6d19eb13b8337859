//! A single attempt to connect, and the handshake to try next after a failure.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

use crate::adapters::mcp::link::connection::{ConnectError, Connection, Connector, Era};
use crate::adapters::mcp::link::link::{Questions, Wire};
use crate::adapters::mcp::process::child::Processes;
use crate::adapters::mcp::text::Secrets;
use crate::adapters::mcp::transport::oauth::TokenStore;
use crate::adapters::mcp::transport::sending::SignIn;
use crate::domain::access::authorization::Challenge;
use crate::settings::servers::ServerSettings;

/// How long to wait for the exit of a failed connection's process. Its exit status explains more than a closed pipe.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// The state that all connections share.
#[derive(Clone)]
pub(in crate::adapters::mcp) struct Surroundings {
    pub(in crate::adapters::mcp) client: reqwest::Client,
    pub(in crate::adapters::mcp) processes: Arc<Processes>,
    pub(in crate::adapters::mcp) oauth: Arc<TokenStore>,
    pub(in crate::adapters::mcp) questions: Questions,
}

/// A failed attempt.
pub(in crate::adapters::mcp) struct Failure {
    pub(in crate::adapters::mcp) reason: String,
    /// The handshake to try next.
    pub(in crate::adapters::mcp) era: Era,
    /// Whether to try that handshake immediately.
    pub(in crate::adapters::mcp) at_once: bool,
    /// The server's challenge, if it rejected the token of a sign-in.
    pub(in crate::adapters::mcp) challenge: Option<Box<Challenge>>,
}

pub(in crate::adapters::mcp) struct Attempt<'a> {
    pub(in crate::adapters::mcp) settings: &'a ServerSettings,
    pub(in crate::adapters::mcp) secrets: &'a Arc<Secrets>,
    pub(in crate::adapters::mcp) surroundings: &'a Surroundings,
    /// The token of a sign-in, for a connection that has one.
    pub(in crate::adapters::mcp) sign_in: Option<&'a SignIn>,
}

impl Attempt<'_> {
    pub(in crate::adapters::mcp) async fn connect(&self, era: Era, wire: Wire, deadline: Instant) -> Result<Connection, Failure> {
        let Surroundings { client, processes, oauth, questions } = self.surroundings;
        let connector = Connector {
            settings: self.settings,
            secrets: self.secrets,
            client,
            processes,
            wire,
            oauth,
            questions: *questions,
            sign_in: self.sign_in,
        };
        let mut child = None;
        let result = match timeout_at(deadline, connector.connect(era, &mut child)).await {
            Ok(Ok(connection)) => return Ok(connection),
            result => result,
        };
        let is_late = result.is_err();
        let (mut next, mut at_once) = (Era::usual(&self.settings.transport), false);
        let mut challenge = None;
        let mut reason = if let Ok(Err(error)) = result {
            if era == Era::Initialize && matches!(error, ConnectError::Refused(_)) {
                (next, at_once) = (Era::Discover, true);
            }
            challenge = error.challenge().cloned().map(Box::new);
            error.to_string()
        } else {
            // The server may have hung in the newer handshake.
            if era == Era::Either {
                next = Era::Initialize;
            }
            format!("no answer within {} s", self.settings.start_timeout.as_secs_f64())
        };
        if let Some(child) = &mut child {
            // After the time limit, the process ends only because its pipes were closed.
            if !is_late && let Ok(how) = timeout(LAST_WORDS, child.exited()).await {
                reason = how;
                at_once = false;
            }
            if let Some(words) = child.last_words().await {
                reason = format!("{reason}: {words}");
            }
        }
        Err(Failure { reason, era: next, at_once, challenge })
    }
}
