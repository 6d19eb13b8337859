//! What callers say of tools and selections.

use std::time::SystemTime;

use crate::domain::catalog::tool::ToolId;

/// What a caller says of a tool and a selection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feedback {
    pub at: SystemTime,
    pub principal: String,
    pub selection: String,
    pub tool: ToolId,
    pub verdict: Verdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The tool was right.
    Helpful,
    /// The tool was not what the message needs.
    Wrong,
    /// The message needs the tool, and it was not offered.
    Missing,
}

impl Verdict {
    pub const ALL: [Self; 3] = [Self::Helpful, Self::Wrong, Self::Missing];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Helpful => "helpful",
            Self::Wrong => "wrong",
            Self::Missing => "missing",
        }
    }

    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verdict| verdict.name() == name)
    }
}
