//! One file per noun.

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
