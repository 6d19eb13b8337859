//! What a selection is made for.

use std::collections::HashMap;
use std::sync::Arc;

use indexmap::IndexMap;

use crate::domain::selection::relevance::Role;
use crate::domain::toolsets::session::Session;
use crate::service::ports::Advisor;
use crate::settings::Rerank;

/// A turn of the conversation.
#[derive(Clone, Debug, Default)]
pub struct Turn {
    pub role: TurnRole,
    pub text: String,
    /// Names of the functions that an assistant's turn called.
    pub called: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TurnRole {
    User,
    Assistant,
    /// System, tool, and what else there may be.
    #[default]
    Other,
}

/// A function on offer: a name, or a whole definition.
#[derive(Clone, Debug)]
pub struct Offered {
    pub name: String,
    /// `Some` if it came as a definition.
    pub description: Option<String>,
}

/// What to choose for, and from what.
#[derive(Clone, Debug, Default)]
pub struct SelectRequest {
    /// Oldest first.
    pub turns: Vec<Turn>,
    /// Our tool ids, with the path of the document that each publishes.
    pub connections: IndexMap<String, String>,
    pub tool_ids: Option<Vec<String>>,
    pub offered: Option<Arc<[Offered]>>,
    /// Published names that the model found. With them the chat's tools that are not on offer are disclosed; `None`: nothing is.
    pub disclose: Option<Vec<String>>,
    /// Published names that stay on offer, as far as the caller may use them.
    pub keep: Vec<String>,
    /// Whether foreign definitions are judged too.
    pub narrow_foreign: bool,
    pub user: Option<String>,
    pub chat: Option<String>,
    pub message: Option<String>,
    pub model: Option<String>,
    pub limit: Option<usize>,
    pub token_budget: Option<usize>,
    pub rerank: Option<Rerank>,
    /// Language models on the user's own account.
    pub advisors: Vec<Advisor>,
    /// The caller's sessions among the connections, by the path of each.
    pub sessions: HashMap<String, Arc<Session>>,
}

impl From<TurnRole> for Role {
    fn from(role: TurnRole) -> Self {
        match role {
            TurnRole::User => Self::User,
            TurnRole::Assistant => Self::Assistant,
            TurnRole::Other => Self::System,
        }
    }
}
