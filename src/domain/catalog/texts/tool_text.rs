//! The borrowed texts of a tool, for relevance ranking.

use std::borrow::Cow;

use crate::domain::text::language::Language;

/// The texts of one tool for ranking.
#[derive(Debug, Clone, Default)]
pub struct ToolText<'a> {
    /// Name of the server as configured, for instance `google-calendar`.
    pub server: &'a str,
    /// The name that the server uses for the tool, for instance `list-events`.
    pub name: &'a str,
    /// The tool's display title, when it has one.
    pub title: Option<&'a str>,
    /// The tool's description, which may be empty or Markdown of many lines.
    pub description: &'a str,
    /// Parameters as pairs of name and description, either of which may be empty. Nested parameters may be flattened.
    pub parameters: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// Words and phrases that an admin added to the tool.
    pub synonyms: &'a [String],
}

impl ToolText<'_> {
    /// The language of the tool, as far as its description leaves no doubt. Names are too short to tell.
    pub(crate) fn language(&self) -> Option<Language> {
        Language::of(self.description)
    }
}
