//! Toolsets, loading, sessions.

pub(crate) mod loading;
pub(crate) mod sessions;
#[expect(clippy::module_inception, reason = "the room is named after what it is about")]
pub(crate) mod toolsets;
