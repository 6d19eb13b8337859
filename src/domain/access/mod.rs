//! Callers and their permissions: principals, keys, secrets, toolsets, rules.

pub mod api_key;
pub mod policy;
pub mod principal;
pub mod rate;
pub mod secret;
pub mod template;
pub mod tool_facts;
pub mod toolset;
pub mod user_token;
pub mod visibility;
