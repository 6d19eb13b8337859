//! The mode of a document, as an argument.

use clap::ValueEnum;

use crate::domain::toolsets::mode::Mode;

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum ModeArg {
    /// Every tool
    Full,
    /// Three tools, which find, describe and run
    Meta,
    /// The same, and one that chooses for a whole task
    Smart,
    /// Those that find, load and run
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
