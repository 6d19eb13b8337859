//! The texts of tools, single and in aggregate.

mod tool_text;
pub mod twins;
pub mod vocabulary;

pub use tool_text::ToolText;
pub use twins::Twins;
pub use vocabulary::Vocabulary;
