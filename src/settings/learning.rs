//! What is kept of messages to learn from.

use crate::settings::values::Reader;

/// Section `[learning]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LearningSettings {
    /// Whether the text of messages is kept beside their vectors.
    pub message_text: bool,
}

impl LearningSettings {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        Self { message_text: reader.switch("learning.message_text") }
    }
}
