//! Settings for calls, per server. They can be replaced while calls run.

use std::collections::HashMap;

use arc_swap::ArcSwap;

use crate::domain::catalog::tool::{ServerName, Tool};
use crate::domain::execution::outcome::StructuredContent;
use crate::settings::{CallSettings, ServerSettings, Validation};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CallRule {
    pub(super) validation: Validation,
    /// Maximum length of a result's text, in bytes. Longer texts are truncated; `None` disables the limit.
    pub(super) max_text_bytes: Option<usize>,
    /// Whether to remove whitespace from JSON objects and lists in results.
    pub(super) compact_results: bool,
    /// Whether structured content may replace the content, or be added to it.
    pub(super) structured_results: bool,
}

impl CallRule {
    /// When a result of this tool has its structured content.
    pub(super) fn structured_content(self, tool: &Tool) -> StructuredContent {
        match (self.structured_results, &tool.output) {
            (false, _) => StructuredContent::Fallback,
            (true, Some(_)) => StructuredContent::Preferred,
            (true, None) => StructuredContent::Added,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct CallRules(ArcSwap<Table>);

#[derive(Debug, Default)]
struct Table {
    default: CallRule,
    servers: HashMap<ServerName, CallRule>,
}

impl CallRules {
    pub(super) fn replace(&self, calls: &CallSettings, servers: &[ServerSettings]) {
        let default = CallRule {
            validation: calls.validation,
            max_text_bytes: calls.max_text_bytes,
            compact_results: calls.compact_results,
            structured_results: calls.structured_results,
        };
        let of = |server: &ServerSettings| CallRule {
            validation: server.validation,
            max_text_bytes: server.max_text_bytes,
            compact_results: server.compact_results,
            ..default
        };
        let servers = servers.iter().map(|server| (server.name.clone(), of(server))).collect();
        self.0.store(Table { default, servers }.into());
    }

    pub(super) fn of(&self, server: &ServerName) -> CallRule {
        let table = self.0.load();
        table.servers.get(server).copied().unwrap_or(table.default)
    }
}
