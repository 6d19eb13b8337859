//! Text utilities: words, JSON as text, fingerprints.

pub(crate) mod named;
pub mod canonical;
pub mod json;
pub mod json_text;
pub(crate) mod short;
pub(crate) mod similar;
pub(crate) mod word_list;
pub(crate) mod negation;
pub(crate) mod words;
pub(crate) mod folding;
pub mod language;
pub(in crate::domain) mod names;
pub mod analysis;
pub mod glossary;
