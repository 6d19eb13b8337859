//! The tools in a document.

use crate::domain::text::named::named;

named! {
    /// The tools in a document, in addition to meta-tools.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub enum Mode {
        /// Every tool that the caller may see.
        #[default]
        Full = "full",
        /// Only the meta-tools: find, describe, run.
        Meta = "meta",
        /// The same plus the one that chooses for a whole task.
        Smart = "smart",
        /// The meta-tools to find, load, unload and run, plus the loaded tools.
        Dynamic = "dynamic",
    }
}
