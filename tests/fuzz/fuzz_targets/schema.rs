//! Whatever a server sends as an input schema. What must hold: `domain::fuzzing::schema`.
//!
//!     cargo install cargo-fuzz
//!     cargo +nightly fuzz run --fuzz-dir tests/fuzz schema tests/fuzz/corpus/schema tests/cases/fuzz/schema -- -max_total_time=300
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| toolsieve_domain::domain::fuzzing::schema(bytes));
