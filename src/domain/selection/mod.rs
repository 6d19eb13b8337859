//! Selects tools for a message.

pub mod chat;
pub mod enrichment;
pub mod experiment;
pub mod intent;
pub mod judgement;
pub mod relevance;
#[expect(clippy::module_inception, reason = "the room is named after what it is about")]
pub mod selection;
