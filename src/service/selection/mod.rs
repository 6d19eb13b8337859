//! Selects tools for a message: ranking, judges, the chat's set.

mod breaker;
pub mod chats;
pub mod foreign;
pub(crate) mod judges;
pub(crate) mod message_selections;
pub(super) mod pinned;
pub mod request;
mod builtins;
mod offer;
pub(crate) mod offers;
mod explain;
pub mod retrieve;
pub(crate) mod learned_again;
mod rerank;
mod choose;
mod compose;
pub mod select;
pub(crate) mod trial;
