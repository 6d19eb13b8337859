//! The intent of a search: a hint that ranks matching tools first.
//!
//! The words of an intent are compared with tags, toolsets and servers. `read-only` and `destructive` are compared with the
//! tools' annotations. An intent is only a hint: other tools are still found.

use std::collections::HashMap;

use crate::domain::access::toolset_name::ToolsetName;
use crate::domain::access::visibility::Classes;
use crate::domain::catalog::catalog::CatalogServer;
use crate::domain::catalog::tool::Tool;
use crate::domain::text::analysis::Analyzer;

/// An intent, prepared for comparison with tools.
pub(crate) struct Intent {
    analyzer: Analyzer,
    terms: Vec<u32>,
    reads_only: bool,
    destroys: bool,
    /// A cache of comparisons by name, because many tools share names.
    known: HashMap<Box<str>, bool>,
}

impl Intent {
    pub(crate) fn new(text: &str) -> Self {
        let analyzer = Analyzer::default();
        let mut words = text.to_lowercase();
        let mut take = |forms: &[&str]| {
            let mut found = false;
            for form in forms {
                found |= words.contains(form);
                words = words.replace(form, " ");
            }
            found
        };
        let reads_only = take(&["readonlyhint", "read-only", "read_only", "read only", "readonly"]);
        let destroys = take(&["destructivehint", "destructive"]);
        let terms = analyzer.terms(&words);
        Self { analyzer, terms, reads_only, destroys, known: HashMap::new() }
    }

    /// Whether the intent has any effect.
    pub(crate) fn is_empty(&self) -> bool {
        self.terms.is_empty() && !self.reads_only && !self.destroys
    }

    /// Whether a tool matches the intent.
    pub(crate) fn fits(&mut self, tool: &Tool, server: Option<&CatalogServer>, classes: &Classes) -> bool {
        (!self.reads_only || tool.hints.reads_only())
            && (!self.destroys || tool.hints.is_destructive())
            && (self.terms.is_empty() || self.names(tool, server, classes))
    }

    fn names(&mut self, tool: &Tool, server: Option<&CatalogServer>, classes: &Classes) -> bool {
        let title = server.and_then(|server| server.title.as_deref());
        let of_server = [Some(tool.id.server.as_str()), title].into_iter().flatten();
        let toolsets = classes.toolsets_of(tool).map(ToolsetName::as_str);
        tool.hints.tags().chain(of_server).chain(toolsets).any(|name| self.is_named(name))
    }

    fn is_named(&mut self, name: &str) -> bool {
        if let Some(known) = self.known.get(name) {
            return *known;
        }
        let named = self.analyzer.terms(name).iter().any(|term| self.terms.contains(term));
        self.known.insert(name.into(), named);
        named
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Intent;
    use crate::domain::access::visibility::Classes;
    use crate::domain::catalog::catalog;
    use crate::domain::catalog::tool::ServerName;

    #[test]
    fn tags_servers_and_hints_decide() {
        let raw = json!({
            "name": "query", "tags": ["data-analysis", "SQL"], "annotations": {"readOnlyHint": true}, "inputSchema": {"type": "object"}
        });
        let tool = catalog::tool(&ServerName::from("warehouse"), &raw).unwrap();
        let fits = |text: &str| Intent::new(text).fits(&tool, None, &Classes::default());
        for text in ["data_analysis", "analyse data", "sql", "Warehouse", "read-only", "read only sql", "readOnlyHint"] {
            assert!(fits(text), "{text}");
        }
        for text in ["send letters", "destructive", "read-only mail", "destructive sql"] {
            assert!(!fits(text), "{text}");
        }
        assert!(Intent::new(" the ").is_empty() && !Intent::new("read only").is_empty());
    }
}
