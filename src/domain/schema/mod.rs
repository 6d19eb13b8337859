//! A tool's input schema → what OpenAPI 3.1 and Open WebUI's converter both keep.
//!
//! The published form is self-contained: every reference is inlined, every cycle is cut, every schema is an object
//! with a `type` (or an `anyOf` of such), every array has `items`. There are no boolean schemas and no nulls, because
//! one of them in one tool makes Open WebUI drop all tool servers of the installation. Its size is bounded, whatever
//! a server sends. The server's own schema is kept beside it: arguments are validated against that one.

use std::sync::Arc;

use serde_json::Value;

use crate::domain::schema::root::Root;
use crate::domain::schema::translation::Translation;

mod form;
mod root;
#[cfg(test)]
mod tests;
mod translation;

/// The input of a tool: as the server wrote it and as it is published.
#[derive(Clone, Debug, PartialEq)]
pub struct InputSchema {
    /// The server's own `inputSchema`: arguments are validated against it.
    pub source: Arc<Value>,
    /// An object schema with `properties`.
    pub published: Arc<Value>,
    /// Whether the published form wraps the arguments as `{"arguments": {…}}`, because free-form input at the top
    /// would reach the model as "no parameters".
    pub wrapped: bool,
    /// A sentence for the tool's description about what `published` can't say and Open WebUI drops from a root: which
    /// parameters belong together.
    pub hint: Option<String>,
    /// What the published form could not express, for `toolsieve check`.
    pub losses: Vec<String>,
}

/// The published form of an `outputSchema`: self-contained, and looser than the source where something can't be said.
#[must_use]
pub fn output(source: &Value) -> Value {
    Value::Object(Translation::new(source).root())
}

impl InputSchema {
    /// Translates an `inputSchema`. Never fails: what can't be expressed is named in [`InputSchema::losses`].
    #[must_use]
    pub fn compile(source: Arc<Value>) -> Self {
        let mut translation = Translation::new(&source);
        let Root { published, wrapped, hint } = Root::new(translation.root());
        let losses = translation.losses();
        Self { published: Arc::new(published), wrapped, hint, losses, source }
    }

    /// The names and descriptions of the top-level parameters.
    pub fn parameters(&self) -> impl Iterator<Item = (&str, &str)> {
        // Those of alternatives and behind references are in the published form only; a wrapper's are not the tool's.
        let schema = if self.wrapped { &self.source } else { &self.published };
        schema
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .map(|(name, schema)| (name.as_str(), schema.get("description").and_then(Value::as_str).unwrap_or_default()))
    }
}
