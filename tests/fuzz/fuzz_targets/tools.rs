//! Whatever a server lists as its tools. What must hold: `domain::fuzzing::tools`.
//!
//!     cargo install cargo-fuzz
//!     cargo +nightly fuzz run --fuzz-dir tests/fuzz tools tests/fuzz/corpus/tools tests/cases/fuzz/tools -- -max_total_time=300
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| toolsieve_domain::domain::fuzzing::tools(bytes));
