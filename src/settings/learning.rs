//! Which parts of messages are stored.

use crate::settings::values::Reader;

/// Section `[learning]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LearningSettings {
    /// Whether the text of messages is stored with the events.
    pub message_text: bool,
}

impl LearningSettings {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        Self { message_text: reader.switch("learning.message_text") }
    }
}
