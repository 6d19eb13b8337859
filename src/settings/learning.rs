//! Section `[learning]`: which parts of messages are stored.

use crate::settings::values::section;

section! {
    /// Section `[learning]`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LearningSettings = read(reader) {
        /// Whether the text of messages is stored with the events.
        pub message_text: bool = reader.switch("learning.message_text"),
    }
}
