//! Whatever a server sends as an input schema: it is compiled without a panic, in bounded size, to a valid schema that
//! is compiled to itself.
//!
//!     cargo install cargo-fuzz
//!     cargo +nightly fuzz run --fuzz-dir tests/fuzz schema -- -max_total_time=300
#![no_main]
#![allow(dead_code, unreachable_pub, unused_imports, reason = "a part of the domain is used")]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use serde_json::Value;

#[path = "../../../src/domain/mod.rs"]
mod domain;

use domain::schema::InputSchema;

/// No published form is longer, as JSON text.
const MAX_PUBLISHED: usize = 1_000_000;

fuzz_target!(|bytes: &[u8]| {
    let Ok(source) = serde_json::from_slice::<Value>(bytes) else { return };
    let schema = InputSchema::compile(Arc::new(source));
    assert_eq!(schema.published["type"], "object");
    assert!(schema.published["properties"].is_object());
    assert!(schema.published.to_string().len() < MAX_PUBLISHED);
    assert!(jsonschema::draft202012::meta::is_valid(&schema.published), "{}", schema.published);
    let again = InputSchema::compile(Arc::clone(&schema.published));
    assert_eq!(again.published, schema.published);
});
