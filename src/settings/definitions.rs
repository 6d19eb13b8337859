//! What happens when a server changes the definition of a tool: section `[definitions]`.

use crate::settings::values::Reader;

/// What a definition that differs from the one that was seen first leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DefinitionChanges {
    /// Nothing is held against anything.
    Off,
    /// The tool stays, and administrators are told.
    #[default]
    Flag,
    /// The tool is gone until an administrator approves.
    Quarantine,
}

impl DefinitionChanges {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        match reader.text("definitions.changes").as_str() {
            "off" => Self::Off,
            "flag" => Self::Flag,
            "quarantine" => Self::Quarantine,
            _ => {
                reader.problem("definitions.changes", "no such way", "write \"flag\", \"quarantine\" or \"off\"");
                Self::default()
            }
        }
    }
}
