//! The use cases: asynchronous, over ports, free of HTTP and of any adapter.

pub mod audit;
mod breaker;
pub mod chats;
pub mod current;
pub mod enrich;
pub mod execute;
pub mod files;
pub mod judges;
pub mod keys;
pub mod meta;
pub mod meta_tokens;
mod offer;
pub mod policies;
pub mod ports;
pub mod publish;
pub mod record;
pub mod refresh;
pub mod reload;
mod rerank;
pub mod retrieve;
pub mod secrets;
pub mod select;
pub mod smart_select;
pub mod status;
