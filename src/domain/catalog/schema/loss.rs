//! Losses: parts of a server's schema that the published schema can't express.

use std::fmt;

use serde::Serialize;

/// One part of a tool's input schema that the published form can't express.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct SchemaLoss {
    /// JSON Pointer (RFC 6901) into the published schema; empty for the whole input.
    pub pointer: String,
    /// The affected keyword of the server's schema.
    pub keyword: String,
    pub reason: LossReason,
    /// Whether a description states the constraint in words instead.
    pub described: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LossReason {
    /// A constraint at the root, where Open WebUI reads only `properties` and `required`.
    AtRoot,
    /// No form of this constraint works for every consumer of the document.
    NoForm,
    /// Two parts of the schema contradict each other; the first is published.
    SaidTwice,
    /// The schema contains itself. One level is published; the recursion is cut.
    Recursive,
    /// The reference has no target within the schema. External targets are never fetched.
    Unresolved,
    /// The schema is nested too deeply.
    TooDeep,
    /// The schema exceeds the size limit per tool.
    TooLarge,
    /// The schema was cut to the configured token budget.
    Shortened,
}

impl LossReason {
    /// The reason in a few words.
    pub fn words(self) -> &'static str {
        match self {
            Self::AtRoot => "Open WebUI reads only properties and required of the root",
            Self::NoForm => "no form is accepted by every client",
            Self::SaidTwice => "two parts of the schema contradict each other; the first is published",
            Self::Recursive => "the schema contains itself and is cut at the recursion",
            Self::Unresolved => "the reference has no target inside the schema",
            Self::TooDeep => "it is nested too deeply",
            Self::TooLarge => "the schema exceeds the size limit",
            Self::Shortened => "cut to keep the definition within documents.tool_tokens",
        }
    }
}

impl fmt::Display for SchemaLoss {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.pointer.is_empty() { "the root" } else { &self.pointer };
        write!(formatter, "{} at {place}: {}", self.keyword, self.reason.words())?;
        if self.described {
            formatter.write_str("; a description says it in words")?;
        }
        Ok(())
    }
}
