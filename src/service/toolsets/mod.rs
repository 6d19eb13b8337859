//! Toolsets, loading, sessions.

pub mod loading;
pub mod sessions;
#[expect(clippy::module_inception, reason = "the room is named after what it is about")]
pub mod toolsets;
