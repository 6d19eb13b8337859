//! The input of a benchmark: messages with the tools that they need, and the tools to search.
//!
//! A message is a JSON object on one line, in one of two forms. Public data sets refer to tools by id: `{"id", "query",
//! "relevant": [id], "alt": {id: [id]}, "kind"}`. The other form names servers and tools: `{"query", "kind", "server",
//! "tool"}`, or `"tools": [[server, tool]]` with `"alt": {"server::tool": ["server::tool"]}`. A message without `tool`
//! and `tools` needs no tool. In both forms, `"lang"` may name the message's language, and `"alternatives": [id]` may
//! name tools that are as good as the first one. `"arguments"`, an object, are those of the call that the message leads to. Only replays of
//! learning use them.
//!
//! The tools are in `tools.jsonl` next to the messages, one per line: `{"id", "server", "name", "description",
//! "input_schema"}`. Alternatively, a folder contains one `<server>.json` per server, with the list `tools` as the
//! server sent it, or a file contains one server per line: `{"server", "tools"}`. These tools get ids of the form
//! `server::tool`.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::cli::Failure;
use crate::domain::catalog::catalog::{Catalog, CatalogServer, ServerListing};
use crate::domain::catalog::tool::{ServerName, ToolId};
use crate::domain::text::json_text::JsonText;
use crate::domain::text::similar::did_you_mean;

/// Server name for tools that name no server.
const NAMELESS: &str = "tools";
/// Names of the message files that a data folder may contain.
const FILES: [&str; 4] = ["queries.jsonl", "messages.jsonl", "multi.jsonl", "notool.jsonl"];

/// The messages of one file.
pub(super) struct Set {
    pub(super) name: String,
    /// File or folder with the tools, if the set has its own tools.
    pub(super) tools: Option<PathBuf>,
    pub(super) queries: Vec<Query>,
}

#[derive(Clone, Debug)]
pub(super) struct Query {
    pub(super) id: String,
    pub(super) text: String,
    /// Groups of equally good tools. The message needs one tool from each group; without groups, it needs no tool.
    pub(super) groups: Vec<BTreeSet<String>>,
    pub(super) kind: String,
    /// The language; empty if it is not given.
    pub(super) lang: String,
    /// The arguments of the call, as JSON text.
    pub(super) arguments: Option<Box<RawValue>>,
}

/// The tools to search.
pub(super) struct Tools {
    pub(super) listings: Vec<ServerListing>,
    /// The id by which messages refer to each tool.
    pub(super) ids: HashMap<ToolId, String>,
}

#[derive(Deserialize)]
struct QueryLine {
    id: Option<String>,
    query: String,
    relevant: Option<Vec<String>>,
    server: Option<String>,
    tool: Option<String>,
    tools: Option<Vec<(String, String)>>,
    #[serde(default)]
    alt: HashMap<String, Vec<String>>,
    #[serde(default)]
    alternatives: Vec<String>,
    kind: Option<String>,
    lang: Option<String>,
    arguments: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct ToolLine {
    id: String,
    #[serde(default)]
    server: String,
    name: String,
    #[serde(default)]
    description: String,
    input_schema: Option<Value>,
}

#[derive(Deserialize)]
struct ServerLine {
    server: String,
    description: String,
}

#[derive(Deserialize)]
struct ListFile {
    tools: Vec<Value>,
    initialize: Option<Value>,
}

#[derive(Deserialize)]
struct ListLine {
    server: String,
    tools: Vec<Value>,
    instructions: Option<String>,
}

/// Builds a tool's id from the names of its server and tool.
pub(super) fn id(server: &str, tool: &str) -> String {
    format!("{server}::{tool}")
}

/// Reads the message sets of a folder, or the set of a single message file.
pub(super) fn sets(path: &Path, queries: Option<&Path>) -> Result<Vec<Set>, Failure> {
    let name = |path: &Path| path.file_stem().map_or_else(|| "data".to_owned(), |name| name.to_string_lossy().into_owned());
    let files: Vec<PathBuf> = match queries {
        Some(file) => vec![file.to_owned()],
        None if path.is_dir() => FILES.iter().map(|file| path.join(file)).filter(|file| file.is_file()).collect(),
        None => vec![path.to_owned()],
    };
    if files.is_empty() {
        return Err(Failure::invalid(format!("error: --data: {} holds none of {}", path.display(), FILES.join(", "))));
    }
    let folder = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new(".")) };
    let own = folder.join("tools.jsonl");
    let absolute = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    files
        .iter()
        .map(|file| {
            let stem = name(file);
            Ok(Set {
                name: if stem == "queries" { name(&absolute) } else { stem },
                tools: own.is_file().then(|| own.clone()),
                queries: read_queries(file)?,
            })
        })
        .collect()
}

fn read_queries(file: &Path) -> Result<Vec<Query>, Failure> {
    Ok((1..).zip(lines::<QueryLine>(file)?).map(|(number, line)| query(number, line)).collect())
}

fn query(number: usize, line: QueryLine) -> Query {
    let relevant = line.relevant.unwrap_or_else(|| {
        let pairs = line.tools.unwrap_or_else(|| line.server.zip(line.tool).into_iter().collect());
        pairs.iter().map(|(server, tool)| id(server, tool)).collect()
    });
    let group = |relevant: &String| std::iter::once(relevant).chain(line.alt.get(relevant).into_iter().flatten()).cloned().collect();
    let mut groups: Vec<BTreeSet<String>> = relevant.iter().map(group).collect();
    if let Some(first) = groups.first_mut() {
        first.extend(line.alternatives);
    }
    Query {
        id: line.id.unwrap_or_else(|| number.to_string()),
        text: line.query,
        groups,
        kind: line.kind.unwrap_or_default(),
        lang: line.lang.unwrap_or_default(),
        arguments: line.arguments,
    }
}

impl Tools {
    /// Reads a file with one tool per line. `servers.jsonl` in the same folder contains descriptions of servers.
    pub(super) fn of_file(file: &Path, with_descriptions: bool) -> Result<Self, Failure> {
        let described = file.with_file_name("servers.jsonl");
        let descriptions: HashMap<String, String> = if with_descriptions && described.is_file() {
            lines::<ServerLine>(&described)?.into_iter().map(|line| (line.server, line.description)).collect()
        } else {
            HashMap::new()
        };
        let mut servers: IndexMap<String, Vec<JsonText>> = IndexMap::new();
        let mut ids = HashMap::new();
        for line in lines::<ToolLine>(file)? {
            let server = if line.server.is_empty() { NAMELESS.to_owned() } else { line.server };
            let schema = line.input_schema.filter(Value::is_object).unwrap_or_else(|| json!({"type": "object"}));
            // If a server lists two tools with the same name, the first one counts.
            ids.entry(ToolId::new(ServerName::from(server.as_str()), line.name.as_str())).or_insert(line.id);
            let raw = json!({"name": line.name, "description": line.description, "inputSchema": schema});
            servers.entry(server).or_default().push(JsonText::of(&raw));
        }
        let listings = servers.into_iter().map(|(server, tools)| listing(&server, tools, descriptions.get(&server).cloned())).collect();
        Ok(Self { listings, ids })
    }

    /// Reads folders with one file per server, and files with one server per line.
    pub(super) fn of_lists(paths: &[PathBuf]) -> Result<Self, Failure> {
        let mut all = Self { listings: Vec::new(), ids: HashMap::new() };
        for path in paths {
            let Self { listings, ids } = if path.is_dir() { Self::of_folder(path)? } else { Self::of_lines(path)? };
            if let Some(twice) = listings.iter().find(|listing| all.listings.iter().any(|known| known.server == listing.server)) {
                return Err(Failure::invalid(format!("error: --toollists: the server `{}` is listed twice", twice.server)));
            }
            all.listings.extend(listings);
            all.ids.extend(ids);
        }
        Ok(all)
    }

    fn of_lines(file: &Path) -> Result<Self, Failure> {
        let (mut listings, mut ids) = (Vec::new(), HashMap::new());
        for ListLine { server, mut tools, instructions } in lines(file)? {
            for tool in &mut tools {
                if let Some(tool) = tool.as_object_mut() {
                    tool.entry("inputSchema").or_insert_with(|| json!({"type": "object"}));
                }
            }
            for name in tools.iter().filter_map(|tool| tool["name"].as_str()) {
                ids.insert(ToolId::new(ServerName::from(server.as_str()), name), id(&server, name));
            }
            listings.push(listing(&server, tools.iter().map(JsonText::of).collect(), instructions));
        }
        if listings.is_empty() {
            return Err(Failure::invalid(format!("error: --toollists: {} lists no server", file.display())));
        }
        Ok(Self { listings, ids })
    }

    /// Reads a folder with one file per server.
    fn of_folder(folder: &Path) -> Result<Self, Failure> {
        let entries = fs::read_dir(folder).map_err(|error| unreadable(folder, &error))?;
        let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
        files.sort();
        let (mut listings, mut ids) = (Vec::new(), HashMap::new());
        for file in files {
            let text = fs::read_to_string(&file).map_err(|error| unreadable(&file, &error))?;
            let list: ListFile = serde_json::from_str(&text).map_err(|error| unreadable(&file, &error))?;
            let server = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            for name in list.tools.iter().filter_map(|tool| tool["name"].as_str()) {
                ids.insert(ToolId::new(ServerName::from(server.as_str()), name), id(&server, name));
            }
            let instructions = list.initialize.as_ref().and_then(|answer| answer["instructions"].as_str()).map(str::to_owned);
            listings.push(listing(&server, list.tools.iter().map(JsonText::of).collect(), instructions));
        }
        if listings.is_empty() {
            return Err(Failure::invalid(format!("error: --toollists: {} holds no <server>.json", folder.display())));
        }
        Ok(Self { listings, ids })
    }

    /// Uses the tools that running servers list.
    pub(super) fn of_catalog(catalog: &Catalog) -> Self {
        let raw = |server: &CatalogServer| server.tools.iter().map(|tool| tool.raw.clone()).collect();
        Self {
            listings: catalog
                .servers()
                .iter()
                .map(|server| listing(server.name.as_str(), raw(server), server.instructions.clone()))
                .collect(),
            ids: catalog.tools().iter().map(|tool| (tool.id.clone(), id(tool.id.server.as_str(), &tool.id.name))).collect(),
        }
    }

    /// Removes all servers except the named ones. An empty list keeps all servers.
    pub(super) fn keep(&mut self, servers: &[String]) -> Result<(), Failure> {
        let has = |name: &String| self.listings.iter().any(|listing| listing.server.as_str() == name);
        if let Some(unknown) = servers.iter().find(|name| !has(name)) {
            return Err(Failure::invalid(format!("error: --server: there is no server `{unknown}` among the tools")));
        }
        self.listings.retain(|listing| servers.is_empty() || servers.iter().any(|name| name == listing.server.as_str()));
        Ok(())
    }
}

/// A warning about messages whose right tool does not exist, which count as misses. `ids` are those of the tools.
pub(super) fn nonexistent<'a>(set: &Set, ids: impl Iterator<Item = &'a str>) -> Option<String> {
    let ids: BTreeSet<&str> = ids.collect();
    let is_known = |group: &BTreeSet<String>| group.iter().any(|id| ids.contains(id.as_str()));
    let lacking = |query: &'_ Query| query.groups.iter().find(|group| !is_known(group)).and_then(|group| group.first().cloned());
    let lacking: Vec<String> = set.queries.iter().filter_map(lacking).collect();
    let first = lacking.first()?;
    let meant = did_you_mean(first, ids.iter().copied());
    let (name, count, all) = (&set.name, lacking.len(), set.queries.len());
    Some(format!("{name}: {count} of {all} messages name a tool that doesn't exist, and count as misses: {first}{meant}"))
}

fn listing(server: &str, tools: Vec<JsonText>, instructions: Option<String>) -> ServerListing {
    ServerListing { server: ServerName::from(server), title: None, program: None, version: None, instructions, tools, skipped: Vec::new() }
}

fn lines<T: DeserializeOwned>(file: &Path) -> Result<Vec<T>, Failure> {
    let text = fs::read_to_string(file).map_err(|error| unreadable(file, &error))?;
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(number, line): (usize, &str)| {
            serde_json::from_str(line).map_err(|error| Failure::invalid(format!("error: {}, line {number}: {error}", file.display())))
        })
        .collect()
}

fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::invalid(format!("error: {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};

    use super::{Set, nonexistent, query};

    fn groups(line: Value) -> Vec<BTreeSet<String>> {
        query(1, serde_json::from_value(line).unwrap()).groups
    }

    #[test]
    fn every_form_says_what_is_needed() {
        let set = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<BTreeSet<String>>();
        assert_eq!(groups(json!({"query": "q", "relevant": ["a", "b"], "alt": {"a": ["c"]}})), [set(&["a", "c"]), set(&["b"])]);
        assert_eq!(groups(json!({"query": "q", "server": "s", "tool": "t"})), [set(&["s::t"])]);
        let several = json!({"query": "q", "tools": [["s", "t"], ["s", "u"]], "alt": {"s::u": ["x::u"]}});
        assert_eq!(groups(several), [set(&["s::t"]), set(&["s::u", "x::u"])]);
        let others = json!({"query": "q", "lang": "de", "server": "s", "tool": "t", "alternatives": ["s::u"]});
        assert_eq!(groups(others), [set(&["s::t", "s::u"])]);
        assert!(groups(json!({"query": "hi", "lang": "de", "alternatives": ["s::u"]})).is_empty());
        assert!(groups(json!({"query": "hi", "kind": "smalltalk"})).is_empty());
    }

    /// Regression: such messages counted as misses, and nothing said so.
    #[test]
    fn messages_whose_tool_does_not_exist_are_counted() {
        let lines = [
            json!({"query": "a", "server": "tmie", "tool": "get_current_time"}),
            json!({"query": "b", "server": "time", "tool": "get_current_time"}),
            json!({"query": "c", "server": "gone", "tool": "x", "alternatives": ["time::get_current_time"]}),
            json!({"query": "d"}),
        ];
        let queries = (1..).zip(lines).map(|(number, line)| query(number, serde_json::from_value(line).unwrap())).collect();
        let set = Set { name: "bd".to_owned(), tools: None, queries };
        assert_eq!(
            nonexistent(&set, ["time::get_current_time", "time::convert_time"].into_iter()).unwrap(),
            "bd: 1 of 4 messages name a tool that doesn't exist, and count as misses: tmie::get_current_time; did you mean \
             `time::get_current_time`?"
        );
        assert_eq!(nonexistent(&set, ["time::get_current_time", "tmie::get_current_time"].into_iter()), None);
    }
}
