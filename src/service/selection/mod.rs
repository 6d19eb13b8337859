//! Which tools a message gets: ranking, judges, the chat's set.

mod breaker;
pub mod chats;
pub mod foreign;
pub mod judges;
pub mod message_selections;
mod offer;
mod choose;
mod compose;
pub mod offers;
pub(super) mod pinned;
mod rerank;
pub mod request;
pub mod retrieve;
pub mod select;
