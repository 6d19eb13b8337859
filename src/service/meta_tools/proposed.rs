//! Proposes the toolsets to load for tools that are not bound yet.

use std::sync::Arc;

use serde::Serialize;

use crate::domain::access::visibility::Visibility;
use crate::domain::catalog::catalog::Catalog;
use crate::domain::catalog::tool::Tool;
use crate::domain::toolsets::loading::{Group, Groups};

/// A toolset that contains some of the chosen tools.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ProposedToolset {
    pub name: String,
    /// Number of tools in the toolset.
    pub tools: usize,
    /// Published names of the chosen tools in the toolset.
    pub has: Vec<String>,
}

/// Chooses up to `most` toolsets to load: for each missing tool, the toolset with the most missing tools, on a tie the smallest.
/// Contains only toolsets that the caller may see.
pub(crate) fn proposed(missing: &[&Arc<Tool>], catalog: &Catalog, visibility: &Visibility, most: usize) -> Vec<ProposedToolset> {
    let groups = Groups::visible(catalog, visibility);
    let classes = &visibility.assigned;
    let mut proposed: Vec<(&Group, ProposedToolset)> = Vec::new();
    for tool in missing {
        if proposed.len() == most {
            break;
        }
        if proposed.iter().any(|(group, _)| group.has(tool, classes)) {
            continue;
        }
        let with_it: Vec<&Group> = groups.known().iter().filter(|group| group.has(tool, classes)).collect();
        let is_toolset = |group: &&&Group| matches!(group, Group::Toolset(_));
        let wanted: Vec<&Group> =
            if with_it.iter().any(|group| is_toolset(&group)) { with_it.iter().filter(is_toolset).copied().collect() } else { with_it };
        let sized = wanted.into_iter().map(|group| {
            let has: Vec<String> =
                missing.iter().filter(|tool| group.has(tool, classes)).map(|tool| tool.operation_id.to_string()).collect();
            (group, group.members(catalog, visibility).len(), has)
        });
        let best = sized.min_by(|one, other| other.2.len().cmp(&one.2.len()).then(one.1.cmp(&other.1)));
        proposed.extend(best.map(|(group, tools, has)| (group, ProposedToolset { name: group.name().to_owned(), tools, has })));
    }
    proposed.into_iter().map(|(_, toolset)| toolset).collect()
}
