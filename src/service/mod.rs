//! The use cases: asynchronous, built on ports, independent of HTTP and of adapters.

pub mod ports;
pub(crate) mod spans;
pub(crate) mod caller;
pub(crate) mod paging;
pub(crate) mod supervision;
mod write_behind;
pub mod leading;
pub mod learning;
pub mod catalog;
pub mod records;
pub mod access;
pub(crate) mod servers;
pub(crate) mod cleaning;
pub(crate) mod execution;
pub mod publishing;
pub mod selection;
pub(crate) mod toolsets;
pub(crate) mod sharing;
pub(crate) mod mcp;
pub(crate) mod meta_tools;
