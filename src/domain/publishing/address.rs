//! The addresses of the service: the parts of it that requests are sent to.

use std::sync::Arc;

use crate::domain::access::toolset::ToolsetName;
use crate::domain::access::visibility::Visibility;
use crate::domain::catalog::tool::Tool;
use crate::domain::toolsets::mode::Mode;
use crate::domain::toolsets::session::Session;

/// An address of the service: the whole service, a toolset or a session. All of them have the same routes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Address {
    /// Everything that the caller may see.
    #[default]
    Whole,
    /// The tools of a toolset: the caller's visibility is limited to it.
    Toolset(ToolsetName),
    /// The tools of a session that the caller may see.
    Session(Arc<Session>),
}

impl Address {
    /// Prefix of its addresses.
    #[must_use]
    pub fn prefix(&self) -> String {
        match self {
            Self::Whole => String::new(),
            Self::Toolset(name) => format!("/toolsets/{name}"),
            Self::Session(session) => format!("/s/{}", session.id.as_str()),
        }
    }

    /// Whether it lists a tool that the caller may see, in this mode.
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

    /// The default mode of its documents.
    #[must_use]
    pub fn mode(&self) -> Mode {
        match self {
            Self::Whole | Self::Toolset(_) => Mode::Full,
            Self::Session(session) => session.mode,
        }
    }
}
