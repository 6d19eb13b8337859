//! Learning: what use has taught, what it does for a message, the last replay, and how to forget it.

mod words;
mod scopes;
mod tools;
mod forget;
pub(super) mod page;
