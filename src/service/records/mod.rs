//! Records: events, usage, costs, audit log, feedback, metrics.

pub(super) mod last_selections;
mod spooling;
mod spooled_events;
pub mod metrics;
pub(crate) mod report;
pub(crate) mod activity;
pub mod usage;
pub(crate) mod costs;
pub(crate) mod audit;
pub(crate) mod record;
pub mod llm_costs;
pub(crate) mod feedback;
pub(crate) mod prometheus;
