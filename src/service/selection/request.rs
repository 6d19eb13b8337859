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
    /// Names of the functions that the assistant called in this turn.
    pub called: Vec<String>,
}

/// An offered function, either as a name or as a complete definition.
#[derive(Clone, Debug)]
pub struct Offered {
    pub name: String,
    /// The description; `None` if only the name was sent.
    pub description: Option<String>,
}

/// A request for a selection: the conversation and the offer.
#[derive(Clone, Debug, Default)]
pub struct SelectRequest {
    /// The turns of the conversation, oldest first.
    pub turns: Vec<Turn>,
    /// Our connections: their ids in Open WebUI, with the paths of their documents.
    pub connections: IndexMap<String, String>,
    pub tool_ids: Option<Vec<String>>,
    pub offered: Option<Arc<[Offered]>>,
    /// Published names of tools that the model found. If set, the response contains definitions of the chat's tools that are not
    /// offered.
    pub disclose: Option<Vec<String>>,
    /// Published names to keep, if the caller may use them.
    pub keep: Vec<String>,
    /// What the model searched for in this turn. Open WebUI's own tools that match it stay.
    pub searched: Vec<String>,
    /// Whether to judge foreign functions too, if their definitions were sent.
    pub narrow_foreign: bool,
    pub chat: Option<String>,
    pub message: Option<String>,
    pub model: Option<String>,
    pub limit: Option<usize>,
    pub token_budget: Option<usize>,
    pub rerank: Option<Rerank>,
    /// Language models that use the user's own keys.
    pub advisors: Vec<Advisor>,
    /// The caller's sessions to which connections lead, by path.
    pub sessions: HashMap<String, Arc<Session>>,
}
