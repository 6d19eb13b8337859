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
    /// Published names of tools that the model found, and that join the chat's tools. If set, the response contains definitions of the
    /// chat's tools that are not offered.
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

impl SelectRequest {
    /// Names of the functions that were called before the user's last message.
    pub(super) fn called_earlier(&self) -> impl Iterator<Item = &str> {
        self.turns[..self.last()].iter().flat_map(|turn| turn.called.iter().map(String::as_str))
    }

    /// Names of the functions that were called since then.
    pub(super) fn called_now(&self) -> impl Iterator<Item = &str> {
        self.turns[self.last()..].iter().flat_map(|turn| turn.called.iter().map(String::as_str))
    }

    /// The place of the user's last message.
    fn last(&self) -> usize {
        self.turns.iter().rposition(|turn| turn.role == Role::User).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::{Role, SelectRequest, Turn};

    /// Regression test: a call in the current turn changed the ranking, so that its next step lost its tool.
    #[test]
    fn calls_since_the_last_message_are_not_earlier_ones() {
        let turn = |role, called: &[&str]| Turn { role, called: called.iter().map(ToString::to_string).collect(), ..Turn::default() };
        let mut turns = vec![turn(Role::User, &[]), turn(Role::Assistant, &["one", "two"]), turn(Role::User, &[])];
        let earlier = |turns: &[Turn]| -> Vec<String> {
            let request = SelectRequest { turns: turns.to_vec(), ..SelectRequest::default() };
            request.called_earlier().map(str::to_owned).collect()
        };
        assert_eq!(earlier(&turns), ["one", "two"]);
        turns.extend([turn(Role::Assistant, &["three"]), turn(Role::Other, &[])]);
        assert_eq!(earlier(&turns), ["one", "two"]);
    }
}
