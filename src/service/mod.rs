//! The use cases: asynchronous, over ports, free of HTTP and of any adapter.

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
