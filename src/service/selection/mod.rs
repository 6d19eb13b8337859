//! Selects tools for a message: ranking, judges, the chat's set.

mod breaker;
pub mod chats;
pub mod foreign;
pub mod judges;
pub mod message_selections;
pub(super) mod pinned;
pub mod request;
mod offer;
pub mod offers;
pub mod retrieve;
mod rerank;
mod choose;
mod compose;
pub mod select;
