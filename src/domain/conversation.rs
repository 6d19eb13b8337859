//! One conversation of a caller, as far as its tools go: how many it had, loaded and called.

use std::sync::Arc;
use std::time::SystemTime;

use crate::domain::canonical::Fingerprint;
use crate::domain::document::Mode;
use crate::domain::loading::Group;
use crate::domain::session::SessionId;
use crate::domain::usage::Latencies;

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
    const ALL: [Self; 3] = [Self::Chat, Self::Session, Self::Client];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Session => "session",
            Self::Client => "client",
        }
    }

    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
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

/// What happened in conversations, as sums that can be added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConversationCounts {
    /// Messages for which tools were selected.
    pub selections: u64,
    pub finds: u64,
    pub loads: u64,
    pub unloads: u64,
    pub calls: u64,
    /// Calls that brought no result.
    pub errors: u64,
}

impl ConversationCounts {
    pub fn add(&mut self, other: &Self) {
        self.selections += other.selections;
        self.finds += other.finds;
        self.loads += other.loads;
        self.unloads += other.unloads;
        self.calls += other.calls;
        self.errors += other.errors;
    }
}

/// The figures of one conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConversationUsage {
    pub principal: String,
    pub conversation: Conversation,
    /// Of its documents and lists; `None` where none was asked for.
    pub mode: Option<Mode>,
    pub began_at: SystemTime,
    pub last_at: SystemTime,
    /// Tools that were bound at first, beside the meta-tools; `None` where that was never told.
    pub initial_tools: Option<u64>,
    /// Those that were bound last.
    pub final_tools: Option<u64>,
    pub counts: ConversationCounts,
}

/// How often a group was loaded, and how long that took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadUsage {
    pub group: Group,
    pub loads: u64,
    pub unloads: u64,
    /// Of the loads.
    pub latencies: Latencies,
}

/// What conversations did in a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConversationFigures {
    /// Those that went on in that time, the one that began last first.
    pub conversations: Vec<ConversationUsage>,
    /// By group, on the days of that time.
    pub loads: Vec<LoadUsage>,
}

#[cfg(test)]
mod tests {
    use super::Conversation;
    use crate::domain::session::{ID_BYTES, SessionId};

    #[test]
    fn the_id_of_a_session_is_not_told() {
        let id = SessionId::of_bytes([7; ID_BYTES]);
        let conversation = Conversation::session(&id);
        assert!(conversation.id.len() == 16 && !id.as_str().contains(&*conversation.id), "{conversation:?}");
        assert_eq!(conversation, Conversation::session(&id));
        assert_ne!(Conversation::client("a").id, Conversation::client("b").id);
    }
}
