//! Learning from use: remembers messages with the tools that helped, and lets them vote.

mod call_words;
mod co_uses;
mod earlier_uses;
mod forgettings;
mod memories;
mod qualities;
mod writer;
pub(crate) mod open_message;
pub mod learn;
pub(in crate::service) mod together;
mod arguments;
pub(in crate::service) mod earlier;
pub mod shown;
pub(in crate::service) mod elsewhere;
