//! Selects tools for a message.

pub mod chat;
pub mod enrichment;
pub mod experiment;
pub mod intent;
pub mod judgement;
pub mod relevance;
#[expect(clippy::module_inception, reason = "the module is named after its subject")]
pub mod selection;
