//! The documents, and what meta-tools cost in them.

pub mod publish;
pub mod meta_tokens;
