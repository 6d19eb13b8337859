//! Losses: what a published schema can't express of the server's own.

use std::fmt;

use serde::Serialize;

/// One part of a tool's input schema that the published form can't express.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct SchemaLoss {
    /// JSON Pointer (RFC 6901) into the published schema. Empty for the whole input.
    pub pointer: String,
    /// The keyword of the server's schema.
    pub keyword: String,
    pub reason: LossReason,
    /// Whether a description says it in words instead.
    pub described: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LossReason {
    /// Open WebUI reads only `properties` and `required` of a root.
    AtRoot,
    /// No form that every consumer of the document accepts.
    NoForm,
    /// Two parts of the schema contradict each other; the first is published.
    SaidTwice,
    /// The schema contains itself: it is published once and cut at the recursion.
    Recursive,
    /// The reference has no target inside the schema; nothing is ever fetched.
    Unresolved,
    /// Nested too deeply.
    TooDeep,
    /// Beyond the size limit of one tool.
    TooLarge,
    /// Cut to the configured token budget.
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
