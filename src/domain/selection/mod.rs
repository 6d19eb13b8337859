//! Which tools a message gets.

pub mod chat;
pub mod experiment;
pub mod intent;
pub mod judgement;
pub mod relevance;
pub mod enrichment;
#[expect(clippy::module_inception, reason = "the room is named after what it is about")]
pub mod selection;
