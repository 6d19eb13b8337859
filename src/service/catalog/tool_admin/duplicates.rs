//! Near duplicates, and tools whose names look alike.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::domain::catalog::catalog::Catalog;
use crate::domain::catalog::definition::skeleton;
use crate::domain::catalog::hidden_text::visible;
use crate::domain::catalog::texts::NearDuplicates;
use crate::domain::catalog::tool::Tool;

/// Near duplicates: tools of different servers with almost the same texts.
#[derive(Debug, Serialize)]
pub(crate) struct Duplicates {
    pub groups: Vec<DuplicateGroup>,
    /// Groups of tools with different but similar-looking names, because of hidden characters or similar letters.
    pub lookalikes: Vec<Vec<LookalikeTool>>,
}

#[derive(Debug, Serialize)]
pub(crate) struct LookalikeTool {
    pub server: String,
    /// The raw name, with hidden and non-ASCII characters as escapes such as `\u{200b}`.
    pub tool: String,
    pub name: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct DuplicateGroup {
    /// Whether all tools have the same raw name.
    pub same_name: bool,
    /// Whether all tools have the same description and input schema.
    pub same_definition: bool,
    pub tools: Vec<DuplicateTool>,
}

#[derive(Debug, Serialize)]
pub(crate) struct DuplicateTool {
    pub server: String,
    pub tool: String,
    pub name: String,
    pub summary: String,
}

/// The groups of near duplicates, in catalog order.
pub(crate) fn duplicates(catalog: &Catalog, near_duplicates: &NearDuplicates) -> Duplicates {
    let mut groups: BTreeMap<u32, Vec<&Arc<Tool>>> = BTreeMap::new();
    for (place, tool) in (0..).zip(catalog.tools()) {
        groups.entry(near_duplicates.group(place)).or_default().push(tool);
    }
    let groups = groups.into_values().filter(|tools| tools.len() > 1).map(|tools| {
        let first = tools[0];
        DuplicateGroup {
            same_name: tools.iter().all(|tool| tool.id.name == first.id.name),
            same_definition: tools.iter().all(|tool| tool.description == first.description && tool.input.source == first.input.source),
            tools: tools.iter().map(|tool| duplicate(tool)).collect(),
        }
    });
    Duplicates { groups: groups.collect(), lookalikes: lookalikes(catalog) }
}

fn lookalikes(catalog: &Catalog) -> Vec<Vec<LookalikeTool>> {
    let mut groups: BTreeMap<String, Vec<&Arc<Tool>>> = BTreeMap::new();
    for tool in catalog.tools() {
        groups.entry(skeleton(&tool.id.name)).or_default().push(tool);
    }
    let groups = groups.into_values().filter(|tools| tools.iter().any(|tool| tool.id.name != tools[0].id.name));
    let spelled = |letter: char| match letter {
        letter if letter.is_ascii() => visible(letter.encode_utf8(&mut [0; 4])),
        letter => letter.escape_unicode().to_string(),
    };
    let of = |tool: &Arc<Tool>| LookalikeTool {
        server: tool.id.server.to_string(),
        tool: tool.id.name.chars().map(spelled).collect(),
        name: tool.operation_id.to_string(),
    };
    groups.map(|tools| tools.into_iter().map(of).collect()).collect()
}

fn duplicate(tool: &Tool) -> DuplicateTool {
    DuplicateTool {
        server: tool.id.server.to_string(),
        tool: tool.label.to_string(),
        name: tool.operation_id.to_string(),
        summary: tool.summary().to_owned(),
    }
}
