//! Applies a changed configuration at run time: either every reloadable setting or nothing.
//!
//! What the API sets for servers is merged with the servers file here, and applied in the same way (`service/servers`).
//!
//! An invalid configuration changes nothing. The log and `/readyz` report its problems until a valid one is loaded. The log
//! contains names of servers and keys, but never values.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use jiff::Timestamp;
use serde::{Serialize, Serializer};
use tokio::sync::{Mutex, mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::domain::catalog::tool::ServerName;
use crate::domain::text::canonical::Fingerprint;
use crate::service::catalog::refresh::{Configured, configured};
use crate::service::ports::{ServerChange, ServerChangeKind, ToolServers};
use crate::service::supervision::Supervised;
use crate::settings::servers::ServerSettings;
use crate::settings::{
    EntryRules, KnownServer, LiveSettings, MergedServers, ServerOverride, Settings, SettingsErrors, Sources, StartSettings,
};

/// The reason for reading the configuration again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// A reload was requested, for example by a signal.
    Request,
    /// A file may have changed.
    Files,
}

#[derive(Clone, Debug, Default, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum ReloadState {
    /// The configuration has not been reloaded since the start.
    #[default]
    None,
    Applied {
        #[serde(serialize_with = "rfc_3339")]
        at: SystemTime,
        /// Changed settings that need a restart.
        needs_restart: Vec<String>,
    },
    /// The new configuration is invalid, and the former one is still in force.
    Failed {
        #[serde(serialize_with = "rfc_3339")]
        at: SystemTime,
        problems: Vec<String>,
    },
}

impl ReloadState {
    /// Removes everything except the result and the time.
    pub fn hide_details(&mut self) {
        match self {
            Self::None => {}
            Self::Applied { needs_restart, .. } => needs_restart.clear(),
            Self::Failed { problems, .. } => problems.clear(),
        }
    }
}

/// Applies reloadable settings to the use cases. Provided by the composition root.
pub type Apply = Box<dyn Fn(&LiveSettings) + Send + Sync>;

pub struct Reload {
    sources: Sources,
    start: StartSettings,
    started_with: BTreeMap<String, Fingerprint>,
    servers: Arc<dyn ToolServers>,
    catalog: watch::Sender<Arc<Configured>>,
    apply: Apply,
    state: watch::Sender<ReloadState>,
    /// The files that the configuration consists of or names.
    files: watch::Sender<Vec<PathBuf>>,
    /// All servers, also those that are switched off.
    known: watch::Sender<Arc<Vec<KnownServer>>>,
    /// The last result. Locked during a reload, so that reloads never overlap.
    last: Mutex<Last>,
}

struct Last {
    keys: BTreeMap<String, Fingerprint>,
    problems: Vec<String>,
    /// The settings in force, with the servers of the file alone.
    of_file: LiveSettings,
    /// What the API has set for servers.
    overrides: Vec<ServerOverride>,
}

impl Reload {
    /// `settings` are those in force, with the servers of the file alone; `overrides` is what the API has set. New lists of servers
    /// are sent to `catalog`.
    pub fn new(
        settings: &Settings,
        overrides: Vec<ServerOverride>,
        servers: Arc<dyn ToolServers>,
        catalog: watch::Sender<Arc<Configured>>,
        apply: Apply,
    ) -> Self {
        let rules = EntryRules { start: &settings.start, calls: &settings.live.calls };
        let known = rules.merge(&settings.live.servers, &overrides).known;
        let last = Last { keys: settings.keys.clone(), problems: Vec::new(), of_file: settings.live.clone(), overrides };
        let reload = Self {
            sources: settings.sources.clone(),
            start: settings.start.clone(),
            started_with: settings.keys.clone(),
            servers,
            catalog,
            apply,
            state: watch::Sender::default(),
            files: watch::Sender::new(settings.files.clone()),
            known: watch::Sender::default(),
            last: Mutex::new(last),
        };
        reload.take_known(known);
        reload
    }

    pub fn state(&self) -> ReloadState {
        self.state.borrow().clone()
    }

    /// All servers of the file and of the API, also those that are switched off.
    pub(crate) fn known(&self) -> Arc<Vec<KnownServer>> {
        Arc::clone(&self.known.borrow())
    }

    /// The name of the servers file, for messages.
    pub(crate) fn servers_file(&self) -> Arc<str> {
        self.sources.servers_file().into()
    }

    /// Checks a server's entry by the settings in force.
    pub(crate) async fn check_entry<T>(&self, check: impl FnOnce(&EntryRules<'_>) -> T) -> T {
        let last = self.last.lock().await;
        check(&EntryRules { start: &self.start, calls: &last.of_file.calls })
    }

    /// Applies what the API has set for servers, and restarts some of them.
    pub(crate) async fn set_overrides(&self, overrides: Vec<ServerOverride>, restart: &BTreeSet<ServerName>) {
        let mut last = self.last.lock().await;
        last.overrides = overrides;
        let merged = self.merged(&last.of_file, &last.overrides);
        let changes = self.put_in_force(merged, &last.of_file);
        for server in restart {
            // A server that has just been added or has changed is starting anyway.
            let is_same = changes.iter().any(|change| change.server == *server && !change.kind.reconnects());
            if is_same && self.servers.restart(server) {
                tracing::info!(%server, "the server is restarted");
            }
        }
        if changes.iter().any(|change| change.kind != ServerChangeKind::Unchanged) {
            log(&changes, &[]);
        }
    }

    /// Passes settings and servers to everything that uses them.
    fn put_in_force(&self, merged: MergedServers, of_file: &LiveSettings) -> Vec<ServerChange> {
        let live = merged.within(of_file);
        (self.apply)(&live);
        // Comes before the servers, so that the catalog expects a new one that lists its tools at once.
        self.catalog.send_replace(configured(&live.servers));
        let changes = self.servers.configure(live.servers);
        self.take_known(merged.known);
        changes
    }

    fn merged(&self, of_file: &LiveSettings, overrides: &[ServerOverride]) -> MergedServers {
        EntryRules { start: &self.start, calls: &of_file.calls }.merge(&of_file.servers, overrides)
    }

    fn take_known(&self, known: Vec<KnownServer>) {
        let former = self.known.send_replace(Arc::default());
        for server in known.iter().filter(|server| server.error.is_some() && !former.contains(server)) {
            tracing::warn!(server = %server.name, error = server.error, "the stored entry of a server can't be used as it is");
        }
        self.known.send_replace(Arc::new(known));
    }

    /// The files to watch for changes. The receiver is notified when a reload finds other files.
    pub fn files(&self) -> watch::Receiver<Vec<PathBuf>> {
        self.files.subscribe()
    }

    /// Reloads on every trigger until `stop`.
    pub async fn follow(&self, mut triggers: mpsc::Receiver<Trigger>, stop: CancellationToken) {
        let mut part = Supervised::new("reload");
        while part.panicked(self.follow_triggers(&mut triggers, &stop)).await {}
    }

    async fn follow_triggers(&self, triggers: &mut mpsc::Receiver<Trigger>, stop: &CancellationToken) {
        loop {
            let trigger = tokio::select! {
                trigger = triggers.recv() => trigger,
                () = stop.cancelled() => return,
            };
            match trigger {
                Some(trigger) => self.reload(trigger).await,
                None => return,
            }
        }
    }

    /// Reads the configuration again and applies its changes.
    pub async fn reload(&self, trigger: Trigger) {
        let mut last = self.last.lock().await;
        let sources = self.sources.clone();
        let Ok(loaded) = tokio::task::spawn_blocking(move || Settings::load(&sources)).await else { return };
        let files = match &loaded {
            Ok((settings, _)) => &settings.files,
            Err(errors) => &errors.files,
        };
        self.files.send_if_modified(|known| {
            let is_changed = known != files;
            known.clone_from(files);
            is_changed
        });
        match loaded {
            Ok((settings, warnings)) => {
                let has_failed = !std::mem::take(&mut last.problems).is_empty();
                let former = self.merged(&last.of_file, &last.overrides);
                let merged = self.merged(&settings.live, &last.overrides);
                let keys = changed(&last.keys, &settings.keys);
                let is_renewed = match (&self.start.http.tls, &settings.start.http.tls) {
                    (Some(own), Some(read_again)) => own.renew(read_again),
                    _ => false,
                };
                if is_renewed {
                    tracing::info!("new connections use the new TLS certificate");
                }
                let is_same = !is_renewed && keys.is_empty() && are_same(&former.servers, &merged.servers) && *self.known() == merged.known;
                if is_same && !has_failed && trigger == Trigger::Files {
                    // Entries of switched-off servers may differ. They apply once the servers are switched on.
                    (last.of_file, last.keys) = (settings.live, settings.keys);
                    return;
                }
                for warning in warnings {
                    tracing::warn!("{warning}");
                }
                self.take_over(settings, merged, &mut last, &keys);
            }
            Err(errors) => self.refuse(&errors, &mut last, trigger),
        }
    }

    fn take_over(&self, settings: Settings, merged: MergedServers, last: &mut Last, keys: &[String]) {
        let needs_restart = settings.needing_restart(&self.started_with);
        let changes = self.put_in_force(merged, &settings.live);
        last.of_file = settings.live;
        last.keys = settings.keys;
        log(&changes, keys);
        if !needs_restart.is_empty() {
            tracing::warn!(keys = needs_restart.join(", "), "changed settings need a restart");
        }
        self.state.send_replace(ReloadState::Applied { at: SystemTime::now(), needs_restart });
    }

    fn refuse(&self, errors: &SettingsErrors, last: &mut Last, trigger: Trigger) {
        let problems: Vec<String> = errors.problems.iter().map(ToString::to_string).collect();
        // Log the problems only once if a file event finds the same ones again.
        if trigger == Trigger::Files && last.problems == problems {
            return;
        }
        tracing::error!("the configuration was not reloaded; the former one stays in force: {errors}");
        last.problems.clone_from(&problems);
        self.state.send_replace(ReloadState::Failed { at: SystemTime::now(), problems });
    }
}

/// The settings whose values differ.
fn changed(before: &BTreeMap<String, Fingerprint>, now: &BTreeMap<String, Fingerprint>) -> Vec<String> {
    now.iter().filter(|(key, value)| before.get(*key) != Some(value)).map(|(key, _)| key.clone()).collect()
}

/// Whether both lists contain the same servers with the same entries.
fn are_same(one: &[ServerSettings], other: &[ServerSettings]) -> bool {
    let is_same = |(one, other): (&ServerSettings, &ServerSettings)| one.name == other.name && one.differences(other).is_empty();
    one.len() == other.len() && one.iter().zip(other).all(is_same)
}

fn log(changes: &[ServerChange], keys: &[String]) {
    for ServerChange { server, kind } in changes {
        if let ServerChangeKind::Changed { keys, reconnects } = kind {
            let keys = keys.join(", ");
            if *reconnects {
                tracing::info!(%server, keys, "server changed: it reconnects");
            } else {
                tracing::info!(%server, keys, "server changed: its connection stays");
            }
        }
    }
    let names = |is_meant: fn(&ServerChangeKind) -> bool| {
        let names: Vec<&str> = changes.iter().filter(|change| is_meant(&change.kind)).map(|change| change.server.as_str()).collect();
        names.join(", ")
    };
    tracing::info!(
        added = names(|kind| *kind == ServerChangeKind::Added),
        removed = names(|kind| *kind == ServerChangeKind::Removed),
        changed = names(|kind| matches!(kind, ServerChangeKind::Changed { .. })),
        unchanged = names(|kind| *kind == ServerChangeKind::Unchanged),
        settings = keys.join(", "),
        "configuration reloaded"
    );
}

fn rfc_3339<S: Serializer>(at: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    let at = Timestamp::try_from(*at).unwrap_or_default();
    serializer.collect_str(&format_args!("{at:.0}"))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use serde_json::json;

    use super::ReloadState;

    #[test]
    fn a_state_says_when_in_universal_time() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_792_000_000_700);
        let failed = ReloadState::Failed { at, problems: vec!["mcp.json: a".into()] };
        let expected = json!({"state": "failed", "at": "2026-10-14T17:46:40Z", "problems": ["mcp.json: a"]});
        assert_eq!(serde_json::to_value(failed).unwrap(), expected);
        assert_eq!(serde_json::to_value(ReloadState::None).unwrap(), json!({"state": "none"}));
    }
}
