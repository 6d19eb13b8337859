//! What happened is kept: events, usage, audit log, feedback, metrics.

pub mod audit;
pub mod feedback;
mod last_selections;
pub mod metrics;
pub mod prometheus;
pub mod record;
pub mod report;
pub mod usage;
pub(super) mod write_behind;
