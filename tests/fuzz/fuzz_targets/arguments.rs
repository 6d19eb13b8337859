//! Whatever arguments a caller sends for whatever schema. What must hold: `domain::fuzzing::arguments`.
//!
//!     cargo install cargo-fuzz
//!     cargo +nightly fuzz run --fuzz-dir tests/fuzz arguments tests/fuzz/corpus/arguments tests/cases/fuzz/arguments -- -max_total_time=300
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| toolsieve_domain::domain::fuzzing::arguments(bytes));
