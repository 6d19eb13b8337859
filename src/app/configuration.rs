//! What changes while the service runs: the settings, and the servers that the API manages.

use std::sync::Arc;

use super::foundation::Foundation;
use super::listening::admission;
use super::parts::{AccessParts, CallParts, CatalogParts, Parts};
use crate::http::admission::Admission;
use crate::service::catalog::reload::{Apply, Reload};
use crate::service::servers::{ServerParts, Servers, StoredServers};
use crate::settings::Settings;

/// What changes while the service runs.
pub(super) struct Configuration {
    pub admission: Arc<Admission>,
    pub reload: Arc<Reload>,
    /// The servers that the API manages.
    pub servers: Arc<Servers>,
}

impl Configuration {
    pub(super) fn new(settings: &Settings, base: &Foundation<'_>, parts: &Parts, stored: StoredServers) -> Self {
        let (servers, rebuilds) = (&parts.catalog.servers, &parts.catalog.rebuilds);
        let admission = Arc::new(admission(base.start, base.live, &parts.access.keys));
        let apply = apply(base, parts, Arc::clone(&admission));
        let configured = parts.catalog.configured.clone();
        let reload = Arc::new(Reload::new(settings, stored.overrides(), Arc::clone(servers), configured, apply));
        let parts = ServerParts {
            reload: Arc::clone(&reload),
            servers: Arc::clone(servers),
            connections: Arc::clone(&parts.users.connections),
            rebuilds: rebuilds.clone(),
        };
        let servers = Arc::new(Servers::new(base.store.clone(), base.start.secrets.keys.clone(), stored, parts));
        Self { admission, reload, servers }
    }
}

/// Passes changed settings to the use cases. Must run before the catalog receives the changed servers.
fn apply(base: &Foundation<'_>, parts: &Parts, admission: Arc<Admission>) -> Apply {
    let current = Arc::clone(&base.current);
    let AccessParts { keys, toolsets, policies } = parts.access.clone();
    let CatalogParts { overrides, definitions, .. } = parts.catalog.clone();
    let CallParts { limits, execute, .. } = parts.calls.clone();
    let (usage, secrets) = (Arc::clone(&parts.records.usage), Arc::clone(&parts.users.secrets));
    let enrichment = Arc::clone(&parts.selection.enrichment.feed);
    Box::new(move |live| {
        keys.configure(live);
        usage.store(Arc::new(live.usage.clone()));
        secrets.configure(live);
        limits.configure(live);
        admission.groups.store(Arc::new(live.groups.clone()));
        toolsets.configure(live);
        policies.configure(live);
        execute.configure(live);
        current.set_settings(live.selection.clone());
        overrides.configure(live);
        definitions.configure(live);
        enrichment.configure(live);
    })
}
