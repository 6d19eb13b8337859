//! A snapshot of all known tools. A change creates a new catalog, which replaces the old one as a whole. Only the text
//! statistics are filled in later ([`Catalog::learn_texts`]).

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};

use ahash::RandomState;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::domain::catalog::definition;
use crate::domain::catalog::hidden_text::{self, Cleaned, HiddenText};
use crate::domain::catalog::hints::ToolHints;
use crate::domain::catalog::products::Products;
use crate::domain::catalog::schema::{self, InputSchema};
use crate::domain::catalog::shape::Shaped;
use crate::domain::catalog::texts::{NearDuplicates, Vocabulary};
use crate::domain::catalog::tool::{OperationId, ServerName, Tool, ToolId, described};
use crate::domain::catalog::traits::TraitTable;
use crate::domain::execution::arguments::ArgumentsValidator;
use crate::domain::text::analysis::Analyzer;
use crate::domain::text::canonical::{self, Fingerprint};
use crate::domain::text::json_text::JsonText;

/// Maximum number of tools that a server may list.
pub const MAX_TOOLS: usize = 50_000;

/// The listing of one server: its identity and its raw tools, in the server's order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerListing {
    pub server: ServerName,
    /// `serverInfo.title` or `serverInfo.name`.
    pub title: Option<String>,
    /// `serverInfo.name`.
    pub program: Option<String>,
    pub version: Option<String>,
    pub instructions: Option<String>,
    /// Objects with a string `name` and an object `inputSchema`. All other entries are in `skipped`.
    pub tools: Vec<JsonText>,
    /// Tools that cannot be published, with reasons.
    pub skipped: Vec<SkippedTool>,
}

impl ServerListing {
    /// The raw tools, except those that the settings disable by name.
    pub fn enabled<'a>(&'a self, disabled: Option<&'a BTreeSet<String>>) -> impl Iterator<Item = &'a JsonText> {
        let disabled = disabled.filter(|disabled| !disabled.is_empty());
        self.tools.iter().filter(move |raw| {
            !disabled.is_some_and(|disabled| raw.value().get("name").and_then(Value::as_str).is_some_and(|name| disabled.contains(name)))
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedTool {
    /// The tool's name, or its position in the list if it has none.
    pub tool: String,
    pub reason: String,
}

/// A server in the catalog.
#[derive(Clone, Debug)]
pub struct CatalogServer {
    pub name: ServerName,
    pub title: Option<String>,
    /// The server's own name from `serverInfo.name`.
    pub program: Option<String>,
    pub version: Option<String>,
    pub instructions: Option<String>,
    /// Sorted by name, so that a reordered list causes no change.
    pub tools: Vec<Arc<Tool>>,
    /// Tools that an admin has switched off. Only admins see them.
    pub disabled: Vec<Arc<Tool>>,
}

impl CatalogServer {
    /// A server that says nothing of itself.
    pub fn untitled(name: ServerName, tools: Vec<Arc<Tool>>) -> Self {
        Self { name, title: None, program: None, version: None, instructions: None, tools, disabled: Vec::new() }
    }

    /// Builds the catalog entry of a server, and separates the tools that are switched off. Also returns the hidden characters that were
    /// removed from its texts.
    pub fn of(listing: &ServerListing, tools: Vec<Arc<Tool>>) -> (Self, Vec<HiddenText>) {
        let mut hidden = Vec::new();
        let mut shown = |pointer: &str, text: &Option<String>| {
            let (text, found) = hidden_text::clean_text(pointer, text.as_deref()?);
            hidden.extend(found);
            Some(text.into_owned())
        };
        let (disabled, tools) = tools.into_iter().partition(|tool| tool.shape.disabled);
        let server = Self {
            name: listing.server.clone(),
            title: shown("/title", &listing.title),
            program: shown("/program", &listing.program),
            version: shown("/version", &listing.version),
            instructions: shown("/instructions", &listing.instructions),
            tools,
            disabled,
        };
        (server, hidden)
    }
}

/// All servers and tools at one moment.
#[derive(Debug, Default)]
pub struct Catalog {
    servers: Vec<CatalogServer>,
    tools: Vec<Arc<Tool>>,
    /// For each tool, the position of its server in `servers`.
    server_of: Vec<u32>,
    by_id: HashMap<ToolId, u32, RandomState>,
    by_operation: Arc<Places>,
    /// For each tool, its token count.
    tokens: Vec<u32>,
    traits: TraitTable,
    /// Positions of the pinned tools in `tools`.
    pinned: Vec<u32>,
    version: u64,
    texts: OnceLock<TextFacts>,
}

/// Looks up a tool's position in the catalog by its published name.
#[derive(Debug, Default)]
pub struct Places(HashMap<OperationId, u32, RandomState>);

impl Places {
    /// The tool's position in [`Catalog::tools`].
    pub fn of(&self, name: &str) -> Option<u32> {
        self.0.get(name).copied()
    }
}

/// Statistics over the texts of all tools.
#[derive(Debug, Default)]
pub struct TextFacts {
    pub vocabulary: Vocabulary,
    /// Groups of near duplicates, by position in the catalog.
    pub near_duplicates: NearDuplicates,
    /// Servers, by position in the catalog, by the names of their products.
    pub products: Products,
}

impl Catalog {
    /// Sorts servers and tools by name. Published names that could clash contain a hash. If two names are equal anyway, the first
    /// tool wins.
    pub fn new(mut servers: Vec<CatalogServer>) -> Self {
        servers.sort_by(|one, other| one.name.cmp(&other.name));
        let mut catalog = Self::default();
        let (mut places, mut versions) = (Places::default(), Vec::new());
        for (place, server) in (0..).zip(&mut servers) {
            server.tools.sort_by(|one, other| one.id.name.cmp(&other.id.name));
            server.tools.retain(|tool| {
                let Ok(position) = u32::try_from(catalog.tools.len()) else { return false };
                if places.0.contains_key(&tool.operation_id) || catalog.by_id.contains_key(&tool.id) {
                    return false;
                }
                places.0.insert(tool.operation_id.clone(), position);
                catalog.by_id.insert(tool.id.clone(), position);
                catalog.tools.push(Arc::clone(tool));
                catalog.server_of.push(place);
                catalog.tokens.push(tool.tokens);
                versions.extend_from_slice(tool.operation_id.as_str().as_bytes());
                versions.extend_from_slice(tool.version.as_bytes());
                true
            });
            server.disabled.sort_by(|one, other| one.id.name.cmp(&other.id.name));
            for tool in &server.disabled {
                versions.extend_from_slice(b"disabled");
                versions.extend_from_slice(tool.version.as_bytes());
            }
            let program = server.program.as_deref();
            for text in
                [Some(server.name.as_str()), server.title.as_deref(), program, server.version.as_deref(), server.instructions.as_deref()]
            {
                versions.extend_from_slice(text.unwrap_or_default().as_bytes());
                versions.push(0);
            }
        }
        catalog.traits = TraitTable::of(&catalog.tools);
        catalog.pinned = (0..).zip(&catalog.tools).filter(|(_, tool)| tool.pinned).map(|(place, _)| place).collect();
        catalog.version = Fingerprint::of_bytes(&versions).prefix();
        catalog.by_operation = Arc::new(places);
        catalog.servers = servers;
        catalog
    }

    /// Computes the text statistics. This is slow, so run it in the background.
    pub fn learn_texts(&self, analyzer: &Analyzer) {
        self.texts.get_or_init(|| {
            let texts = || self.tools.iter().map(|tool| tool.text());
            let servers = self.servers.iter().map(|server| (server.name.as_str(), server.tools.iter().map(|tool| &*tool.id.name)));
            TextFacts {
                vocabulary: Vocabulary::of(analyzer, texts()),
                near_duplicates: NearDuplicates::of(analyzer, texts()),
                products: Products::of(servers),
            }
        });
    }

    /// The text statistics; `None` until they are computed.
    pub fn texts(&self) -> Option<&TextFacts> {
        self.texts.get()
    }

    /// A hash of the contents: equal catalogs have equal versions on every replica and after every restart.
    pub fn version(&self) -> u64 {
        self.version
    }

    pub fn servers(&self) -> &[CatalogServer] {
        &self.servers
    }

    pub fn server(&self, name: &str) -> Option<&CatalogServer> {
        self.server_position(name).map(|position| &self.servers[position])
    }

    /// The position of a server in [`Catalog::servers`].
    pub fn server_position(&self, name: &str) -> Option<usize> {
        self.servers.binary_search_by(|server| server.name.as_str().cmp(name)).ok()
    }

    /// The position of a tool's server in [`Catalog::servers`].
    pub fn server_of(&self, position: u32) -> Option<u32> {
        self.server_of.get(position as usize).copied()
    }

    /// For each tool in [`Catalog::tools`], the position of its server.
    pub fn servers_of(&self) -> &[u32] {
        &self.server_of
    }

    /// The token counts of these tools.
    pub fn tokens_of<'a>(&'a self, positions: &'a [u32]) -> impl Iterator<Item = u32> + 'a {
        positions.iter().filter_map(|&position| self.tokens.get(position as usize).copied())
    }

    /// The attributes that rules match, in the order of [`Catalog::tools`].
    pub fn traits(&self) -> &TraitTable {
        &self.traits
    }

    /// All tools, ordered by server name.
    pub fn tools(&self) -> &[Arc<Tool>] {
        &self.tools
    }

    /// Positions of the pinned tools in [`Catalog::tools`].
    pub fn pinned(&self) -> &[u32] {
        &self.pinned
    }

    /// The tools that an admin has switched off. They are in no other list of the catalog.
    pub fn disabled(&self) -> impl Iterator<Item = &Arc<Tool>> {
        self.servers.iter().flat_map(|server| &server.disabled)
    }

    pub fn tool(&self, id: &ToolId) -> Option<&Arc<Tool>> {
        self.by_id.get(id).map(|&position| &self.tools[position as usize])
    }

    /// The position of a tool in [`Catalog::tools`].
    pub fn position(&self, id: &ToolId) -> Option<u32> {
        self.by_id.get(id).copied()
    }

    pub fn operation(&self, name: &str) -> Option<&Arc<Tool>> {
        self.by_operation.of(name).map(|position| &self.tools[position as usize])
    }

    /// The position of a tool in [`Catalog::tools`], by published name.
    pub fn operation_position(&self, name: &str) -> Option<u32> {
        self.by_operation.of(name)
    }

    /// The positions of all tools by published name.
    pub fn places(&self) -> &Arc<Places> {
        &self.by_operation
    }
}

/// Builds a tool from a server's raw definition and removes hidden characters from its texts.
///
/// # Errors
/// The reason why the tool can't be published.
pub fn tool(server: &ServerName, raw: &Value) -> Result<Tool, SkippedTool> {
    tool_of(server, JsonText::of(raw), raw)
}

/// Builds a tool from a listed definition, with which it shares the text.
///
/// # Errors
/// The reason why the tool can't be published.
pub fn listed_tool(server: &ServerName, raw: &JsonText) -> Result<Tool, SkippedTool> {
    tool_of(server, raw.clone(), &raw.value())
}

fn tool_of(server: &ServerName, text_of_raw: JsonText, raw: &Value) -> Result<Tool, SkippedTool> {
    let skipped = |tool: &str, reason: &str| SkippedTool { tool: hidden_text::visible(tool), reason: reason.to_owned() };
    let Some(name) = raw.get("name").and_then(Value::as_str).filter(|name| !name.is_empty()) else {
        return Err(skipped("?", "it has no name"));
    };
    if name.starts_with(definition::NO_TOOL) {
        return Err(skipped(name, "its name begins with a control character"));
    }
    if matches!(name, "." | "..") {
        return Err(skipped(name, "its name can't be part of a URL"));
    }
    let Cleaned { value, found, identifiers } = hidden_text::clean(raw);
    let shown = value.as_ref().unwrap_or(raw);
    let Some(schema) = shown.get("inputSchema").filter(|schema| schema.is_object()) else {
        return Err(skipped(name, "its inputSchema is not an object"));
    };
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
    let id = ToolId::new(server.clone(), name);
    let label: Arc<str> = match id.label() {
        Cow::Borrowed(_) => Arc::clone(&id.name),
        Cow::Owned(label) => label.into(),
    };
    let title = text(shown.get("title")).or_else(|| text(shown.pointer("/annotations/title")));
    let input = InputSchema::compile(schema);
    let output = shown.get("outputSchema").filter(|schema| schema.is_object()).map(|schema| JsonText::of(&schema::output(schema)));
    let description = text(shown.get("description")).or_else(|| title.clone()).unwrap_or_else(|| (*label).to_owned());
    let fingerprint = canonical::fingerprint(raw);
    Ok(Tool {
        operation_id: OperationId::of(&id),
        label,
        description: described(description, &input),
        title,
        input,
        output,
        fingerprint,
        definition: definition::fingerprint(raw),
        version: fingerprint,
        hidden: found,
        identifiers,
        synonyms: Vec::new(),
        pinned: false,
        shape: Shaped::default(),
        hints: ToolHints::of(raw),
        raw: text_of_raw,
        tokens: 0,
        validator: ArgumentsValidator::default(),
        id,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::{Catalog, CatalogServer, tool};
    use crate::domain::catalog::tool::{ServerName, ToolId};

    fn server(name: &str, tools: &[&str]) -> CatalogServer {
        let name = ServerName::from(name);
        let tools = tools
            .iter()
            .map(|tool_name| Arc::new(tool(&name, &json!({"name": tool_name, "inputSchema": {"type": "object"}})).unwrap()))
            .collect();
        CatalogServer::untitled(name, tools)
    }

    #[test]
    fn order_of_servers_and_tools_does_not_change_the_version() {
        let one = Catalog::new(vec![server("a", &["x", "y"]), server("b", &["x"])]);
        let two = Catalog::new(vec![server("b", &["x"]), server("a", &["y", "x"])]);
        assert_eq!(one.version(), two.version());
        assert_ne!(one.version(), Catalog::new(vec![server("a", &["x"])]).version());
        let names: Vec<&str> = two.tools().iter().map(|tool| tool.operation_id.as_str()).collect();
        assert_eq!(names, ["a__x", "a__y", "b__x"]);
        assert_eq!(two.operation("b__x").unwrap().id, ToolId::new("b", "x"));
        assert_eq!(two.server("a").unwrap().tools.len(), 2);
        assert!(two.server("c").is_none());
    }

    #[test]
    fn the_text_of_a_function_is_that_of_its_value() {
        let raw =
            json!({"name": "x\"y", "description": "a\n\u{1F600}\\", "inputSchema": {"properties": {"z": {}, "a": {"type": "integer"}}}});
        let tool = tool(&ServerName::from("s"), &raw).unwrap();
        assert_eq!(tool.function_text(), tool.function().to_string());
    }

    #[test]
    fn a_tool_without_description_gets_its_title_or_name() {
        let name = ServerName::from("s");
        let make = |raw: serde_json::Value| tool(&name, &raw);
        assert_eq!(make(json!({"name": "x", "inputSchema": {}})).unwrap().description, "x");
        assert_eq!(make(json!({"name": "x", "title": "The X", "description": " ", "inputSchema": {}})).unwrap().description, "The X");
        assert_eq!(make(json!({"name": "x", "inputSchema": true})).unwrap_err().tool, "x");
        // HTTP clients normalise a `..` segment away before they send a request.
        assert_eq!(make(json!({"name": "..", "inputSchema": {}})).unwrap_err().reason, "its name can't be part of a URL");
    }
}
