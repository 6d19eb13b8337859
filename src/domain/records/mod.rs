//! What happened: usage, conversations and their figures, feedback.

pub mod conversation;
pub mod feedback;
pub mod session_figures;
pub mod usage;
