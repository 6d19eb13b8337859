//! Which toolsets a session, a chat or a client has loaded.

pub mod loading;
pub mod mode;
pub mod session;
