//! The routes, with one file per kind of resource.
#![expect(unreachable_pub, unused_qualifications, reason = "the route macros repeat visibility and paths on an inner function")]

pub(crate) mod context;
pub(crate) mod docs;
pub(crate) mod documents;
pub(crate) mod execute;
pub(crate) mod feedback;
pub(crate) mod files;
pub(crate) mod filter;
pub(crate) mod health;
pub(crate) mod admin;
pub(crate) mod metrics;
pub(crate) mod secrets;
pub(crate) mod sessions;
pub(crate) mod tools;
pub(crate) mod smart_select;
pub(crate) mod toolsets;
mod visit;
pub(crate) mod account;
pub(crate) mod connections;
