//! Kinds of limits.

use crate::domain::text::named::named;

named! {
    /// The limit that rejected a request.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Limit {
        Calls = "calls",
        Selections = "selections",
        ServerCalls = "server_calls",
        ConcurrentCalls = "concurrent_calls",
    }
}
