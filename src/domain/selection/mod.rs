//! Selects tools for a message.

pub mod remembering;
pub mod builtins;
pub mod chat;
pub mod experiment;
pub(crate) mod intent;
pub(crate) mod judgement;
pub mod relevance;
pub mod enrichment;
pub mod explanation;
#[expect(clippy::module_inception, reason = "the module is named after its subject")]
pub mod selection;
