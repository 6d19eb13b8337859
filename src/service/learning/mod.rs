//! Learning from use: remembers messages with the tools that helped, and lets them vote.

mod memories;
pub mod learn;
pub mod shown;
