//! The use cases: asynchronous, built on ports, independent of HTTP and of adapters.

pub mod ports;
pub mod caller;
pub mod supervision;
pub mod catalog;
pub mod records;
pub mod access;
pub mod cleaning;
pub mod execution;
pub mod publishing;
pub mod selection;
pub mod toolsets;
pub mod mcp;
pub mod meta_tools;
