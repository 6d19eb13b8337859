//! What is in force at the moment: the catalog, the policy, and the settings that can change while the service runs.

use std::sync::Arc;

use arc_swap::ArcSwap;
use moka::sync::Cache;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::domain::catalog::Catalog;
use crate::domain::policy::{Assignment, Decision, Effect, Policy, Toolsets};
use crate::domain::principal::{Classes, Principal, Scope, Visibility};
use crate::domain::tool::{ServerName, Tool};
use crate::settings::SelectionSettings;

/// The section `[selection]` as it is now.
pub type LiveSelection = Arc<ArcSwap<SelectionSettings>>;

/// Callers whose views are kept.
const VIEWS: u64 = 10_000;

/// Holds the present [`Catalog`] and the present [`Policy`]. Readers take a snapshot and keep it for the whole use case; a
/// change swaps in a new one and never touches theirs.
pub struct CurrentCatalog {
    now: ArcSwap<Now>,
    changing: Mutex<()>,
    changes: watch::Sender<u64>,
    /// Somebody waits for what has changed.
    hurry: Notify,
}

/// Catalog, policy, and what the one makes of the other: swapped together, so that nobody sees new tools by old classes.
struct Now {
    catalog: Arc<Catalog>,
    policy: Arc<Policy>,
    assignment: Assignment,
    views: Cache<Principal, Visibility>,
}

impl Now {
    fn new(catalog: Arc<Catalog>, policy: Arc<Policy>) -> Self {
        Self { assignment: policy.assign(&catalog), catalog, policy, views: Cache::new(VIEWS) }
    }

    fn visibility(&self, principal: &Principal) -> Visibility {
        if self.policy.is_open_to(principal) {
            let assigned = Arc::clone(&self.assignment.classes);
            return Visibility { servers: principal.servers.clone(), classes: Scope::All, assigned };
        }
        if let Some(known) = self.views.get(principal) {
            return known;
        }
        let visibility = Visibility {
            servers: principal.servers.clone(),
            classes: self.policy.visible(principal, &self.assignment),
            assigned: Arc::clone(&self.assignment.classes),
        };
        self.views.insert(principal.clone(), visibility.clone());
        visibility
    }
}

impl Default for CurrentCatalog {
    fn default() -> Self {
        let (changes, _) = watch::channel(0);
        Self {
            now: ArcSwap::from_pointee(Now::new(Arc::default(), Arc::default())),
            changing: Mutex::default(),
            changes,
            hurry: Notify::new(),
        }
    }
}

impl CurrentCatalog {
    #[must_use]
    pub fn snapshot(&self) -> Arc<Catalog> {
        Arc::clone(&self.now.load().catalog)
    }

    #[must_use]
    pub fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.now.load().policy)
    }

    /// What a principal may see. The one place where that is decided.
    #[must_use]
    pub fn visibility(&self, principal: &Principal) -> Visibility {
        self.now.load().visibility(principal)
    }

    /// What the policy says of a principal and a tool, and which rule says it.
    #[must_use]
    pub fn decision(&self, principal: &Principal, tool: &Tool) -> Decision {
        self.policy().decisions(principal).on(tool)
    }

    /// Whether a principal may know of a server: sees one of its tools, or, as long as none is known, would by its name.
    #[must_use]
    pub fn shows_server(&self, principal: &Principal, name: &ServerName) -> bool {
        let now = self.now.load();
        match now.catalog.server(name.as_str()) {
            Some(server) if !server.tools.is_empty() => now.visibility(principal).shows(server),
            _ => {
                let effect = || now.policy.decisions(principal).on_server(name).effect;
                // Toolsets hold tools, and of this server none is known.
                principal.within.is_empty() && principal.servers.contains(name) && (now.policy.is_open() || effect() == Effect::Allow)
            }
        }
    }

    /// Whether there is any tool for a principal.
    #[must_use]
    pub fn shows_anything(&self, principal: &Principal) -> bool {
        let now = self.now.load();
        let visibility = now.visibility(principal);
        now.catalog.visible(&visibility).next().is_some()
    }

    /// The class of every tool, and the members of every toolset.
    #[must_use]
    pub fn classes(&self) -> Arc<Classes> {
        Arc::clone(&self.now.load().assignment.classes)
    }

    /// The toolsets in force.
    #[must_use]
    pub fn toolsets(&self) -> Arc<Toolsets> {
        Arc::clone(self.now.load().policy.toolsets())
    }

    /// Tells of every change of the catalog, of the policy and of the toolsets.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Says that somebody waits for the last change to be found.
    pub fn hurry(&self) {
        self.hurry.notify_one();
    }

    /// Resolves when somebody waits, once for each time.
    pub async fn hurried(&self) {
        self.hurry.notified().await;
    }

    pub fn swap(&self, catalog: Catalog) {
        self.change(|now| Now::new(Arc::new(catalog), Arc::clone(&now.policy)));
    }

    /// From now on this policy holds, for every call that begins.
    pub fn set_policy(&self, policy: Policy) {
        self.change_policy(|now| policy.with_toolsets(Arc::clone(now.toolsets())));
    }

    /// From now on there are these toolsets, for every call that begins.
    pub fn set_toolsets(&self, toolsets: Toolsets) {
        self.change_policy(|now| Policy::new(now.default_effect(), now.rules().to_vec()).with_toolsets(Arc::new(toolsets)));
    }

    fn change_policy(&self, make: impl FnOnce(&Policy) -> Policy) {
        let _one = self.changing.lock();
        let now = self.now.load_full();
        let policy = make(&now.policy);
        if policy.version() != now.policy.version() {
            self.put(Now::new(Arc::clone(&now.catalog), Arc::new(policy)));
        }
    }

    fn change(&self, make: impl FnOnce(&Now) -> Now) {
        let _one = self.changing.lock();
        let new = make(&self.now.load());
        self.put(new);
    }

    fn put(&self, new: Now) {
        self.now.store(Arc::new(new));
        self.changes.send_modify(|count| *count += 1);
    }
}
