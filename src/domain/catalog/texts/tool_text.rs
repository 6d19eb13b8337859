//! The texts of a tool for relevance ranking, borrowed.

/// The texts of one tool. Parameter texts are pairs of name and description; either may be empty.
#[derive(Debug, Clone, Default)]
pub struct ToolText<'a> {
    /// Name of the server as configured, for instance `google-calendar`.
    pub server: &'a str,
    /// Name of the tool on its server, for instance `list-events`.
    pub name: &'a str,
    /// The tool's display title, when it has one.
    pub title: Option<&'a str>,
    /// The tool's own description, possibly Markdown of many lines, possibly empty.
    pub description: &'a str,
    /// Parameter names with their descriptions; the caller may flatten nested ones.
    pub parameters: Vec<(&'a str, &'a str)>,
    /// Words and phrases that an admin gave the tool.
    pub synonyms: &'a [String],
}
