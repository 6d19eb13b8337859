//! The toolsets loaded in a session, a chat or an MCP client.

pub mod loading;
pub mod mode;
pub mod session;
