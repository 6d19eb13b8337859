//! What belongs together for whoever asks: figures are kept by it.

use std::sync::Arc;

use crate::domain::text::canonical::Fingerprint;
use crate::domain::toolsets::session::SessionId;

/// Letters of a hash that stands for an id which is not for records.
const SHORT: usize = 16;

/// What kind of conversation it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConversationKind {
    /// Of a chat application.
    Chat,
    /// The session of an address.
    Session,
    /// The session of an MCP client.
    Client,
}

impl ConversationKind {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Session => "session",
            Self::Client => "client",
        }
    }
}

/// Names a conversation of a caller.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Conversation {
    pub kind: ConversationKind,
    /// Of a chat its own id; of a session a hash, because whoever has the id has the session.
    pub id: Arc<str>,
}

impl Conversation {
    #[must_use]
    pub fn chat(id: &str) -> Self {
        Self { kind: ConversationKind::Chat, id: id.into() }
    }

    #[must_use]
    pub fn session(id: &SessionId) -> Self {
        Self { kind: ConversationKind::Session, id: hashed(id.as_str()) }
    }

    /// Of the id of an MCP session.
    #[must_use]
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
    fn the_id_of_a_session_is_not_told() {
        let id = SessionId::of_bytes([7; ID_BYTES]);
        let conversation = Conversation::session(&id);
        assert!(conversation.id.len() == 16 && !id.as_str().contains(&*conversation.id), "{conversation:?}");
        assert_eq!(conversation, Conversation::session(&id));
        assert_ne!(Conversation::client("a").id, Conversation::client("b").id);
    }
}
