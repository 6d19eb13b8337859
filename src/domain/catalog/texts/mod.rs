//! What the texts of tools say, alone and together.

mod tool_text;
pub mod twins;
pub mod vocabulary;

pub use tool_text::ToolText;
pub use twins::Twins;
pub use vocabulary::Vocabulary;
