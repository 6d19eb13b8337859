//! All tests against the built crate, one binary.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests may panic and print")]

mod architecture;
mod arguments;
mod bench;
mod cli;
mod conformance;
mod deploy;
mod embedders;
mod encoder;
mod filter_api;
mod harness;
mod http_api;
mod index_contract;
mod index_embedded;
mod index_remote;
mod indexing;
mod keys;
mod leaks;
mod llm;
mod mcp_adapter;
mod mcp_face;
mod mcpo;
mod policy;
mod qdrant;
mod relevance;
mod reload;
mod results;
mod retrieval_quality;
mod search;
mod settings;
mod sqlite_store;
mod store_contract;
