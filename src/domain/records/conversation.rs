//! Key under which usage is aggregated: a chat, an address session or an MCP session.

use std::sync::Arc;

use crate::domain::text::canonical::Fingerprint;
use crate::domain::text::named::named;
use crate::domain::toolsets::session::SessionId;

/// Length of the hash that replaces a confidential id.
const SHORT: usize = 16;

named! {
    /// What kind of conversation it is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum ConversationKind {
        /// A chat in a chat application.
        Chat = "chat",
        /// An address session.
        Session = "session",
        /// A session of an MCP client.
        Client = "client",
    }
}

/// Identifies a conversation of a caller.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Conversation {
    pub kind: ConversationKind,
    /// For a chat its own id; for a session a hash, because the id itself grants access.
    pub id: Arc<str>,
}

impl Conversation {
    pub fn chat(id: &str) -> Self {
        Self { kind: ConversationKind::Chat, id: id.into() }
    }

    pub fn session(id: &SessionId) -> Self {
        Self { kind: ConversationKind::Session, id: hashed(id.as_str()) }
    }

    /// From the id of an MCP session.
    pub fn client(id: &str) -> Self {
        Self { kind: ConversationKind::Client, id: hashed(id) }
    }
}

fn hashed(id: &str) -> Arc<str> {
    Fingerprint::of_text(id).to_string()[..SHORT].into()
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
