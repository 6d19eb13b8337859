//! The caller's context: principal, chat, listeners.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::domain::access::principal::Principal;
use crate::domain::records::conversation::{Conversation, ConversationKind};
use crate::service::ports::{Progress, Round, ServerMessage};

/// The caller of a request and its chat.
#[derive(Clone)]
pub(crate) struct CallerContext {
    pub principal: Arc<Principal>,
    pub headers: Arc<http::HeaderMap>,
    pub chat: Option<String>,
    /// The session of the address, or that of an MCP client.
    pub session: Option<Conversation>,
    pub selection: Option<String>,
}

impl CallerContext {
    /// The key of its usage. As for loaded tools, the address session comes first, then the chat, then the client's MCP session.
    pub(crate) fn conversation(&self) -> Option<Conversation> {
        let of_address = self.session.as_ref().filter(|session| session.kind == ConversationKind::Session);
        let chat = || self.chat.as_deref().map(Conversation::chat);
        of_address.cloned().or_else(chat).or_else(|| self.session.clone())
    }
}

/// Options of a call: the receivers of messages that the server sends during it, and the round.
#[derive(Default)]
pub(crate) struct CallOptions {
    pub progress: Option<mpsc::Sender<Progress>>,
    /// Receives questions and log messages.
    pub messages: Option<mpsc::Sender<ServerMessage>>,
    /// Set for a client that answers questions with another request.
    pub round: Option<Round>,
}
