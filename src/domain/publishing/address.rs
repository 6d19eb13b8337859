//! Addresses: the parts of the service to which requests are sent.

use std::sync::Arc;

use crate::domain::access::toolset::ToolsetName;
use crate::domain::access::visibility::Visibility;
use crate::domain::catalog::tool::Tool;
use crate::domain::toolsets::mode::Mode;
use crate::domain::toolsets::session::Session;

/// The whole service, a toolset or a session. All have the same routes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Address {
    /// All tools that the caller may see.
    #[default]
    Whole,
    /// The tools of a toolset. The caller's visibility is limited to it.
    Toolset(ToolsetName),
    /// The tools of a session that the caller may see.
    Session(Arc<Session>),
}

impl Address {
    /// The path prefix of this address.
    #[must_use]
    pub fn prefix(&self) -> String {
        match self {
            Self::Whole => String::new(),
            Self::Toolset(name) => format!("/toolsets/{name}"),
            Self::Session(session) => format!("/s/{}", session.id.as_str()),
        }
    }

    /// Whether the document of this address lists a tool that the caller may see.
    #[must_use]
    pub fn shows(&self, tool: &Tool, visibility: &Visibility, mode: Mode) -> bool {
        match self {
            Self::Whole => mode == Mode::Full,
            Self::Toolset(name) => {
                let members = || visibility.assigned.toolset(name);
                mode == Mode::Full || members().is_some_and(|members| members.always.contains(&tool.operation_id))
            }
            Self::Session(session) => matches!(mode, Mode::Full | Mode::Dynamic) && session.contents.contain(tool, &visibility.assigned),
        }
    }

    /// The default mode of documents at this address.
    #[must_use]
    pub fn mode(&self) -> Mode {
        match self {
            Self::Whole | Self::Toolset(_) => Mode::Full,
            Self::Session(session) => session.mode,
        }
    }
}
