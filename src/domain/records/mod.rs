//! What happened: usage, conversations and their figures, feedback.

pub mod conversation;
pub mod feedback;
pub mod usage;
pub mod session_figures;
