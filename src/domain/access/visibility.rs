//! The tools and servers that a caller may see.
//!
//! [`Visibility`] is passed to every use case (publish, search, select, describe, call) and to the index. Nothing else decides
//! what a caller sees. [`CurrentCatalog::visibility`](crate::service::catalog::current::CurrentCatalog::visibility) derives it
//! from a principal and the policy.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::domain::access::toolset_name::ToolsetName;
use crate::domain::catalog::catalog::{Catalog, CatalogServer, Places};
use crate::domain::catalog::tool::{OperationId, ServerName, Tool};

/// A set of tools that all rules treat alike. An index filters by a few classes instead of many tool ids. Class 0 contains the
/// tools that everyone may use and that are in no toolset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VisibilityClass(pub u32);

/// The class of every tool of one catalog under one policy. Equal versions have equal classes.
#[derive(Debug, Default)]
pub struct Classes {
    version: u64,
    /// The version of the catalog.
    catalog: u64,
    /// The class of each tool, by position in the catalog.
    at: Vec<VisibilityClass>,
    places: Arc<Places>,
    toolsets: BTreeMap<ToolsetName, Members>,
}

impl Classes {
    /// Whether every tool of the same catalog has the same class.
    pub fn are_equal_to(&self, other: &Self) -> bool {
        self.catalog == other.catalog && self.at == other.at
    }

    /// `at` contains the class of each tool, in catalog order.
    pub fn new(version: u64, catalog: &Catalog, at: Vec<VisibilityClass>, toolsets: BTreeMap<ToolsetName, Members>) -> Self {
        Self { version, catalog: catalog.version(), at, places: Arc::clone(catalog.places()), toolsets }
    }

    /// The members of a toolset, regardless of the caller; `None` if there is no such toolset.
    pub fn toolset(&self, name: &ToolsetName) -> Option<&Members> {
        self.toolsets.get(name)
    }

    /// The toolsets of a tool.
    pub fn toolsets_of(&self, tool: &Tool) -> impl Iterator<Item = &ToolsetName> {
        let class = self.of(tool);
        self.toolsets.iter().filter(move |(_, members)| class.is_some_and(|class| members.classes.contains(&class))).map(|(name, _)| name)
    }

    /// The toolsets that contain any of these tools.
    pub fn toolsets_of_any<'a>(&self, tools: impl Iterator<Item = &'a Arc<Tool>>) -> impl Iterator<Item = &ToolsetName> {
        // Without toolsets, no tool is looked up.
        let tools = Some(tools).filter(|_| !self.toolsets.is_empty()).into_iter().flatten();
        let classes: BTreeSet<VisibilityClass> = tools.filter_map(|tool| self.of(tool)).collect();
        self.toolsets.iter().filter(move |(_, members)| !members.classes.is_disjoint(&classes)).map(|(name, _)| name)
    }

    /// Whether a tool is a member of a toolset.
    pub fn is_in(&self, name: &ToolsetName, tool: &Tool) -> bool {
        let members = self.toolsets.get(name);
        members.zip(self.of(tool)).is_some_and(|(members, class)| members.classes.contains(&class))
    }

    pub fn of(&self, tool: &Tool) -> Option<VisibilityClass> {
        self.places.of(tool.operation_id.as_str()).and_then(|place| self.at.get(place as usize)).copied()
    }

    /// The class of each tool in catalog order; `None` if these classes belong to another catalog version.
    pub fn by_position(&self, catalog: u64) -> Option<&[VisibilityClass]> {
        (self.catalog == catalog).then_some(&self.at)
    }
}

impl PartialEq for Classes {
    fn eq(&self, other: &Self) -> bool {
        self.version == other.version
    }
}

impl Eq for Classes {}

impl Hash for Classes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.version.hash(state);
    }
}

/// The members of a toolset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    pub classes: BTreeSet<VisibilityClass>,
    /// The always-on tools, in catalog order.
    pub always: Vec<OperationId>,
}

/// The tools that a caller may see: both the server and the class must be in scope.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Visibility {
    pub servers: Scope<ServerName>,
    pub classes: Scope<VisibilityClass>,
    /// The class of each tool. A tool without a class is hidden, unless all classes are in scope.
    pub assigned: Arc<Classes>,
}

impl Visibility {
    pub fn allows(&self, tool: &Tool) -> bool {
        let class = || match &self.classes {
            Scope::All => true,
            Scope::Only(classes) => self.assigned.of(tool).is_some_and(|class| classes.contains(&class)),
        };
        self.servers.contains(&tool.id.server) && class()
    }

    /// Whether the caller may see any part of a server. A server without visible parts is hidden too.
    pub fn shows(&self, server: &CatalogServer) -> bool {
        self.servers.contains(&server.name)
            && (self.classes == Scope::All || server.tools.is_empty() || server.tools.iter().any(|tool| self.allows(tool)))
    }
}

/// The tools of one catalog that a caller may see.
#[derive(Debug)]
pub struct VisibleTools {
    positions: Arc<[u32]>,
    is_visible: Vec<bool>,
    of_server: Vec<u32>,
}

impl VisibleTools {
    pub fn of(catalog: &Catalog, visibility: &Visibility) -> Self {
        let positions: Arc<[u32]> = catalog.visible_positions(visibility).collect::<Vec<u32>>().into();
        let (mut is_visible, mut of_server) = (vec![false; catalog.tools().len()], vec![0; catalog.servers().len()]);
        for &position in &*positions {
            is_visible[position as usize] = true;
            of_server[catalog.servers_of()[position as usize] as usize] += 1;
        }
        Self { positions, is_visible, of_server }
    }

    /// Their positions in the catalog, in ascending order.
    pub fn positions(&self) -> &Arc<[u32]> {
        &self.positions
    }

    pub fn contain(&self, position: u32) -> bool {
        self.is_visible.get(position as usize).copied().unwrap_or(false)
    }

    /// For each server of the catalog, the number of its visible tools.
    pub fn of_servers(&self) -> &[u32] {
        &self.of_server
    }
}

/// All values, or only the listed ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scope<T: Ord> {
    #[default]
    All,
    Only(BTreeSet<T>),
}

impl<T: Ord> Scope<T> {
    pub fn contains(&self, value: &T) -> bool {
        match self {
            Self::All => true,
            Self::Only(values) => values.contains(value),
        }
    }
}

impl Catalog {
    /// The tools that a caller may see.
    pub fn visible<'a>(&'a self, visibility: &Visibility) -> impl Iterator<Item = &'a Arc<Tool>> {
        self.visible_positions(visibility).map(|position| &self.tools()[position as usize])
    }

    /// The positions of the visible tools. For a whole catalog, this is much faster than checking tools one by one.
    pub fn visible_positions(&self, visibility: &Visibility) -> impl Iterator<Item = u32> {
        let servers: Vec<bool> = self.servers().iter().map(|server| visibility.servers.contains(&server.name)).collect();
        let classes = match &visibility.classes {
            Scope::All => None,
            Scope::Only(visible) => Some((visible, visibility.assigned.by_position(self.version()))),
        };
        (0..).zip(self.tools()).zip(self.servers_of()).filter_map(move |((position, tool), server)| {
            let is_visible = servers[*server as usize]
                && match &classes {
                    None => true,
                    Some((visible, Some(at))) => visible.contains(&at[position as usize]),
                    // During a swap, the classes may belong to another catalog.
                    Some((_, None)) => visibility.allows(tool),
                };
            is_visible.then_some(position)
        })
    }
}
