//! The current state: catalog, policy, and the selection settings.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use ahash::RandomState;
use arc_swap::ArcSwap;
use moka::sync::Cache;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, watch};

use crate::domain::access::policy::{Assignment, CompiledToolsets, Decision, Policy};
use crate::domain::access::principal::Principal;
use crate::domain::access::rule::Effect;
use crate::domain::access::visibility::{Classes, Scope, Visibility, VisibleTools};
use crate::domain::catalog::catalog::Catalog;
use crate::domain::catalog::tool::{OperationId, ServerName, Tool, ToolId};
use crate::domain::text::canonical::Fingerprint;
use crate::settings::SelectionSettings;

/// Size of the cache for visibilities, in bytes.
const VIEWS: u64 = 32 << 20;
/// Approximate size of an entry without its lists, in bytes.
const VIEW: usize = 256;
/// Approximate size of a server or a class in an entry, in bytes.
const VIEW_ITEM: usize = 32;
/// Size of the cache for the visible tools of views, in bytes.
const VISIBLE: u64 = 16 << 20;
/// Size of a tool and of a server in [`VisibleTools`], in bytes.
const VISIBLE_ITEMS: (usize, usize) = (5, 4);
/// Maximum number of remembered names of former tools, because a server may keep inventing names. Further names count as foreign.
const MOST_FORMER: usize = 100_000;

/// The current [`Catalog`] and [`Policy`]. A use case takes a snapshot at its start, which later changes do not affect.
pub struct CurrentCatalog {
    now: ArcSwap<Now>,
    /// The settings in the section `[selection]`.
    selection: ArcSwap<SelectionSettings>,
    changing: Mutex<()>,
    /// Published names of tools that are no longer in the catalog.
    former: RwLock<HashSet<OperationId, RandomState>>,
    changes: watch::Sender<u64>,
    /// Notified when a request waits until the latest change is searchable.
    hurry: Notify,
}

/// The view of one request: catalog, the caller's visibility, and settings. All three are taken at the same time, so a concurrent
/// change never mixes two states. Only [`View::of_servers`] and [`View::of_catalog`] change what it shows, because the list of visible
/// tools belongs to it.
#[derive(Clone)]
pub struct View {
    pub catalog: Arc<Catalog>,
    pub visibility: Visibility,
    pub settings: Arc<SelectionSettings>,
    visible: SharedTools,
}

/// The visible tools, computed when first needed, and shared by all requests with the same view.
type SharedTools = Arc<OnceLock<VisibleTools>>;

impl View {
    /// The tools that the caller may see.
    pub fn visible(&self) -> &VisibleTools {
        self.visible.get_or_init(|| VisibleTools::of(&self.catalog, &self.visibility))
    }

    /// The same view of only these servers.
    #[must_use]
    pub fn of_servers(&self, servers: Scope<ServerName>) -> Self {
        Self { visibility: Visibility { servers, ..self.visibility.clone() }, visible: SharedTools::default(), ..self.clone() }
    }

    /// The same view of another catalog.
    #[must_use]
    pub fn of_catalog(self, catalog: Arc<Catalog>) -> Self {
        Self { catalog, visible: SharedTools::default(), ..self }
    }

    /// The tool with this published name, if the caller may see it.
    pub fn operation(&self, name: &str) -> Option<&Arc<Tool>> {
        self.catalog.operation(name).filter(|tool| self.visibility.allows(tool))
    }

    /// The tool with this id, if the caller may see it.
    pub fn tool(&self, id: &ToolId) -> Option<&Arc<Tool>> {
        self.catalog.tool(id).filter(|tool| self.visibility.allows(tool))
    }
}

/// A catalog, a policy and the classes derived from them. Replaced together, so that no request sees new tools with old classes.
struct Now {
    catalog: Arc<Catalog>,
    policy: Arc<Policy>,
    assignment: Assignment,
    views: Cache<Fingerprint, Visibility>,
    visible: Cache<Fingerprint, SharedTools>,
    /// All tools, for callers without restrictions.
    all: SharedTools,
}

impl Now {
    fn new(catalog: Arc<Catalog>, policy: Arc<Policy>) -> Self {
        let views = Cache::builder().weigher(|_, view| weight(view)).max_capacity(VIEWS).build();
        let (of_tool, of_server) = VISIBLE_ITEMS;
        let each = VIEW + of_tool * catalog.tools().len() + of_server * catalog.servers().len();
        let each = u32::try_from(each).unwrap_or(u32::MAX);
        let visible = Cache::builder().weigher(move |_, _: &SharedTools| each).max_capacity(VISIBLE).build();
        Self { assignment: policy.assign(&catalog), catalog, policy, views, visible, all: SharedTools::default() }
    }

    fn visibility(&self, principal: &Principal) -> Visibility {
        if self.policy.is_open_to(principal) { self.open(principal) } else { self.restricted(principal, self.policy.view_of(principal)) }
    }

    /// The visibility of a principal, and the tools that it sees.
    fn view(&self, principal: &Principal) -> (Visibility, SharedTools) {
        let is_open = self.policy.is_open_to(principal);
        if is_open && principal.servers == Scope::All {
            return (self.open(principal), Arc::clone(&self.all));
        }
        let view = self.policy.view_of(principal);
        let visible = self.visible.get(&view).unwrap_or_else(|| {
            let new = SharedTools::default();
            self.visible.insert(view, Arc::clone(&new));
            new
        });
        (if is_open { self.open(principal) } else { self.restricted(principal, view) }, visible)
    }

    /// The visibility of a principal whom no rule restricts.
    fn open(&self, principal: &Principal) -> Visibility {
        Visibility { servers: principal.servers.clone(), classes: Scope::All, assigned: Arc::clone(&self.assignment.classes) }
    }

    /// The visibility of a principal with this view.
    fn restricted(&self, principal: &Principal, view: Fingerprint) -> Visibility {
        if let Some(known) = self.views.get(&view) {
            return known;
        }
        let visibility = Visibility { classes: self.policy.visible(principal, &self.assignment), ..self.open(principal) };
        self.views.insert(view, visibility.clone());
        visibility
    }
}

impl Default for CurrentCatalog {
    fn default() -> Self {
        Self::new(SelectionSettings::default())
    }
}

impl CurrentCatalog {
    /// Creates an empty catalog with these settings.
    pub fn new(selection: SelectionSettings) -> Self {
        let (changes, _) = watch::channel(0);
        Self {
            selection: ArcSwap::from_pointee(selection),
            now: ArcSwap::from_pointee(Now::new(Arc::default(), Arc::default())),
            changing: Mutex::default(),
            former: RwLock::default(),
            changes,
            hurry: Notify::new(),
        }
    }

    /// Creates the view for a request of this principal.
    pub fn view(&self, principal: &Principal) -> View {
        let now = self.now.load();
        let (visibility, visible) = now.view(principal);
        View { catalog: Arc::clone(&now.catalog), visibility, settings: self.settings(), visible }
    }

    pub fn settings(&self) -> Arc<SelectionSettings> {
        self.selection.load_full()
    }

    pub fn set_settings(&self, selection: SelectionSettings) {
        self.selection.store(Arc::new(selection));
    }

    pub fn snapshot(&self) -> Arc<Catalog> {
        Arc::clone(&self.now.load().catalog)
    }

    pub fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.now.load().policy)
    }

    /// The tools that a principal may see. Nothing else decides this.
    pub fn visibility(&self, principal: &Principal) -> Visibility {
        self.now.load().visibility(principal)
    }

    /// The policy's decision on a tool, with the rule that decided.
    pub fn decision(&self, principal: &Principal, tool: &Tool) -> Decision {
        self.policy().decisions(principal).on(tool)
    }

    /// Whether a principal may know that a server exists: it sees one of the server's tools or, if no tools are known, the policy
    /// allows the server by name.
    pub fn shows_server(&self, principal: &Principal, name: &ServerName) -> bool {
        let now = self.now.load();
        match now.catalog.server(name.as_str()) {
            Some(server) if !server.tools.is_empty() => now.visibility(principal).shows(server),
            _ => {
                let effect = || now.policy.decisions(principal).on_server(name).effect;
                // No toolset contains this server, because none of its tools are known.
                principal.within.is_empty() && principal.servers.contains(name) && (now.policy.is_open() || effect() == Effect::Allow)
            }
        }
    }

    /// Whether a principal sees a tool of the catalog.
    pub fn shows_tool(&self, principal: &Principal, id: &ToolId) -> bool {
        let now = self.now.load();
        now.catalog.tool(id).is_some_and(|tool| now.visibility(principal).allows(tool))
    }

    /// Whether a principal sees at least one tool.
    pub fn shows_anything(&self, principal: &Principal) -> bool {
        let now = self.now.load();
        let visibility = now.visibility(principal);
        now.catalog.visible(&visibility).next().is_some()
    }

    /// The class of each tool and the members of each toolset.
    pub fn classes(&self) -> Arc<Classes> {
        Arc::clone(&self.now.load().assignment.classes)
    }

    /// The current toolsets.
    pub fn toolsets(&self) -> Arc<CompiledToolsets> {
        Arc::clone(self.now.load().policy.toolsets())
    }

    /// A receiver that is notified of every change of the catalog, the policy or the toolsets.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Notifies the indexing task that a request waits until the latest change is searchable.
    pub fn hurry(&self) {
        self.hurry.notify_one();
    }

    /// Waits for the next notification by [`Self::hurry`].
    pub async fn hurried(&self) {
        self.hurry.notified().await;
    }

    pub fn swap(&self, catalog: Catalog) {
        self.change(|now| {
            // Tools that are switched off at the start were never in a catalog.
            let gone = now.catalog.tools().iter().chain(catalog.disabled()).map(|tool| &tool.operation_id);
            self.remember(gone.filter(|name| catalog.operation_position(name.as_str()).is_none()).cloned());
            Now::new(Arc::new(catalog), Arc::clone(&now.policy))
        });
    }

    /// Adds published names of former tools. Lookups try the catalog first.
    pub fn remember(&self, names: impl Iterator<Item = OperationId>) {
        let mut former = self.former.write();
        names.for_each(|name| {
            if former.len() < MOST_FORMER {
                former.insert(name);
            }
        });
    }

    /// Whether this published name belonged to a tool that was removed with its server, is no longer listed, is withheld, or is switched
    /// off. Clients may still have an older document.
    pub fn is_former(&self, name: &str) -> bool {
        self.former.read().contains(name)
    }

    /// Replaces the policy for all calls that start later.
    pub fn set_policy(&self, policy: Policy) {
        self.change_policy(|now| policy.with_toolsets(Arc::clone(now.toolsets())));
    }

    /// Replaces the toolsets for all calls that start later.
    pub fn set_toolsets(&self, toolsets: CompiledToolsets) {
        self.change_policy(|now| Policy::new(now.default_effect(), now.rules().to_vec()).with_toolsets(Arc::new(toolsets)));
    }

    fn change_policy(&self, make: impl FnOnce(&Policy) -> Policy) {
        let _one = self.changing.lock();
        let now = self.now.load_full();
        let policy = make(&now.policy);
        if policy.version() != now.policy.version() {
            let new = Now::new(Arc::clone(&now.catalog), Arc::new(policy));
            let moves_tools = !new.assignment.classes.are_equal_to(&now.assignment.classes);
            self.put(new);
            if moves_tools {
                // Until then, tools that have changed their class are found by words only.
                self.hurry();
            }
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

/// Approximate size of a cached visibility, in bytes.
fn weight(view: &Visibility) -> u32 {
    fn count<T: Ord>(scope: &Scope<T>) -> usize {
        match scope {
            Scope::All => 0,
            Scope::Only(values) => values.len(),
        }
    }
    u32::try_from(VIEW + VIEW_ITEM * (count(&view.servers) + count(&view.classes))).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use serde_json::json;

    use super::{CurrentCatalog, VIEWS, View};
    use crate::domain::access::policy::Policy;
    use crate::domain::access::principal::{GroupTable, Principal, User};
    use crate::domain::access::rule::{Effect, Rule, RulePlace, RuleSource};
    use crate::domain::access::visibility::Scope;
    use crate::domain::catalog::catalog::{Catalog, CatalogServer, tool};
    use crate::domain::catalog::tool::ServerName;

    const TOOLS: usize = 300;

    /// A catalog with one tool per group, under these rules.
    fn current(rules: &[serde_json::Value]) -> CurrentCatalog {
        let server = ServerName::from("s");
        let tools = (0..TOOLS).map(|number| json!({"name": format!("t{number}"), "inputSchema": {"type": "object"}}));
        let tools = tools.map(|raw| Arc::new(tool(&server, &raw).unwrap())).collect();
        let current = CurrentCatalog::default();
        let title = None;
        let server = CatalogServer {
            name: server,
            title: title.clone(),
            program: title.clone(),
            version: title.clone(),
            instructions: title,
            tools,
            disabled: Vec::new(),
        };
        current.swap(Catalog::new(vec![server]));
        let placed = rules.iter().zip(1..).map(|(rule, number)| {
            let rule: Rule = serde_json::from_value(rule.clone()).unwrap();
            crate::domain::access::rule::PlacedRule { place: RulePlace { source: RuleSource::Api, number }, rule }
        });
        current.set_policy(Policy::new(Effect::Block, placed.collect()));
        current
    }

    fn user(number: usize, model: &str) -> Principal {
        let key = Principal { vouches: true, ..Principal::service_key() };
        let user = User { id: format!("u{number}"), groups: BTreeSet::from([format!("g{number}"), "all".to_owned()]), ..User::default() };
        key.on_behalf_of(user, &GroupTable::default()).with_model(Some(model.to_owned()))
    }

    fn kept(current: &CurrentCatalog) -> (u64, u64) {
        let now = current.now.load();
        now.views.run_pending_tasks();
        (now.views.entry_count(), now.views.weighted_size())
    }

    #[test]
    fn views_are_bounded_by_their_bytes() {
        let mut rules: Vec<_> = (0..TOOLS)
            .map(|number| json!({"effect": "allow", "tools": [format!("t{number}")], "groups": ["all"], "principals": ["user:*", format!("user:u{number}")]}))
            .collect();
        rules.push(json!({"effect": "block", "models": ["none"]}));
        let current = current(&rules);
        let entry = u64::try_from(super::VIEW + super::VIEW_ITEM * TOOLS).unwrap();
        let callers = usize::try_from(VIEWS / entry).unwrap() + 500;
        for number in 0..callers {
            assert!(matches!(current.visibility(&user(number, "m")).classes, Scope::Only(classes) if classes.len() == TOOLS));
        }
        let (views, bytes) = kept(&current);
        assert!(bytes <= VIEWS && views < callers as u64, "{views} views of {bytes} bytes");
        assert!(bytes > VIEWS / 2, "{views} views of {bytes} bytes");
    }

    #[test]
    fn the_visible_tools_are_those_that_the_view_allows() {
        let by_group = |group: &str, tools: &str| json!({"effect": "allow", "tools": [tools], "groups": [group]});
        let current = current(&[by_group("all", "t1*"), by_group("g7", "t299")]);
        let of = |principal: &Principal| {
            let view = current.view(principal);
            let allowed = |view: &View| -> Vec<u32> {
                (0..).zip(view.catalog.tools()).filter(|(_, tool)| view.visibility.allows(tool)).map(|(position, _)| position).collect()
            };
            let (visible, expected) = (view.visible(), allowed(&view));
            assert_eq!(visible.positions()[..], expected[..]);
            assert!((0..=u32::try_from(TOOLS).unwrap()).all(|position| visible.contain(position) == expected.contains(&position)));
            assert_eq!(visible.of_servers().iter().sum::<u32>() as usize, expected.len());
            assert!(Arc::ptr_eq(current.view(principal).visible().positions(), visible.positions()), "computed twice");
            let nowhere = view.of_servers(Scope::Only(BTreeSet::new()));
            assert!(nowhere.visible().positions().is_empty());
            assert!(view.clone().of_catalog(Arc::default()).visible().positions().is_empty());
            expected.len()
        };
        assert_eq!((of(&user(1, "m")), of(&user(7, "m"))), (111, 112));
        let of_key = Principal { servers: Scope::Only(BTreeSet::from([ServerName::from("other")])), ..Principal::service_key() };
        current.set_policy(Policy::new(Effect::Allow, Vec::new()));
        assert_eq!((of(&user(1, "m")), of(&Principal::service_key()), of(&of_key)), (TOOLS, TOOLS, 0));
        current.swap(Catalog::new(Vec::new()));
        assert_eq!(of(&user(1, "m")), 0);
    }

    #[test]
    fn what_no_rule_asks_for_makes_no_view_of_its_own() {
        let rule = json!({"effect": "allow", "tools": ["t1"], "groups": ["all"]});
        let ask = |current: &CurrentCatalog| (0..100).for_each(|number| drop(current.visibility(&user(0, &format!("model-{number}")))));
        let by_group = current(std::slice::from_ref(&rule));
        ask(&by_group);
        assert_eq!(kept(&by_group).0, 1, "of a hundred models");
        let by_model = current(&[rule, json!({"effect": "allow", "tools": ["t2"], "models": ["model-7"]})]);
        ask(&by_model);
        assert_eq!(kept(&by_model).0, 100);
        let of = |model| match by_model.visibility(&user(0, model)).classes {
            Scope::All => 0,
            Scope::Only(classes) => classes.len(),
        };
        assert_eq!((of("model-7"), of("model-8")), (2, 1));
    }
}
