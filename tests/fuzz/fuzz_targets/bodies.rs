//! Whatever a caller sends to `/v1/filter`, as a search or as a call. What must hold: `toolsieve::http::fuzzing::bodies`.
//!
//!     cargo +nightly fuzz run --fuzz-dir tests/fuzz --features service bodies tests/fuzz/corpus/bodies tests/cases/fuzz/bodies -- -max_total_time=300
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| toolsieve::http::fuzzing::bodies(bytes));
