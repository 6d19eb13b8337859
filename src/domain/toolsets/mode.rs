//! Modes of a document: which tools it contains.

use crate::domain::text::named::named;

named! {
    /// Selects the tools in a document, in addition to meta-tools.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub enum Mode {
        /// Every tool that the caller may see.
        #[default]
        Full = "full",
        /// Only the meta-tools: find, describe, run.
        Meta = "meta",
        /// Like `meta`, plus the meta-tool that selects tools for a whole task.
        Smart = "smart",
        /// The meta-tools to find, load, unload and run tools, plus the loaded tools.
        Dynamic = "dynamic",
    }
}
