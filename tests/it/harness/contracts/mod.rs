//! What every adapter behind a port must do. The tests of an adapter pass the contract of its port.

pub(crate) mod fixtures;
pub(crate) mod index;
pub(crate) mod store;
