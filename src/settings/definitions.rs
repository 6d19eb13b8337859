//! What happens when a server changes a tool definition: section `[definitions]`.

use crate::settings::values::Reader;

/// What happens to a definition that differs from its baseline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DefinitionChanges {
    /// No comparison.
    Off,
    /// The tool stays published; admins see the change.
    #[default]
    Flag,
    /// The tool is hidden until an admin approves it.
    Quarantine,
}

/// What happens to a tool or prompt that a known server adds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NewDefinitions {
    /// It is published; admins see it as new.
    #[default]
    Flag,
    /// It is hidden until an admin approves it.
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
            reader.problem("definitions.new", "has no effect: with definitions.changes \"off\" nothing is compared", remedy);
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
                reader.problem("definitions.new", "unknown mode", "write \"flag\" or \"quarantine\"");
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
                reader.problem("definitions.changes", "unknown mode", "write \"flag\", \"quarantine\" or \"off\"");
                Self::default()
            }
        }
    }
}
