//! Text utilities: words, JSON as text, fingerprints.

pub(crate) mod named;
pub mod canonical;
pub mod json;
pub mod similar;
pub mod words;
pub mod analysis;
