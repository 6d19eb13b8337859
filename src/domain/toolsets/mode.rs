//! The tools in a document.

/// The tools in a document, in addition to meta-tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Every tool that the caller may see.
    #[default]
    Full,
    /// Only the meta-tools: find, describe, run.
    Meta,
    /// The same plus the one that chooses for a whole task.
    Smart,
    /// The meta-tools to find, load, unload and run, plus the loaded tools.
    Dynamic,
}

impl Mode {
    pub const ALL: [Self; 4] = [Self::Full, Self::Meta, Self::Smart, Self::Dynamic];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Meta => "meta",
            Self::Smart => "smart",
            Self::Dynamic => "dynamic",
        }
    }

    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }
}
