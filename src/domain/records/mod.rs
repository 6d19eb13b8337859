//! Records: usage, conversations and their metrics, feedback.

pub mod conversation;
pub mod feedback;
pub mod session_figures;
pub mod usage;
