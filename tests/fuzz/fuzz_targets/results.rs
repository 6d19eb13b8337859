//! Whatever a tool answers. What must hold: `invariants::result`.
//!
//!     cargo install cargo-fuzz
//!     cargo +nightly fuzz run --fuzz-dir tests/fuzz results tests/fuzz/corpus/results tests/cases/fuzz/results -- -max_total_time=300
#![no_main]

use toolsieve_domain::domain;

#[path = "../invariants.rs"]
mod invariants;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| invariants::result(bytes));
