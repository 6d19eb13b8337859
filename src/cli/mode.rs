//! The mode of an OpenAPI document, as an argument.

use clap::ValueEnum;

use crate::domain::toolsets::mode::Mode;

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum ModeArg {
    /// List every tool
    Full,
    /// List three meta-tools that find, describe and run tools
    Meta,
    /// List these three meta-tools, and a fourth that selects tools for a whole task
    Smart,
    /// List meta-tools that find, load and run tools
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
