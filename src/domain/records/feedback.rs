//! Feedback of callers on tools and selections.

use std::time::SystemTime;

use crate::domain::catalog::tool::ToolId;

/// A caller's verdict on a tool in a selection.
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
    /// The tool did not fit the message.
    Wrong,
    /// The message needed the tool, but it was not offered.
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
