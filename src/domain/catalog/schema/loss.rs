//! What a published schema says less than the server's own.

use std::fmt;

use serde::Serialize;

/// One thing that the published form of a tool's input can't say.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct SchemaLoss {
    /// JSON Pointer (RFC 6901) into the published schema: the place that says less. Empty for the whole input.
    pub pointer: String,
    /// The keyword of the server's schema.
    pub keyword: String,
    pub reason: LossReason,
    /// Whether a description says in words what the schema does not.
    pub described: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LossReason {
    /// Open WebUI takes nothing but `properties` and `required` from a root.
    AtRoot,
    /// It has no form that every reader of the document takes.
    NoForm,
    /// Two parts of the schema both say it, differently; the first is published.
    SaidTwice,
    /// The schema contains itself: it is published once and cut where it begins again.
    Recursive,
    /// The reference leads to nothing inside the schema; nothing is ever fetched.
    Unresolved,
    /// Nested deeper than is published.
    TooDeep,
    /// More than one tool may publish.
    TooLarge,
    /// The definition would take more tokens than are configured.
    Shortened,
}

impl LossReason {
    /// Why, in a few words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::AtRoot => "Open WebUI takes only properties and required from the root",
            Self::NoForm => "it has no form that every reader takes",
            Self::SaidTwice => "it is said twice, differently; the first is published",
            Self::Recursive => "the schema contains itself and is cut where it begins again",
            Self::Unresolved => "the reference leads to nothing inside the schema",
            Self::TooDeep => "it is nested deeper than is published",
            Self::TooLarge => "the schema is larger than is published",
            Self::Shortened => "it is cut to keep the definition within documents.tool_tokens",
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
