//! The use cases: asynchronous, over ports, free of HTTP and of any adapter.

pub mod access;
pub mod caller;
pub mod catalog;
pub mod cleaning;
pub mod execution;
pub mod mcp;
pub mod meta_tools;
pub mod ports;
pub mod publishing;
pub mod records;
pub mod selection;
pub mod supervision;
pub mod toolsets;
