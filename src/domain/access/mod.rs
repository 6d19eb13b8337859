//! Callers and their permissions: principals, keys, secrets, toolsets, rules.

pub mod management;
pub mod authorization;
pub(crate) mod rate;
pub(crate) mod shared_rate;
pub mod switches;
pub(crate) mod signature;
pub(crate) mod subject_token;
pub mod toolset_name;
pub mod api_key;
pub mod visibility;
pub mod principal;
pub mod secret;
pub(crate) mod template;
pub mod rule;
pub mod toolset;
pub mod policy;
pub mod tool_facts;
pub(crate) mod user_token;
