//! Whatever a server sends as an input schema. What must hold: `invariants::schema`.
//!
//!     cargo install cargo-fuzz
//!     cargo +nightly fuzz run --fuzz-dir tests/fuzz schema tests/fuzz/corpus/schema tests/cases/fuzz/schema -- -max_total_time=300
#![no_main]

use toolsieve_domain::domain;

#[path = "../invariants.rs"]
mod invariants;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| invariants::schema(bytes));
