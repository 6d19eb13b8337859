//! Learning from use: remembers messages with the tools that helped, and lets them vote.

mod co_uses;
mod memories;
mod qualities;
mod writer;
pub mod learn;
mod together;
pub mod shown;
