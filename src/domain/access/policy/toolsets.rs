//! Compiled toolsets, which find the toolsets of a tool.

use std::collections::BTreeSet;

use indexmap::IndexMap;

use crate::domain::access::principal::Principal;
use crate::domain::access::rule::pattern::{Bits, Conditions, Reach, Scratch, ToolConditions};
use crate::domain::access::toolset::{PublishedToolsets, Toolset, ToolsetDefinition};
use crate::domain::access::toolset_name::ToolsetName;
use crate::domain::catalog::hints;
use crate::domain::catalog::tool::{ServerName, Tool};
use crate::domain::catalog::traits::Traits;
use crate::domain::text::canonical::Fingerprint;

/// All toolsets, and the limit on those that the service publishes.
#[derive(Debug, Default)]
pub struct CompiledToolsets {
    list: IndexMap<ToolsetName, ToolsetDefinition>,
    published: PublishedToolsets,
    version: u64,
    servers: Conditions,
    tools: ToolConditions,
    tags: Conditions,
    exclude: ToolConditions,
    always: ToolConditions,
    /// For each combination of hints, the toolsets whose annotations match.
    hints: Vec<Bits>,
    /// Toolsets with conditions, not only with always-on tools.
    conditional: Bits,
}

/// The toolsets of one tool, by number.
#[derive(Debug)]
pub(super) struct Membership {
    pub(super) member: Bits,
    /// The toolsets in which the tool is always on.
    pub(super) always: Bits,
    scratch: Scratch,
}

impl CompiledToolsets {
    /// Compiles valid toolsets, as returned by [`Toolset::read`]. If two have the same name, the first wins.
    pub fn new(toolsets: impl IntoIterator<Item = Toolset>, published: PublishedToolsets) -> Self {
        let mut list: IndexMap<ToolsetName, ToolsetDefinition> = IndexMap::new();
        for Toolset { name, definition } in toolsets {
            list.entry(name).or_insert(definition);
        }
        let count = list.len();
        let of = |texts: fn(&ToolsetDefinition) -> &[String]| Conditions::new(list.values().map(texts), count);
        let of_tools = |texts: fn(&ToolsetDefinition) -> &[String], reach| {
            ToolConditions::new(list.values().map(|definition| (texts(definition), reach)), count)
        };
        let bits = |holds: &dyn Fn(&ToolsetDefinition) -> bool| {
            let mut bits = Bits::new(count);
            list.values().enumerate().filter(|(_, definition)| holds(definition)).for_each(|(number, _)| bits.set(number));
            bits
        };
        Self {
            servers: of(|definition| &definition.servers),
            tools: of_tools(|definition| &definition.tools, Reach::Separator),
            tags: of(|definition| &definition.tags),
            exclude: of_tools(|definition| &definition.exclude, Reach::Anywhere),
            always: of_tools(|definition| &definition.always, Reach::Separator),
            hints: (0..hints::COMBINATIONS).map(|hints| bits(&|definition| hints::hold(&definition.annotations, hints))).collect(),
            conditional: bits(&ToolsetDefinition::has_conditions),
            version: if list.is_empty() && published.is_everything() {
                0
            } else {
                Fingerprint::of_text(&format!("{list:?} {published:?}")).prefix()
            },
            published,
            list,
        }
    }

    /// A hash of the toolsets: equal toolsets have equal versions. 0 without toolsets.
    pub fn version(&self) -> u64 {
        self.version
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub fn get(&self, name: &ToolsetName) -> Option<&ToolsetDefinition> {
        self.list.get(name)
    }

    /// All toolsets in their original order.
    pub fn iter(&self) -> impl Iterator<Item = (&ToolsetName, &ToolsetDefinition)> {
        self.list.iter()
    }

    pub(super) fn name(&self, number: usize) -> Option<&ToolsetName> {
        self.list.get_index(number).map(|(name, _)| name)
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Creates the buffers for [`CompiledToolsets::find`].
    pub(super) fn membership(&self) -> Membership {
        let count = self.list.len();
        Membership { member: Bits::new(count), always: Bits::new(count), scratch: Scratch::new(count) }
    }

    /// Finds the toolsets of a tool and stores them in `found`.
    pub(super) fn find(&self, server: &ServerName, tool: Traits<'_>, found: &mut Membership) {
        if self.list.is_empty() {
            return;
        }
        let Membership { member, always, scratch } = found;
        member.copy_from(&self.conditional);
        member.and(&self.hints[tool.hints]);
        self.servers.keep([server.as_str()], member, scratch);
        self.tools.keep(server, tool, member, scratch);
        self.tags.keep(tool.tags.iter().map(AsRef::as_ref), member, scratch);
        self.exclude.find(server, tool, always, scratch);
        member.and_not(always);
        self.always.find(server, tool, always, scratch);
        member.or(always);
    }

    /// The names of a tool's toolsets.
    pub(super) fn names_of(&self, tool: &Tool) -> Vec<&str> {
        let mut found = self.membership();
        self.find(&tool.id.server, Traits::of(tool), &mut found);
        found.member.iter().filter_map(|number| Some(self.name(number)?.as_str())).collect()
    }

    /// Whether toolsets limit what a caller may see.
    pub(super) fn narrow(&self, principal: &Principal) -> bool {
        !principal.within.is_empty() || !self.published.is_everything()
    }

    /// Whether toolsets permit a caller to see a tool that is in exactly the toolsets `member`. Ignores the rules.
    pub(super) fn admit(&self, member: &Bits, principal: &Principal) -> bool {
        let any = |names: &BTreeSet<ToolsetName>| member.iter().filter_map(|number| self.name(number)).any(|name| names.contains(name));
        principal.within.iter().all(any)
            && (self.published.toolsets.is_empty() || any(&self.published.toolsets))
            && !any(&self.published.exclude)
    }
}
