//! Callers' keys, rules, limits, secrets and sign-ins.

pub mod keys;
pub(crate) mod connections;
pub(crate) mod rates;
pub(crate) mod limits;
pub(crate) mod policies;
pub(crate) mod secrets;
pub mod switches;
pub(crate) mod wrong_keys;
