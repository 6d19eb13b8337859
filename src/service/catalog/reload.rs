//! Applies a changed configuration at run time: either every reloadable setting or nothing.
//!
//! An invalid configuration changes nothing. The log and `/readyz` report its problems until a valid one is loaded. The log
//! contains names of servers and keys, but never values.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use jiff::Timestamp;
use serde::{Serialize, Serializer};
use tokio::sync::{Mutex, mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::domain::text::canonical::Fingerprint;
use crate::service::catalog::refresh::{Configured, configured};
use crate::service::ports::{ServerChange, ServerChangeKind, ToolServers};
use crate::service::supervision::Supervised;
use crate::settings::{LiveSettings, Settings, SettingsErrors, Sources};

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
    started_with: BTreeMap<String, Fingerprint>,
    servers: Arc<dyn ToolServers>,
    catalog: watch::Sender<Arc<Configured>>,
    apply: Apply,
    state: watch::Sender<ReloadState>,
    /// The files that the configuration consists of or names.
    files: watch::Sender<Vec<PathBuf>>,
    /// The last result. Locked during a reload, so that reloads never overlap.
    last: Mutex<Last>,
}

struct Last {
    keys: BTreeMap<String, Fingerprint>,
    problems: Vec<String>,
}

impl Reload {
    /// `settings` are those in force. New lists of servers are sent to `catalog`.
    pub fn new(settings: &Settings, servers: Arc<dyn ToolServers>, catalog: watch::Sender<Arc<Configured>>, apply: Apply) -> Self {
        Self {
            sources: settings.sources.clone(),
            started_with: settings.keys.clone(),
            servers,
            catalog,
            apply,
            state: watch::Sender::default(),
            files: watch::Sender::new(settings.files.clone()),
            last: Mutex::new(Last { keys: settings.keys.clone(), problems: Vec::new() }),
        }
    }

    pub fn state(&self) -> ReloadState {
        self.state.borrow().clone()
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
                let changes = self.servers.configure(settings.live.servers.clone());
                let keys = changed(&last.keys, &settings.keys);
                let is_same = keys.is_empty() && changes.iter().all(|change| change.kind == ServerChangeKind::Unchanged);
                if is_same && !has_failed && trigger == Trigger::Files {
                    return;
                }
                for warning in warnings {
                    tracing::warn!("{warning}");
                }
                self.take_over(settings, &mut last, &changes, &keys);
            }
            Err(errors) => self.refuse(&errors, &mut last, trigger),
        }
    }

    fn take_over(&self, settings: Settings, last: &mut Last, changes: &[ServerChange], keys: &[String]) {
        let needs_restart = settings.needing_restart(&self.started_with);
        (self.apply)(&settings.live);
        self.catalog.send_replace(configured(&settings.live.servers));
        last.keys = settings.keys;
        log(changes, keys);
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
