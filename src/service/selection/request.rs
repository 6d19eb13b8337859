//! The request for a selection.

use std::collections::HashMap;
use std::sync::Arc;

use indexmap::IndexMap;

use crate::domain::selection::relevance::Role;
use crate::domain::toolsets::session::Session;
use crate::service::ports::Advisor;
use crate::settings::Rerank;

#[derive(Clone, Debug, Default)]
pub struct Turn {
    pub role: Role,
    pub text: String,
    /// Names of the functions that the assistant's turn called.
    pub called: Vec<String>,
}

/// An offered function: a name, or a complete definition.
#[derive(Clone, Debug)]
pub struct Offered {
    pub name: String,
    /// `Some` if it was sent as a definition.
    pub description: Option<String>,
}

/// The message and the offer.
#[derive(Clone, Debug, Default)]
pub struct SelectRequest {
    /// Oldest first.
    pub turns: Vec<Turn>,
    /// Our tool ids, with the path of the document that each publishes.
    pub connections: IndexMap<String, String>,
    pub tool_ids: Option<Vec<String>>,
    pub offered: Option<Arc<[Offered]>>,
    /// Published names that the model found. If set, the chat's tools that are not offered are disclosed; `None`: none are.
    pub disclose: Option<Vec<String>>,
    /// Published names to keep, if the caller may use them.
    pub keep: Vec<String>,
    /// Whether foreign definitions are judged too.
    pub narrow_foreign: bool,
    pub chat: Option<String>,
    pub message: Option<String>,
    pub model: Option<String>,
    pub limit: Option<usize>,
    pub token_budget: Option<usize>,
    pub rerank: Option<Rerank>,
    /// Language models on the user's own account.
    pub advisors: Vec<Advisor>,
    /// The caller's sessions among the connections, by path.
    pub sessions: HashMap<String, Arc<Session>>,
}
