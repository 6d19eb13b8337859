//! The functions offered with a message: our tools, meta-tools and foreign tools.

use std::collections::HashSet;
use std::sync::Arc;

use crate::domain::access::principal::Principal;
use crate::domain::access::toolset_name::ToolsetName;
use crate::domain::access::visibility::Classes;
use crate::domain::catalog::catalog::Catalog;
use crate::domain::catalog::tool::{ServerName, Tool, ToolId};
use crate::domain::publishing::address::{AddressPrefix, ConnectionPath};
use crate::domain::publishing::meta_tools::MetaTool;
use crate::domain::selection::builtins::{Families, Family};
use crate::domain::selection::selection::Disclosed;
use crate::domain::toolsets::session::Session;
use crate::service::catalog::current::{CurrentCatalog, View};
use crate::service::selection::foreign::ForeignTool;
use crate::service::selection::request::{Offered, SelectRequest};

/// Stands for `run_tool` in a chat's set, which identifies tools by server and name. No server has an empty name.
pub(super) fn run_tool() -> ToolId {
    ToolId::new("", MetaTool::RunTool.name())
}

/// The offered functions, sorted by origin. Our tools are positions in the catalog.
#[derive(Default)]
pub(super) struct Offer {
    /// Our tools that the caller may see, without duplicates.
    pub(super) ours: Arc<[u32]>,
    /// For each tool of the catalog, whether [`Offer::ours`] contains it. `None` if these are in ascending order, and quickly searched.
    mask: Option<Vec<bool>>,
    pub(super) meta: Vec<MetaTool>,
    /// Names of foreign functions to keep without a judgement.
    pub(super) foreign: Vec<String>,
    /// Open WebUI's own tools to judge, by family.
    pub(super) builtins: Vec<(String, Family)>,
    /// Other foreign functions to judge.
    pub(super) judged: Vec<ForeignTool>,
    /// Our connections that are switched on, each with its address; `None` if its path is unknown.
    pub(super) connections: Vec<(String, Option<ConnectionAddress>)>,
    pub(super) warnings: Vec<String>,
}

/// The address of a connection, which determines the tools that it publishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ConnectionAddress {
    Whole,
    Server(String),
    Toolset(ToolsetName),
    Session(Arc<Session>),
}

impl ConnectionAddress {
    /// Whether the connection publishes a tool. `classes` defines the members of toolsets.
    pub(super) fn holds(&self, tool: &Tool, classes: &Classes) -> bool {
        match self {
            Self::Whole => true,
            Self::Server(server) => tool.id.server.as_str() == server,
            Self::Toolset(name) => classes.is_in(name, tool),
            Self::Session(session) => session.contents.contain(tool, classes),
        }
    }

    /// Whether a tool can be found and run at this address, even if it is not published there.
    fn reaches(&self, tool: &Tool, classes: &Classes) -> bool {
        match self {
            Self::Whole | Self::Session(_) => true,
            Self::Server(_) | Self::Toolset(_) => self.holds(tool, classes),
        }
    }

    pub(super) fn toolset(&self) -> Option<&ToolsetName> {
        match self {
            Self::Toolset(name) => Some(name),
            Self::Whole | Self::Server(_) | Self::Session(_) => None,
        }
    }

    /// What the path of a connection publishes, apart from sessions. `shows` decides whether the caller may know a server.
    fn of(path: &str, View { catalog, visibility, .. }: &View, shows: impl Fn(&ServerName) -> bool) -> Option<Self> {
        match ConnectionPath::of(path)? {
            ConnectionPath::Whole => Some(Self::Whole),
            ConnectionPath::Below(AddressPrefix::Toolset(name)) => {
                let name = ToolsetName::from(name);
                let is_visible = catalog.visible(visibility).any(|tool| visibility.assigned.is_in(&name, tool));
                is_visible.then_some(Self::Toolset(name))
            }
            ConnectionPath::Below(AddressPrefix::Session(_)) => None,
            ConnectionPath::Server(name) => {
                let server = catalog.server(&name).filter(|server| visibility.shows(server) && shows(&server.name))?;
                Some(Self::Server(server.name.to_string()))
            }
        }
    }
}

impl Offer {
    pub(super) fn of(request: &SelectRequest, current: &CurrentCatalog, principal: &Principal, view: &View) -> Self {
        // The tools of a server don't tell who may know it if there are none.
        let shows = |server: &ServerName| current.shows_server(principal, server);
        let mut offer = Self::default();
        let switched_on: Option<HashSet<&str>> = request.tool_ids.as_ref().map(|ids| ids.iter().map(String::as_str).collect());
        for (id, path) in &request.connections {
            if switched_on.as_ref().is_some_and(|ids| !ids.contains(id.as_str())) {
                continue;
            }
            let session = request.sessions.get(path).cloned().map(ConnectionAddress::Session);
            let published = session.or_else(|| ConnectionAddress::of(path, view, shows));
            if published.is_none() {
                offer
                    .warnings
                    .push(format!("{id} stays switched on: nothing is published under {path}. Its tools are narrowed by their names"));
            }
            offer.connections.push((id.clone(), published));
        }
        if let Some(offered) = &request.offered {
            offer.sort(offered, request.narrow_foreign, current, view);
        } else {
            offer.take_published(request.connections.is_empty(), view);
        }
        offer
    }

    /// The addresses of all connections with known paths.
    pub(super) fn published(&self) -> impl Iterator<Item = &ConnectionAddress> {
        self.connections.iter().filter_map(|(_, published)| published.as_ref())
    }

    /// Whether only a connection with an unknown path can publish this tool.
    pub(super) fn is_of_unknown(&self, tool: &Tool, classes: &Classes) -> bool {
        self.connections.iter().any(|(_, published)| published.is_none())
            && !self.published().any(|published| published.holds(tool, classes))
    }

    pub(super) fn has(&self, position: u32) -> bool {
        match &self.mask {
            Some(mask) => mask.get(position as usize).copied().unwrap_or(false),
            None => self.ours.binary_search(&position).is_ok(),
        }
    }

    /// The position of a tool in the catalog, if the tool is offered.
    pub(super) fn position(&self, id: &ToolId, catalog: &Catalog) -> Option<u32> {
        catalog.position(id).filter(|&position| self.has(position))
    }

    /// Whether a connection publishes only meta-tools and always-on tools.
    pub(super) fn has_meta_document(&self) -> bool {
        self.ours.is_empty() || self.meta.contains(&MetaTool::DescribeTools)
    }

    /// The definition of a tool that is not offered itself but that an offered meta-tool can run; `None` if none can.
    pub(super) fn disclose(&self, tool: &Tool, classes: &Classes) -> Option<Disclosed> {
        let carrier =
            || self.connections.iter().find(|(_, published)| published.as_ref().is_some_and(|published| published.reaches(tool, classes)));
        let tool_id = if self.connections.is_empty() { None } else { Some(carrier()?.0.clone()) };
        Some(Disclosed { tool_id, function: tool.function() })
    }

    pub(super) fn tools<'a>(&'a self, catalog: &'a Catalog) -> impl Iterator<Item = &'a Tool> {
        self.ours.iter().filter_map(|&position| catalog.tools().get(position as usize).map(AsRef::as_ref))
    }

    fn take_published(&mut self, everything: bool, view: &View) {
        let published_by: Vec<&ConnectionAddress> = self.published().collect();
        let visible = view.visible().positions();
        let is_on = |position: &u32| {
            let tool = &view.catalog.tools()[*position as usize];
            published_by.iter().any(|published| published.holds(tool, &view.visibility.assigned))
        };
        self.ours = if everything || published_by.contains(&&ConnectionAddress::Whole) {
            Arc::clone(visible)
        } else {
            visible.iter().copied().filter(is_on).collect()
        };
        if everything || !self.connections.is_empty() {
            self.meta = vec![MetaTool::FindTools, MetaTool::RunTool];
        }
    }

    /// Sorts the offered functions. A name in the catalog, or of a former tool, is ours; it is dropped if the tool is gone or the
    /// caller may not use it, even if the function is foreign. All other names are foreign and are kept, however similar to ours.
    fn sort(&mut self, offered: &[Offered], narrow_foreign: bool, current: &CurrentCatalog, view: &View) {
        let (catalog, visible) = (&view.catalog, view.visible());
        let (mut ours, mut mask) = (Vec::new(), vec![false; catalog.tools().len()]);
        let mut seen = HashSet::new();
        for function in offered {
            if let Some(position) = catalog.operation_position(&function.name) {
                let is_known = &mut mask[position as usize];
                if visible.contain(position) && !*is_known {
                    *is_known = true;
                    ours.push(position);
                }
                continue;
            }
            if !seen.insert(function.name.as_str()) {
                continue;
            }
            match (MetaTool::of_name(&function.name), &function.description) {
                (Some(tool), _) => self.meta.push(tool),
                (None, _) if current.is_former(&function.name) => {}
                (None, Some(description)) if narrow_foreign => match Families::all().of_function(&function.name) {
                    Some(family) => self.builtins.push((function.name.clone(), family)),
                    None => self.judged.push(ForeignTool { name: function.name.clone(), description: description.clone() }),
                },
                _ => self.foreign.push(function.name.clone()),
            }
        }
        (self.ours, self.mask) = (ours.into(), Some(mask));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::{ConnectionAddress, Offer};
    use crate::domain::access::policy::Policy;
    use crate::domain::access::principal::Principal;
    use crate::domain::access::rule::{Effect, PlacedRule, Rule, RulePlace, RuleSource};
    use crate::domain::catalog::catalog::{Catalog, CatalogServer, tool};
    use crate::service::catalog::current::CurrentCatalog;
    use crate::service::selection::request::SelectRequest;

    /// Regression: the connection of a denied server was switched off if the server had no tools, and that of an unknown one was not.
    #[test]
    fn a_denied_server_without_tools_is_like_an_unknown_one() {
        let current = CurrentCatalog::default();
        let echo = tool(&"tools".into(), &json!({"name": "echo", "inputSchema": {"type": "object"}})).unwrap();
        current.swap(Catalog::new(vec![
            CatalogServer::untitled("prompts".into(), Vec::new()),
            CatalogServer::untitled("tools".into(), vec![Arc::new(echo)]),
        ]));
        let rule = Rule::read(&json!({"effect": "block", "servers": ["prompts"], "principals": ["anyone"]})).unwrap();
        let place = RulePlace { source: RuleSource::Api, number: 1 };
        current.set_policy(Policy::new(Effect::Allow, vec![PlacedRule { place, rule }]));
        let paths = ["/prompts", "/nothing", "/tools"];
        let connections = paths.map(|path| (path.to_owned(), path.to_owned())).into_iter().collect();
        let request = SelectRequest { connections, ..SelectRequest::default() };
        let published = |principal: &Principal| {
            let offer = Offer::of(&request, &current, principal, &current.view(principal));
            offer.connections.into_iter().map(|(_, address)| address).collect::<Vec<_>>()
        };
        let server = |name: &str| Some(ConnectionAddress::Server(name.to_owned()));
        assert_eq!(published(&Principal::anyone()), [None, None, server("tools")]);
        assert_eq!(published(&Principal::service_key()), [server("prompts"), None, server("tools")]);
    }
}
