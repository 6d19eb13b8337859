//! The published documents, and the token cost of meta-tools.

pub mod publish;
pub(crate) mod meta_tokens;
