//! The published documents and their paths.

pub mod address;
pub mod document;
pub mod meta_tools;
pub(crate) mod layout;
pub(crate) mod mcpo;
