//! Learning from use: remembers messages with the tools that helped, and lets them vote.

mod call_words;
mod co_uses;
mod earlier_uses;
mod memories;
mod qualities;
mod writer;
pub mod learn;
mod together;
mod arguments;
pub(in crate::service) mod earlier;
pub mod shown;
