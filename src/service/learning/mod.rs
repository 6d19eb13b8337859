//! Learning from use: remembers messages with the tools that helped, and lets them vote.

mod co_uses;
pub mod learn;
mod memories;
mod qualities;
pub mod shown;
mod together;
mod writer;
