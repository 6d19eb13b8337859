//! Keys, rules, limits and secrets of callers.

pub mod keys;
pub mod limits;
pub mod policies;
pub mod secrets;
pub mod wrong_keys;
