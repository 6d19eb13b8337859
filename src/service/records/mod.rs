//! Records: events, usage, audit log, feedback, metrics.

mod last_selections;
pub mod metrics;
pub mod report;
pub mod usage;
pub(super) mod write_behind;
pub mod audit;
pub mod record;
pub mod feedback;
pub mod prometheus;
