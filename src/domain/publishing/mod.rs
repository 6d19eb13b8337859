//! The documents that clients read, and where things are in them.

pub mod document;
pub mod layout;
pub mod mcpo;
