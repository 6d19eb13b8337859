//! Whatever a server lists as its tools. What must hold: `invariants::tools`.
//!
//!     cargo install cargo-fuzz
//!     cargo +nightly fuzz run --fuzz-dir tests/fuzz tools tests/fuzz/corpus/tools tests/cases/fuzz/tools -- -max_total_time=300
#![no_main]

use toolsieve_domain::domain;

#[path = "../invariants.rs"]
mod invariants;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| invariants::tools(bytes));
