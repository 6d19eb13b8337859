//! The documents, and what meta-tools cost in them.

pub mod meta_tokens;
pub mod publish;
