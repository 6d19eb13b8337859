//! Whatever an MCP client sends. What must hold: `toolsieve::http::fuzzing::messages`.
//!
//!     cargo +nightly fuzz run --fuzz-dir tests/fuzz --features service messages tests/fuzz/corpus/messages tests/cases/fuzz/messages -- -max_total_time=300
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| toolsieve::http::fuzzing::messages(bytes));
