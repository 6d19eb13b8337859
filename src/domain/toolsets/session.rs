//! Address sessions: sets of tools, each published at its own URL.
//!
//! A session determines what its URL publishes, not what its owner may use. Permissions are checked on every request.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::domain::access::principal::PrincipalId;
use crate::domain::access::toolset_name::ToolsetName;
use crate::domain::access::visibility::Classes;
use crate::domain::catalog::tool::{ServerName, Tool, ToolId};
use crate::domain::toolsets::loading::Group;
use crate::domain::toolsets::mode::DefaultMode;

/// Length of a session id in bytes: 192 random bits can't be guessed.
pub const ID_BYTES: usize = 24;
const ID_LETTERS: usize = ID_BYTES / 3 * 4;

/// Identifies a session in its URL.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(Arc<str>);

impl SessionId {
    /// The id of random bytes. It never starts with `-`, because a command line would take it for an option.
    pub fn of_bytes(mut bytes: [u8; ID_BYTES]) -> Self {
        // The first letter stands for the upper six bits: 62 is `-`, 63 is `_`.
        if bytes[0] >> 2 >= 62 {
            bytes[0] &= 0x7f;
        }
        Self(URL_SAFE_NO_PAD.encode(bytes).into())
    }

    /// Parses an id; `None` if the format is wrong.
    pub fn read(text: &str) -> Option<Self> {
        let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        (text.len() == ID_LETTERS && text.bytes().all(is_fine)).then(|| Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Prints no id. Without a configured key, the id alone grants access, so it must not appear in logs.
impl fmt::Debug for SessionId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SessionId")
    }
}

/// The published tools: those listed individually, and those in a listed toolset or server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SessionContents {
    #[serde(default)]
    pub toolsets: BTreeSet<ToolsetName>,
    #[serde(default)]
    pub servers: BTreeSet<ServerName>,
    #[serde(default)]
    pub tools: BTreeSet<ToolId>,
}

impl SessionContents {
    /// Whether the session publishes a tool. `classes` defines the members of toolsets.
    pub fn contain(&self, tool: &Tool, classes: &Classes) -> bool {
        self.tools.contains(&tool.id)
            || self.servers.contains(&tool.id.server)
            || self.toolsets.iter().any(|name| classes.is_in(name, tool))
    }

    /// Whether the session lists this toolset or server.
    pub fn name(&self, group: &Group) -> bool {
        match group {
            Group::Toolset(name) => self.toolsets.contains(name),
            Group::Server(name) => self.servers.contains(name),
            Group::Tag(_) => false,
        }
    }
}

/// A session as created. It never changes, with one exception: tools that were selected for a task before all tools were embedded
/// are selected again afterwards. Loaded tools are stored separately.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Session {
    pub id: SessionId,
    pub owner: PrincipalId,
    pub contents: SessionContents,
    /// The mode of the session's documents and MCP lists, for requests that name none.
    pub mode: DefaultMode,
    pub created_at: SystemTime,
    pub expires_at: SystemTime,
}

impl Session {
    /// Whether the caller owns the session and the session has not expired.
    pub fn is_for(&self, caller: &PrincipalId, now: SystemTime) -> bool {
        self.owner == *caller && now < self.expires_at
    }

    /// The session with only its individually listed tools. Its toolsets and servers can then be loaded like any others.
    #[must_use]
    pub fn with_single_tools(&self) -> Self {
        let contents = SessionContents { tools: self.contents.tools.clone(), ..SessionContents::default() };
        Self { contents, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::{ID_BYTES, Session, SessionContents, SessionId};
    use crate::domain::access::principal::PrincipalId;
    use crate::domain::toolsets::mode::DefaultMode;

    #[test]
    fn an_id_is_read_again_and_nothing_else_is_one() {
        let id = SessionId::of_bytes([250; ID_BYTES]);
        assert_eq!((id.as_str().len(), SessionId::read(id.as_str())), (32, Some(id.clone())));
        for wrong in ["", "abc", &id.as_str()[1..], &format!("{}x", id.as_str()), &id.as_str().replace('-', "/").replace('_', "+")] {
            assert_eq!(SessionId::read(wrong), None, "{wrong}");
        }
        assert!(!format!("{id:?}").contains(id.as_str()));
    }

    #[test]
    fn no_id_looks_like_an_option_of_a_command() {
        for first in u8::MIN..=u8::MAX {
            let id = SessionId::of_bytes([first; ID_BYTES]);
            assert!(!id.as_str().starts_with('-') && SessionId::read(id.as_str()) == Some(id.clone()), "{first}");
        }
    }

    #[test]
    fn a_session_is_its_owners_in_its_time() {
        let now = SystemTime::now();
        let owner = PrincipalId::new("user:u1");
        let session = Session {
            id: SessionId::of_bytes([1; ID_BYTES]),
            owner: owner.clone(),
            contents: SessionContents::default(),
            mode: DefaultMode::Auto,
            created_at: now,
            expires_at: now + Duration::from_secs(1),
        };
        assert!(session.is_for(&owner, now));
        assert!(!session.is_for(&owner, now + Duration::from_secs(1)));
        assert!(!session.is_for(&PrincipalId::new("user:u2"), now));
    }
}
