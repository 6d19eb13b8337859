//! Which tools a message gets: ranking, judges, the chat's set.

mod breaker;
pub mod chats;
pub mod foreign;
pub mod judges;
pub mod message_selections;
mod offer;
pub mod offers;
pub(super) mod pinned;
mod rerank;
pub mod retrieve;
pub mod select;
