//! Callers and their permissions: principals, keys, secrets, toolsets, rules.

pub mod management;
pub mod api_key;
pub mod authorization;
pub mod policy;
pub mod principal;
pub(crate) mod rate;
pub(crate) mod shared_rate;
pub mod secret;
pub mod switches;
pub(crate) mod signature;
pub(crate) mod subject_token;
pub(crate) mod template;
pub mod tool_facts;
pub mod toolset;
pub(crate) mod user_token;
pub mod visibility;
