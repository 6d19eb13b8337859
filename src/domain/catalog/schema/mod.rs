//! A tool's input schema → what OpenAPI 3.1 and Open WebUI's converter both keep.
//!
//! The published form is self-contained: every reference is inlined, every cycle is cut where the structure begins
//! again, every schema is an object with a `type` (or an `anyOf` of such), every array has `items`. There are no
//! boolean schemas where Open WebUI looks and no nulls, because one of them in one tool makes it drop all tool servers
//! of the installation. Its size is bounded, whatever a server sends.
//!
//! What is published never forbids what the server's own schema allows, read as its author means it: a keyword says
//! of which type the value is, and an alternative takes the properties that it names. What it can't say is put into
//! words, in the description of the place or of the tool, and named in [`InputSchema::losses`]. The server's own
//! schema is kept beside it: arguments are validated against that one.
//!
//! Any draft is read as it is found; nothing is fetched. Names of properties are never changed.

use std::sync::Arc;

use serde_json::Value;

use crate::domain::catalog::schema::root::Root;
use crate::domain::catalog::schema::translation::Translation;

mod alternatives;
mod budget;
mod conditions;
mod containers;
mod form;
mod keywords;
mod loss;
mod notes;
mod references;
mod root;
#[cfg(test)]
mod tests;
mod translation;
mod values;
mod words;

pub use self::loss::{LossReason, SchemaLoss};

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
    /// For the tool's description: what is said of the arguments together and Open WebUI drops from a root.
    pub hint: Option<String>,
    /// What the published form does not say as a schema, for `toolsieve check`.
    pub losses: Vec<SchemaLoss>,
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
        let Root { published, wrapped, hint, losses: of_root } = Root::new(translation.root());
        let mut losses = translation.losses();
        losses.extend(of_root);
        losses.sort_unstable();
        losses.dedup();
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
