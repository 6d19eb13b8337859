//! The routes, with one file per kind of resource.
#![expect(unreachable_pub, unused_qualifications, reason = "the route macros repeat visibility and paths on an inner function")]

pub mod admin;
pub mod docs;
pub mod documents;
pub mod execute;
pub mod feedback;
pub mod files;
pub mod filter;
pub mod health;
pub mod metrics;
pub mod secrets;
pub mod sessions;
pub mod smart_select;
pub mod tools;
pub mod toolsets;
