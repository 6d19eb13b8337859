//! Patterns of rules and toolsets that can match nothing, whatever tools the servers have.

use serde_json::Value;

use crate::domain::access::rule::{PatternSet, glob};
use crate::domain::catalog::tool::{OperationId, ToolId};
use crate::settings::ServerSettings;
use crate::settings::finding::{Findings, Location};
use crate::settings::values::Values;

/// The fields with patterns of tools.
const OF_TOOLS: [&str; 3] = ["tools", "exclude", "always"];
const WILDCARDS: [char; 5] = ['*', '?', '[', '{', '\\'];

/// Warns about tools in the form of the command line, `SERVER/TOOL`, and about toolsets that the settings don't define.
pub(super) fn check(values: &Values, servers: &[ServerSettings], findings: &mut Findings) {
    for (number, (rule, place)) in (1..).zip(&values.policy) {
        let label = format!("rule {number}: ");
        check_tools(&label, (rule, place), servers, findings);
        check_toolsets(&label, (rule, place), values, findings);
    }
    for (_, toolset, place) in &values.toolsets {
        check_tools("", (toolset, place), servers, findings);
    }
    for (number, (rule, place)) in (1..).zip(&values.tags) {
        check_tools(&format!("rule {number}: "), (rule, place), servers, findings);
    }
}

fn check_tools(label: &str, (table, place): (&Value, &Location), servers: &[ServerSettings], findings: &mut Findings) {
    for field in OF_TOOLS {
        for text in texts(table, field) {
            let Some((server, tool)) = text.split_once('/') else { continue };
            if !servers.iter().any(|known| known.name.as_str() == server) {
                continue;
            }
            let name = if tool.contains(WILDCARDS) {
                format!("{server}__{tool}")
            } else {
                OperationId::of(&ToolId::new(server, tool)).to_string()
            };
            let message = format!("{label}{field}: `{text}` matches no tool: patterns of tools don't have the form SERVER/TOOL");
            findings.warning(place.clone(), message, format!("write `{name}`"));
        }
    }
}

/// The API can create toolsets too.
fn check_toolsets(label: &str, (rule, place): (&Value, &Location), values: &Values, findings: &mut Findings) {
    for text in texts(rule, "toolsets") {
        let Ok(pattern) = glob(text) else { continue };
        let pattern = PatternSet::new(&[pattern]);
        if !values.toolsets.iter().any(|(name, ..)| pattern.is_match(name)) {
            let remedy = if text.contains(WILDCARDS) {
                "define such a toolset, unless one was created over the API".to_owned()
            } else {
                format!("add a section [toolsets.{text}], unless the toolset was created over the API")
            };
            findings.warning(place.clone(), format!("{label}the settings define no toolset `{text}`"), remedy);
        }
    }
}

fn texts<'a>(table: &'a Value, field: &str) -> impl Iterator<Item = &'a str> {
    table.get(field).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}
