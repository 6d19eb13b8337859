//! Callers' keys, rules, limits and secrets.

pub mod keys;
pub(crate) mod limits;
pub(crate) mod policies;
pub(crate) mod secrets;
pub(crate) mod wrong_keys;
