//! Words, JSON as text, fingerprints: what everything else is made of.

pub mod analysis;
pub mod canonical;
pub mod json;
pub mod similar;
pub mod words;
