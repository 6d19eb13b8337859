//! Whatever an MCP server writes while a call waits for its answer. What must hold: `toolsieve::adapters::mcp::fuzzing::exchange`.
//!
//!     cargo +nightly fuzz run --fuzz-dir tests/fuzz --features service exchange tests/fuzz/corpus/exchange tests/cases/fuzz/exchange -- -max_total_time=300
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| toolsieve::adapters::mcp::fuzzing::exchange(bytes));
