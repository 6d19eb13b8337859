//! The key by which usage is aggregated: a chat, an address session or an MCP session.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::domain::text::canonical::Fingerprint;
use crate::domain::text::named::named;
use crate::domain::toolsets::session::SessionId;

/// Length of the hash that replaces a confidential id, in characters.
const SHORT: usize = 16;

named! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    pub enum ConversationKind {
        /// A chat in a chat application.
        Chat = "chat",
        /// A session with its own address (`/s/ID`).
        Session = "session",
        /// The MCP session of a client.
        Client = "client",
    }
}

/// Identifies one conversation of a caller.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Conversation {
    pub kind: ConversationKind,
    /// The id of a chat. For a session, a hash of the id, because the id itself grants access.
    pub id: Arc<str>,
}

impl Conversation {
    pub fn chat(id: &str) -> Self {
        Self { kind: ConversationKind::Chat, id: id.into() }
    }

    pub fn session(id: &SessionId) -> Self {
        Self { kind: ConversationKind::Session, id: hashed(id.as_str()) }
    }

    /// The conversation of an MCP session with this id.
    pub fn client(id: &str) -> Self {
        Self { kind: ConversationKind::Client, id: hashed(id) }
    }
}

fn hashed(id: &str) -> Arc<str> {
    Fingerprint::of_text(id).digits(SHORT).into()
}

#[cfg(test)]
mod tests {
    use super::Conversation;
    use crate::domain::toolsets::session::{ID_BYTES, SessionId};

    #[test]
    fn the_id_of_a_session_is_not_shown() {
        let id = SessionId::of_bytes([7; ID_BYTES]);
        let conversation = Conversation::session(&id);
        assert!(conversation.id.len() == 16 && !id.as_str().contains(&*conversation.id), "{conversation:?}");
        assert_eq!(conversation, Conversation::session(&id));
        assert_ne!(Conversation::client("a").id, Conversation::client("b").id);
    }
}
