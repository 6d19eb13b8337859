//! Callers' keys, rules, limits and secrets.

pub mod keys;
pub mod limits;
pub mod policies;
pub mod secrets;
pub mod wrong_keys;
