//! The context of a request: its caller, chat, message and session.

use std::sync::Arc;

use actix_web::{HttpMessage, HttpRequest};

use crate::domain::publishing::address::Address;
use crate::domain::records::conversation::Conversation;
use crate::http::caller::Caller;
use crate::http::problem::{Problem, plain};
use crate::service::caller;

/// Maximum length of the id of a chat or a selection.
pub(in crate::http) const MAX_ID_BYTES: usize = 256;
/// The header with the id of the message that Open WebUI is about to answer.
pub(in crate::http) const MESSAGE_ID: &str = "x-openwebui-message-id";

/// The caller's context for a call, from the request.
pub(in crate::http) fn context(caller: &Caller, request: &HttpRequest) -> caller::CallerContext {
    let header = |names: &[&str]| {
        names.iter().find_map(|name| {
            request.headers().get(*name)?.to_str().ok().filter(|value| !value.is_empty() && value.len() <= MAX_ID_BYTES).map(str::to_owned)
        })
    };
    caller::CallerContext {
        principal: Arc::clone(&caller.0),
        headers: Arc::new(http::HeaderMap::new()),
        chat: header(&["x-openwebui-chat-id", "x-session-id"]).filter(|id| is_kept(id)),
        message: header(&[MESSAGE_ID]),
        session: session(request),
        selection: header(&["x-toolsieve-selection-id"]),
    }
}

/// The session to whose address the request was sent.
fn session(request: &HttpRequest) -> Option<Conversation> {
    match request.extensions().get::<Arc<Address>>()?.as_ref() {
        Address::Session(session) => Some(Conversation::session(&session.id)),
        Address::Whole | Address::Toolset(_) => None,
    }
}

/// Checks the id of a chat in a request body.
pub(super) fn chat(id: Option<String>) -> Result<Option<String>, Problem> {
    match id {
        Some(id) if id.len() > MAX_ID_BYTES => Err(Problem::invalid("chat_id", format!("chat_id has at most {MAX_ID_BYTES} bytes."))),
        Some(id) => {
            plain("chat_id", &id)?;
            Ok(Some(id).filter(|id| !id.is_empty() && is_kept(id)))
        }
        None => Ok(None),
    }
}

/// Whether the chat is stored. Open WebUI marks unsaved chats by a prefix of their ids.
fn is_kept(chat: &str) -> bool {
    !["local:", "temporary:", "channel:"].iter().any(|prefix| chat.starts_with(prefix))
}
