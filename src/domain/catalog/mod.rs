//! Tools: what servers list, and what is derived from it.

pub mod hidden_text;
pub mod definition;
pub(crate) mod hints;
pub mod naming;
pub(crate) mod products;
pub mod schema;
pub mod server_entry;
pub mod shape;
pub mod overlay;
pub mod texts;
pub mod tool;
pub(crate) mod shorten;
pub(crate) mod traits;
#[expect(clippy::module_inception, reason = "the module is named after its subject")]
pub mod catalog;
pub mod user_lists;
