//! The mode of a document, as an argument.

use clap::ValueEnum;

use crate::domain::toolsets::mode::Mode;

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum ModeArg {
    /// Every tool
    Full,
    /// Three meta-tools: find, describe and run tools
    Meta,
    /// The three meta-tools, and one that selects tools for a whole task
    Smart,
    /// Meta-tools that find, load and run tools
    Dynamic,
}

impl From<ModeArg> for Mode {
    fn from(mode: ModeArg) -> Self {
        match mode {
            ModeArg::Full => Self::Full,
            ModeArg::Meta => Self::Meta,
            ModeArg::Smart => Self::Smart,
            ModeArg::Dynamic => Self::Dynamic,
        }
    }
}
