//! The tools with which a model finds, describes and selects tools.

pub(crate) mod describe;
pub(crate) mod proposed;
pub(crate) mod find;
pub(crate) mod smart_select;
