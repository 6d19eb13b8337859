//! Translates a tool's input schema into a form that both OpenAPI 3.1 and Open WebUI's converter preserve.
//!
//! The published form is self-contained. Every reference is inlined and every recursion is cut. Every schema is an object with a
//! `type`, or an `anyOf` of such objects, and every array has `items`. Where Open WebUI looks, there are no boolean schemas and
//! no nulls: a single one makes Open WebUI drop all tool servers of the installation. Its size is bounded, whatever a server
//! sends.
//!
//! The published form never forbids what the server's own schema allows, read as its author meant it: a keyword implies the type
//! of its value, and an alternative accepts the properties that it names. Other constraints are described in words, in place or
//! in the tool's description, and listed in [`InputSchema::losses`]. Arguments are validated against the server's own schema.
//!
//! Any draft is accepted; nothing is fetched. Property names never change.

use std::borrow::Cow;

use serde_json::Value;

use crate::domain::catalog::schema::root::Root;
use crate::domain::catalog::schema::translation::Translation;
use crate::domain::text::json_text::JsonText;

mod budget;
mod keywords;
mod form;
mod loss;
mod references;
mod values;
mod translation;
mod alternatives;
mod conditions;
mod containers;
mod words;
mod notes;
mod root;
pub mod parameters;

#[cfg(test)]
mod tests;

pub use self::loss::{LossReason, SchemaLoss};

/// The input of a tool: the server's schema and its published form.
#[derive(Clone, Debug, PartialEq)]
pub struct InputSchema {
    /// The server's own `inputSchema`; arguments are validated against it.
    pub source: JsonText,
    /// An object schema with `properties`.
    pub published: JsonText,
    /// Whether the published form wraps the arguments as `{"arguments": {…}}`. Without the wrapper, the model would see
    /// free-form input as "no parameters".
    pub wrapped: bool,
    /// A sentence for the tool's description: constraints across arguments, which Open WebUI drops at the root.
    pub hint: Option<String>,
    /// Constraints that the published form can't express; `toolsieve check` lists them.
    pub losses: Vec<SchemaLoss>,
}

/// The published form of an `outputSchema`: self-contained, and looser than the source if it can't be exact.
pub fn output(source: &Value) -> Value {
    Value::Object(Translation::new(source).root())
}

impl InputSchema {
    /// Translates an `inputSchema`. Never fails; [`InputSchema::losses`] lists constraints that can't be expressed.
    pub fn compile(source: &Value) -> Self {
        let mut translation = Translation::new(source);
        let Root { published, wrapped, hint, losses: of_root } = Root::new(translation.root());
        let mut losses = translation.losses();
        losses.extend(of_root);
        losses.sort_unstable();
        losses.dedup();
        Self { published: JsonText::of(&published), wrapped, hint, losses, source: JsonText::of(source) }
    }

    /// The names and descriptions of the top-level parameters.
    pub fn parameters(&self) -> Vec<(Cow<'static, str>, Cow<'static, str>)> {
        // Parameters inside alternatives or behind references appear only in the published form. A wrapper's own parameter is
        // not the tool's.
        let schema = if self.wrapped { &self.source } else { &self.published };
        let mut schema = schema.value();
        let Some(Value::Object(properties)) = schema.get_mut("properties").map(Value::take) else { return Vec::new() };
        let described = |(name, mut schema): (String, Value)| match schema.get_mut("description").map(Value::take) {
            Some(Value::String(description)) => (name.into(), description.into()),
            _ => (name.into(), Cow::default()),
        };
        properties.into_iter().map(described).collect()
    }
}
