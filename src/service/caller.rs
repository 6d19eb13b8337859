//! The caller's context: principal, chat, listeners.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::domain::access::principal::Principal;
use crate::domain::records::conversation::{Conversation, ConversationKind};
use crate::service::ports::{Progress, Round, Said};

/// Who calls, in which chat.
#[derive(Clone)]
pub struct Caller {
    pub principal: Arc<Principal>,
    pub headers: Arc<http::HeaderMap>,
    pub chat: Option<String>,
    /// The session of the address, or that of an MCP client.
    pub session: Option<Conversation>,
    pub selection: Option<String>,
}

impl Caller {
    /// What its figures are kept by: as with what is loaded, the session of an address goes before a chat, and that before the
    /// session of a client.
    #[must_use]
    pub fn conversation(&self) -> Option<Conversation> {
        let of_address = self.session.as_ref().filter(|session| session.kind == ConversationKind::Session);
        let chat = || self.chat.as_deref().map(Conversation::chat);
        of_address.cloned().or_else(chat).or_else(|| self.session.clone())
    }
}

/// Who hears what a server says while a call is under way.
#[derive(Default)]
pub struct Told {
    pub progress: Option<mpsc::Sender<Progress>>,
    /// Questions, and what the server notes down.
    pub said: Option<mpsc::Sender<Said>>,
    /// Of a client that answers questions with another request.
    pub round: Option<Round>,
}
