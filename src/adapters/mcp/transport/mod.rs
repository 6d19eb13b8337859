//! Transports for messages: stdio, streamable HTTP and SSE. Includes the OAuth tokens for HTTP.

pub(in crate::adapters::mcp) mod client;
pub(in crate::adapters::mcp) mod oauth;
pub(in crate::adapters::mcp) mod reopening;
pub(in crate::adapters::mcp) mod lines;
pub(in crate::adapters::mcp) mod events;
pub(in crate::adapters::mcp) mod stdio;
pub(in crate::adapters::mcp) mod param_headers;
pub(in crate::adapters::mcp) mod sending;
pub(in crate::adapters::mcp) mod http;
pub(in crate::adapters::mcp) mod sse;
