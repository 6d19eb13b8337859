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
    /// The message of the chat that is being answered.
    pub message: Option<String>,
    /// The address session or MCP session of the request.
    pub session: Option<Conversation>,
    pub selection: Option<String>,
}

impl CallerContext {
    /// The conversation to which usage is attributed. As for loaded tools, the address session takes precedence, then the chat,
    /// then the MCP session.
    pub(crate) fn conversation(&self) -> Option<Conversation> {
        let of_address = self.session.as_ref().filter(|session| session.kind == ConversationKind::Session);
        let chat = || self.chat.as_deref().map(Conversation::chat);
        of_address.cloned().or_else(chat).or_else(|| self.session.clone())
    }
}

/// Options of a call: receivers for messages from the server, and the round of a repeated request.
#[derive(Default)]
pub(crate) struct CallOptions {
    pub progress: Option<mpsc::Sender<Progress>>,
    /// Receives the server's requests (elicitation, sampling) and log messages.
    pub messages: Option<mpsc::Sender<ServerMessage>>,
    /// Set if the client answers server requests by repeating its own request.
    pub round: Option<Round>,
}
