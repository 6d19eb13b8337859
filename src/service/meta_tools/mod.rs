//! The tools with which a model finds, describes and selects tools.

pub mod describe;
pub mod find;
pub mod smart_select;
