//! Addresses: the parts of the service to which requests are sent.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use percent_encoding::percent_decode_str;

use crate::domain::access::toolset_name::ToolsetName;
use crate::domain::access::visibility::Visibility;
use crate::domain::catalog::tool::Tool;
use crate::domain::toolsets::mode::{DefaultMode, Mode};
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
    pub fn prefix(&self) -> String {
        match self {
            Self::Whole => String::new(),
            Self::Toolset(name) => AddressPrefix::Toolset(name.as_str()).to_string(),
            Self::Session(session) => AddressPrefix::Session(session.id.as_str()).to_string(),
        }
    }

    /// Whether the document of this address lists a tool that the caller may see.
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

    /// The mode at this address for requests that name none.
    pub fn mode(&self) -> DefaultMode {
        match self {
            Self::Whole | Self::Toolset(_) => DefaultMode::Auto,
            Self::Session(session) => session.mode,
        }
    }

    /// Whether both addresses have the same path, whatever a session publishes.
    pub fn has_path_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Session(session), Self::Session(other)) => session.id == other.id,
            _ => self == other,
        }
    }
}

/// The address at the start of a path, as sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressPrefix<'a> {
    Toolset(&'a str),
    Session(&'a str),
}

impl<'a> AddressPrefix<'a> {
    /// The address, and the rest of the path.
    pub fn split(path: &'a str) -> Option<(Self, &'a str)> {
        let (kind, rest) = path.strip_prefix('/')?.split_once('/')?;
        let (name, below) = rest.split_at(rest.find('/')?);
        Some((Self::of(kind, name)?, below))
    }

    fn of(kind: &str, name: &'a str) -> Option<Self> {
        match kind {
            _ if name.is_empty() => None,
            "toolsets" => Some(Self::Toolset(name)),
            "s" => Some(Self::Session(name)),
            _ => None,
        }
    }
}

impl fmt::Display for AddressPrefix<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Toolset(name) => write!(formatter, "/toolsets/{name}"),
            Self::Session(id) => write!(formatter, "/s/{id}"),
        }
    }
}

/// What a connection in Open WebUI is connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionPath<'a> {
    Whole,
    Below(AddressPrefix<'a>),
    /// The name of a server.
    Server(Cow<'a, str>),
}

impl<'a> ConnectionPath<'a> {
    /// Reads the path of a connection. Open WebUI users enter an address, with or without a trailing slash, or the address of
    /// its document.
    pub fn of(path: &'a str) -> Option<Self> {
        let path = path.trim().trim_end_matches('/');
        let path = path.strip_suffix("openapi.json").unwrap_or(path).trim_matches('/');
        if path.is_empty() {
            return Some(Self::Whole);
        }
        if let Some(below) = path.split_once('/').and_then(|(kind, name)| AddressPrefix::of(kind, name)) {
            return Some(Self::Below(below));
        }
        // The path is percent-encoded: a space in a server's name is `%20`.
        percent_decode_str(path).decode_utf8().ok().map(Self::Server)
    }
}

#[cfg(test)]
mod tests {
    use super::{AddressPrefix, ConnectionPath};

    #[test]
    fn addresses_differ_from_other_paths() {
        assert_eq!(AddressPrefix::split("/toolsets/mail/openapi.json"), Some((AddressPrefix::Toolset("mail"), "/openapi.json")));
        assert_eq!(AddressPrefix::split("/s/abc/v1/tools/call"), Some((AddressPrefix::Session("abc"), "/v1/tools/call")));
        for other in ["/toolsets/mail", "/toolsets//x", "/s/", "/s", "/sx/a/b", "/v1/toolsets/a/b", "/"] {
            assert_eq!(AddressPrefix::split(other), None, "{other}");
        }
    }

    #[test]
    fn a_connection_names_an_address_or_its_document() {
        let server = |name: &'static str| Some(ConnectionPath::Server(name.into()));
        let toolset = |name| Some(ConnectionPath::Below(AddressPrefix::Toolset(name)));
        for (path, expected) in [
            ("/", Some(ConnectionPath::Whole)),
            ("", Some(ConnectionPath::Whole)),
            (" /openapi.json/ ", Some(ConnectionPath::Whole)),
            ("/time/openapi.json", server("time")),
            ("my%20server", server("my server")),
            ("/toolsets/mail/", toolset("mail")),
            ("/toolsets/mail/openapi.json", toolset("mail")),
            ("toolsets/mail", toolset("mail")),
            ("/toolsets/", server("toolsets")),
            ("/s/abc", Some(ConnectionPath::Below(AddressPrefix::Session("abc")))),
            ("/%ff", None),
        ] {
            assert_eq!(ConnectionPath::of(path), expected, "{path}");
        }
    }
}
