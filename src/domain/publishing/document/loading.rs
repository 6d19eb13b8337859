//! The meta-tools for loading toolsets, as described to a caller.

use serde_json::{Value, json};

use super::{MetaTool, listed, short};
use crate::domain::catalog::naming::{ENABLE_TOOL_GROUP, FIND_TOOLS, LIST_AVAILABLE_TOOLSETS, LOAD_TOOLSET, RUN_TOOL, UNLOAD_TOOLSET};
use crate::domain::toolsets::loading::Group;

/// Most groups per load request.
pub const MAX_GROUPS: usize = 20;
/// Most groups named in a description.
const NAMED: usize = 15;

/// The meta-tools for a caller who can load these groups.
#[must_use]
pub fn meta_tools(groups: &[Group]) -> Vec<MetaTool> {
    let names = groups.iter().take(NAMED).map(|group| short(group.name())).collect();
    let available = match listed(names, groups.len(), "toolset") {
        names if names.is_empty() => "none is there yet".to_owned(),
        names => names,
    };
    vec![
        MetaTool {
            name: LOAD_TOOLSET,
            path: "/v1/toolsets/load",
            title: "Load Toolset",
            description: format!(
                "Load a toolset, so that its tools become yours and you call them directly: {available}. {FIND_TOOLS} says which toolset \
                 has the tool that you need: load that one before you use it. Returns the names of its tools. If they do not appear \
                 among your tools, call them through {RUN_TOOL}."
            ),
            parameters: json!({
                "type": "object",
                "properties": {
                    "toolset": {"type": "string", "description": "Its name, as find_tools or list_available_toolsets gave it"},
                    "toolsets": {
                        "type": "array",
                        "items": {"type": "string"},
                        "minItems": 1,
                        "maxItems": MAX_GROUPS,
                        "description": "Or several names"
                    }
                }
            }),
            reads_only: false,
        },
        MetaTool {
            name: UNLOAD_TOOLSET,
            path: "/v1/toolsets/unload",
            title: "Unload Toolset",
            description: format!("Take back a toolset that {LOAD_TOOLSET} loaded, when its tools are not needed any more."),
            parameters: one_name("toolset", "The name under which it was loaded"),
            reads_only: false,
        },
        MetaTool {
            name: LIST_AVAILABLE_TOOLSETS,
            path: "/v1/toolsets/available",
            title: "List Available Toolsets",
            description: "List the toolsets that can be loaded, with the number of their tools and whether they are loaded. To look for a \
                          tool by what it does, find_tools is better."
                .to_owned(),
            parameters: json!({"type": "object", "properties": {}}),
            reads_only: true,
        },
        MetaTool {
            name: ENABLE_TOOL_GROUP,
            path: "/v1/toolsets/enable",
            title: "Enable Tool Group",
            description: format!(
                "Load all tools of a kind, without knowing their names: a toolset, a server or a tag. As {LOAD_TOOLSET}, which takes no tags."
            ),
            parameters: one_name("group", "The name of a toolset, of a server, or a tag of tools"),
            reads_only: false,
        },
    ]
}

fn one_name(property: &str, description: &str) -> Value {
    json!({"type": "object", "properties": {property: {"type": "string", "description": description}}, "required": [property]})
}
