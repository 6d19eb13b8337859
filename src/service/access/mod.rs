//! Callers' keys, rules, limits, secrets and sign-ins.

pub(crate) mod connections;
pub mod keys;
pub(crate) mod rates;
pub(crate) mod limits;
pub(crate) mod policies;
pub(crate) mod secrets;
pub mod switches;
pub(crate) mod wrong_keys;
