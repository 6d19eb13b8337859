//! Feedback from callers on tools and selections.

use std::time::SystemTime;

use crate::domain::catalog::tool::ToolId;
use crate::domain::text::named::named;

/// A caller's verdict on a tool in a selection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feedback {
    pub at: SystemTime,
    pub principal: String,
    pub selection: String,
    pub tool: ToolId,
    pub verdict: Verdict,
}

named! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Verdict {
        /// The tool was right.
        Helpful = "helpful",
        /// The tool did not fit the message.
        Wrong = "wrong",
        /// The message needed the tool, but it was not offered.
        Missing = "missing",
    }
}
