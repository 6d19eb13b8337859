//! A tool of an MCP server: raw definition and published form.

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::domain::catalog::hidden_text::{self, HiddenText, Identifiers};
use crate::domain::catalog::hints::ToolHints;
use crate::domain::catalog::naming;
use crate::domain::catalog::overlay::Overlay;
use crate::domain::catalog::schema::InputSchema;
use crate::domain::catalog::shape::Shaped;
use crate::domain::catalog::texts::{ToolText, summary};
use crate::domain::execution::arguments::ArgumentsValidator;
use crate::domain::text::canonical::Fingerprint;
use crate::domain::text::json_text::JsonText;
use crate::domain::text::named::name_text;

/// The name of a configured MCP server: the key in the `mcpServers` map.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ServerName(Arc<str>);

name_text!(ServerName);

impl ServerName {
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }
}

impl From<&str> for ServerName {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

/// Identifies a tool by server and name. They stay separate, because a joined string can't be split reliably.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ToolId {
    pub server: ServerName,
    pub name: Arc<str>,
}

impl ToolId {
    pub fn new(server: impl Into<ServerName>, name: impl Into<Arc<str>>) -> Self {
        Self { server: server.into(), name: name.into() }
    }

    /// The tool's name without hidden characters, for models and people.
    pub fn label(&self) -> Cow<'_, str> {
        hidden_text::strip(&self.name).map_or(Cow::Borrowed(&self.name), |(label, _)| label.into())
    }
}

impl fmt::Display for ToolId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.server, self.name)
    }
}

/// The published name of a tool: `^[a-zA-Z][a-zA-Z0-9_-]*$`, at most 64 characters, unique in a catalog.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct OperationId(Arc<str>);

name_text!(OperationId);

impl OperationId {
    /// Builds `<server>__<tool>`.
    ///
    /// The name depends only on these two names, so it is the same in every document and on every replica, whatever other
    /// tools exist. If this form would be ambiguous, too long or invalid, a hash of both names is appended to keep it unique.
    pub fn of(id: &ToolId) -> Self {
        Self(naming::published(id.server.as_str(), &id.name).into())
    }
}

impl Borrow<str> for OperationId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// A publishable tool. Built once per listing of its server, then shared.
#[derive(Debug)]
pub struct Tool {
    pub id: ToolId,
    pub operation_id: OperationId,
    /// The tool's name without hidden characters, for models.
    pub label: Arc<str>,
    /// The tool object exactly as the server sent it (MCP specification, "Tool").
    pub raw: JsonText,
    pub title: Option<String>,
    /// The description; never empty. An admin's text overrides the server's, and the tool's name stands in for a missing one.
    pub description: String,
    /// The input that callers see. A shape makes it differ from the server's own.
    pub input: InputSchema,
    /// The published form of the tool's output schema, if it declares one.
    pub output: Option<JsonText>,
    /// SHA-256 of the canonical form of [`Tool::raw`]. Equal tools of two listings have equal fingerprints.
    pub fingerprint: Fingerprint,
    /// Fingerprint of the part that admins approve, see [`crate::domain::catalog::definition`].
    pub definition: Fingerprint,
    /// Fingerprint of the tool with its overlay; equal to [`Tool::fingerprint`] if there is no overlay.
    pub version: Fingerprint,
    /// Hidden characters that were removed from the definition.
    pub hidden: Vec<HiddenText>,
    /// Original spelling of parameter names and values, which are shown without hidden characters.
    pub identifiers: Identifiers,
    /// Additional words for search.
    pub synonyms: Vec<String>,
    /// Whether every chat offers the tool.
    pub pinned: bool,
    /// What an admin has changed about the parameters.
    pub shape: Shaped,
    /// Annotations and tags, for rules.
    pub hints: ToolHints,
    /// Token count (cl100k) of the minified function definition, see [`Tool::function`].
    pub tokens: u32,
    pub validator: ArgumentsValidator,
}

impl Tool {
    /// The function definition for a model, in the format that Open WebUI sends to providers.
    pub fn function(&self) -> Value {
        let mut function = Map::new();
        function.insert("name".into(), self.operation_id.as_str().into());
        function.insert("description".into(), self.description.as_str().into());
        function.insert("parameters".into(), self.input.published.value());
        Value::Object(function)
    }

    /// The text of [`Self::function`].
    pub fn function_text(&self) -> String {
        let (name, description) = (Value::from(self.operation_id.as_str()), Value::from(self.description.as_str()));
        format!("{{\"name\":{name},\"description\":{description},\"parameters\":{}}}", self.input.published)
    }

    /// Applies an overlay. [`Tool::raw`] stays unchanged.
    #[must_use]
    pub fn with(mut self, overlay: &Overlay) -> Self {
        self.version = overlay.version(&self.fingerprint);
        self.hints.add_tags(overlay.tags.iter().map(String::as_str));
        self.synonyms.clone_from(&overlay.synonyms);
        self.pinned = overlay.pinned;
        let own = undescribed(&self.description, &self.input).to_owned();
        (self.input, self.shape) = overlay.shape.apply(&self.input);
        self.description = described(overlay.description.clone().unwrap_or(own), &self.input);
        self
    }

    /// The texts for search.
    pub fn text(&self) -> ToolText<'_> {
        ToolText {
            server: self.id.server.as_str(),
            name: &self.label,
            title: self.title.as_deref(),
            description: &self.description,
            parameters: self.input.parameters(),
            synonyms: &self.synonyms,
        }
    }

    /// One line for search results: the first sentence of the description, at most 200 characters.
    pub fn summary(&self) -> &str {
        summary(&self.description)
    }
}

/// Appends the sentence about the arguments ([`InputSchema::hint`]) to a description.
pub fn described(mut description: String, input: &InputSchema) -> String {
    if let Some(hint) = &input.hint {
        description.push_str("\n\n");
        description.push_str(hint);
    }
    description
}

/// The description without the sentence about the arguments.
fn undescribed<'a>(description: &'a str, input: &InputSchema) -> &'a str {
    let hint = input.hint.as_deref().filter(|hint| !hint.is_empty());
    let own = hint.and_then(|hint| description.strip_suffix(hint)?.strip_suffix("\n\n"));
    own.unwrap_or(description)
}
