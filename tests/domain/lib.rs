//! The domain without the service around it. It compiles because the domain depends on no other layer.

#![allow(dead_code, unused_imports, unreachable_pub, reason = "the service uses the rest")]

#[path = "../../src/domain/mod.rs"]
pub mod domain;
