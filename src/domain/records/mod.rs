//! Records: usage, costs, conversations and their metrics, feedback.

pub mod conversation;
pub(crate) mod feedback;
pub(crate) mod usage;
pub mod costs;
pub(crate) mod conversation_figures;
