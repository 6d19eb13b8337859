//! `[[tool]]` and `[[approval]]`: metadata, search texts and approved definitions of single tools.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::domain::access::tool_facts::ToolOverride;
use crate::domain::catalog::definition::{SERVER_KEY, prompt_key};
use crate::domain::catalog::shape::Shape;
use crate::domain::catalog::tool::ToolId;
use crate::domain::selection::enrichment::Enrichment;
use crate::domain::text::canonical::Fingerprint;
use crate::domain::text::json;
use crate::settings::ServerSettings;
use crate::settings::finding::{Findings, Location, suggestion};
use crate::settings::table::Table;
use crate::settings::values::Values;

const FIELDS: [&str; 8] = ["server", "tool", "tags", "synonyms", "description", "pinned", "shape", "enrichment"];
/// The fields that form a [`ToolOverride`].
const METADATA: [&str; 5] = ["tags", "synonyms", "description", "pinned", "shape"];
const ENRICHMENT_FIELDS: [&str; 3] = ["function", "tags", "queries"];
const REMEDY: &str = "write a tool as described at [[tool]] in the commented defaults";
const APPROVAL_FIELDS: [&str; 4] = ["server", "tool", "prompt", "fingerprint"];
const APPROVAL_REMEDY: &str = "write an approval as described at [[approval]] in the commented defaults";

/// What the settings file says about single tools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolSettings {
    /// The same metadata that an admin can set over the API.
    pub overrides: BTreeMap<ToolId, ToolOverride>,
    /// The same texts for searches that an admin can set over the API.
    pub enrichments: BTreeMap<ToolId, Enrichment>,
    /// The fingerprints of approved definitions: of tools, and of servers and prompts under their keys.
    pub approvals: BTreeMap<ToolId, Fingerprint>,
}

impl ToolSettings {
    pub(super) fn read(values: &Values, servers: &[ServerSettings], findings: &mut Findings) -> Self {
        let mut settings = Self::default();
        for (number, (value, place)) in (1..).zip(&values.tools) {
            let Some(value) = value else { continue };
            if let Some(mut table) = Table::new(format!("tool {number}"), value, place, &FIELDS, REMEDY, findings) {
                settings.add_tool(&mut table, servers);
            }
        }
        for (number, (value, place)) in (1..).zip(&values.approvals) {
            let Some(value) = value else { continue };
            let label = format!("approval {number}");
            if let Some(mut table) = Table::new(label, value, place, &APPROVAL_FIELDS, APPROVAL_REMEDY, findings) {
                settings.add_approval(&mut table, servers);
            }
        }
        settings
    }

    fn add_tool(&mut self, table: &mut Table<'_>, servers: &[ServerSettings]) {
        let (server, tool) = (table.required("server"), table.required("tool"));
        let written = ToolOverride {
            tags: texts(table, "tags"),
            synonyms: texts(table, "synonyms"),
            description: table.text("description").map(str::to_owned),
            pinned: table.switch("pinned").unwrap_or_default(),
            shape: table.get("shape").map(|value| shape(table, value)).unwrap_or_default(),
        };
        let written = written.checked().map_err(|problem| table.problem(problem.to_string())).ok();
        let enrichment = table.get("enrichment").and_then(|value| enrichment(table, value));
        let has_metadata = METADATA.iter().any(|field| table.has(field));
        if !has_metadata && !table.has("enrichment") {
            table.problem("sets nothing");
        }
        let (Some(server), Some(tool), Some(written)) = (server, tool, written) else { return };
        check_server(table, server, servers);
        let id = ToolId::new(server, tool);
        if self.overrides.contains_key(&id) || self.enrichments.contains_key(&id) {
            table.problem_with(format!("another table describes {id}"), "combine the two");
        }
        if table.finish(()).is_some() {
            if has_metadata {
                self.overrides.insert(id.clone(), written);
            }
            if let Some(enrichment) = enrichment {
                self.enrichments.insert(id, enrichment);
            }
        }
    }

    fn add_approval(&mut self, table: &mut Table<'_>, servers: &[ServerSettings]) {
        let server = table.required("server");
        let name = match (table.has("tool"), table.has("prompt")) {
            (true, true) => {
                table.problem("both `tool` and `prompt`");
                None
            }
            (true, false) => table.required("tool").map(str::to_owned),
            (false, true) => table.required("prompt").map(prompt_key),
            (false, false) => Some(SERVER_KEY.to_owned()),
        };
        let fingerprint = table.required("fingerprint").map(|text| Fingerprint::of_hex(text.trim()));
        if fingerprint == Some(None) {
            let remedy = "write the 64 hexadecimal digits that `toolsieve tools show` prints";
            table.problem_with("`fingerprint` is not a fingerprint", remedy);
        }
        let (Some(server), Some(name), Some(Some(fingerprint))) = (server, name, fingerprint) else { return };
        check_server(table, server, servers);
        let id = ToolId::new(server, name);
        if self.approvals.contains_key(&id) {
            table.problem_with("another table approves the same definition", "remove one of the two");
        }
        if table.finish(()).is_some() {
            self.approvals.insert(id, fingerprint);
        }
    }
}

fn texts(table: &mut Table<'_>, field: &str) -> Vec<String> {
    table.texts(field).unwrap_or_default().into_iter().map(str::to_owned).collect()
}

fn shape(table: &mut Table<'_>, value: &Value) -> Shape {
    json::from_object(value).unwrap_or_else(|error| {
        table.problem(format!("`shape` can't be read: {error}"));
        Shape::default()
    })
}

fn enrichment(table: &mut Table<'_>, value: &Value) -> Option<Enrichment> {
    let (findings, place) = table.findings();
    let place: Location = place.clone();
    let read = Table::new("enrichment".to_owned(), value, &place, &ENRICHMENT_FIELDS, REMEDY, findings).and_then(|mut inner| {
        let function = inner.text("function").unwrap_or_default();
        let (tags, queries) = (texts(&mut inner, "tags"), texts(&mut inner, "queries"));
        match Enrichment::new(function, &tags, &queries) {
            Ok(enrichment) if enrichment == Enrichment::default() => inner.problem("sets nothing"),
            Ok(enrichment) => return inner.finish(enrichment),
            Err(problem) => inner.problem(format!("it has {problem}")),
        }
        None
    });
    if read.is_none() {
        table.spoil();
    }
    read
}

/// Warns about an unknown server, which is probably a typo. A server may also be disabled for a while.
fn check_server(table: &mut Table<'_>, server: &str, servers: &[ServerSettings]) {
    let known: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
    if !known.is_empty() && !known.contains(&server) {
        table.warning(format!("the server `{server}` is not configured, or disabled"), suggestion(server, &known));
    }
}
