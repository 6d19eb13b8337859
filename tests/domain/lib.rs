//! The domain without the service around it. It compiles because the domain depends on no other layer.

#![allow(dead_code, reason = "the service uses the rest")]

#[path = "../../src/domain/mod.rs"]
pub mod domain;
