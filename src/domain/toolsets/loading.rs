//! Groups that can be loaded by name, and the loaded groups of a session.
//!
//! A group is a toolset, a server or a tag. Servers can be loaded by name, so loading works without configured toolsets. If a
//! toolset and a server have the same name, the name means the toolset.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use crate::domain::access::toolset_name::ToolsetName;
use crate::domain::access::visibility::{Classes, Visibility};
use crate::domain::catalog::catalog::Catalog;
use crate::domain::catalog::tool::{ServerName, Tool, ToolId};
use crate::domain::text::named::named;
use crate::domain::text::similar::nearest_of_family;

/// A set of tools that are loaded together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    Toolset(ToolsetName),
    Server(ServerName),
    Tag(Arc<str>),
}

named! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum GroupKind {
        Toolset = "toolset",
        Server = "server",
        Tag = "tag",
    }
}

impl Group {
    pub fn new(kind: GroupKind, name: &str) -> Self {
        match kind {
            GroupKind::Toolset => Self::Toolset(ToolsetName::from(name)),
            GroupKind::Server => Self::Server(ServerName::from(name)),
            GroupKind::Tag => Self::Tag(name.into()),
        }
    }

    pub fn kind(&self) -> GroupKind {
        match self {
            Self::Toolset(_) => GroupKind::Toolset,
            Self::Server(_) => GroupKind::Server,
            Self::Tag(_) => GroupKind::Tag,
        }
    }

    pub fn name(&self) -> &str {
        match self {
            Self::Toolset(name) => name.as_str(),
            Self::Server(name) => name.as_str(),
            Self::Tag(name) => name,
        }
    }

    /// Whether the group contains a tool. `classes` defines the members of toolsets.
    pub fn has(&self, tool: &Tool, classes: &Classes) -> bool {
        match self {
            Self::Toolset(name) => classes.is_in(name, tool),
            Self::Server(name) => tool.id.server == *name,
            Self::Tag(name) => tool.hints.tags().any(|tag| tag.eq_ignore_ascii_case(name)),
        }
    }

    /// The tools of the group that are visible, in catalog order.
    pub fn members<'a>(&self, catalog: &'a Catalog, visibility: &Visibility) -> Vec<&'a Arc<Tool>> {
        match self {
            Self::Server(name) => {
                let server = catalog.server(name.as_str()).into_iter();
                server.flat_map(|server| &server.tools).filter(|tool| visibility.allows(tool)).collect()
            }
            Self::Toolset(_) | Self::Tag(_) => catalog.visible(visibility).filter(|tool| self.has(tool, &visibility.assigned)).collect(),
        }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// The loaded groups in loading order, and single tools if the owner is a chat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    pub groups: Vec<Group>,
    pub tools: Vec<ToolId>,
}

impl Loaded {
    /// The loaded tools that are visible, in loading order.
    pub fn tools<'a>(&self, catalog: &'a Catalog, visibility: &Visibility) -> Vec<&'a Arc<Tool>> {
        let mut seen = BTreeSet::new();
        let mut tools = Vec::new();
        let single = self.tools.iter().filter_map(|id| catalog.tool(id)).filter(|tool| visibility.allows(tool));
        let mut add = |tool: &'a Arc<Tool>| {
            if seen.insert(&tool.operation_id) {
                tools.push(tool);
            }
        };
        single.for_each(&mut add);
        for group in &self.groups {
            group.members(catalog, visibility).into_iter().for_each(&mut add);
        }
        tools
    }
}

/// The groups that contain a tool visible to the caller.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    /// Toolsets, then servers whose names no toolset has; each sorted by name.
    known: Vec<Group>,
    /// Tags whose names no toolset or server has.
    tags: Vec<Group>,
}

impl Groups {
    pub fn visible(catalog: &Catalog, visibility: &Visibility) -> Self {
        let mut is_visible = vec![false; catalog.servers().len()];
        let mut tags = BTreeSet::new();
        for position in catalog.visible_positions(visibility) {
            is_visible[catalog.servers_of()[position as usize] as usize] = true;
            tags.extend(catalog.tools()[position as usize].hints.tags().map(str::to_ascii_lowercase));
        }
        let servers = catalog.servers().iter().zip(is_visible).filter(|(_, is_visible)| *is_visible).map(|(server, _)| &server.name);
        let toolsets = visibility.assigned.toolsets_of_any(catalog.visible(visibility));
        let mut known: Vec<Group> = toolsets.cloned().map(Group::Toolset).collect();
        let is_taken = |known: &[Group], name: &str| known.iter().any(|group| group.name().eq_ignore_ascii_case(name));
        let free: Vec<Group> = servers.filter(|name| !is_taken(&known, name.as_str())).cloned().map(Group::Server).collect();
        known.extend(free);
        let tags = tags.into_iter().filter(|tag| !is_taken(&known, tag)).map(|tag| Group::Tag(tag.into())).collect();
        Self { known, tags }
    }

    /// All toolsets and servers.
    pub fn known(&self) -> &[Group] {
        &self.known
    }

    /// Finds a group by name, optionally among tags too. Ignores case, because models vary the case of names.
    pub fn find(&self, name: &str, with_tags: bool) -> Option<&Group> {
        let name = name.trim();
        let all = || self.all(with_tags);
        all().find(|group| group.name() == name).or_else(|| all().find(|group| group.name().eq_ignore_ascii_case(name)))
    }

    /// The group name most similar to a misspelt one.
    pub fn nearest(&self, name: &str, with_tags: bool) -> Option<&str> {
        nearest_of_family(name.trim(), self.all(with_tags).map(Group::name))
    }

    fn all(&self, with_tags: bool) -> impl Iterator<Item = &Group> {
        self.known.iter().chain(self.tags.iter().filter(move |_| with_tags))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::{Group, GroupKind, Groups, Loaded};
    use crate::domain::access::visibility::{Scope, Visibility};
    use crate::domain::catalog::catalog::{self, Catalog, CatalogServer};
    use crate::domain::catalog::tool::{ServerName, ToolId};

    fn catalog() -> Catalog {
        let server = |name: &str, tools: &[(&str, &[&str])]| {
            let name = ServerName::from(name);
            let tool = |(tool, tags): &(&str, &[&str])| {
                let raw = json!({"name": tool, "tags": tags, "inputSchema": {"type": "object"}});
                Arc::new(catalog::tool(&name, &raw).unwrap())
            };
            let tools = tools.iter().map(tool).collect();
            CatalogServer::untitled(name.clone(), tools)
        };
        Catalog::new(vec![
            server("GitHub", &[("create_issue", &["Code"]), ("list_issues", &["Code"])]),
            server("mail", &[("send", &["office", "mail"])]),
        ])
    }

    #[test]
    fn a_group_is_a_server_or_a_tag_by_its_name() {
        let catalog = catalog();
        let groups = Groups::visible(&catalog, &Visibility::default());
        assert_eq!(groups.known().iter().map(Group::name).collect::<Vec<_>>(), ["GitHub", "mail"]);
        assert_eq!(groups.find(" github", false).map(Group::kind), Some(GroupKind::Server));
        assert_eq!((groups.find("code", false), groups.find("code", true).map(Group::kind)), (None, Some(GroupKind::Tag)));
        assert_eq!(groups.find("mail", true).map(Group::kind), Some(GroupKind::Server), "the server goes before the tag");
        assert_eq!((groups.nearest("githb", true), groups.nearest("nothing like it", true)), (Some("GitHub"), None));
        let mail_alone = Visibility { servers: Scope::Only([ServerName::from("mail")].into()), ..Visibility::default() };
        let groups = Groups::visible(&catalog, &mail_alone);
        assert_eq!((groups.find("GitHub", true), groups.find("code", true), groups.known().len()), (None, None, 1));
    }

    #[test]
    fn what_is_loaded_comes_in_the_order_of_loading_and_once() {
        let catalog = catalog();
        let loaded = Loaded {
            groups: vec![Group::new(GroupKind::Tag, "CODE"), Group::new(GroupKind::Server, "GitHub")],
            tools: vec![ToolId::new("mail", "send"), ToolId::new("mail", "gone")],
        };
        let names = |visibility: &Visibility| {
            loaded.tools(&catalog, visibility).iter().map(|tool| tool.operation_id.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names(&Visibility::default()), ["mail__send", "GitHub__create_issue", "GitHub__list_issues"]);
        let mail_alone = Visibility { servers: Scope::Only([ServerName::from("mail")].into()), ..Visibility::default() };
        assert_eq!(names(&mail_alone), ["mail__send"]);
    }
}
