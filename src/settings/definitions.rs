//! What happens when a server changes a tool definition: section `[definitions]`.

use crate::domain::text::named::named;
use crate::settings::values::Reader;

named! {
    /// What happens to a definition that differs from its baseline.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum DefinitionChanges {
        /// No comparison.
        Off = "off",
        /// The tool stays published; admins see the change.
        #[default]
        Flag = "flag",
        /// The tool is hidden until an admin approves it.
        Quarantine = "quarantine",
    }

    /// What happens to a tool or prompt that a known server adds.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum NewDefinitions {
        /// It is published; admins see it as new.
        #[default]
        Flag = "flag",
        /// It is hidden until an admin approves it.
        Quarantine = "quarantine",
    }
}

/// Section `[definitions]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DefinitionSettings {
    pub changes: DefinitionChanges,
    pub new: NewDefinitions,
}

impl DefinitionSettings {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        let unknown = ("unknown mode", "write \"flag\", \"quarantine\" or \"off\"");
        let changes = reader.choice("definitions.changes", DefinitionChanges::of_name, unknown);
        let new = reader.choice("definitions.new", NewDefinitions::of_name, ("unknown mode", "write \"flag\" or \"quarantine\""));
        if changes == DefinitionChanges::Off && new == NewDefinitions::Quarantine {
            let remedy = "set definitions.changes to \"flag\" or \"quarantine\"";
            reader.problem("definitions.new", "has no effect: with definitions.changes \"off\" nothing is compared", remedy);
        }
        Self { changes, new }
    }
}
