//! The core: pure, synchronous, no IO, no clock, no randomness.
//!
//! Everything here is a function of its arguments. It knows neither HTTP nor MCP's transport nor any database,
//! and depends on nothing else of this crate.

pub mod api_key;
pub mod arguments;
pub mod canonical;
pub mod catalog;
pub mod chat;
pub mod conversation;
pub mod definition;
pub mod diet;
pub mod document;
pub mod enrichment;
pub mod experiment;
pub mod feedback;
#[doc(hidden)]
pub mod fuzzing;
pub mod hidden_text;
pub mod installation;
pub mod intent;
pub mod json;
pub mod judgement;
pub mod layout;
pub mod loading;
pub mod mcpo;
pub mod naming;
pub mod outcome;
pub mod plot;
pub mod policy;
pub mod principal;
pub mod rate;
pub mod relevance;
pub mod schema;
pub mod secret;
pub mod selection;
pub mod session;
pub mod session_figures;
pub mod similar;
pub mod template;
pub mod tool;
pub mod tool_facts;
pub mod toolset;
pub mod usage;
pub mod user_token;
