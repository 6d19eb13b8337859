//! The life cycle of one user connection: connect, serve calls, close.

use std::pin::pin;
use std::sync::Arc;

use futures::FutureExt;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use crate::adapters::mcp::link::attempt::{Attempt, Failure};
use crate::adapters::mcp::link::connection::{About, Connection};
use crate::adapters::mcp::link::error::LinkError;
use crate::adapters::mcp::link::health::{Doubts, Late, hangs, list_in_time};
use crate::adapters::mcp::link::link::{Link, Wire};
use crate::adapters::mcp::link::list::{ListError, list};
use crate::adapters::mcp::process::child::Manners;
use crate::adapters::mcp::supervision::pace::Pace;
use crate::adapters::mcp::supervision::per_user::{Entry, State, UserConnections};
use crate::adapters::mcp::supervision::server::REASON_LIMIT;
use crate::adapters::mcp::text::plain;
use crate::domain::access::authorization::Challenge;

impl UserConnections {
    pub(super) async fn keep(self: Arc<Self>, entry: Arc<Entry>) {
        let name = &entry.server.name;
        let connected = tokio::select! {
            () = entry.cut.cancelled() => Err(("the connection was ended".to_owned(), None)),
            () = abandoned(&entry) => Err(("the connection is no longer needed".to_owned(), None)),
            connected = self.connect(&entry) => connected,
        };
        let (mut connection, _place) = match connected {
            Ok(connected) => connected,
            Err((reason, challenge)) => {
                let reason = entry.secrets.load().mask(&plain(&reason), REASON_LIMIT);
                tracing::debug!(server = %name, reason, "could not connect for a user");
                self.forget(&entry);
                entry.state.send_replace(State::Over(reason, challenge));
                return;
            }
        };
        tracing::debug!(server = %name, "connected for a user");
        entry.state.send_replace(State::Ready(Arc::clone(&connection.link)));
        let why = tokio::select! {
            biased;
            () = entry.cut.cancelled() => "it was ended".to_owned(),
            why = self.follow(&mut connection, &entry) => entry.secrets.load().mask(&plain(&why), REASON_LIMIT),
        };
        self.forget(&entry);
        entry.state.send_replace(State::Over(why.clone(), None));
        connection.close(Manners::PROMPT).await;
        tracing::debug!(server = %name, why, "connection for a user ended");
    }

    /// Connects once a slot is free. A closing connection keeps its slot until its process has ended, so the limit always holds.
    async fn connect(&self, entry: &Entry) -> Result<(Connection, OwnedSemaphorePermit), (String, Option<Box<Challenge>>)> {
        let stopping = |_| ("the service is stopping".to_owned(), None);
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(stopping)?;
        let Entry { server, settings, sign_in, .. } = entry;
        let secrets = entry.secrets.load_full();
        let attempt = Attempt { settings, secrets: &secrets, surroundings: &self.surroundings, sign_in: sign_in.as_ref() };
        let deadline = Instant::now() + settings.start_timeout;
        let (mut era, wire) = server.approach();
        loop {
            match attempt.connect(era, wire, deadline).await {
                Ok(connection) => {
                    server.approach_by(era, connection.link.wire);
                    return Ok((connection, place));
                }
                Err(Failure { era: next, at_once: true, .. }) => era = next,
                Err(Failure { reason, era: next, challenge, .. }) => {
                    server.approach_by(next, wire);
                    return Err((reason, challenge));
                }
            }
        }
    }

    /// Waits for the end of the connection and returns the reason.
    async fn follow(&self, connection: &mut Connection, entry: &Arc<Entry>) -> String {
        let (link, about) = (Arc::clone(&connection.link), connection.about.clone());
        self.introduce(&link, &about, entry).await;
        let is_remote = link.wire != Wire::Stdio;
        let call_timeout = entry.settings.call_timeout;
        let mut hanging = pin!(hangs(&link, || entry.is_idle(), self.timing));
        // The time at which to list the tools because of a change.
        let mut due: Option<Instant> = None;
        let mut changes = Pace::new(self.timing.debounce);
        let mut doubts = Doubts::default();
        let limit = self.timing.list_timeout.max(entry.settings.start_timeout);
        // A connection to a server that has changed ends between calls, but not too soon: the server might change with each session.
        let (mut is_outdated, lasting) = (false, Instant::now() + self.timing.stable_after);
        loop {
            tokio::select! {
                how = connection.lost() => return how,
                how = &mut hanging => return how,
                () = entry.part.cancelled() => {
                    let mut uses = entry.uses.subscribe();
                    tokio::select! {
                        _ = uses.wait_for(|uses| *uses == 0) => {}
                        () = sleep(self.timing.drain) => {
                            tracing::warn!(server = %entry.server.name, "cancelled calls of a user: they took too long");
                        }
                        _ = connection.lost() => {}
                    }
                    return "it was ended".to_owned();
                }
                () = link.exchange.outdated.notified(), if !is_outdated => is_outdated = true,
                () = async { sleep_until(lasting).await; unused(entry).await }, if is_outdated => {
                    if self.forget_if_unused(entry) {
                        return "the server has changed and started another session".to_owned();
                    }
                }
                () = link.exchange.changed.notified(), if due.is_none() => {
                    let now = Instant::now();
                    due = Some(now + changes.pause(now));
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    due = None;
                    self.introduce(&link, &about, entry).await;
                    changes.listed(Instant::now());
                }
                () = suspicion(&link, entry, doubts.until(call_timeout)), if is_remote => {
                    // Listing the tools serves as a harmless health check.
                    let listed = list_in_time(&link, self.timing.list_timeout, limit).await;
                    // The check itself may have raised another suspicion.
                    let _ = link.exchange.suspect.notified().now_or_never();
                    let responds = match listed {
                        Ok(Err(ListError::Link(LinkError::Closed { .. }))) => return "the connection was lost".to_owned(),
                        // The stream for notifications has ended with the token. A new connection has another one.
                        Ok(Err(ListError::Link(LinkError::Challenged(_)))) => false,
                        Ok(Err(error)) if error.shows_replacement() => {
                            if !doubts.are_confirmed() {
                                // Check once more.
                                link.exchange.suspect.notify_one();
                                continue;
                            }
                            entry.server.approach_anew();
                            false
                        }
                        Ok(Err(error)) => !error.shows_absence(),
                        Err(Late { was_heard, .. }) => was_heard,
                        Ok(Ok(_)) => true,
                    };
                    if responds {
                        doubts.end();
                    } else if doubts.are_final(Instant::now(), entry.is_idle(), call_timeout) {
                        return "the server no longer responds".to_owned();
                    }
                }
                () = idle(entry, self.limits.idle) => {
                    if self.forget_if_idle(entry) {
                        return "it was idle".to_owned();
                    }
                }
            }
        }
    }

    /// Lists the tools, unless there is a shared connection for that.
    async fn introduce(&self, link: &Link, about: &About, entry: &Entry) {
        if entry.server.is_linked() {
            return;
        }
        // The list includes all changes announced so far.
        let _ = link.exchange.changed.notified().now_or_never();
        let limit = self.timing.list_timeout.max(entry.settings.start_timeout);
        let reason = match timeout(limit, list(link)).await {
            Ok(Ok(tools)) => return entry.server.introduced(&entry.key.owner, about.clone(), tools),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no list of tools within {} s", limit.as_secs_f64()),
        };
        let reason = entry.secrets.load().mask(&plain(&reason), REASON_LIMIT);
        tracing::info!(server = %entry.server.name, reason, "could not list the server's tools over a user's connection");
    }
}

/// Waits until the connection should be checked: because of a new suspicion, or after a failed check, once its calls have ended.
async fn suspicion(link: &Link, entry: &Entry, doubted_until: Option<Instant>) {
    let settled = async {
        let Some(until) = doubted_until else { return std::future::pending().await };
        let _ = timeout_at(until, entry.uses.subscribe().wait_for(|uses| *uses == 0)).await;
    };
    tokio::select! {
        () = link.exchange.suspect.notified() => {}
        () = settled => {}
    }
}

/// Waits until the connection should end and no call uses it.
async fn abandoned(entry: &Entry) {
    entry.part.cancelled().await;
    unused(entry).await;
}

/// Waits until no call uses the connection.
async fn unused(entry: &Entry) {
    let _ = entry.uses.subscribe().wait_for(|uses| *uses == 0).await;
}

/// Waits until the connection was idle for `limit`.
async fn idle(entry: &Entry, limit: std::time::Duration) {
    let mut uses = entry.uses.subscribe();
    loop {
        if uses.wait_for(|uses| *uses == 0).await.is_err() {
            return std::future::pending().await;
        }
        let until = *entry.used_at.lock() + limit;
        if until <= Instant::now() {
            return;
        }
        sleep_until(until).await;
    }
}
