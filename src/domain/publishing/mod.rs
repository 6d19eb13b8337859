//! The published documents and their paths.

pub mod document;
pub mod layout;
pub mod mcpo;
