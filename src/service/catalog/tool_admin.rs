//! Administration of tools and servers, including withheld and unlisted tools.

mod duplicates;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use serde::{Serialize, Serializer};
use serde_json::Value;

pub(crate) use self::duplicates::{DuplicateGroup, DuplicateTool, Duplicates, LookalikeTool, duplicates};
use crate::domain::access::management::{ManagedBy, ManagedInFile};
use crate::domain::access::tool_facts::{Overlays, OverrideProblem, TagSource, ToolOverride};
use crate::domain::catalog::catalog;
use crate::domain::catalog::definition::Difference;
use crate::domain::catalog::hidden_text::{HiddenText, visible};
use crate::domain::catalog::hints::ToolHints;
use crate::domain::catalog::shape::{Shape, ShapeProblem};
use crate::domain::catalog::texts::NearDuplicates;
use crate::domain::catalog::texts::findability::{HardToFind, Siblings};
use crate::domain::catalog::tool::{ServerName, Tool, ToolId};
use crate::domain::text::analysis::Analyzer;
use crate::domain::text::json_text::JsonText;
use crate::domain::text::similar::did_you_mean;
use crate::service::catalog::current::CurrentCatalog;
use crate::service::catalog::definitions::{ApproveError, DefinitionCounts, DefinitionState, Definitions, PartView};
use crate::service::catalog::rebuild::Rebuilds;
use crate::service::catalog::reload::Reload;
use crate::service::catalog::tool_facts::{OverrideError, ToolOverrides};
use crate::service::paging::next_offset;
use crate::service::ports::{ListingStore, LogLine, ServerPhase, ServerState, StoreError, ToolServers};
use crate::settings::KnownServer;

pub(crate) struct ToolAdmin {
    pub current: Arc<CurrentCatalog>,
    pub overrides: Arc<ToolOverrides>,
    pub definitions: Arc<Definitions>,
    pub rebuilds: Rebuilds,
    pub servers: Arc<dyn ToolServers>,
    pub reload: Arc<Reload>,
    pub store: Arc<dyn ListingStore>,
}

/// Filters the list of tools. `None` matches everything.
#[derive(Clone, Debug, Default)]
pub(crate) struct ToolFilter {
    pub server: Option<String>,
    pub tag: Option<String>,
    pub pinned: Option<bool>,
    /// Whether the definition differs from the first one seen or the last one approved.
    pub changed: Option<bool>,
    pub new: Option<bool>,
    /// Whether the tool is switched off.
    pub disabled: Option<bool>,
    /// Matches part of a name, a title, a description or a synonym. Ignores case.
    pub text: Option<String>,
}

/// A page of the list of tools.
#[derive(Debug, Serialize)]
pub(crate) struct ToolPage {
    /// The tools, sorted by server and name.
    pub tools: Vec<ToolView>,
    pub total: usize,
    /// The offset of the next page, if there is one.
    pub next: Option<usize>,
}

#[derive(Debug, Serialize)]
pub(crate) struct ToolView {
    pub server: String,
    /// The raw name of the tool.
    pub tool: String,
    /// Whether the tool is published. Withheld and disabled tools, and tools that their servers no longer list, are not.
    pub published: bool,
    /// Whether an admin or a file has switched the tool off.
    pub disabled: bool,
    /// The published name, if any.
    pub name: Option<String>,
    pub title: Option<String>,
    /// The published description.
    pub description: Option<String>,
    pub tokens: Option<u32>,
    pub tags: Vec<TagView>,
    pub synonyms: Vec<String>,
    /// Whether a file or an admin pinned the tool, also in `selection.pinned`.
    pub pinned: bool,
    /// The override by a file or an admin.
    pub written: Option<ToolOverride>,
    /// Where the override is managed; `null` without one.
    pub managed_by: Option<ManagedBy>,
    /// Version of the override by an admin; 0 if there never was one.
    pub version: u64,
    pub definition: DefinitionView,
    /// What of the shape does not fit the server's definition. It has no effect there.
    pub shape_problems: Vec<ShapeProblem>,
    /// Why searches rarely find the tool; `null` if they do, or if it isn't published.
    pub hard_to_find: Option<HardToFind>,
    /// Hidden characters that models do not see, because they were removed.
    pub hidden_text: Vec<HiddenText>,
    /// The changes since the first definition seen or the last one approved. Only in views of a single tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<Difference>,
    /// The raw definition from the server. Only in views of a single tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw: Option<JsonText>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct TagView {
    pub tag: String,
    pub source: TagSource,
}

#[derive(Debug, Serialize)]
pub(crate) struct DefinitionView {
    /// The result of the comparison; `null` if the server no longer lists the tool, or if definitions are not compared.
    pub state: Option<DefinitionState>,
    /// Whether a known server added the tool and nobody has approved it yet.
    #[serde(skip)]
    is_new: bool,
    /// The fingerprint of the current definition, which an approval must name.
    pub fingerprint: Option<String>,
    #[serde(serialize_with = "rfc_3339")]
    pub first_seen: Option<SystemTime>,
    /// The time at which a differing definition was first seen.
    #[serde(serialize_with = "rfc_3339")]
    pub changed_at: Option<SystemTime>,
    #[serde(serialize_with = "rfc_3339")]
    pub approved_at: Option<SystemTime>,
}

/// The definitions of a server and its prompts, compared with the approved ones.
#[derive(Debug, Serialize)]
pub(crate) struct ServerDefinitionView {
    pub server: ServerName,
    /// The definition of the server itself: title and instructions.
    pub definition: Option<PartView>,
    /// The prompts listed since the start.
    pub prompts: BTreeMap<String, PartView>,
}

#[derive(Debug, Serialize)]
pub(crate) struct ServerView {
    pub server: ServerName,
    pub managed_by: ManagedBy,
    pub enabled: bool,
    /// `None` if the server is switched off, or its stored entry can't be used.
    pub phase: Option<ServerPhase>,
    /// The server's own title.
    pub title: Option<String>,
    pub version: Option<String>,
    /// The negotiated protocol version of MCP.
    pub protocol: Option<String>,
    /// Number of published tools.
    pub tools: usize,
    /// Tokens (cl100k) of the definitions of all published tools.
    pub tokens: u64,
    #[serde(flatten)]
    pub definitions: DefinitionCounts,
    #[serde(serialize_with = "rfc_3339")]
    pub listed_at: Option<SystemTime>,
    /// The reason why the last attempt to connect failed, or why a stored entry isn't used.
    pub error: Option<String>,
    /// The entry of a server that the API has added, with a mark in place of every secret value.
    pub entry: Option<Value>,
}

impl ToolAdmin {
    /// Checks that these servers are configured.
    ///
    /// # Errors
    /// A message with all unknown names and suggestions.
    pub(crate) fn check_servers<'a>(&self, names: impl IntoIterator<Item = &'a ServerName>) -> Result<(), String> {
        let servers = self.reload.known();
        let known = || servers.iter().map(|server| server.name.as_str());
        let unknown = names.into_iter().filter(|name| !known().any(|known| known == name.as_str()));
        let problem = |name: &ServerName| format!("there is no server `{name}`{}", did_you_mean(name.as_str(), known()));
        let problems: Vec<String> = unknown.map(problem).collect();
        if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
    }

    pub(crate) fn list(&self, filter: &ToolFilter, offset: usize, limit: usize) -> ToolPage {
        let (overlays, tools) = (self.overrides.overlays(), self.tools());
        let mut ids: BTreeSet<&ToolId> = tools.keys().collect();
        ids.extend(overlays.written.keys().chain(overlays.of_files.keys()));
        let text = filter.text.as_ref().map(|text| text.to_lowercase());
        let is_meant = |view: &ToolView| {
            let withheld = view.definition.state == Some(DefinitionState::Withheld) && !view.definition.is_new;
            let changed = withheld || view.definition.state == Some(DefinitionState::Changed);
            filter.server.as_ref().is_none_or(|server| *server == view.server)
                && filter.tag.as_ref().is_none_or(|tag| view.tags.iter().any(|known| known.tag == *tag))
                && filter.pinned.is_none_or(|pinned| pinned == view.pinned)
                && filter.changed.is_none_or(|wanted| wanted == changed)
                && filter.new.is_none_or(|wanted| wanted == view.definition.is_new)
                && filter.disabled.is_none_or(|wanted| wanted == view.disabled)
                && text.as_ref().is_none_or(|text| view.holds(text))
        };
        let views = ids.into_iter().map(|id| self.view(id, tools.get(id), &overlays));
        let found: Vec<ToolView> = views.filter(is_meant).collect();
        let total = found.len();
        let mut tools: Vec<ToolView> = found.into_iter().skip(offset).take(limit).collect();
        self.mark_hard_to_find(&mut tools);
        ToolPage { tools, total, next: next_offset(offset, limit, total) }
    }

    /// Compares tools, which are sorted by server, with their siblings.
    fn mark_hard_to_find(&self, views: &mut [ToolView]) {
        let (catalog, analyzer) = (self.current.snapshot(), Analyzer::default());
        for views in views.chunk_by_mut(|one, other| one.server == other.server) {
            let Some(server) = views.first().and_then(|view| catalog.server(&view.server)) else { continue };
            let siblings = Siblings::of(&analyzer, server.tools.iter().map(|tool| tool.text()));
            for view in views {
                let tool = view.name.as_deref().filter(|_| view.published).and_then(|name| catalog.operation(name));
                view.hard_to_find = tool.and_then(|tool| siblings.hard_to_find(&tool.text()));
            }
        }
    }

    /// The tool with this name, whose hidden characters may be escaped as in [`ToolView::tool`], or left out.
    pub(crate) fn named(&self, server: &str, tool: &str) -> ToolId {
        let id = ToolId::new(server, tool);
        if self.tool(&id).is_some() {
            return id;
        }
        let mut listed = self.tools().into_keys();
        listed.find(|known| known.server.as_str() == server && (visible(&known.name) == tool || known.label() == tool)).unwrap_or(id)
    }

    /// All data about one tool; `None` if the tool was never seen and has no override.
    pub(crate) async fn show(&self, id: &ToolId) -> Result<Option<ToolView>, StoreError> {
        let tool = self.tool(id);
        let overlays = self.overrides.overlays();
        let is_described = self.overrides.version(id) > 0 || overlays.of_files.contains_key(id);
        if tool.is_none() && !is_described && self.definitions.known(id).is_none() {
            return Ok(None);
        }
        let mut view = self.view(id, tool.as_ref(), &overlays);
        self.mark_hard_to_find(std::slice::from_mut(&mut view));
        if let Some(tool) = &tool {
            if matches!(view.definition.state, Some(DefinitionState::Changed | DefinitionState::Withheld)) {
                view.difference = self.definitions.difference(id, &tool.raw.value()).await?;
            }
            view.raw = Some(tool.raw.clone());
        }
        Ok(Some(view))
    }

    /// The server's own input schema of a tool, without hidden characters; `None` if no server lists the tool.
    pub(crate) fn own_input(&self, id: &ToolId) -> Option<Value> {
        let built = self.tool(id).and_then(|tool| catalog::listed_tool(&id.server, &tool.raw).ok());
        built.map(|tool| tool.input.source.value())
    }

    /// Sets or deletes the override of a tool; see [`ToolOverrides::replace`].
    ///
    /// # Errors
    /// [`OverrideError`]. The override is then unchanged.
    pub(crate) async fn write(&self, id: &ToolId, written: Option<ToolOverride>, expected: Option<u64>) -> Result<ToolView, OverrideError> {
        self.overrides.check_given(id)?;
        let is_written = self.overrides.overlays().written.contains_key(id);
        let is_known = is_written || (written.is_some() && (self.tool(id).is_some() || self.definitions.known(id).is_some()));
        if !is_known {
            return Err(OverrideError::NotFound);
        }
        if let Some(written) = &written {
            self.check_shape(id, &written.shape)?;
        }
        self.overrides.replace(id, written, expected).await?;
        self.changed(id).await.ok_or(OverrideError::NotFound)
    }

    /// Checks that `selection.pinned` doesn't pin the tool, because then the API can't unpin it.
    ///
    /// # Errors
    /// [`ManagedInFile`]
    pub(crate) fn check_unpin(&self, id: &ToolId) -> Result<(), ManagedInFile> {
        if self.tool(id).is_some_and(|tool| self.is_pinned_in_settings(&tool)) {
            return Err(self.overrides.managed(format_args!("`selection.pinned`, which pins {},", visible(&id.to_string()))));
        }
        Ok(())
    }

    fn is_pinned_in_settings(&self, tool: &Tool) -> bool {
        self.current.settings().pinned.iter().any(|name| name == tool.operation_id.as_str())
    }

    /// Checks a shape against the current definition of its tool. What was set before may stay, although the definition has
    /// changed since.
    fn check_shape(&self, id: &ToolId, shape: &Shape) -> Result<(), OverrideProblem> {
        let overlays = self.overrides.overlays();
        let stored = overlays.written.get(id).map(|written| &written.shape.parameters);
        let is_set = |name: &String| stored.and_then(|stored| stored.get(name)) != shape.parameters.get(name);
        let problems = match self.own_input(id) {
            Some(source) => shape.problems(&source).into_iter().filter(|problem| problem.parameter.as_ref().is_none_or(is_set)).collect(),
            None if shape.parameters.keys().any(is_set) => vec![ShapeProblem::unlisted()],
            None => Vec::new(),
        };
        if problems.is_empty() { Ok(()) } else { Err(OverrideProblem::Shape(problems)) }
    }

    /// Approves the current definition of a tool; see [`Definitions::approve`].
    ///
    /// # Errors
    /// [`ApproveError`]. The definition is then not approved.
    pub(crate) async fn approve(&self, id: &ToolId, looked_at: &str) -> Result<ToolView, ApproveError> {
        let tool = self.tool(id).ok_or(ApproveError::NotFound)?;
        self.definitions.approve(&tool, looked_at).await?;
        self.rebuilds.of(&id.server).await;
        self.changed(id).await.ok_or(ApproveError::NotFound)
    }

    /// The view of a tool after a change. `None` if it can't be read, although the change succeeded.
    async fn changed(&self, id: &ToolId) -> Option<ToolView> {
        self.show(id).await.unwrap_or_else(|error| {
            tracing::warn!(tool = %id, %error, "the difference of a definition could not be read");
            Some(self.view(id, self.tool(id).as_ref(), &self.overrides.overlays()))
        })
    }

    /// The definitions of a server and its prompts; `None` if the server is not configured.
    pub(crate) async fn server_definition(&self, server: &ServerName) -> Result<Option<ServerDefinitionView>, StoreError> {
        if !self.servers.states().iter().any(|state| state.server == *server) {
            return Ok(None);
        }
        let mut prompts = BTreeMap::new();
        for prompt in self.definitions.prompts(server) {
            if let Some(view) = self.definitions.part(server, Some(&prompt)).await? {
                prompts.insert(visible(&prompt), view);
            }
        }
        Ok(Some(ServerDefinitionView { server: server.clone(), definition: self.definitions.part(server, None).await?, prompts }))
    }

    /// Approves the current definition of a server or of one of its prompts.
    ///
    /// # Errors
    /// [`ApproveError`]. The definition is then not approved.
    pub(crate) async fn approve_server(
        &self,
        server: &ServerName,
        prompt: Option<&str>,
        looked_at: &str,
    ) -> Result<ServerDefinitionView, ApproveError> {
        // Names in the list have their hidden characters escaped.
        let prompts = self.definitions.prompts(server);
        let own = prompt.map(|prompt| prompts.iter().find(|known| visible(known) == prompt).map_or(prompt, String::as_str));
        self.definitions.approve_part(server, own, looked_at).await?;
        self.rebuilds.of(server).await;
        self.server_definition(server).await?.ok_or(ApproveError::NotFound)
    }

    /// Finds near duplicates among all tools. For thousands of tools, this takes a tenth of a second.
    pub(crate) fn duplicates(&self) -> Duplicates {
        let catalog = self.current.snapshot();
        match catalog.texts() {
            Some(texts) => duplicates(&catalog, &texts.near_duplicates),
            None => duplicates(&catalog, &NearDuplicates::of(&Analyzer::default(), catalog.tools().iter().map(|tool| tool.text()))),
        }
    }

    /// All configured servers.
    pub(crate) async fn servers(&self) -> Result<Vec<ServerView>, StoreError> {
        let (catalog, listed) = (self.current.snapshot(), self.store.listing_times().await?);
        let mut states: BTreeMap<ServerName, ServerState> =
            self.servers.states().into_iter().map(|state| (state.server.clone(), state)).collect();
        let view = |known: &KnownServer| {
            let state = states.remove(&known.name);
            let server = catalog.server(known.name.as_str());
            let tools = server.map(|server| server.tools.as_slice()).unwrap_or_default();
            ServerView {
                title: server.and_then(|server| server.title.clone()),
                version: server.and_then(|server| server.version.clone()),
                tools: tools.len(),
                tokens: tools.iter().map(|tool| u64::from(tool.tokens)).sum(),
                definitions: self.definitions.counts_of_server(&known.name),
                listed_at: listed.get(&known.name).copied(),
                phase: state.as_ref().map(|state| state.phase),
                error: state.as_ref().and_then(|state| state.error.clone()).or_else(|| known.error.clone()),
                protocol: state.and_then(|state| state.protocol),
                server: known.name.clone(),
                managed_by: known.managed_by,
                enabled: known.enabled,
                entry: None,
            }
        };
        Ok(self.reload.known().iter().map(view).collect())
    }

    /// The last lines that the processes of a configured server wrote; `None` if there is no such server.
    pub(crate) fn log(&self, name: &ServerName) -> Option<Vec<LogLine>> {
        self.reload.known().iter().any(|known| known.name == *name).then(|| self.servers.log(name))
    }

    /// All published, withheld and disabled tools.
    fn tools(&self) -> BTreeMap<ToolId, Listed> {
        let catalog = self.current.snapshot();
        let withheld = self.definitions.withheld().into_iter().map(|tool| (tool.id.clone(), Listed { tool, published: false }));
        let disabled = catalog.disabled().map(|tool| (tool.id.clone(), Listed { tool: Arc::clone(tool), published: false }));
        let published = catalog.tools().iter().map(|tool| (tool.id.clone(), Listed { tool: Arc::clone(tool), published: true }));
        withheld.chain(disabled).chain(published).collect()
    }

    fn tool(&self, id: &ToolId) -> Option<Listed> {
        let catalog = self.current.snapshot();
        let published = catalog.tool(id).map(|tool| Listed { tool: Arc::clone(tool), published: true });
        let unpublished = |tool: &Arc<Tool>| Listed { tool: Arc::clone(tool), published: false };
        let disabled = || catalog.disabled().find(|tool| tool.id == *id).map(unpublished);
        let withheld = || self.definitions.withheld().iter().find(|tool| tool.id == *id).map(unpublished);
        published.or_else(disabled).or_else(withheld)
    }

    fn view(&self, id: &ToolId, listed: Option<&Listed>, overlays: &Overlays) -> ToolView {
        let known = self.definitions.known(id);
        let state = listed.and_then(|listed| self.definitions.state(listed));
        let changed = matches!(state, Some(DefinitionState::Changed | DefinitionState::Withheld));
        let (written, managed_by) = overlays.written_for(id).map(|(written, managed_by)| (written.clone(), managed_by)).unzip();
        let tool = listed.map(|listed| &listed.tool);
        ToolView {
            server: id.server.to_string(),
            tool: visible(&id.name),
            published: listed.is_some_and(|listed| listed.published),
            disabled: written.as_ref().is_some_and(|written| written.shape.disabled),
            shape_problems: tool.map(|tool| tool.shape.problems.clone()).unwrap_or_default(),
            name: tool.map(|tool| tool.operation_id.to_string()),
            title: tool.and_then(|tool| tool.title.clone()),
            description: tool.map(|tool| tool.description.clone()),
            tokens: tool.map(|tool| tool.tokens),
            tags: tool.map(|tool| tags(tool, overlays)).unwrap_or_default(),
            synonyms: written.as_ref().map(|written| written.synonyms.clone()).unwrap_or_default(),
            pinned: written.as_ref().is_some_and(|written| written.pinned) || tool.is_some_and(|tool| self.is_pinned_in_settings(tool)),
            written,
            managed_by,
            version: self.overrides.version(id),
            definition: DefinitionView {
                state,
                is_new: state.is_some() && listed.is_some_and(|listed| self.definitions.is_new(listed)),
                fingerprint: tool.map(|tool| tool.definition.to_string()),
                first_seen: known.as_ref().map(|known| known.first_seen),
                changed_at: known.as_ref().filter(|_| changed).and_then(|known| Some(known.noticed?.1)),
                approved_at: known.and_then(|known| known.approved),
            },
            hard_to_find: None,
            hidden_text: tool.map(|tool| tool.hidden.clone()).unwrap_or_default(),
            difference: None,
            raw: None,
        }
    }
}

/// A tool in the current list of its server.
struct Listed {
    tool: Arc<Tool>,
    published: bool,
}

impl std::ops::Deref for Listed {
    type Target = Tool;

    fn deref(&self) -> &Tool {
        &self.tool
    }
}

impl ToolView {
    /// Whether a text of the tool contains `text`, which is in lower case.
    fn holds(&self, text: &str) -> bool {
        let texts = [Some(&self.tool), self.name.as_ref(), self.title.as_ref(), self.description.as_ref()];
        texts.into_iter().flatten().chain(&self.synonyms).any(|part| part.to_lowercase().contains(text))
    }
}

/// The tags of a tool without duplicates, each with the first source that assigns it.
fn tags(tool: &Tool, overlays: &Overlays) -> Vec<TagView> {
    let own = ToolHints::of(&tool.raw.value());
    let all = own.tags().map(|tag| (tag, TagSource::Tool)).chain(overlays.tags(&tool.id, &tool.operation_id, &own));
    let mut tags: Vec<TagView> = Vec::new();
    for (tag, source) in all {
        if tags.iter().all(|known| known.tag != tag) {
            tags.push(TagView { tag: tag.to_owned(), source });
        }
    }
    tags
}

/// Serializes a time in UTC, to the second.
#[expect(clippy::ref_option, reason = "as serde calls it")]
fn rfc_3339<S: Serializer>(at: &Option<SystemTime>, serializer: S) -> Result<S::Ok, S::Error> {
    match at {
        Some(at) => serializer.collect_str(&format_args!("{:.0}", jiff::Timestamp::try_from(*at).unwrap_or_default())),
        None => serializer.serialize_none(),
    }
}
