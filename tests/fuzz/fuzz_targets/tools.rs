//! Whatever a server lists as its tools. What must hold: `invariants::tools`.
//!
//!     cargo install cargo-fuzz
//!     cargo +nightly fuzz run --fuzz-dir tests/fuzz tools tests/fuzz/corpus/tools tests/cases/fuzz/tools -- -max_total_time=300
#![no_main]
#![allow(dead_code, unreachable_pub, unused_imports, reason = "a part of the domain is used")]

#[path = "../../../src/domain/mod.rs"]
mod domain;
#[path = "../invariants.rs"]
mod invariants;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| invariants::tools(bytes));
