//! Texts of tools, and statistics over them.

mod summary;
mod tool_text;
pub(crate) mod findability;
pub(crate) mod near_duplicates;
pub(crate) mod vocabulary;

pub use near_duplicates::NearDuplicates;
pub use summary::summary;
pub use tool_text::ToolText;
pub use vocabulary::Vocabulary;
