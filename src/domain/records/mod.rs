//! Records: usage, conversations and their metrics, feedback.

pub mod conversation;
pub(crate) mod feedback;
pub(crate) mod usage;
pub(crate) mod conversation_figures;
