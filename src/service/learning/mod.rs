//! Learning from use: remembers messages with the tools that helped, and lets them vote.

mod arguments;
mod co_uses;
pub(in crate::service) mod earlier;
mod memories;
mod qualities;
mod writer;
pub mod learn;
mod together;
pub mod shown;
