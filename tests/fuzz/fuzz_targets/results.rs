//! Whatever a tool answers. What must hold: `domain::fuzzing::result`.
//!
//!     cargo install cargo-fuzz
//!     cargo +nightly fuzz run --fuzz-dir tests/fuzz results tests/fuzz/corpus/results tests/cases/fuzz/results -- -max_total_time=300
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| toolsieve_domain::domain::fuzzing::result(bytes));
