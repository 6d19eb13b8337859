//! Section `[documents]`: how tools are published.

use crate::settings::values::Reader;

/// The settings in section `[documents]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentSettings {
    /// Maximum size of a definition in cl100k tokens. Longer definitions are shortened; `None` means no limit.
    pub tool_tokens: Option<u32>,
}

impl DocumentSettings {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        let tokens = reader.whole("documents.tool_tokens", 0..=1_000_000);
        Self { tool_tokens: u32::try_from(tokens).ok().filter(|tokens| *tokens > 0) }
    }
}
