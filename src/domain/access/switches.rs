//! What a caller can switch off for itself.

use crate::domain::text::named::named;

named! {
    /// What a user or a named key can switch off for itself. It is on otherwise.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum UserSwitch {
        /// The selection of tools. Without it, every message gets all tools.
        Narrowing = "narrowing",
    }
}
