//! Section `[learning]`: which parts of messages are stored.

use crate::settings::values::Reader;

/// The settings in section `[learning]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LearningSettings {
    /// Whether to store the text of messages with the events.
    pub message_text: bool,
}

impl LearningSettings {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        Self { message_text: reader.switch("learning.message_text") }
    }
}
