//! Keeps one server connected until it is stopped: connects, lists tools, follows changes, and retries after a failure.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::adapters::mcp::link::attempt::{Attempt, Failure, Surroundings};
use crate::adapters::mcp::link::connection::{Connection, Era};
use crate::adapters::mcp::link::error::LinkError;
use crate::adapters::mcp::link::health::{Doubts, Late, hangs, list_in_time};
use crate::adapters::mcp::link::link::Wire;
use crate::adapters::mcp::link::list::{ListError, Tools, list};
use crate::adapters::mcp::process::child::Manners;
use crate::adapters::mcp::supervision::news::hand_on;
use crate::adapters::mcp::supervision::pace::Pace;
use crate::adapters::mcp::supervision::server::Server;
use crate::adapters::mcp::timing::Timing;
use crate::service::supervision::Supervised;

pub(in crate::adapters::mcp) struct Supervisor {
    pub(in crate::adapters::mcp) server: Arc<Server>,
    pub(in crate::adapters::mcp) surroundings: Surroundings,
    pub(in crate::adapters::mcp) timing: Timing,
    /// Stops this server.
    pub(in crate::adapters::mcp) stop: CancellationToken,
    /// Stops all servers without waiting for calls.
    pub(in crate::adapters::mcp) shutdown: CancellationToken,
}

impl Supervisor {
    /// Runs until the server is stopped. After a panic, replaces the connection and its process.
    pub(in crate::adapters::mcp) async fn run(self) {
        let mut part = Supervised::new("MCP server");
        while part.panicked(Box::pin(self.keep())).await {
            tracing::error!(server = %self.server.name, "the connection to this server panicked");
            self.server.failed("an internal error of the service", Instant::now());
        }
    }

    async fn keep(&self) {
        let server = &self.server;
        let name = &server.name;
        let mut backoff = Backoff::new(self.timing);
        let (mut era, mut wire) = server.approach();
        while !self.stop.is_cancelled() {
            server.attempts();
            let attempt = tokio::select! {
                () = self.stop.cancelled() => return,
                attempt = self.attempt(era, wire) => attempt,
            };
            let reason = match attempt {
                Ok((mut connection, tools)) => {
                    let (count, skipped) = (tools.tools.len(), tools.skipped.len());
                    tracing::info!(server = %name, tools = count, skipped, protocol = connection.link.protocol, "connected");
                    wire = connection.link.wire;
                    server.approach_by(era, wire);
                    let since = Instant::now();
                    server.connected(&connection.link, connection.about.clone(), tools);
                    let reason = self.serve(&mut connection).await;
                    server.unlink();
                    // Serving may have found out that another approach is necessary.
                    (era, wire) = server.approach();
                    let Some(reason) = reason else {
                        self.drain(&mut connection).await;
                        return connection.close(self.manners()).await;
                    };
                    connection.close(Manners::GENTLE).await;
                    if since.elapsed() >= self.timing.stable_after {
                        backoff.reset();
                    }
                    reason
                }
                Err(failure) => {
                    era = failure.era;
                    if failure.at_once {
                        continue;
                    }
                    self.with_hint(failure.reason)
                }
            };
            let pause = backoff.next();
            server.failed(&reason, Instant::now() + pause);
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = sleep(pause) => {}
            }
        }
    }

    fn manners(&self) -> Manners {
        if self.shutdown.is_cancelled() { Manners::GENTLE } else { Manners::PROMPT }
    }

    /// Waits for running calls up to a time limit. The server is retired, so no new ones start.
    async fn drain(&self, connection: &mut Connection) {
        let link = Arc::clone(&connection.link);
        link.calls.close();
        if link.calls.is_empty() {
            return;
        }
        tracing::info!(server = %self.server.name, calls = link.calls.len(), "waiting for running calls before the connection is closed");
        tokio::select! {
            () = link.calls.wait() => {}
            () = sleep(self.timing.drain) => {
                tracing::warn!(server = %self.server.name, calls = link.calls.len(), "cancelled calls: they took too long");
            }
            () = self.shutdown.cancelled() => {}
            _ = connection.lost() => {}
        }
    }

    /// Connects and lists the tools within the start timeout.
    async fn attempt(&self, era: Era, wire: Wire) -> Result<(Connection, Tools), Failure> {
        let settings = self.server.settings();
        let settings = settings.with(&settings.per_user.list_with);
        let deadline = Instant::now() + settings.start_timeout;
        let attempt = Attempt { settings: &settings, secrets: &self.server.secrets, surroundings: &self.surroundings, sign_in: None };
        let mut connection = attempt.connect(era, wire, deadline).await?;
        let result = timeout_at(deadline, list(&connection.link)).await;
        let reason = match result {
            Ok(Ok(tools)) => return Ok((connection, tools)),
            Ok(Err(error)) => match (&error, &connection.child) {
                (ListError::Link(LinkError::Closed { .. }), Some(_)) => connection.lost().await,
                _ => error.to_string(),
            },
            Err(_) => format!("no list of tools within {} s", settings.start_timeout.as_secs_f64()),
        };
        connection.close(self.manners()).await;
        Err(Failure { reason, era, at_once: false, challenge: None })
    }

    /// If the server has per-user values, adds their absence as a possible reason why listing failed.
    fn with_hint(&self, reason: String) -> String {
        let settings = self.server.settings();
        if settings.per_user.is_empty() {
            reason
        } else if settings.per_user.signs_in && self.server.has_listing() {
            format!("{reason}. Its tools were listed for a signed-in user, and calls work for users who have signed in")
        } else if settings.per_user.signs_in {
            format!("{reason}. If it lists tools only for signed-in users, they appear once somebody has signed in, or with `listWith`")
        } else if settings.per_user.takes_secrets() {
            format!(
                "{reason}. If it lists tools only with credentials, they appear once a user has stored all secrets for it, or with `listWith`"
            )
        } else {
            format!("{reason}. If it lists tools only with credentials, set these in `listWith`")
        }
    }

    /// Whether a failed list makes a connection doubtful. If another server seems to have replaced this one, the second such list does.
    fn is_doubtful(&self, error: &ListError, doubts: &mut Doubts, is_remote: bool) -> bool {
        if !is_remote || !error.shows_replacement() {
            return error.shows_absence();
        }
        let is_confirmed = doubts.are_confirmed();
        if is_confirmed {
            self.server.approach_anew();
        }
        is_confirmed
    }

    /// Serves a connection. Returns the reason why it was lost, or `None` if it was stopped.
    async fn serve(&self, connection: &mut Connection) -> Option<String> {
        let (server, timing) = (&self.server, self.timing);
        let link = Arc::clone(&connection.link);
        let is_remote = link.wire != Wire::Stdio;
        link.exchange.news.renewed();
        let _handing_on = AbortOnDropHandle::new(tokio::spawn(hand_on(Arc::clone(server), Arc::clone(&link.exchange))));
        let unasked = || is_remote.then(|| Instant::now() + timing.refresh);
        let mut refresh = unasked();
        // The time at which to list the tools because of a change, and that at which to check whether the server still responds.
        let (mut due, mut check) = (None::<Instant>, None::<Instant>);
        let (mut changes, mut checks) = (Pace::new(timing.debounce), Pace::new(timing.debounce));
        let mut backoff = Backoff::new(timing);
        // Until a list succeeds.
        let (mut is_suspect, mut doubts) = (false, Doubts::default());
        // A connection to a server that has changed ends between calls, but not too soon: the server might change with each session.
        let (mut is_outdated, lasting) = (false, Instant::now() + timing.stable_after);
        let mut hanging = pin!(hangs(&link, || link.calls.is_empty(), timing));
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return None,
                how = connection.lost() => return Some(how),
                how = &mut hanging => return Some(how),
                () = link.exchange.outdated.notified(), if !is_outdated => {
                    is_outdated = true;
                    link.calls.close();
                    continue;
                }
                () = async { sleep_until(lasting).await; link.calls.wait().await }, if is_outdated => {
                    if server.unlink_if_idle(&link) {
                        return Some("the server has changed and started another session".to_owned());
                    }
                    continue;
                }
                () = link.exchange.suspect.notified(), if check.is_none() => {
                    let now = Instant::now();
                    check = Some(now + checks.pause_before_check(now));
                    is_suspect |= is_remote;
                    continue;
                }
                () = link.exchange.changed.notified(), if due.is_none() => {
                    let now = Instant::now();
                    due = Some(now + changes.pause(now));
                    continue;
                }
                () = async {
                    match due.into_iter().chain(check).chain(refresh).min() {
                        Some(at) => sleep_until(at).await,
                        None => std::future::pending().await,
                    }
                } => {}
            }
            // The next list includes all changes announced so far.
            let _ = link.exchange.changed.notified().now_or_never();
            let (was_due, was_check) = (due.take().is_some(), check.take().is_some());
            let settings = server.settings();
            let limit = timing.list_timeout.max(settings.start_timeout);
            // A slow server may be silent while it makes its list, unless there are other signs that the connection is dead.
            let silence = if is_suspect { timing.list_timeout } else { limit };
            let listed = tokio::select! {
                () = self.stop.cancelled() => return None,
                listed = list_in_time(&link, silence, limit) => listed,
            };
            let now = Instant::now();
            if was_due {
                changes.listed(now);
            }
            if was_check {
                checks.listed(now);
            }
            let (reason, is_doubtful) = match listed {
                Ok(Ok(tools)) => {
                    let (count, skipped) = (tools.tools.len(), tools.skipped.len());
                    if server.listed(tools) {
                        tracing::info!(server = %server.name, tools = count, skipped, "tools changed");
                    }
                    refresh = unasked();
                    backoff.reset();
                    is_suspect = false;
                    doubts.end();
                    continue;
                }
                Ok(Err(ListError::Link(LinkError::Closed { reason, .. }))) => {
                    if connection.child.is_none() {
                        return Some(reason.into_owned());
                    }
                    return Some(connection.lost().await);
                }
                Ok(Err(error)) => (error.to_string(), self.is_doubtful(&error, &mut doubts, is_remote)),
                // A broken event stream may look like an idle one.
                Err(Late { after, was_heard }) => {
                    let reason = format!("no list of tools within {} s", after.as_secs_f64());
                    (reason, !was_heard && (is_suspect || link.wire == Wire::Sse))
                }
            };
            if is_doubtful && doubts.are_final(now, link.calls.is_empty(), settings.call_timeout) {
                return Some(reason);
            }
            // The failed list itself may have raised a suspicion. It is repeated in any case.
            is_suspect |= is_remote && link.exchange.suspect.notified().now_or_never().is_some();
            server.list_failed(&reason);
            refresh = Some(now + backoff.next());
        }
    }
}

/// Exponential backoff with a random reduction of up to 50 %, so that servers don't retry at the same time.
struct Backoff {
    timing: Timing,
    failures: u32,
    at_once: bool,
}

impl Backoff {
    fn new(timing: Timing) -> Self {
        Self { timing, failures: 0, at_once: false }
    }

    fn reset(&mut self) {
        self.failures = 0;
        self.at_once = true;
    }

    fn next(&mut self) -> Duration {
        if std::mem::take(&mut self.at_once) {
            return Duration::ZERO;
        }
        let Timing { first_retry, longest_retry, .. } = self.timing;
        let pause = first_retry.saturating_mul(2_u32.saturating_pow(self.failures)).min(longest_retry);
        self.failures = self.failures.saturating_add(1);
        pause.mul_f64(rand::random_range(0.5..=1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_start_over() {
        let timing = Timing::default();
        let mut backoff = Backoff::new(timing);
        for expected in [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0] {
            let pause = backoff.next().as_secs_f64();
            assert!((expected / 2.0..=expected).contains(&pause), "{pause} for {expected}");
        }
        backoff.reset();
        assert_eq!(backoff.next(), Duration::ZERO);
        assert!(backoff.next() <= timing.first_retry);
    }
}
