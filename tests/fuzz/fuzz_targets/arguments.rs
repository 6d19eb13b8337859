//! Whatever arguments a caller sends for whatever schema. What must hold: `invariants::arguments`.
//!
//!     cargo install cargo-fuzz
//!     cargo +nightly fuzz run --fuzz-dir tests/fuzz arguments tests/fuzz/corpus/arguments tests/cases/fuzz/arguments -- -max_total_time=300
#![no_main]

use toolsieve_domain::domain;

#[path = "../invariants.rs"]
mod invariants;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| invariants::arguments(bytes));
