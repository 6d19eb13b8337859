//! The encoder without the service around it.

#![allow(dead_code, unused_imports, unused_macros, unreachable_pub, reason = "the service uses the rest")]

#[path = "../../src/adapters/embed/builtin/mod.rs"]
pub mod builtin;
#[path = "../../src/domain/text/named.rs"]
pub mod named;

pub mod domain {
    pub mod text {
        pub use crate::named;
    }
}
