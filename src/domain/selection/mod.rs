//! Selects tools for a message.

pub mod chat;
pub mod experiment;
pub mod intent;
pub mod judgement;
pub mod relevance;
pub mod enrichment;
#[expect(clippy::module_inception, reason = "the module is named after its subject")]
pub mod selection;
