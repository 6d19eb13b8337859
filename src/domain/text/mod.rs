//! Words, JSON as text, fingerprints: what everything else is made of.

pub mod canonical;
pub mod json;
pub mod similar;
pub mod words;
pub mod analysis;
