//! How tools are published.

use crate::settings::values::Reader;

/// Section `[documents]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentSettings {
    /// Definitions with more cl100k tokens are shortened; `None`: never.
    pub tool_tokens: Option<u32>,
}

impl DocumentSettings {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        let tokens = reader.whole("documents.tool_tokens", 0..=1_000_000);
        Self { tool_tokens: u32::try_from(tokens).ok().filter(|tokens| *tokens > 0) }
    }
}
