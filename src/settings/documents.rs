//! Section `[documents]`: how tools are published.

use crate::settings::values::section;

section! {
    /// Section `[documents]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct DocumentSettings = read(reader) {
        /// Definitions with more cl100k tokens are shortened; `None`: never.
        pub tool_tokens: Option<u32> =
            u32::try_from(reader.whole("documents.tool_tokens", 0..=1_000_000)).ok().filter(|tokens| *tokens > 0),
        /// Larger documents are refused; `None`: never.
        pub max_tools: Option<usize> =
            Some(reader.whole("documents.max_tools", 0..=1_000_000)).filter(|tools| *tools > 0),
    }
}
