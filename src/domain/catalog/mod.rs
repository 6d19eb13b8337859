//! Tools: what servers list, and what is derived from it.

#[expect(clippy::module_inception, reason = "the module is named after its subject")]
pub mod catalog;
pub mod definition;
pub mod hidden_text;
pub(crate) mod hints;
pub mod naming;
pub mod overlay;
pub(crate) mod products;
pub mod schema;
pub mod server_entry;
pub mod shape;
pub(crate) mod shorten;
pub mod texts;
pub mod tool;
pub(crate) mod traits;
pub mod user_lists;
