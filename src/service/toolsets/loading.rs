//! Loads and unloads groups of tools, for an address session, a chat or an MCP session.
//!
//! The tools of loaded groups are bound: the holder's list contains them. Loading permits nothing, and tools that a caller may
//! not see can't be loaded. Loading needs a holder, because without one no later request could find the groups.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use serde::Serialize;

use crate::domain::access::visibility::Visibility;
use crate::domain::catalog::catalog::Catalog;
use crate::domain::catalog::tool::{OperationId, ToolId};
use crate::domain::publishing::address::Address;
use crate::domain::publishing::meta_tools::MetaTool::{EnableToolGroup, ListAvailableToolsets, LoadToolset, RunTool};
use crate::domain::selection::chat::ChatKey;
use crate::domain::toolsets::loading::{Group, GroupKind, Groups, Loaded};
use crate::domain::toolsets::mode::Mode;
use crate::domain::toolsets::session::Session;
use crate::service::caller::CallerContext;
use crate::service::catalog::current::{CurrentCatalog, View};
use crate::service::ports::{SelectionEventKind, SessionStore, StoreError};
use crate::service::publishing::publish::{Bound, Publish};
use crate::service::records::record::Recorder;
use crate::service::selection::chats::{Chats, over_budget};
use crate::service::selection::pinned::pinned;

/// The warning of a response that doesn't wait for the store any longer.
const NOT_STORED: &str = "the chat's tools are kept in memory only until the store answers again";

/// Maximum number of removed tools that a warning names.
const MOST_DROPPED: usize = 5;

#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    /// Some names match no group; the text explains each problem.
    #[error("{0}")]
    Unknown(String),
    #[error(
        "there is no session or chat here that tools could be loaded into: call them through {RunTool}, which needs no loading; to \
         load, use the address of a session (POST /v1/sessions {{\"mode\": \"dynamic\"}}) or send X-OpenWebUI-Chat-Id"
    )]
    Nowhere,
    #[error("`{0}` belongs to the session and can't be unloaded")]
    Initial(String),
    #[error("`{0}` is not loaded{1}")]
    NotLoaded(String, String),
    #[error("the chat's tools are not known: the store does not answer; try again")]
    Unavailable,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The groups that an MCP client has loaded. They end with its session.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientLoads(Arc<Mutex<Vec<Group>>>);

impl ClientLoads {
    pub(in crate::service) fn groups(&self) -> Vec<Group> {
        self.0.lock().clone()
    }

    #[cfg(test)]
    pub(in crate::service) fn set(&self, groups: &[Group]) {
        *self.0.lock() = groups.to_vec();
    }
}

/// A caller at an address, with the groups loaded by its MCP client.
#[derive(Clone, Copy)]
pub(crate) struct CallerAt<'a> {
    pub caller: &'a CallerContext,
    pub address: &'a Address,
    pub client: Option<&'a ClientLoads>,
    /// Whether the caller has the meta-tool that loads toolsets.
    pub can_load: bool,
}

/// The owner of loaded groups.
enum LoadHolder<'a> {
    Session(&'a Arc<Session>),
    Client(&'a ClientLoads),
    Chat(ChatKey),
}

impl<'a> CallerAt<'a> {
    /// The caller of an HTTP request, which has no MCP session.
    pub(crate) fn new(caller: &'a CallerContext, address: &'a Address) -> Self {
        Self { caller, address, client: None, can_load: true }
    }

    fn holder(&self) -> Option<LoadHolder<'a>> {
        if let Address::Session(session) = self.address {
            return Some(LoadHolder::Session(session));
        }
        // The chat takes precedence, because chat applications open a new MCP session for every message.
        if let Some(chat) = &self.caller.chat {
            return Some(LoadHolder::Chat(ChatKey::of(&self.caller.principal, chat)));
        }
        self.client.map(LoadHolder::Client)
    }

    /// Whether the session contained this group when it was created.
    fn is_initial(&self, group: &Group) -> bool {
        match self.address {
            Address::Session(session) => session.contents.name(group),
            Address::Whole | Address::Toolset(_) => false,
        }
    }
}

/// The response to loading, for the model.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LoadAnswer {
    /// Names of the loaded groups.
    pub loaded: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub already_loaded: Vec<String>,
    /// Published names of the tools in these groups.
    pub tools: Vec<String>,
    /// Number of bound tools, without meta-tools.
    pub bound: usize,
    pub next: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The response to unloading, for the model.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct UnloadAnswer {
    pub unloaded: String,
    /// Published names of the tools that are no longer bound.
    pub tools: Vec<String>,
    pub bound: usize,
    pub next: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// A group that can be loaded.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct AvailableToolset {
    pub name: String,
    pub kind: GroupKind,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Number of its tools that the caller sees.
    pub tools: usize,
    /// Tokens (cl100k) of the definitions of these tools.
    pub tokens: u64,
    pub loaded: bool,
    /// Whether the group was bound from the beginning, so that it can't be unloaded.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub initial: bool,
}

/// All groups that can be loaded, for the model.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Available {
    pub toolsets: Vec<AvailableToolset>,
    /// Number of bound tools, without meta-tools.
    pub bound: usize,
    pub next: String,
}

pub(crate) struct Loading {
    pub current: Arc<CurrentCatalog>,
    pub store: Arc<dyn SessionStore>,
    pub chats: Chats,
    pub recorder: Recorder,
}

impl Loading {
    /// Records the number of bound tools when a conversation lists its tools.
    pub(crate) fn note_listed(&self, caller: &CallerContext, bound: usize) {
        self.recorder.of_conversation(caller, SelectionEventKind::Listed { bound: bound as u64 });
    }

    /// Tools that a document in this mode contains in addition to those of the address.
    pub(crate) async fn bound(&self, here: CallerAt<'_>, mode: Mode) -> Bound {
        if !Self::binds(here.address, mode) {
            return Bound::default();
        }
        Self::bound_with(&self.readable(here).await, &self.view(here), mode).into()
    }

    /// Whether lists in this mode contain bound tools.
    pub(in crate::service) fn binds(address: &Address, mode: Mode) -> bool {
        mode == Mode::Dynamic || (mode == Mode::Full && matches!(address, Address::Session(_)))
    }

    /// The bound tools for known groups. In dynamic mode, pinned tools come first.
    pub(in crate::service) fn bound_with(loaded: &Loaded, view: &View, mode: Mode) -> Vec<OperationId> {
        let View { catalog, visibility, settings, .. } = view;
        let mut names: Vec<OperationId> = Vec::new();
        if mode == Mode::Dynamic {
            let pinned = pinned(settings, catalog).map(|position| &catalog.tools()[position as usize]);
            names.extend(pinned.filter(|tool| visibility.allows(tool)).map(|tool| tool.operation_id.clone()));
        }
        names.extend(loaded.tools(catalog, visibility).into_iter().map(|tool| tool.operation_id.clone()));
        names
    }

    /// The published names of the holder's bound tools; `None` without a holder.
    pub(crate) async fn now(&self, here: CallerAt<'_>) -> Option<HashSet<OperationId>> {
        here.holder()?;
        Some(Self::names_with(&self.readable(here).await, &self.view(here), here.address))
    }

    fn names_with(loaded: &Loaded, view: &View, address: &Address) -> HashSet<OperationId> {
        let bound = Self::bound_with(loaded, view, Mode::Dynamic).into();
        let listed = Publish::listed(&view.catalog, address, &view.visibility, Mode::Dynamic, &bound);
        listed.into_iter().map(|tool| tool.operation_id.clone()).collect()
    }

    /// The session with its loaded groups added to its contents.
    pub(crate) async fn extended(&self, session: Arc<Session>) -> Result<Arc<Session>, StoreError> {
        let groups = self.store.session_groups(&session.id).await?;
        if groups.is_empty() {
            return Ok(session);
        }
        let mut extended = (*session).clone();
        let (catalog, classes) = (self.current.snapshot(), self.current.classes());
        for group in groups {
            match group {
                Group::Toolset(name) => {
                    extended.contents.toolsets.insert(name);
                }
                Group::Server(name) => {
                    extended.contents.servers.insert(name);
                }
                Group::Tag(_) => {
                    let tools = catalog.tools().iter().filter(|tool| group.has(tool, &classes));
                    extended.contents.tools.extend(tools.map(|tool| tool.id.clone()));
                }
            }
        }
        Ok(Arc::new(extended))
    }

    /// The address, with the groups that are loaded into its session. If these are unreadable, it stays as it is.
    pub(crate) async fn extended_address(&self, address: &Arc<Address>) -> Arc<Address> {
        self.known_address(address).await.unwrap_or_else(|| Arc::clone(address))
    }

    /// The address, with the groups that are loaded into its session. `None` if these are unreadable.
    pub(crate) async fn known_address(&self, address: &Arc<Address>) -> Option<Arc<Address>> {
        let Address::Session(session) = &**address else { return Some(Arc::clone(address)) };
        match self.extended(Arc::clone(session)).await {
            Ok(extended) => Some(Arc::new(Address::Session(extended))),
            Err(error) => {
                tracing::warn!(%error, "loaded groups could not be read, and their prompts and resources are not listed");
                None
            }
        }
    }

    /// The groups that can be loaded, each with its state.
    pub(crate) async fn available(&self, here: CallerAt<'_>) -> Available {
        let View { catalog, visibility, .. } = self.view(here);
        let bound = self.now(here).await.unwrap_or_default();
        let toolsets = self.current.toolsets();
        let groups = Groups::visible(&catalog, &visibility);
        let available = groups.known().iter().map(|group| {
            let members = group.members(&catalog, &visibility);
            let description = match group {
                Group::Toolset(name) => toolsets.get(name).map(|definition| definition.description.clone()).unwrap_or_default(),
                Group::Server(name) => catalog.server(name.as_str()).and_then(|server| server.title.clone()).unwrap_or_default(),
                Group::Tag(_) => String::new(),
            };
            AvailableToolset {
                name: group.name().to_owned(),
                kind: group.kind(),
                description,
                tools: members.len(),
                tokens: members.iter().map(|tool| u64::from(tool.tokens)).sum(),
                loaded: members.iter().all(|tool| bound.contains(&tool.operation_id)),
                initial: here.is_initial(group),
            }
        });
        let toolsets: Vec<AvailableToolset> = available.collect();
        let next = match (toolsets.is_empty(), here.holder().is_some()) {
            (true, _) => "There is nothing that could be loaded.".to_owned(),
            (false, true) => format!("Load what you need with {LoadToolset}, then call its tools directly."),
            (false, false) => {
                format!("Nothing can be loaded here, because nothing is kept between your requests: call tools through {RunTool}.")
            }
        };
        Available { toolsets, bound: bound.len(), next }
    }

    /// Loads either all of these groups or none.
    pub(crate) async fn load(&self, names: &[String], with_tags: bool, here: CallerAt<'_>) -> Result<LoadAnswer, LoadError> {
        let (started, since) = (Instant::now(), self.recorder.forgettings());
        let view = self.view(here);
        let View { catalog, visibility, .. } = &view;
        let groups = read(names, with_tags, catalog, visibility)?;
        let holder = here.holder().ok_or(LoadError::Nowhere)?;
        let before = self.loaded(here).await?.ok_or(LoadError::Unavailable)?;
        let bound_before = Self::names_with(&before, &view, here.address).len();
        let is_loaded = |group: &Group| match &holder {
            LoadHolder::Chat(_) => group.members(catalog, visibility).iter().all(|tool| before.tools.contains(&tool.id)),
            LoadHolder::Session(_) | LoadHolder::Client(_) => here.is_initial(group) || before.groups.contains(group),
        };
        let (known, new): (Vec<Group>, Vec<Group>) = groups.iter().cloned().partition(is_loaded);
        let mut warnings = Vec::new();
        match &holder {
            LoadHolder::Session(session) => self.store.load_session_groups(&session.id, &new).await?,
            LoadHolder::Client(client) => client.0.lock().extend(new.iter().cloned()),
            LoadHolder::Chat(key) => warnings.extend(self.load_into_chat(key, &new, &view).await?),
        }
        let mut seen = HashSet::new();
        let tools = groups.iter().flat_map(|group| group.members(catalog, visibility)).map(|tool| tool.operation_id.to_string());
        let tools = tools.filter(|name| seen.insert(name.clone())).collect();
        let names = |groups: &[Group]| groups.iter().map(ToString::to_string).collect();
        let bound = self.now(here).await.map_or(bound_before, |names| names.len());
        let took = started.elapsed();
        let (before, now) = (bound_before as u64, bound as u64);
        for group in &new {
            let group = group.to_string();
            self.recorder.loaded(here.caller, &group, since);
            self.recorder.of_conversation(here.caller, SelectionEventKind::Loaded { group, took, before, bound: now });
        }
        let next = format!(
            "They are among your tools from your next step on: call them directly. If you do not see them there, call them through {RunTool}."
        );
        Ok(LoadAnswer { loaded: names(&new), already_loaded: names(&known), tools, bound, next, warnings })
    }

    /// Unloads a group.
    pub(crate) async fn unload(&self, name: &str, here: CallerAt<'_>) -> Result<UnloadAnswer, LoadError> {
        let view = self.view(here);
        let View { catalog, visibility, .. } = &view;
        let holder = here.holder().ok_or(LoadError::Nowhere)?;
        let loaded = self.loaded(here).await?.ok_or(LoadError::Unavailable)?;
        // A group can be unloaded even after it has disappeared from the catalog.
        let held = loaded.groups.iter().find(|group| group.name().eq_ignore_ascii_case(name.trim())).cloned();
        let group = match held {
            Some(group) => group,
            None => read(&[name.to_owned()], true, catalog, visibility)?.swap_remove(0),
        };
        if here.is_initial(&group) {
            return Err(LoadError::Initial(group.to_string()));
        }
        let before = Self::names_with(&loaded, &view, here.address);
        let mut warnings = Vec::new();
        let was_loaded = match &holder {
            LoadHolder::Session(session) => self.store.unload_session_group(&session.id, &group).await?,
            LoadHolder::Client(client) => {
                let mut groups = client.0.lock();
                let count = groups.len();
                groups.retain(|known| *known != group);
                groups.len() < count
            }
            LoadHolder::Chat(key) => {
                let tools: HashSet<ToolId> = group.members(catalog, visibility).into_iter().map(|tool| tool.id.clone()).collect();
                let was_loaded = self.chats.remove(key, &tools).await.ok_or(LoadError::Unavailable)?.1;
                if !self.chats.store_now(key).await {
                    warnings.push(NOT_STORED.to_owned());
                }
                was_loaded
            }
        };
        if !was_loaded {
            return Err(LoadError::NotLoaded(group.to_string(), what_is(&loaded.groups)));
        }
        let after = self.now(here).await.unwrap_or_default();
        let counted = SelectionEventKind::Unloaded { before: before.len() as u64, bound: after.len() as u64 };
        self.recorder.of_conversation(here.caller, counted);
        let gone: BTreeSet<&OperationId> = before.difference(&after).collect();
        if let (LoadHolder::Session(_), Some(chat)) = (&holder, &here.caller.chat) {
            // The chat keeps what was offered to it, so the next selection would bring these tools back.
            let key = ChatKey::of(&here.caller.principal, chat);
            let tools = gone.iter().filter_map(|name| catalog.operation(name.as_str())).map(|tool| tool.id.clone()).collect();
            if self.chats.remove(&key, &tools).await.is_none() || !self.chats.store_now(&key).await {
                tracing::warn!("tools that a session has unloaded stay among the tools of its chat: the store does not answer");
            }
        }
        Ok(UnloadAnswer {
            unloaded: group.to_string(),
            tools: gone.into_iter().map(ToString::to_string).collect(),
            bound: after.len(),
            next: format!("They are not among your tools any more. {LoadToolset} brings them back."),
            warnings,
        })
    }

    /// The holder's groups; `None` if they are unknown.
    async fn loaded(&self, here: CallerAt<'_>) -> Result<Option<Loaded>, StoreError> {
        Ok(match here.holder() {
            None => Some(Loaded::default()),
            Some(LoadHolder::Session(session)) => Some(Loaded { groups: self.store.session_groups(&session.id).await?, tools: Vec::new() }),
            Some(LoadHolder::Client(client)) => Some(Loaded { groups: client.groups(), tools: Vec::new() }),
            Some(LoadHolder::Chat(key)) => self.chats.read(&key).await.map(|set| {
                let tools = set.tools().iter().map(|entry| entry.tool.clone()).collect();
                Loaded { groups: Vec::new(), tools }
            }),
        })
    }

    /// The holder's groups. An unreadable state counts as empty, because a short list is better than none.
    async fn readable(&self, here: CallerAt<'_>) -> Loaded {
        let loaded =
            self.loaded(here).await.inspect_err(|error| tracing::warn!(%error, "loaded tools could not be read and are not listed"));
        loaded.ok().flatten().unwrap_or_default()
    }

    async fn load_into_chat(&self, key: &ChatKey, groups: &[Group], view: &View) -> Result<Vec<String>, LoadError> {
        let View { catalog, visibility, settings, .. } = view;
        let budget = settings.chat_budget;
        let tools: Vec<ToolId> = groups.iter().flat_map(|group| group.members(catalog, visibility)).map(|tool| tool.id.clone()).collect();
        let updated = self.chats.update(key, &tools, &[], budget).await;
        let is_stored = self.chats.store_now(key).await;
        let mut warnings: Vec<String> = if is_stored { Vec::new() } else { vec![updated.warning.unwrap_or_else(|| NOT_STORED.to_owned())] };
        if tools.len() > budget {
            warnings.push(format!(
                "a chat keeps at most {budget} tools, and these are {}: the next message removes tools that were not called",
                tools.len()
            ));
        }
        let dropped = updated.dropped.iter().filter_map(|id| view.tool(id));
        warnings.extend(over_budget(budget, MOST_DROPPED, dropped.map(|tool| tool.operation_id.to_string()).collect()));
        Ok(warnings)
    }

    fn view(&self, here: CallerAt<'_>) -> View {
        self.current.view(&here.caller.principal)
    }
}

/// Finds the groups with these names, without duplicates. Hidden groups cause the same error as unknown ones.
fn read(names: &[String], with_tags: bool, catalog: &Catalog, visibility: &Visibility) -> Result<Vec<Group>, LoadError> {
    let known = Groups::visible(catalog, visibility);
    let (mut groups, mut problems) = (Vec::new(), Vec::new());
    let what = if with_tags { "toolset, server or tag" } else { "toolset" };
    for name in names {
        match known.find(name, with_tags) {
            Some(group) if groups.contains(group) => {}
            Some(group) => groups.push(group.clone()),
            None => {
                let of_tool = || {
                    let tool = catalog.operation(name.trim()).filter(|tool| visibility.allows(tool))?;
                    Some(format!("; it is a tool of `{}`: load that, or call the tool through {RunTool}", tool.id.server))
                };
                let of_tag = || known.find(name, true).map(|_| format!("; it is a tag: {EnableToolGroup} takes those"));
                let meant = || known.nearest(name, with_tags).map(|known| format!("; did you mean `{known}`?"));
                let hint = of_tool().or_else(of_tag).or_else(meant).unwrap_or_default();
                problems.push(format!("there is no {what} `{name}`{hint}"));
            }
        }
    }
    if problems.is_empty() {
        Ok(groups)
    } else {
        Err(LoadError::Unknown(format!("{} ({ListAvailableToolsets} names them)", problems.join("; "))))
    }
}

fn what_is(loaded: &[Group]) -> String {
    let names: Vec<String> = loaded.iter().map(|group| format!("`{group}`")).collect();
    if names.is_empty() { String::new() } else { format!("; loaded are {}", names.join(", ")) }
}
