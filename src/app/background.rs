//! Background tasks that run as long as the service.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::Stopper;
use crate::adapters::signals::{Hangup, Hangups, Stops};
use crate::adapters::telemetry::SpanExport;
use crate::adapters::watch::FileWatch;
use crate::domain::text::glossary;
use crate::service::access::connections::Connections;
use crate::service::access::keys::Keys;
use crate::service::access::limits::Limits;
use crate::service::access::secrets::Secrets;
use crate::service::catalog::enrich::Enriching;
use crate::service::catalog::indexing::Indexing;
use crate::service::catalog::reload::{Reload, Trigger};
use crate::service::cleaning::Cleaning;
use crate::service::leading::Leading;
use crate::service::learning::learn::Learning;
use crate::service::mcp::mcp_sessions::McpSessions;
use crate::service::ports::{ComputedStore, recovered};
use crate::service::records::record::Recorder;
use crate::service::selection::learned_again;
use crate::service::selection::retrieve::Retrieve;
use crate::service::sharing::SharedState;
use crate::service::supervision::Supervised;

/// How often to look for expired keys.
const EXPIRING: Duration = Duration::from_secs(30);
/// How often to look for servers with a shared sign-in that have not listed their tools.
const LISTING: Duration = Duration::from_secs(30);

/// How long the tasks may take to write pending data at the end.
const ENDING: Duration = Duration::from_secs(5);

/// The background tasks, and what stops them.
#[derive(Default)]
pub(super) struct Tasks {
    stop: CancellationToken,
    running: Vec<JoinHandle<()>>,
}

impl Tasks {
    /// Cancelled when the tasks must end.
    pub(super) fn stop(&self) -> CancellationToken {
        self.stop.clone()
    }

    pub(super) fn add(&mut self, task: JoinHandle<()>) {
        self.running.push(task);
    }

    /// Adds the task of a part, and returns the part.
    pub(super) fn keep<T>(&mut self, (part, task): (T, JoinHandle<()>)) -> T {
        self.add(task);
        part
    }

    /// Stops all tasks, and waits until they have ended.
    pub(super) async fn end(self) {
        self.stop.cancel();
        let deadline = tokio::time::Instant::now() + ENDING;
        for task in self.running {
            if tokio::time::timeout_at(deadline, task).await.is_err() {
                tracing::warn!("a background task did not end in time");
            }
        }
    }
}

/// Stops the server when the process receives a stop signal.
pub(super) fn follow_stops(mut stops: Stops, server: Stopper, stop: CancellationToken) -> JoinHandle<()> {
    until(stop, async move {
        loop {
            let graceful = stops.next().await;
            // Doesn't wait for the server to stop, so that a further signal is handled at once.
            server.begin_stop(graceful);
            tracing::info!(graceful, "received a stop signal");
        }
    })
}

fn until(stop: CancellationToken, work: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    tokio::spawn(async move {
        stop.run_until_cancelled(work).await;
    })
}

/// Prepares what messages are judged by: reads the glossary, and embeds the examples of the gate, and of Open WebUI's own tools once they
/// are offered. Does so again whenever the embedder becomes available again.
pub(super) fn teach(
    retrieve: Arc<Retrieve>,
    store: Arc<dyn ComputedStore>,
    mut recoveries: Option<watch::Receiver<u64>>,
    stop: CancellationToken,
) -> JoinHandle<()> {
    tokio::task::spawn_blocking(glossary::prepare);
    until(stop, async move {
        let mut part = Supervised::new("gate");
        let work = async |recoveries: &mut Option<watch::Receiver<u64>>| loop {
            retrieve.teach_gate(store.as_ref()).await;
            tokio::select! {
                () = retrieve.needs_builtins(store.as_ref()) => retrieve.teach_builtins(store.as_ref()).await,
                () = recovered(recoveries) => continue,
            }
            recovered(recoveries).await;
        };
        while part.panicked(work(&mut recoveries)).await {}
    })
}

/// Requests texts that enrich tools. One service asks the language model, for all.
pub(super) fn enrich(enriching: Enriching, mut leading: Leading, stop: CancellationToken) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut part = Supervised::new("enrichment");
        let others = leading.clone();
        let mut work = async || {
            tokio::select! {
                () = leading.while_leading(&stop, |term| enriching.follow(term)) => {}
                () = enriching.follow_others(&others) => {}
            }
        };
        while part.panicked(work()).await {}
    })
}

/// Learns again from messages that another embedding model embedded.
pub(super) fn learn_again(
    learning: Learning,
    retrieve: Arc<Retrieve>,
    mut recoveries: Option<watch::Receiver<u64>>,
    stop: CancellationToken,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut part = Supervised::new("learning of another model");
        while part.panicked(learned_again::learn_again(&learning, &retrieve, &mut recoveries, &stop)).await {}
    })
}

/// Encrypts secrets again that were encrypted with a former key.
pub(super) fn reseal(secrets: Arc<Secrets>, stop: CancellationToken) -> JoinHandle<()> {
    until(stop, async move {
        let mut part = Supervised::new("resealing");
        while part.panicked(secrets.reseal()).await {}
    })
}

/// Lists the tools of servers whose sign-in all users share.
pub(super) fn list_shared(connections: Arc<Connections>, stop: CancellationToken) -> JoinHandle<()> {
    until(stop, async move {
        let mut part = Supervised::new("shared sign-ins");
        let work = async || {
            let mut ticks = tokio::time::interval(LISTING);
            loop {
                ticks.tick().await;
                connections.list_shared().await;
            }
        };
        while part.panicked(work()).await {}
    })
}

/// Takes over what other services on the same store change.
pub(super) fn follow_others(shared: Arc<SharedState>, stop: CancellationToken) -> JoinHandle<()> {
    until(stop, async move {
        let mut part = Supervised::new("changes by other services");
        while part.panicked(shared.follow()).await {}
    })
}

/// Learns what other services on the same store learn.
pub(super) fn learn_from_others(recorder: Recorder, stop: CancellationToken) -> JoinHandle<()> {
    until(stop, async move {
        let mut part = Supervised::new("learning from other services");
        while part.panicked(recorder.learn_from_others()).await {}
    })
}

/// Exchanges with the other services on the store what rate limits have permitted.
pub(super) fn share_limits(limits: Arc<Limits>, stop: CancellationToken) -> JoinHandle<()> {
    until(stop, async move {
        let mut part = Supervised::new("shared rate limits");
        while part.panicked(limits.follow()).await {}
    })
}

/// Ends the MCP sessions, streams and calls of a key when it is revoked or rotated, and soon after it has expired.
pub(super) fn end_sessions(keys: Arc<Keys>, sessions: Arc<McpSessions>, stop: CancellationToken) -> JoinHandle<()> {
    until(stop, async move {
        let mut part = Supervised::new("expiry of keys");
        while part.panicked(end_sessions_without_key(&keys, &sessions)).await {}
    })
}

pub(super) fn clean(cleaning: Cleaning, stop: CancellationToken) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut part = Supervised::new("cleaning");
        while part.panicked(cleaning.follow(stop.clone())).await {}
    })
}

/// Sends the spans of traces, if traces are on.
pub(super) fn export_spans(export: Option<SpanExport>, stop: CancellationToken) -> JoinHandle<()> {
    tokio::spawn(async move {
        let Some(mut export) = export else { return };
        let mut part = Supervised::new("export of traces");
        while part.panicked(export.follow(stop.clone())).await {}
    })
}

async fn end_sessions_without_key(keys: &Keys, sessions: &McpSessions) {
    let (mut changes, mut expiring) = (keys.changes(), tokio::time::interval(EXPIRING));
    loop {
        tokio::select! {
            changed = changes.changed() => if changed.is_err() {
                return;
            },
            _ = expiring.tick() => {}
        }
        sessions.close_without(|key| keys.is_good(key));
    }
}

pub(super) fn keep_indexed(indexing: Indexing, stop: CancellationToken) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut part = Supervised::new("index");
        while part.panicked(indexing.follow(stop.clone())).await {}
    })
}

/// Reloads the configuration on `SIGHUP`, and when one of these files changes. `None` watches no files.
pub(super) fn follow_changes(
    reload: &Arc<Reload>,
    hangups: Hangups,
    watched: Option<watch::Receiver<Vec<PathBuf>>>,
    server: Stopper,
    tasks: &mut Tasks,
) {
    let (triggers, queue) = mpsc::channel(1);
    let watched = watched.and_then(|mut files| {
        let first = files.borrow_and_update().clone();
        let watch = FileWatch::start(&first)
            .inspect(|_| tracing::info!(files = first.len(), "watching the configuration"))
            .inspect_err(|error| tracing::warn!(%error, "the configuration is not watched; SIGHUP still reloads it"))
            .ok()?;
        Some(Watched { watch, files })
    });
    let (follower, stop) = (Arc::clone(reload), tasks.stop());
    tasks.add(tokio::spawn(async move { follower.follow(queue, stop).await }));
    let mut watching = Watching { watched, hangups, triggers, server, stop: tasks.stop() };
    tasks.add(tokio::spawn(async move {
        let mut part = Supervised::new("watch over files and signals");
        while part.panicked(watching.follow()).await {}
    }));
}

/// The watched files.
struct Watched {
    watch: FileWatch,
    /// The files to watch, which change when a value names another file.
    files: watch::Receiver<Vec<PathBuf>>,
}

impl Watched {
    /// Waits until a file may have changed.
    async fn changed(&mut self) {
        let others = tokio::select! {
            () = self.watch.changed() => return,
            others = self.files.changed() => others,
        };
        if others.is_err() {
            return std::future::pending().await;
        }
        let files = self.files.borrow_and_update().clone();
        tracing::info!(files = files.len(), "watching other files of the configuration");
        // A file may have changed after it was read and before it was watched, so this counts as a change.
        self.watch.follow(&files);
    }
}

/// Waits for everything that triggers a reload or a stop.
struct Watching {
    watched: Option<Watched>,
    hangups: Hangups,
    triggers: mpsc::Sender<Trigger>,
    server: Stopper,
    stop: CancellationToken,
}

impl Watching {
    async fn follow(&mut self) {
        if self.watched.is_some() {
            // A file may have changed after it was read and before it was watched.
            let _ = self.triggers.send(Trigger::Files).await;
        }
        loop {
            let changed = async {
                match &mut self.watched {
                    Some(watched) => watched.changed().await,
                    None => std::future::pending().await,
                }
            };
            let trigger = tokio::select! {
                () = changed => Trigger::Files,
                hangup = self.hangups.next() => match hangup {
                    Hangup::Reload => Trigger::Request,
                    Hangup::TerminalGone => {
                        self.server.begin_stop(true);
                        tracing::info!("the terminal is gone");
                        return;
                    }
                },
                () = self.stop.cancelled() => return,
            };
            if trigger == Trigger::Request
                && let Some(watched) = &mut self.watched
            {
                // A folder further up may have been replaced, which the system doesn't report.
                watched.watch.look();
            }
            let _ = self.triggers.send(trigger).await;
        }
    }
}
