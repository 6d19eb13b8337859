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

/// What a tool or a prompt leads to that a known server adds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NewDefinitions {
    /// It is published, and administrators are told.
    #[default]
    Flag,
    /// Nobody gets it until an administrator approves.
    Quarantine,
}

/// Section `[definitions]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DefinitionSettings {
    pub changes: DefinitionChanges,
    pub new: NewDefinitions,
}

impl DefinitionSettings {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        let (changes, new) = (DefinitionChanges::read(reader), NewDefinitions::read(reader));
        if changes == DefinitionChanges::Off && new == NewDefinitions::Quarantine {
            let remedy = "set definitions.changes to \"flag\" or \"quarantine\"";
            reader.problem("definitions.new", "what is not compared is never new", remedy);
        }
        Self { changes, new }
    }
}

impl NewDefinitions {
    fn read(reader: &mut Reader<'_>) -> Self {
        match reader.text("definitions.new").as_str() {
            "flag" => Self::Flag,
            "quarantine" => Self::Quarantine,
            _ => {
                reader.problem("definitions.new", "no such way", "write \"flag\" or \"quarantine\"");
                Self::default()
            }
        }
    }
}

impl DefinitionChanges {
    fn read(reader: &mut Reader<'_>) -> Self {
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
