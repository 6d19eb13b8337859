//! The use cases: asynchronous, over ports, free of HTTP and of any adapter.

pub mod ports;
pub(crate) mod caller;
pub(crate) mod supervision;
pub mod catalog;
pub mod records;
pub mod access;
pub(crate) mod cleaning;
#[expect(unreachable_pub, reason = "its items are still `pub`")]
pub(crate) mod execution;
pub mod publishing;
pub mod selection;
pub(crate) mod toolsets;
pub(crate) mod mcp;
pub(crate) mod meta_tools;
