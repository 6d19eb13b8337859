//! Records: usage, conversations and their metrics, feedback.

pub mod conversation;
pub mod feedback;
pub mod usage;
pub mod conversation_figures;
